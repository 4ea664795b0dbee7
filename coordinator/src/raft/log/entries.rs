//! Log space of a leader's entries on their way into this voter's log.

use super::log_space::{LogReservation, Purpose};
use crate::raft::machine::raft::Raft;
use crate::raft::types::{Entry, TypeConfig};
use openraft::EntryPayload;
use openraft::raft::AppendEntriesRequest;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Returns the purpose for which a leader's message needs space.
pub(in crate::raft) fn purpose(request: &AppendEntriesRequest<TypeConfig>) -> Option<Purpose> {
    let blank = |entry: &Entry| matches!(entry.payload, EntryPayload::Blank);
    match &request.entries[..] {
        [] => None,
        // Without the first entry of its term a leader could not confirm its leadership.
        entries if entries.iter().all(blank) => Some(Purpose::Leading),
        _ => Some(Purpose::Entries),
    }
}

/// Space that the entries of one stream hold, in order, until they are answered.
pub(in crate::raft) struct UnderWay {
    raft: Raft,
    held: Mutex<VecDeque<Option<LogReservation>>>,
}

impl UnderWay {
    /// Creates it without requests in flight.
    pub(in crate::raft) fn new(raft: Raft) -> Self {
        Self { raft, held: Mutex::default() }
    }

    /// Holds the space of the next request, which goes to openraft.
    pub(in crate::raft) fn hold(&self, admitted: Option<LogReservation>) {
        self.held.lock().push_back(admitted);
    }

    /// Releases the space of the first request in flight, which was answered.
    pub(in crate::raft) fn answered(&self) {
        drop(self.held.lock().pop_front());
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let left = std::mem::take(self.held.get_mut());
        // Requests without an answer may still be on their way through openraft, which handles one thing after the
        // other.
        if let (false, Ok(runtime)) = (left.is_empty(), tokio::runtime::Handle::try_current()) {
            let raft = self.raft.clone();
            runtime.spawn(async move {
                let _ = raft.with_raft_state(|_| ()).await;
                drop(left);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::types::{LogId, Vote};
    use archon_coordinator_core::{Actor, CommandBatch};
    use archon_types::Millis;
    use std::sync::Arc;

    #[test]
    fn first_entry_of_a_term_uses_reserved_space() {
        let at = |index| LogId { leader_id: 5.into(), index };
        let who = Actor::Coordinator(2);
        let batch = CommandBatch { request: None, at: Millis::ZERO, who, proposer: 2, term: 5, commands: Vec::new() };
        let blank = Entry { log_id: at(1), payload: EntryPayload::Blank };
        let change = Entry { log_id: at(2), payload: EntryPayload::Normal(Arc::new(batch)) };
        let asked = |entries: Vec<Entry>| {
            purpose(&AppendEntriesRequest {
                vote: Vote::new_committed(5, 2),
                prev_log_id: None,
                entries,
                leader_commit: None,
            })
        };
        assert_eq!(asked(Vec::new()), None, "a heartbeat");
        assert_eq!(asked(vec![blank.clone()]), Some(Purpose::Leading));
        assert_eq!(asked(vec![change.clone()]), Some(Purpose::Entries));
        assert_eq!(asked(vec![blank, change]), Some(Purpose::Entries));
    }
}
