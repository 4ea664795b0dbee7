//! Partial messages: bounds on their memory and their time.

use crate::FrameError;
use archon_types::{ErrorDetail, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Budget for partial messages from clients in a member of the cluster, in bytes; messages from other members have a
/// second budget of the same size.
pub const PARTIAL_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Bytes of a message that are not counted: one read from a connection.
const FREE_BYTES: usize = 64 * 1024;
/// Time limit for a message that does not arrive steadily.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a message that count as little.
const LITTLE_BYTES: usize = 256 * 1024;
/// Inverse of the share of the budget that is reserved for messages of which little has arrived.
const KEPT_PART: usize = 4;
/// Minimum progress within that time of a message that arrives steadily: 50 KiB each second.
const STEADY_BYTES: usize = 256 * 1024;

/// Budget of all readers of a process with unidentified senders: bytes of partial messages. No reader can take the last
/// of it: one that holds some gets more only if as much stays free for others as it holds, and a quarter is reserved
/// for those that hold little.
#[derive(Clone, Debug)]
pub struct PartialBudget(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    used: AtomicUsize,
    max: usize,
}

impl PartialBudget {
    /// Creates a budget of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Counts { used: AtomicUsize::new(0), max: bytes_max }))
    }

    /// Returns the bytes in use now.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Acquire)
    }

    fn try_take(&self, bytes: usize, left: usize) -> bool {
        let enough = |used: usize| used.checked_add(bytes)?.checked_add(left).filter(|sum| *sum <= self.0.max);
        let taken = |used: usize| enough(used).map(|_| used + bytes);
        self.0.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).is_ok()
    }
}

/// Partial message of one reader.
#[derive(Debug)]
pub struct PartialMessage {
    budget: PartialBudget,
    held: usize,
    /// Deadline for further progress, and the bytes received before it was set.
    until: Option<(Instant, usize)>,
}

impl PartialMessage {
    /// Creates the state of a reader without a partial message.
    pub const fn new(budget: PartialBudget) -> Self {
        Self { budget, held: 0, until: None }
    }

    /// Releases the budget: the message is complete.
    pub fn whole(&mut self) {
        self.until = None;
        if self.held > 0 {
            self.budget.0.used.fetch_sub(self.held, Ordering::AcqRel);
            self.held = 0;
        }
    }

    /// Reserves the budget for `bytes` bytes of a message.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if there is no room.
    pub fn hold(&mut self, bytes: usize) -> Result<(), FrameError> {
        let wanted = bytes.saturating_sub(FREE_BYTES);
        if wanted <= self.held {
            return Ok(());
        }
        let kept = if wanted <= LITTLE_BYTES { 0 } else { self.budget.0.max / KEPT_PART };
        if !self.budget.try_take(wanted - self.held, self.held.max(kept)) {
            let why = format!(
                "{} bytes of messages that have not arrived whole are here already; for this one, of which {bytes} came, there is no room",
                self.budget.used()
            );
            return Err(FrameError::Refused(ErrorDetail::new(ErrorKind::Overloaded, why).with_retry_after_ms(100)));
        }
        self.held = wanted;
        Ok(())
    }

    /// Returns the deadline by which more than `received` bytes must have arrived.
    pub fn until(&mut self, received: usize) -> Instant {
        self.until.get_or_insert_with(|| (Instant::now() + TIMEOUT, received)).0
    }

    /// Checks the progress at the deadline.
    ///
    /// # Errors
    /// [`FrameError::Incomplete`] if too little arrived.
    pub fn late(&mut self, received: usize) -> Result<(), FrameError> {
        match self.until.take() {
            Some((_, before)) if received.saturating_sub(before) < STEADY_BYTES => Err(FrameError::Incomplete(TIMEOUT)),
            _ => Ok(()),
        }
    }
}

impl Drop for PartialMessage {
    fn drop(&mut self) {
        self.whole();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_messages_share_a_budget_with_a_reserved_part() {
        let budget = PartialBudget::new(32 * 1024 * 1024);
        let mut partials: Vec<_> = (0..20).map(|_| PartialMessage::new(budget.clone())).collect();
        let mut refused = 0;
        for partial in &mut partials {
            let mut bytes = 0;
            while partial.hold(bytes).is_ok() {
                bytes += 16 * 1024;
            }
            refused += 1;
        }
        assert_eq!(refused, 20);
        assert!(budget.used() <= 32 * 1024 * 1024);
        let mut other = PartialMessage::new(budget.clone());
        assert!(other.hold(LITTLE_BYTES).is_ok(), "one who has none finds room: {} are used", budget.used());
        drop((partials, other));
        assert_eq!(budget.used(), 0);
    }
}
