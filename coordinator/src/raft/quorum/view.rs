//! The quorum as one coordinator sees it.

use super::Quorum;
use crate::raft::quorum::voter_view::{QuorumView, VoterView};
use archon_types::CoordinatorRole;
use openraft::async_runtime::WatchReceiver as _;
use openraft::{Instant as _, ServerState};
use std::collections::BTreeSet;
use std::time::Duration;

impl Quorum {
    /// Returns Raft's state in this coordinator's view.
    pub(crate) fn view(&self) -> QuorumView {
        // The borrow is short: holding it would freeze the core.
        let metrics = self.raft.metrics().borrow_watched().clone();
        let role = |state: ServerState| match state {
            ServerState::Leader => CoordinatorRole::Leader,
            ServerState::Candidate => CoordinatorRole::Candidate,
            _ => CoordinatorRole::Follower,
        };
        let last_log_index = metrics.last_log_index.unwrap_or(0);
        let leads = metrics.state == ServerState::Leader;
        let members = &metrics.membership_config;
        let votes: BTreeSet<u64> = members.voter_ids().collect();
        let silence = self.timing().silence(Duration::from_secs(1));
        let (addresses, mut missing) = (self.recorded_addresses(), self.missing());
        let voters = addresses.iter().map(|(id, address)| {
            // Before the log names members, the founders count.
            let voter = votes.is_empty() || votes.contains(id);
            let matched = metrics.replication.as_ref().and_then(|all| all.get(id)).copied().flatten();
            let heard = metrics.heartbeat.as_ref().and_then(|all| all.get(id)).copied().flatten();
            let behind = matched.map(|matched| last_log_index.saturating_sub(matched.index));
            let silent = heard.is_none_or(|heard| heard.elapsed() > silence);
            let role = match () {
                () if *id == self.local_voter.id && voter => role(metrics.state),
                () if metrics.current_leader == Some(*id) => CoordinatorRole::Leader,
                () if leads && silent && *id != self.local_voter.id => CoordinatorRole::Unreachable,
                () if !voter => CoordinatorRole::Learner,
                () => CoordinatorRole::Follower,
            };
            let behind = if *id == self.local_voter.id { leads.then_some(0) } else { behind };
            let lack = match () {
                () if *id == self.local_voter.id => self.space.lack(),
                () if leads && !silent => self.voter_reports.lack(*id),
                () => None,
            };
            let snapshot_waits = match () {
                () if *id == self.local_voter.id => self.replicated().snapshot_waits(),
                () => leads && !silent && self.voter_reports.snapshot_waits(*id),
            };
            let certificate = self.voter_reports.certificate(*id).filter(|_| leads && !silent);
            let speaks = match () {
                () if *id == self.local_voter.id => Some(self.local_voter.spoken.range()),
                () if leads && !silent => self.voter_reports.speaks(*id),
                () => None,
            };
            let refusal = || self.voter_reports.refusal(*id).filter(|_| leads && silent);
            let refusal = || refusal().map(|why| format!("coordinator {id} does not answer at {address}: {why}"));
            VoterView {
                id: *id,
                address: address.clone(),
                too_far: self.distances.too_far(*id),
                missing: missing.remove(id).or_else(refusal),
                role,
                voter,
                entries_behind: behind,
                lack,
                snapshot_waits,
                certificate,
                speaks,
            }
        });
        QuorumView {
            id: self.local_voter.id,
            role: role(metrics.state),
            leader: metrics.current_leader,
            term: metrics.current_term,
            last_log_index,
            applied_index: metrics.last_applied.map_or(0, |id| id.index),
            voters: voters.collect(),
            fatal: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }
}
