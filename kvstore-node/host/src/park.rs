//! Operations that wait for a leadership to settle, instead of being sent away to ask again: at the node that is about to
//! lead until it serves, at the node that gave the leadership up until it can say who leads now. Writes for which there is no room
//! wait as well, in the order in which they came: whoever is sent away may find that others were quicker each time it comes back.

use crate::local_copy::LocalCopy;
use crate::request::{Reply as _, Request, WaitsFor};
use crate::shell::{Observed, Shell};
use crate::turn::Turn;
use archon_replica::ReplicaStatus;

/// How long operations wait, and how many.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParkLimits {
    /// Longest wait for a leadership to settle, in milliseconds; then an operation is answered by whatever is true.
    pub settle_ms: u64,
    /// How long an operation waits for the push of a table that its client has already seen, in milliseconds.
    pub behind_ms: u64,
    /// How long a new client's operation waits until a new leader has read whom its partition remembers, in milliseconds.
    pub reading_ms: u64,
    /// How long a write waits for room: until the engine, the log or followers have taken what is before it, in milliseconds.
    pub room_ms: u64,
    /// How much gathers of one partition while what gathered before is on its way to the engine, in bytes. The more, the longer
    /// everybody waits for the engine once there is room for nothing more: it lets go of all of it at once.
    pub gathered_bytes_max: usize,
    /// Most operations that wait at one partition; more are refused, retryably.
    pub parked_max: usize,
}

impl Default for ParkLimits {
    fn default() -> Self {
        Self {
            settle_ms: 1_000,
            behind_ms: 200,
            reading_ms: 1_000,
            room_ms: 2_000,
            gathered_bytes_max: 32 * 1024 * 1024,
            parked_max: 1_024,
        }
    }
}

impl<S: Shell> Turn<S> {
    /// Keeps an operation if it will soon be clear who answers it; gives it back if it is to be answered now.
    pub(crate) fn park(&mut self, local: &mut LocalCopy<S>, request: Request<S::Reply>) -> Option<Request<S::Reply>> {
        let wait_ms = match local.replica.status() {
            _ if local.set_aside || self.shell.is_stopping() => 0,
            ReplicaStatus::TakingOver => self.park_limits.settle_ms,
            ReplicaStatus::HandingOver if !request.op.is_read() => self.park_limits.settle_ms,
            // The row is an older one than the release, or nobody has been named yet.
            ReplicaStatus::Released if local.view().is_unsettled() => self.park_limits.settle_ms,
            // The client followed a newer table to this node than the node has been told.
            ReplicaStatus::Following if request.known > self.shell.tables_version() => self.park_limits.behind_ms,
            ReplicaStatus::Following
            | ReplicaStatus::Copying
            | ReplicaStatus::Serving
            | ReplicaStatus::HandingOver
            | ReplicaStatus::Released => 0,
        };
        self.park_for(local, request, wait_ms, WaitsFor::Leadership)
    }

    /// Keeps an operation until it has waited for so long in all; gives it back if it has, or if too many wait.
    pub(crate) fn park_for(
        &mut self,
        local: &mut LocalCopy<S>,
        mut request: Request<S::Reply>,
        wait_ms: u64,
        waits_for: WaitsFor,
    ) -> Option<Request<S::Reply>> {
        let waited_ms = request.parked_at.map_or(0, |since| self.now.since(since));
        if waited_ms >= wait_ms || local.waiting.parked() >= self.park_limits.parked_max {
            return Some(request);
        }
        request.parked_at.get_or_insert(self.now);
        request.reply.waits(waits_for);
        self.shell.observe(local.at(), Observed::Parked);
        local.waiting.park(request);
        None
    }

    /// Looks again, in the next turn, at the operations that wait.
    pub(crate) fn unpark(&mut self, local: &mut LocalCopy<S>) {
        self.unparked.extend(local.waiting.unpark());
    }
}
