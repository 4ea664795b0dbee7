//! Operations that wait for a leadership to settle, instead of being sent away to ask again: at the node that is about to
//! lead until it serves, at the node that gave the leadership up until it can say who leads now.

use super::slot::Slot;
use super::{Env, OpRequest};
use archon_replica::Standing;

/// Most operations that wait for one partition's leadership; more are refused, retryably.
pub(super) const PARKED_MAX: usize = 1_024;
/// Longest wait, in milliseconds; then an operation is answered by whatever is true.
const PARKED_MS_MAX: u64 = 1_000;
/// How long an operation waits for the push of a table that its client has already seen, in milliseconds.
const BEHIND_MS_MAX: u64 = 200;

impl Env {
    /// Keeps an operation if it will soon be clear who answers it; gives it back if it is to be answered now.
    pub(super) fn park(&self, slot: &mut Slot, mut request: OpRequest) -> Option<OpRequest> {
        let waited_ms = request.parked_at.map_or(0, |since| self.now.since(since));
        let patience_ms = match slot.replica.standing() {
            _ if slot.aside || self.context.shared.is_stopping() => 0,
            Standing::TakingOver => PARKED_MS_MAX,
            Standing::HandingOver if !request.op.is_read() => PARKED_MS_MAX,
            // The row is an older one than the release, or nobody has been named yet.
            Standing::Released if slot.copy().is_unsettled() => PARKED_MS_MAX,
            // The client followed a newer table to this node than the node has been told.
            Standing::Following if request.known > self.context.shared.tables.version() => BEHIND_MS_MAX,
            Standing::Following
            | Standing::Copying
            | Standing::Serving
            | Standing::HandingOver
            | Standing::Released => 0,
        };
        if waited_ms >= patience_ms || slot.waiting.parked() >= PARKED_MAX {
            return Some(request);
        }
        request.parked_at.get_or_insert(self.now);
        slot.waiting.park(request);
        None
    }

    /// Looks again, in the next turn, at the operations that wait.
    pub(super) fn unpark(&mut self, slot: &mut Slot) {
        self.unparked.extend(slot.waiting.unpark());
    }
}
