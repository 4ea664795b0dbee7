//! Which clusters run beside each other.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURNS: RwLock<()> = RwLock::new(());

/// Held for as long as a cluster runs. Clusters mostly wait, so that each test thread may have one; where the bounds under test
/// are lease and failure time-outs, another one on the same cores would make it late, and it runs alone. Where some tests of a
/// program do, none has two clusters at once: its second turn would wait for somebody who waits for its first.
#[derive(Debug)]
pub(super) enum Turn {
    Beside(#[allow(dead_code)] RwLockReadGuard<'static, ()>),
    Alone(#[allow(dead_code)] RwLockWriteGuard<'static, ()>),
}

impl Turn {
    /// Waits for it. A test that failed while it had its turn has given it back.
    pub(super) fn take(alone: bool) -> Self {
        match alone {
            false => Self::Beside(TURNS.read().unwrap_or_else(PoisonError::into_inner)),
            true => Self::Alone(TURNS.write().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}
