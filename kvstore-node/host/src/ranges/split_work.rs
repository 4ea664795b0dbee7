//! Split state of a copy, and the copy of the new partition that its node forms.

use archon_kv::Seal;
use archon_replica::Position;
use archon_types::{Fact, Incarnation, KeyRange, Millis, PartitionId, PlacementId, RightStage, Version};

/// Split state of a copy.
#[derive(Debug, Default)]
pub(crate) struct SplitWork {
    /// Seal in the whole log, uncommitted entries included, while it serves.
    pub(crate) seal: Option<Seal>,
    /// The copy of the new partition on this node.
    pub(crate) own: Option<OwnCopy>,
    /// Earliest time to form a copy again after its space was damaged.
    pub(crate) form_again_at: Millis,
    /// The incarnation in which it last got a row.
    pub(crate) told: Option<Incarnation>,
    /// Start of the seal at this leader, for metrics.
    pub(crate) sealed_since: Option<Millis>,
}

impl SplitWork {
    /// Returns whether the log seals this key, as far as known while the copy serves.
    pub(crate) fn seals(&self, key: &[u8]) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.covers(key))
    }

    /// Returns the part of these keys of the partition that its log does not seal.
    pub(crate) fn unsealed(&self, keys: KeyRange) -> KeyRange {
        self.seal.as_ref().map_or_else(|| keys.clone(), |seal| keys.clone().before(seal.at.clone()))
    }

    /// Returns whether the log seals keys in this attempt, for a split or a merge.
    pub(crate) fn seals_for(&self, attempt: Version) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.attempt == attempt)
    }

    /// Drops the seal when the copy stops serving; the next leader reads it from the log.
    pub(crate) fn rest(&mut self) {
        (self.seal, self.sealed_since) = (None, None);
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.seal.is_none() && self.own.is_none()
    }
}

/// Copy of the new partition that this node forms.
#[derive(Debug)]
pub(crate) struct OwnCopy {
    pub(crate) attempt: Version,
    pub(crate) partition: PartitionId,
    pub(crate) copy: PlacementId,
    pub(crate) stage: Stage,
    /// Incarnation and row version of the last report of its stage.
    pub(crate) reported: Option<(Incarnation, Version)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// The engine copies rows.
    Copying,
    /// The engine has had all rows since then, but not yet the writes that gathered meanwhile.
    CatchingUp(Millis),
    /// The engine has all rows, and writes follow within a moment.
    Mirroring,
    /// The log seals the keys at this position: the engine received everything, and flushes it.
    Ending(Position),
    /// The thread that has its partition takes it over.
    Adopting(Position),
    /// Complete.
    Formed(Position),
    /// Opened or deleted: its rows must not be overwritten because of an old row.
    Over,
}

/// Copy that was formed and not yet opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormedCopy {
    /// The partition that is split off.
    pub partition: PartitionId,
    /// Its copy.
    pub placement: PlacementId,
    /// Start of its log.
    pub at: Position,
}

impl OwnCopy {
    pub(crate) fn come_to(&mut self, stage: Stage) {
        (self.stage, self.reported) = (stage, None);
    }

    /// Returns whether it depends on rows that a new pull of the source would discard.
    pub(crate) const fn follows(&self) -> bool {
        matches!(self.stage, Stage::Copying | Stage::CatchingUp(_) | Stage::Mirroring)
    }

    /// Returns its stage in terms of the row.
    pub(crate) const fn is_at(&self) -> RightStage {
        match self.stage {
            Stage::Copying | Stage::CatchingUp(_) => RightStage::Copying,
            Stage::Mirroring | Stage::Ending(_) | Stage::Adopting(_) => RightStage::Mirroring,
            Stage::Formed(_) | Stage::Over => RightStage::Formed,
        }
    }

    pub(crate) fn fact(&self) -> Option<Fact> {
        let (attempt, copy) = (self.attempt, self.copy);
        match self.stage {
            Stage::Mirroring => Some(Fact::Mirroring { attempt, copy }),
            Stage::Formed(position) => Some(Fact::Formed { attempt, copy, position }),
            Stage::Copying | Stage::CatchingUp(_) | Stage::Ending(_) | Stage::Adopting(_) | Stage::Over => None,
        }
    }
}

impl SplitWork {
    /// Returns whether the copy here is being completed, or is complete.
    pub(crate) fn is_ending(&self) -> bool {
        self.own.as_ref().is_some_and(|own| !own.follows())
    }
}
