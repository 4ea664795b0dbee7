//! Messages between replicas of one partition. Plain fields only, so that a wire format can mirror them one to one.

pub use archon_types::Position;
use archon_types::{Epoch, Incarnation, NodeId, PartitionId, PlacementId, Seq};
use bytes::Bytes;

/// One entry of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its position.
    pub at: Position,
    /// Its content, opaque here. Encoded once by the leader, carried unchanged to peers and disks.
    pub bytes: Bytes,
}

/// Exact name of a replica, which neither a restarted nor a reset one shares.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplicaAddress {
    /// The copy.
    pub placement: PlacementId,
    /// The node that holds it.
    pub node: NodeId,
    /// The incarnation of that node.
    pub incarnation: Incarnation,
}

/// A message between two replicas of one partition. A receiver whose own address is not exactly `to` drops it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The partition both belong to.
    pub partition: PartitionId,
    /// The sender.
    pub from: ReplicaAddress,
    /// The receiver; it is delivered to `to.node`.
    pub to: ReplicaAddress,
    /// From a leader: the epoch in which it leads. From a follower: the epoch it answers in; in a [`Body::Nack`], the
    /// highest epoch it knows, which may be higher than the leader's.
    pub epoch: Epoch,
    /// Its content.
    pub body: Body,
}

/// Content of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Leader to follower, until a point of match is found: "persist my epoch; do you hold exactly `at`?"
    Adopt {
        /// A position of the leader's log.
        at: Position,
        /// The end of the leader's log when its epoch began; every entry after it is of this epoch.
        start: Seq,
        /// The leader's commit position.
        commit: Seq,
    },
    /// Follower to leader: "your epoch is durable here, and I hold `at`".
    Adopted {
        /// The probed position.
        at: Position,
        /// Up to here the follower's log equals the leader's and is durable.
        held: Seq,
    },
    /// Leader to follower: entries that follow directly after `before`. May be empty, to ask for an acknowledgement or
    /// to announce the commit position.
    Append {
        /// The position before the first entry; the follower must hold exactly it.
        before: Position,
        /// Contiguous entries from `before.seq + 1`.
        entries: Vec<Entry>,
        /// The end of the leader's log when its epoch began; every entry after it is of this epoch.
        start: Seq,
        /// The leader's commit position; may lie beyond the entries.
        commit: Seq,
    },
    /// Follower to leader: the entries it holds.
    Ack {
        /// Up to here the follower's log equals the leader's and is durable.
        held: Seq,
    },
    /// Follower to leader: "I refuse", because the epoch is old or the position is not held.
    Nack {
        /// The position that is not held exactly ([`Position::ZERO`] when nothing in particular is refused).
        refused: Position,
        /// The newest position the follower holds that may be in the leader's log as well.
        hint: Position,
        /// True while the follower pulls a copy and takes no entries.
        copying: bool,
    },
    /// Leader to loader: "my log no longer reaches back to what you hold; pull a copy from me".
    Behind {
        /// The position after which the leader's log begins.
        base: Position,
    },
    /// Leader to follower: "do you know of an epoch above mine?"
    Confirm {
        /// The leader's number for this round of questions.
        round: u64,
    },
    /// Follower to leader: "no higher epoch is persisted here".
    Confirmed {
        /// The answered round.
        round: u64,
    },
}

impl Body {
    /// Returns its name, for logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Adopt { .. } => "adopt",
            Self::Adopted { .. } => "adopted",
            Self::Append { .. } => "append",
            Self::Ack { .. } => "ack",
            Self::Nack { .. } => "nack",
            Self::Behind { .. } => "behind",
            Self::Confirm { .. } => "confirm",
            Self::Confirmed { .. } => "confirmed",
        }
    }
}
