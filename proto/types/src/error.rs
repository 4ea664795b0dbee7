//! One error vocabulary for every boundary: what kind it is, what was wrong, and what a caller may do about it.

use crate::ids::Version;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// What went wrong, as a closed list that survives the wire by number. Numbers are never reused.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[$doc])* $name = $code,)* }

        impl ErrorKind {
            /// Every kind, for tests and tables.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The kind with this number on the wire, if this version knows it.
            pub const fn from_code(code: u32) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// Its number on the wire.
            pub const fn code(self) -> u32 { self as u32 }

            /// Its name, as logs, JSON and the command line show it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

kinds! {
    /// The request itself is wrong: a field missing, too long, malformed.
    InvalidArgument = 1,
    /// The named thing does not exist (a node, a table, a plan).
    NotFound = 2,
    /// The named thing exists already (a table).
    AlreadyExists = 3,
    /// The request carries another cluster's id.
    WrongCluster = 4,
    /// The request is meant for another node.
    WrongNode = 5,
    /// The message belongs to an older life of its sender or receiver.
    StaleIncarnation = 6,
    /// A live node with another storage id holds this name or address.
    NameTaken = 7,
    /// Sender and receiver share no protocol version.
    ProtocolMismatch = 8,
    /// This coordinator does not lead; `leader` may say who does.
    NotCoordinatorLeader = 9,
    /// No quorum of coordinators answered in time.
    NoQuorum = 10,
    /// Fewer live nodes than the minimum; see `have` and `need`.
    NotEnoughNodes = 11,
    /// A plan is being carried out; only one runs at a time.
    AssignmentInProgress = 12,
    /// The plan was made for another table version; see `have` (now) and `need` (the plan's).
    StalePlan = 13,
    /// The guard of an edit did not match the present row.
    StaleVersion = 14,
    /// No rebalance is running.
    NothingRunning = 15,
    /// This node does not lead the partition; `leader` may say who does.
    NotPartitionLeader = 16,
    /// The partition has no leader now, or its leader is just taking over.
    Unavailable = 17,
    /// This node's lease has run out, so it may not answer.
    NoLease = 18,
    /// Fewer Live replicas than `min_in_sync`: new writes are refused.
    NotEnoughReplicas = 19,
    /// The message carries a lower epoch than the receiver has persisted.
    StaleEpoch = 20,
    /// A queue is full; try again after `retry_after_ms`.
    Overloaded = 21,
    /// The disk is full: reads go on, writes are refused.
    ReadOnly = 22,
    /// The process is stopping.
    ShuttingDown = 23,
    /// The deadline passed; whether the operation took effect is unknown.
    DeadlineExceeded = 24,
    /// The operation may have taken effect and cannot be told apart any more.
    MaybeApplied = 25,
    /// The condition of a compare-and-set did not hold; `have` is the present revision.
    ConditionFailed = 26,
    /// The stored value is not what the operation needs (an increment of text).
    WrongValueType = 27,
    /// A defect on the server's side; the message says where.
    Internal = 28,
    /// Nobody could be reached.
    Unreachable = 29,
    /// The change would leave the system short of something; the message lists it.
    Refused = 30,
    /// The change would lose acknowledged writes, and whoever asked for it did not say that they accept that.
    DataLoss = 31,
}

impl ErrorKind {
    /// Whether the same request may succeed later without anybody changing it. An operation answered by one of these
    /// did not take effect.
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
            | Self::DataLoss => false,
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
    /// What went wrong.
    pub kind: ErrorKind,
    /// What was wrong with which input, and what to do.
    pub message: String,
    /// How long to wait before a retry, if the server has an opinion.
    pub retry_after_ms: Option<u64>,
    /// The address of the leader (of the quorum or of the partition), if known.
    pub leader: Option<String>,
    /// The newest table version the sender knows.
    pub table_version: Option<Version>,
    /// What there is (nodes, a version, a revision), where the kind says so.
    pub have: Option<u64>,
    /// What would be needed, where the kind says so.
    pub need: Option<u64>,
}

impl ErrorDetail {
    /// An error without hints.
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

    /// Adds the leader's address, if there is one to tell.
    #[must_use]
    pub fn with_leader(mut self, leader: Option<String>) -> Self {
        self.leader = leader;
        self
    }

    /// Adds what there is and what would be needed.
    #[must_use]
    pub fn with_have_need(mut self, have: u64, need: u64) -> Self {
        self.have = Some(have);
        self.need = Some(need);
        self
    }

    /// Adds how long to wait before a retry.
    #[must_use]
    pub fn with_retry_after_ms(mut self, retry_after_ms: u64) -> Self {
        self.retry_after_ms = Some(retry_after_ms);
        self
    }

    /// Adds the newest table version the sender knows.
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
