//! Requests of a connection that wait for `EXEC`, and the keys that it watches.

use super::refusal::Refusal;
use super::workspace::Workspace;
use archon_types::transaction::TRANSACTION_KEYS_MAX;
use archon_types::{PartitionId, Revision};
use bytes::Bytes;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Most commands of a transaction.
pub(super) const COMMANDS_MAX: usize = 512;
/// Most bytes of their arguments, and of the watched keys.
const BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes that a connection may hold for any time.
const FREE_BYTES: usize = 64 * 1024;
/// Longest time for which it holds more.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Cost of an argument beside its bytes.
pub(super) const ARGUMENT_BYTES: usize = 64;
/// Most watched keys.
pub(super) const WATCHED_MAX: usize = TRANSACTION_KEYS_MAX / 2;

/// Commands that wait for `EXEC`.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) commands: Vec<Vec<Bytes>>,
    pub(super) keys: BTreeSet<Bytes>,
    /// One of them was refused, so none will be executed.
    pub(super) is_refused: bool,
}

/// Transaction of a connection.
#[derive(Default)]
pub(super) struct TransactionState {
    pub(super) queue: Option<Queue>,
    /// Watched keys with the revisions that they had.
    pub(super) watched: Vec<(Bytes, Revision)>,
    /// Partition of the watched keys, with the number of its table: revisions begin again in a table that was dropped and
    /// created again.
    pub(super) watched_in: Option<PartitionId>,
    /// Partition of the transaction that is executed.
    pub(super) partition: Option<PartitionId>,
    /// Bytes of the queue and of the watched keys.
    bytes: usize,
    /// The first of them.
    since: Option<Instant>,
    /// The keys on which the commands of a transaction operate now.
    pub(super) workspace: Option<Workspace>,
}

impl TransactionState {
    pub(super) const fn new() -> Self {
        Self {
            queue: None,
            watched: Vec::new(),
            watched_in: None,
            partition: None,
            bytes: 0,
            since: None,
            workspace: None,
        }
    }

    /// Returns whether requests are queued, so that their order matters to each other.
    pub(super) const fn is_open(&self) -> bool {
        self.queue.is_some()
    }

    /// Returns the bytes that it holds.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns when the connection is closed, unless the transaction ends before: others need the memory, too.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since.filter(|_| self.bytes > FREE_BYTES).map(|since| since + TIMEOUT)
    }

    /// Notes that a request was refused while requests were queued.
    pub(super) const fn refuse(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.is_refused = true;
        }
    }

    /// Counts bytes of arguments or watched keys.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), Refusal> {
        if self.bytes + bytes > BYTES_MAX {
            return Err(Refusal::new(format!(
                "ERR the transaction has more than {BYTES_MAX} bytes of arguments and watched keys; nothing was changed"
            )));
        }
        self.bytes += bytes;
        self.since.get_or_insert_with(Instant::now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn large_transaction_has_a_deadline() {
        let mut transaction = TransactionState::new();
        let begun = Instant::now();
        transaction.hold(FREE_BYTES).unwrap();
        assert_eq!(transaction.deadline(), None);
        tokio::time::advance(TIMEOUT / 2).await;
        transaction.hold(1).unwrap();
        assert_eq!(transaction.deadline(), Some(begun + TIMEOUT), "counted from its begin");
        assert!(transaction.hold(BYTES_MAX).is_err());
        assert_eq!(transaction.bytes(), FREE_BYTES + 1);
    }
}
