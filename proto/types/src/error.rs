//! One error vocabulary for every boundary: the kind, the wrong input, and the possible reaction of a caller.

use crate::admin::open_enum::Vocabulary;
use crate::ids::Version;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $code:literal, $word:literal,)*) => {
        /// Kinds of errors: a closed list that crosses the wire by number. Numbers are never reused.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[doc = $doc])+ $name = $code,)* }

        impl ErrorKind {
            /// Every kind, for tests and tables.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the kind with this wire number, if this version knows it.
            pub const fn from_code(code: u32) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// Returns the wire number.
            pub const fn code(self) -> u32 { self as u32 }

            /// Returns the name for programs, in JSON: `stale_plan`.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// Returns the name in logs and on the command line: `StalePlan`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }

        impl Vocabulary for ErrorKind {
            const TYPE: &'static str = "ErrorKind";
            const WHAT: &'static str = "kind of error";
            const ALL: &'static [Self] = Self::ALL;

            fn word(self) -> &'static str {
                self.as_str()
            }

            fn shown(self) -> &'static str {
                self.name()
            }

            fn meaning(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc,)+).trim_ascii(),)* }
            }
        }
    };
}

kinds! {
    /// The request is invalid: a field is missing, too long or malformed.
    InvalidArgument = 1, "invalid_argument",
    /// The named thing does not exist (a node, a table, a plan).
    NotFound = 2, "not_found",
    /// The named thing exists already (a table).
    AlreadyExists = 3, "already_exists",
    /// The request carries the id of another cluster.
    WrongCluster = 4, "wrong_cluster",
    /// The request is meant for another node.
    WrongNode = 5, "wrong_node",
    /// The message belongs to an older incarnation of its sender or receiver.
    StaleIncarnation = 6, "stale_incarnation",
    /// A live node with another storage id has this name or address.
    NameTaken = 7, "name_taken",
    /// Sender and receiver have no protocol version in common.
    ProtocolMismatch = 8, "protocol_mismatch",
    /// This coordinator is not the leader; `leader` names the leader, if known.
    NotCoordinatorLeader = 9, "not_coordinator_leader",
    /// No quorum of coordinators answered in time.
    NoQuorum = 10, "no_quorum",
    /// Too few live nodes; see `have` and `need`.
    NotEnoughNodes = 11, "not_enough_nodes",
    /// A plan is running; only one can run at a time.
    AssignmentInProgress = 12, "assignment_in_progress",
    /// The plan was computed for another table version; see `have` (current) and `need` (of the plan).
    StalePlan = 13, "stale_plan",
    /// The expected version of a change does not match the current row.
    StaleVersion = 14, "stale_version",
    /// No rebalance is running.
    NothingRunning = 15, "nothing_running",
    /// This node does not lead the partition; `leader` names the leader, if known.
    NotPartitionLeader = 16, "not_partition_leader",
    /// The partition has no leader, or its leader is taking over.
    Unavailable = 17, "unavailable",
    /// The lease of this node has expired, so it must not answer.
    NoLease = 18, "no_lease",
    /// Fewer in-sync replicas than `min_in_sync`: writes are refused.
    NotEnoughReplicas = 19, "not_enough_replicas",
    /// The message carries a lower epoch than the receiver has persisted.
    StaleEpoch = 20, "stale_epoch",
    /// A queue is full; retry after `retry_after_ms`.
    Overloaded = 21, "overloaded",
    /// The disk is full: reads work, writes are refused.
    ReadOnly = 22, "read_only",
    /// The process is stopping.
    ShuttingDown = 23, "shutting_down",
    /// The deadline passed; the operation may have taken effect.
    DeadlineExceeded = 24, "deadline_exceeded",
    /// The operation may have taken effect, and its result is no longer known.
    MaybeApplied = 25, "maybe_applied",
    /// The condition of a compare-and-set failed; `have` is the current revision.
    ConditionFailed = 26, "condition_failed",
    /// The stored value has the wrong type for the operation (an increment of text).
    WrongValueType = 27, "wrong_value_type",
    /// A server error; the message names the place.
    Internal = 28, "internal",
    /// No server could be reached.
    Unreachable = 29, "unreachable",
    /// The change is refused in the present state; the message lists the obstacles.
    Refused = 30, "refused",
    /// The change would lose acknowledged writes, and the request does not accept that loss.
    DataLoss = 31, "data_loss",
    /// The key moved to another partition by a split; the write was not applied here and will not be.
    Moved = 32, "moved",
    /// The member belonged to another history of this cluster: a later generation, or one with the same number that
    /// started from another state.
    OtherHistory = 33, "other_history",
}

impl ErrorKind {
    /// Returns true if the same request may succeed later unchanged. Such an error means that the
    /// operation did not take effect.
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::NotCoordinatorLeader
            | Self::NoQuorum
            | Self::NotEnoughNodes
            | Self::NotPartitionLeader
            | Self::Unavailable
            | Self::NoLease
            | Self::NotEnoughReplicas
            | Self::StaleEpoch
            | Self::Overloaded
            | Self::ReadOnly
            | Self::ShuttingDown
            | Self::Moved
            | Self::Unreachable => true,
            Self::InvalidArgument
            | Self::NotFound
            | Self::AlreadyExists
            | Self::WrongCluster
            | Self::WrongNode
            | Self::StaleIncarnation
            | Self::NameTaken
            | Self::ProtocolMismatch
            | Self::AssignmentInProgress
            | Self::StalePlan
            | Self::StaleVersion
            | Self::NothingRunning
            | Self::DeadlineExceeded
            | Self::MaybeApplied
            | Self::ConditionFailed
            | Self::WrongValueType
            | Self::Internal
            | Self::Refused
            | Self::DataLoss
            | Self::OtherHistory => false,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error as it crosses a boundary: its kind, a sentence for people, and hints for programs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Wrong input, reason and remedy.
    pub message: String,
    /// Delay before a retry, if the server suggests one.
    pub retry_after_ms: Option<u64>,
    /// Address of the leader (of the quorum or of the partition), if known.
    pub leader: Option<String>,
    /// Newest table version known to the sender.
    pub table_version: Option<Version>,
    /// Actual value (nodes, a version, a revision), depending on the kind.
    pub have: Option<u64>,
    /// Required value, depending on the kind.
    pub need: Option<u64>,
}

impl ErrorDetail {
    /// Creates an error without hints.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after_ms: None,
            leader: None,
            table_version: None,
            have: None,
            need: None,
        }
    }

    /// Adds the leader's address, if it is known.
    #[must_use]
    pub fn with_leader(mut self, leader: Option<String>) -> Self {
        self.leader = leader;
        self
    }

    /// Adds the actual and the required value.
    #[must_use]
    pub fn with_have_need(mut self, have: u64, need: u64) -> Self {
        self.have = Some(have);
        self.need = Some(need);
        self
    }

    /// Adds the delay before a retry.
    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.retry_after_ms = Some(retry_after_ms);
        self
    }

    /// Adds the newest table version known to the sender.
    #[must_use]
    pub fn with_table_version(mut self, version: Version) -> Self {
        self.table_version = Some(version);
        self
    }
}

impl fmt::Display for ErrorDetail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.message)?;
        if let (Some(have), Some(need)) = (self.have, self.need) {
            write!(f, " (have {have}, need {need})")?;
        }
        Ok(())
    }
}

impl std::error::Error for ErrorDetail {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip_and_are_unique() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_code(kind.code()), Some(*kind));
        }
        assert_eq!(ErrorKind::from_code(0), None);
    }
}
