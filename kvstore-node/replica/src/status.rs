//! What a replica tells about itself, without changing.

use crate::input::{Configuration, Identity};
use crate::message::{Position, ReplicaAddress};
use crate::mutant::Mutant;
use crate::replica::{Replica, Role};
use archon_types::{Epoch, ErrorKind, Partition, PlacementId, ReplicaState, Seq, Version};

/// What a replica is doing, for status pages and for what the shell decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReplicaStatus {
    /// It follows or waits to be told whom to follow.
    Following,
    /// It pulls a copy.
    Copying,
    /// It leads and gets its followers to hold its log; it does not serve yet.
    TakingOver,
    /// It leads and serves.
    Serving,
    /// It leads and serves reads, and admits no writes, as it is about to give up the leadership.
    HandingOver,
    /// It led and gave it up.
    Released,
}

impl Replica {
    /// Who it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What it is doing.
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

    /// Whether a proposal would be accepted now; the shell asks before it evaluates an operation.
    ///
    /// # Errors
    /// Why not, as the client will see it. Every kind returned is retryable.
    pub fn admit(&self) -> Result<(), ErrorKind> {
        self.may_propose(0)
    }

    /// Its role in detail, for failing tests.
    #[cfg(test)]
    pub(crate) fn describe(&self) -> String {
        format!("{:?} {:?} {:?}", self.role, self.following, self.copying)
    }

    /// The highest epoch it obeys.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The version of the row it knows, zero before the first configuration.
    pub fn version(&self) -> Version {
        self.configuration.as_ref().map_or(Version::ZERO, |configuration| configuration.row.version)
    }

    /// The configuration it knows.
    pub fn configuration(&self) -> Option<&Configuration> {
        self.configuration.as_ref()
    }

    /// Whether this copy is Live for certain, with what a copy that it pulled brought: a row from before may arrive late
    /// and say so of what was thrown away. What the pages brought is then at or below [`Replica::last`].
    pub fn counts(&self) -> bool {
        let later = |row: &&Partition| row.version > self.copied_at || self.breaks(Mutant::CountsByOldRow);
        let row = self.configuration.as_ref().map(|configuration| &configuration.row).filter(later);
        self.copying.is_none()
            && row
                .and_then(|row| row.placement(self.identity.placement))
                .is_some_and(|own| own.state == ReplicaState::Live)
    }

    /// The position up to which everything is committed.
    pub fn commit(&self) -> Seq {
        self.commit
    }

    /// The end of its log.
    pub fn last(&self) -> Position {
        self.log.last()
    }

    /// Up to here its log is durable.
    pub fn durable(&self) -> Seq {
        self.log.durable()
    }

    /// The position before the first entry it could still send.
    pub fn base(&self) -> Position {
        self.log.base()
    }

    /// The full position of `seq`, if it is held (or is the base); what a copy is pinned at.
    pub fn position_at(&self, seq: Seq) -> Option<Position> {
        self.log.position_at(seq)
    }

    /// The place the next proposal will get, if this replica leads.
    pub fn next_position(&self) -> Option<Position> {
        match &self.role {
            Role::Lead(lead) => self.log.last().seq.next().map(|seq| Position::new(lead.epoch, seq)),
            Role::Follow | Role::Released { .. } => None,
        }
    }

    /// The leader it follows, if it heard from one in the present epoch.
    pub fn leader(&self) -> Option<ReplicaAddress> {
        self.following.as_ref().map(|following| following.leader)
    }

    /// Up to where another replica is known to hold this leader's log; for progress displays.
    pub fn held_by(&self, placement: PlacementId) -> Option<Seq> {
        match &self.role {
            Role::Lead(lead) => lead.followers.get(&placement).filter(|peer| peer.matched).map(|peer| peer.acked),
            Role::Follow | Role::Released { .. } => None,
        }
    }

    /// Whether [`crate::Input::Tick`] can have an effect: somebody owes an answer, or may need to be asked again.
    pub fn wants_ticks(&self) -> bool {
        match &self.role {
            Role::Follow => self.overtaken.is_some(),
            Role::Released { .. } => true,
            Role::Lead(lead) => {
                let waiting = lead.requests.is_asking() || lead.confirms.is_busy() || lead.withdrawn.is_some();
                waiting || !lead.followers.is_empty() || !lead.serving || self.online_unheard(lead)
            }
        }
    }
}
