//! Counts of greedy clients.

use std::sync::atomic::AtomicU64;

/// Counts of greedy clients.
#[derive(Debug, Default)]
pub struct AttackCounts {
    /// Connections made.
    pub connections: AtomicU64,
    /// Operations sent.
    pub sent: AtomicU64,
    /// Operations, messages or connections that were refused or ended.
    pub refused: AtomicU64,
}
