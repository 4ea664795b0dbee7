//! First start of a coordinator with a new data directory: founds a quorum, or joins one.

mod founding;
mod joining;

pub(crate) use founding::{Founding, found};
pub(crate) use joining::{JoinAnswer, Newcomer, join};

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// The reason for which a coordinator does not take part yet, as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitReason(Arc<Mutex<String>>);

impl WaitReason {
    fn set(&self, what: String) {
        *self.0.lock() = what;
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.lock().as_str() {
            "" => f.write_str("it asks its peers whom they know"),
            what => f.write_str(what),
        }
    }
}
