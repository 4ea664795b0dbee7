//! Transfer of leadership between coordinators.

use super::{LOOK_INTERVAL, Quorum};
use crate::raft::quorum::voter_view::{QuorumView, VoterView};
use archon_coordinator_core::CATCH_UP_ENTRIES;
use archon_types::{CoordinatorRole, ErrorDetail, ErrorKind};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum time for a leader to give way.
pub(crate) const TRANSFER_DEADLINE: Duration = Duration::from_secs(2);

impl Quorum {
    /// Returns true if another coordinator with space could take over from this one, which has none.
    pub(in crate::raft) fn should_give_way(&self) -> bool {
        if self.space.lack().is_none() || self.leading_term().is_none() {
            return false;
        }
        let voters = self.view().voters;
        let able = |voter: &VoterView| {
            let near = voter.entries_behind.is_some_and(|behind| behind <= CATCH_UP_ENTRIES);
            voter.voter && voter.id != self.local_voter.id && near && voter.lack.is_none() && !voter.is_away()
        };
        voters.iter().any(able)
    }

    /// Hands leadership to the voter nearest to the end of the log, if this coordinator leads and one has all of it; to
    /// a voter without space on its disk only if no other can have it. Returns true if another one took over within
    /// [`TRANSFER_DEADLINE`].
    pub(crate) async fn give_way(&self) -> bool {
        let voters = self.view().voters.into_iter().filter(|voter| voter.voter);
        self.give_way_to(&voters.map(|voter| voter.id).collect()).await
    }

    /// As [`Quorum::give_way`], to one of these voters.
    pub(super) async fn give_way_to(&self, among: &BTreeSet<u64>) -> bool {
        let Some(term) = self.leading_term() else { return true };
        let view = self.view();
        let able = view
            .voters
            .iter()
            .filter(|voter| among.contains(&voter.id) && voter.id != self.local_voter.id)
            .filter(|voter| voter.role == CoordinatorRole::Follower);
        let able = able.filter_map(|voter| Some((voter.lack.is_some(), voter.entries_behind?, voter.id)));
        let Some((_, _, next)) = able.filter(|(_, behind, _)| *behind <= CATCH_UP_ENTRIES).min() else { return false };
        if let Err(error) = self.raft.trigger().transfer_leader(next).await {
            tracing::warn!(%error, "leadership could not be handed over");
            return false;
        }
        tracing::info!(to = next, term, "handing leadership over");
        let waited = tokio::time::timeout(TRANSFER_DEADLINE, async {
            while self.leader().is_none_or(|leader| leader == self.local_voter.id) {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        });
        waited.await.is_ok()
    }

    /// Checks that this voter could lead now.
    ///
    /// # Errors
    /// Reason for which it cannot.
    pub(in crate::raft) fn may_lead(&self, view: &QuorumView, id: u64) -> Result<(), ErrorDetail> {
        let refuse = |kind, why: String| Err(ErrorDetail::new(kind, why));
        match view.voters.iter().find(|voter| voter.id == id) {
            None => refuse(ErrorKind::NotFound, format!("coordinator {id} does not exist")),
            Some(voter) if !voter.voter => {
                refuse(ErrorKind::Refused, format!("coordinator {id} is a learner: promote it first"))
            }
            Some(voter) if voter.is_away() => {
                refuse(ErrorKind::Refused, format!("coordinator {id} does not answer; start it first"))
            }
            Some(voter) => match voter.entries_behind {
                Some(behind) if behind <= CATCH_UP_ENTRIES => Ok(()),
                _ => refuse(
                    ErrorKind::Refused,
                    format!("coordinator {id} has not caught up with the log; try again in a moment"),
                ),
            },
        }
    }

    /// Returns the error for a failed transfer of leadership.
    pub(super) fn nobody_took_over(&self, to: Option<u64>) -> ErrorDetail {
        let whom = to.map_or_else(|| "no other coordinator has".to_owned(), |to| format!("coordinator {to} has not"));
        let message =
            format!("{whom} taken the lead within {} s; see `archon quorum list`", TRANSFER_DEADLINE.as_secs());
        ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(500)
    }

    /// Makes another voter lead: `to` if given, otherwise the one nearest to the end of the log.
    ///
    /// # Errors
    /// It is no voter, does not answer or lags behind; retryable if it did not take over in time, or another one did.
    pub(crate) async fn transfer_lead(&self, to: Option<u64>) -> Result<(), ErrorDetail> {
        let taken = match to {
            Some(to) => {
                self.may_lead(&self.view(), to)?;
                self.give_way_to(&BTreeSet::from([to])).await
            }
            None => self.give_way().await,
        };
        // A voter that lacks the last entry does not accept, and the fastest candidate wins.
        let by_whom = self.view().leader;
        if taken && to.is_none_or(|to| by_whom == Some(to)) { Ok(()) } else { Err(self.nobody_took_over(to)) }
    }
}
