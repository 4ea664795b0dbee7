//! Parked operations: they wait for a leadership to settle instead of being refused, at the next leader until it
//! serves, and at the previous one until it knows the next. Writes without room wait as well, in order of arrival: a
//! refused client may find on each retry that others were faster.

use crate::copies::local_copy::LocalCopy;
use crate::operations::request::{Reply as _, Request, WaitsFor};
use crate::shell::{CopyEvent, Shell};
use crate::turn::Turn;
use archon_replica::ReplicaStatus;

impl<S: Shell> Turn<S> {
    /// Parks an operation if its leader will soon be known; returns it if it has to be answered now.
    pub(crate) fn park(&mut self, local: &mut LocalCopy<S>, request: Request<S::Reply>) -> Option<Request<S::Reply>> {
        let wait_ms = match local.replica.status() {
            _ if local.set_aside || self.shell.is_stopping() => 0,
            ReplicaStatus::TakingOver => self.park_limits.settle_ms,
            ReplicaStatus::HandingOver if !request.op.is_read() => self.park_limits.settle_ms,
            // The row is older than the release, or no leader is named yet.
            ReplicaStatus::Released if local.view().is_unsettled() => self.park_limits.settle_ms,
            // The client follows a newer table than this node has.
            ReplicaStatus::Following if request.known > self.shell.tables_version() => self.park_limits.behind_ms,
            ReplicaStatus::Following
            | ReplicaStatus::Copying
            | ReplicaStatus::Serving
            | ReplicaStatus::HandingOver
            | ReplicaStatus::Released => 0,
        };
        self.park_for(local, request, wait_ms, WaitsFor::Leadership)
    }

    /// Parks an operation until it has waited `wait_ms` in total; returns it if it has, or if too many are parked.
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
        self.shell.observe(local.at(), CopyEvent::Parked);
        local.waiting.park(request);
        None
    }

    /// Retries the parked operations in the next turn.
    pub(crate) fn unpark(&mut self, local: &mut LocalCopy<S>) {
        self.unparked.extend(local.waiting.unpark());
    }
}
