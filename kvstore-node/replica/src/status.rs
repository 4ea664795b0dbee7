//! Read-only status of a replica.

use crate::input::{Configuration, Identity};
use crate::message::{Position, ReplicaAddress};
use crate::mutant::Mutant;
use crate::replica::{Replica, Role};
use archon_types::{Epoch, ErrorKind, Partition, PlacementId, ReplicaState, Seq, Version};

/// Activity of a replica, for status pages and for decisions of the shell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaStatus {
    /// Follows a leader, or does not know one yet.
    Following,
    /// Pulls a copy.
    Copying,
    /// Leads and makes its followers hold its log; does not serve yet.
    TakingOver,
    /// Leads and serves.
    Serving,
    /// Leads and serves reads, but admits no writes, because it is about to give up the leadership.
    HandingOver,
    /// Led and gave up the leadership.
    Released,
}

impl Replica {
    /// Returns its identity.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns its activity.
    pub fn status(&self) -> ReplicaStatus {
        match &self.role {
            Role::Follow if self.copying.is_some() => ReplicaStatus::Copying,
            Role::Follow => ReplicaStatus::Following,
            Role::Released { .. } => ReplicaStatus::Released,
            Role::Lead(lead) if !lead.serving => ReplicaStatus::TakingOver,
            Role::Lead(lead) if lead.is_ending() => ReplicaStatus::HandingOver,
            Role::Lead(_) => ReplicaStatus::Serving,
        }
    }

    /// Checks whether a proposal would be accepted now; the shell asks before it evaluates an operation.
    ///
    /// # Errors
    /// The reason, as the client will see it. Every kind returned is retryable.
    pub fn admit(&self) -> Result<(), ErrorKind> {
        self.may_propose(0)
    }

    /// Returns its role in detail, for failing tests.
    #[cfg(test)]
    pub(crate) fn describe(&self) -> String {
        format!("{:?} {:?} {:?}", self.role, self.following, self.copying)
    }

    /// Returns the highest epoch that it has accepted.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the version of the row that it knows, zero before the first configuration.
    pub fn version(&self) -> Version {
        self.configuration.as_ref().map_or(Version::ZERO, |configuration| configuration.row.version)
    }

    /// Returns the configuration it knows.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_ref()
    }

    /// Returns whether this copy is certainly Live with its present data: a row from before a pull may arrive late and
    /// refer to the discarded data. Rows of a pulled copy are then at or below [`Replica::last`].
    pub fn counts(&self) -> bool {
        let later = |row: &&Partition| row.version > self.copied_at || self.breaks(Mutant::CountsByOldRow);
        let row = self.configuration.as_ref().map(|configuration| &configuration.row).filter(later);
        self.copying.is_none()
            && row
                .and_then(|row| row.placement(self.identity.placement))
                .is_some_and(|own| own.state == ReplicaState::Live)
    }

    /// Returns the position up to which everything is committed.
    pub fn commit(&self) -> Seq {
        self.commit
    }

    /// Returns the end of its log.
    pub fn last(&self) -> Position {
        self.log.last()
    }

    /// Returns the position up to which its log is durable.
    pub fn durable(&self) -> Seq {
        self.log.durable()
    }

    /// Returns the position before the first entry it could still send.
    pub fn base(&self) -> Position {
        self.log.base()
    }

    /// Returns the full position of `seq`, if it is held (or is the base); copies are pinned at such a position.
    pub fn position_at(&self, seq: Seq) -> Option<Position> {
        self.log.position_at(seq)
    }

    /// Returns the position of the next proposal, if this replica leads.
    pub fn next_position(&self) -> Option<Position> {
        match &self.role {
            Role::Lead(lead) => self.log.last().seq.next().map(|seq| Position::new(lead.epoch, seq)),
            Role::Follow | Role::Released { .. } => None,
        }
    }

    /// Returns the leader it follows, if it received a message of one in the present epoch.
    pub fn leader(&self) -> Option<ReplicaAddress> {
        self.following.as_ref().map(|following| following.leader)
    }

    /// Returns the position up to which another replica is known to hold this leader's log; for progress displays.
    pub fn held_by(&self, placement: PlacementId) -> Option<Seq> {
        match &self.role {
            Role::Lead(lead) => lead.followers.get(&placement).filter(|peer| peer.matched).map(|peer| peer.acked),
            Role::Follow | Role::Released { .. } => None,
        }
    }

    /// Returns whether [`crate::Input::Tick`] can have an effect: a replica owes an answer, or a request may be due.
    pub fn wants_ticks(&self) -> bool {
        match &self.role {
            Role::Follow => self.overtaken.is_some(),
            Role::Released { .. } => true,
            Role::Lead(lead) => {
                let waiting = lead.requests.is_pending() || lead.confirms.is_busy() || lead.withdrawn.is_some();
                waiting || !lead.followers.is_empty() || !lead.serving || self.online_unheard(lead)
            }
        }
    }
}
