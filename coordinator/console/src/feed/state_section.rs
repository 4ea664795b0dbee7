//! Sections of the published state.

use serde::Serialize;
use std::sync::Arc;

/// A section of the state, as it is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StateSection {
    /// The section.
    pub(crate) section: &'static str,
    /// Its content in JSON.
    pub(crate) data: Arc<str>,
}

impl StateSection {
    pub(crate) fn new(section: &'static str, content: &impl Serialize) -> Self {
        // Our documents always convert to JSON.
        let data = serde_json::to_string(content).unwrap_or_else(|_| "null".to_owned());
        Self { section, data: data.into() }
    }
}
