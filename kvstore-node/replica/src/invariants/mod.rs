//! Invariants of all replicas of a partition together, one property per file, shared by tests and the simulator. The
//! letters are those of the design: D durability, S the Live set, P the committed prefix, E epochs.

mod durability;
mod epochs;
mod live_set;
mod prefix;

pub use durability::leader_holds_acknowledged;
pub use epochs::Epochs;
pub use live_set::live_hold_acknowledged;
pub use prefix::Ledger;

use crate::message::{Entry, Position};
use archon_types::{Epoch, PlacementId, Seq};

/// Durable state of one replica, as a restart would find it.
#[derive(Clone, Copy, Debug)]
pub struct DurableState<'a> {
    /// The copy.
    pub placement: PlacementId,
    /// The position after which its log begins; everything up to it is in its engine.
    pub base: Position,
    /// Its durable entries after `base`, in order.
    pub entries: &'a [Entry],
}

/// A violated property.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// D: a leader serves without an acknowledged write.
    #[error("D: {placement} serves in epoch {epoch} with {commit} committed, but {acknowledged} was acknowledged")]
    LeaderLacks {
        /// The leader.
        placement: PlacementId,
        /// Its epoch.
        epoch: Epoch,
        /// Its commit position.
        commit: Seq,
        /// The last position acknowledged to a client.
        acknowledged: Seq,
    },
    /// S: a Live replica does not hold an acknowledged write durably.
    #[error("S: Live {placement} holds {found:?} at {seq}, which was acknowledged as {expected:?}")]
    LiveLacks {
        /// The replica.
        placement: PlacementId,
        /// The position.
        seq: Seq,
        /// Its entry there.
        found: Option<Position>,
        /// The expected entry.
        expected: Position,
    },
    /// P: two replicas committed different entries at one position.
    #[error("P: {placement} commits {found:?}, but {expected:?} was committed before")]
    PrefixDiffers {
        /// The later one.
        placement: PlacementId,
        /// The entry it commits.
        found: Position,
        /// The entry committed before.
        expected: Position,
    },
    /// P: a replica commits a position without a committed predecessor.
    #[error("P: {placement} commits {found:?}, leaving a gap after {last}")]
    PrefixGap {
        /// The replica.
        placement: PlacementId,
        /// The entry it commits.
        found: Position,
        /// The last position committed.
        last: Seq,
    },
    /// E: a persisted epoch fell.
    #[error("E: {placement} had persisted epoch {before}, now {now}")]
    EpochFell {
        /// The replica.
        placement: PlacementId,
        /// The former epoch.
        before: Epoch,
        /// The present one.
        now: Epoch,
    },
    /// E: two replicas serve in one epoch.
    #[error("E: {placement} serves in epoch {epoch}, which {other} has served in")]
    TwoLeaders {
        /// The later one.
        placement: PlacementId,
        /// The earlier one.
        other: PlacementId,
        /// The epoch.
        epoch: Epoch,
    },
}
