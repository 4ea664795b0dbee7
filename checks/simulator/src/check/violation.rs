//! Violated properties of a run.

/// A violated property.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Violation {
    /// D, S, P or E, found by the replicas' own checks.
    #[error("{0}")]
    Replicas(#[from] archon_replica::invariants::Violation),
    /// P: a committed prefix changed, or two copies differ in committed entries.
    #[error("P: {detail}")]
    Prefix {
        /// Place.
        detail: String,
    },
    /// S: a Live replica holds nothing at all.
    #[error("S: {detail}")]
    LiveSet {
        /// Place.
        detail: String,
    },
    /// O: two nodes could answer for one partition at the same true instant.
    #[error("O: {detail}")]
    TwoServe {
        /// The two nodes.
        detail: String,
    },
    /// L: a history of one partition is not linearizable.
    #[error("L: {detail}")]
    NotLinearizable {
        /// The operation that shows it.
        detail: String,
    },
    /// R: a read at a replica missed more than it may.
    #[error("R: {detail}")]
    Stale {
        /// The read.
        detail: String,
    },
    /// X: an operation took effect twice, or its record is lost.
    #[error("X: {detail}")]
    Twice {
        /// The operation.
        detail: String,
    },
    /// V: deleted data comes back, or present data is reported as deleted.
    #[error("V: {detail}")]
    Deleted {
        /// The data.
        detail: String,
    },
    /// Q: the coordinators lost a committed entry, or disagree on the leader.
    #[error("Q: {detail}")]
    Quorum {
        /// Details.
        detail: String,
    },
    /// V: an old heartbeat was relayed as a new one, or a valid incarnation was fenced.
    #[error("V: {detail}")]
    Relayed {
        /// The member.
        detail: String,
    },
    /// V: probe reports were given too much weight, or none.
    #[error("V: {detail}")]
    Doors {
        /// The node.
        detail: String,
    },
    /// B: more members than necessary query the coordinators.
    #[error("B: {detail}")]
    Burden {
        /// The members.
        detail: String,
    },
    /// E and others: the coordinator's state is invalid.
    #[error("state: {detail}")]
    State {
        /// Message of the check.
        detail: String,
    },
    /// V: the world did not converge after the faults had stopped.
    #[error("V: {detail}")]
    NoConvergence {
        /// The missing part.
        detail: String,
    },
    /// A debug assertion, an overflow, a bug in the simulator.
    #[error("panic: {detail}")]
    Panic {
        /// Panic message.
        detail: String,
    },
}

impl Violation {
    /// Returns the letter of the property in the design.
    pub fn letter(&self) -> &'static str {
        use archon_replica::invariants::Violation as Of;
        match self {
            Self::Replicas(Of::LeaderLacks { .. }) => "D",
            Self::Replicas(Of::LiveLacks { .. }) | Self::LiveSet { .. } => "S",
            Self::Replicas(Of::PrefixDiffers { .. } | Of::PrefixGap { .. }) | Self::Prefix { .. } => "P",
            Self::Replicas(Of::EpochFell { .. } | Of::TwoLeaders { .. }) | Self::State { .. } => "E",
            Self::TwoServe { .. } => "O",
            Self::NotLinearizable { .. } => "L",
            Self::Stale { .. } => "R",
            Self::Twice { .. } => "X",
            Self::NoConvergence { .. } | Self::Deleted { .. } | Self::Relayed { .. } | Self::Doors { .. } => "V",
            Self::Burden { .. } => "B",
            Self::Quorum { .. } => "Q",
            Self::Panic { .. } => "assertion",
        }
    }
}
