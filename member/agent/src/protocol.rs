//! Documents of the agent's protocol. `docs/reference/agent.schema.json` is generated from these types.

pub use archon_client::documents::{OwnerAddress, PartitionOwner, TableOwners, Whereabouts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Version of the protocol. It rises with a change that an existing service would misunderstand; new fields do not
/// change it.
pub const VERSION: u32 = 1;

/// Message of the agent to the service, in the order of `sequence`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// First message of each connection. It has no sequence number.
    Hello(Hello),
    /// Prepare to own the partition, then answer `acquired` or `refused`. The epoch is the fencing token: write it to
    /// storage first.
    Acquire(Acquire),
    /// Finish the work for the partition, which the service still owns while its permission lasts, then answer
    /// `released`. Begin no new work.
    Release(Release),
    /// The partition is lost: another process may own it. Stop at once, touch nothing of it, and answer nothing. An
    /// `acquire` or `release` of it that has no answer yet needs none.
    Lost(PartitionLoss),
    /// The session has ended, and with it every permission. It is the last event.
    Ended(EndOfSession),
}

/// First message of each connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// Version of the protocol.
    pub version: u32,
    /// Name of the session, for the header `archon-session` of all further requests.
    pub session: String,
    /// Name of the participant.
    pub participant: String,
    /// Lease tables that it serves.
    pub tables: Vec<String>,
    /// Longest permission that an answer to a heartbeat gives; also the longest silence of the service before its
    /// partitions are handed over.
    pub service_lease_for_ms: u64,
    /// Interval at which the service sends heartbeats.
    pub heartbeat_every_for_ms: u64,
}

/// Offer of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Acquire {
    /// Number of the event.
    pub sequence: u64,
    /// Name of the table.
    pub table: String,
    /// Number of the table. Fencing keys contain it: epochs count per partition of a table.
    pub table_id: u64,
    /// Number of the partition.
    pub partition: u32,
    /// Epoch of the ownership; later owners have a higher one.
    pub epoch: u64,
    /// Remaining time of the lease when the event arose. It is no permission: only answers to heartbeats are.
    pub lease_left_for_ms: u64,
}

/// Request to give a partition up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Release {
    /// Number of the event.
    pub sequence: u64,
    /// Name of the table.
    pub table: String,
    /// Number of the table.
    pub table_id: u64,
    /// Number of the partition.
    pub partition: u32,
    /// Epoch of the ownership.
    pub epoch: u64,
    /// Reason for the request.
    pub reason: ReleaseReason,
    /// Time until the partition is lost without an answer; absent for `dropped`, which has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_for_ms: Option<u64>,
    /// Remaining time of the lease when the event arose.
    pub lease_left_for_ms: u64,
}

/// Reason to give a partition up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseReason {
    /// The coordinators chose another owner.
    HandedOver,
    /// The service sent `drop`.
    Dropped,
    /// The service sent `stop`, or the agent stops.
    Stopped,
}

/// Loss of a partition.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PartitionLoss {
    /// Number of the event.
    pub sequence: u64,
    /// Name of the table.
    pub table: String,
    /// Number of the table.
    pub table_id: u64,
    /// Number of the partition.
    pub partition: u32,
    /// Epoch in which it was owned.
    pub epoch: u64,
}

/// End of a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EndOfSession {
    /// Number of the event.
    pub sequence: u64,
    /// Reason, for people.
    pub reason: String,
}

/// Answer of the service. `sequence` is that of the answered event, and `partition` and `epoch` must match it. `table`
/// may be absent if the agent serves one table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// The service owns the partition. Answer to `acquire`.
    Acquired {
        /// Number of the event.
        sequence: u64,
        /// Number of the partition.
        partition: u32,
        /// Epoch of the event.
        epoch: u64,
        /// Name of the table.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<String>,
    },
    /// The service could not acquire the partition: it goes to another participant if there is one. Answer to
    /// `acquire`.
    Refused {
        /// Number of the event.
        sequence: u64,
        /// Number of the partition.
        partition: u32,
        /// Epoch of the event.
        epoch: u64,
        /// Name of the table.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<String>,
        /// Reason, for the agent's log.
        #[serde(default)]
        reason: String,
    },
    /// The service has finished with the partition. Answer to `release`.
    Released {
        /// Number of the event.
        sequence: u64,
        /// Number of the partition.
        partition: u32,
        /// Epoch of the event.
        epoch: u64,
        /// Name of the table.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<String>,
    },
    /// The service does not want a partition that it owns: the agent sends `release`, then another participant gets it.
    Drop {
        /// Number of the partition.
        partition: u32,
        /// Epoch in which it is owned.
        epoch: u64,
        /// Name of the table.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<String>,
    },
    /// Load of the service, shown by `archon node list`.
    Load {
        /// Approximate bytes that the service stores.
        bytes_stored: u64,
        /// Operations in the last second.
        operations_per_second: u64,
    },
    /// The service stops: the agent sends `release` for everything, leaves the cluster, and ends the session.
    Stop,
}

/// Outcome of a list of answers. Each is taken or refused on its own.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AnswerOutcomes {
    /// Refused answers; all others were taken.
    pub refused: Vec<RefusedAnswer>,
}

/// A refused answer of a list.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RefusedAnswer {
    /// Place in the list, from 0.
    pub index: usize,
    /// The error.
    pub error: ErrorBody,
}

/// Heartbeat of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Number of the newest event that the service has received; 0 before the first one.
    pub seen: u64,
}

/// Permission to act, as answer to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Permission {
    /// The service may act for the partitions that it owns for this time, counted from the moment when it *sent* the
    /// heartbeat. Zero: it may not act now.
    pub valid_for_ms: u64,
    /// Number of the newest event at that moment. The permission counts only once the service has received all events
    /// up to this one: a `lost` may be among them.
    pub sequence: u64,
}

/// Heartbeat of a program (`--exec`), as a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramHeartbeat {
    /// The heartbeat.
    pub heartbeat: Heartbeat,
    /// Number of the heartbeat, chosen by the program. The reply repeats it.
    pub number: u64,
}

/// Reply to a heartbeat of a program (`--exec`), as a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProgramPermission {
    /// The permission, counted from the moment when the program wrote the heartbeat.
    pub permission: Permission,
    /// Number of the heartbeat.
    pub number: u64,
}

/// Ownership of one partition, as answer to `GET /v1/owned/{partition}`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Ownership {
    /// Name of the table.
    pub table: String,
    /// Number of the partition.
    pub partition: u32,
    /// Set if the service may act for the partition now.
    pub owned: bool,
    /// Set if the partition is being released: work in progress may finish, and no new work begins.
    pub releasing: bool,
    /// Epoch of the ownership; 0 if it is not owned.
    pub epoch: u64,
    /// Time for which the service may act, counted from the moment when it sent the request; 0 if it is not owned.
    pub valid_for_ms: u64,
}

/// State of the agent, as answer to `GET /v1/status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the protocol.
    pub version: u32,
    /// Name of the participant.
    pub participant: String,
    /// State of the session.
    pub state: SessionState,
    /// Number of partitions that the service has acquired.
    pub partitions_owned: u64,
}

/// State of the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// No service is connected; the participant is not a member of the cluster.
    Waiting,
    /// A service is connected.
    Connected,
    /// The connection of the service has ended, and its permission has not: it may come back.
    Interrupted,
    /// The session ends: partitions are handed over.
    Ending,
}

/// Failure of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorAnswer {
    /// The error.
    pub error: ErrorBody,
}

/// An error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// Description of the error, with the input that caused it and a remedy.
    pub message: String,
}

/// Kind of an error, with its HTTP status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// 400: the request is malformed.
    Invalid,
    /// 403: the request may come from a web page, or names no local host; with TLS, the certificate does not permit it; the
    /// participant may not read this table.
    Forbidden,
    /// 404: there is no such path, table or owner.
    NotFound,
    /// 405: the path has another method.
    Method,
    /// 409: a service is connected already, or the previous session is being ended; try again.
    Busy,
    /// 409: the answer fits no open event: it was lost since, or was answered already with something else.
    Stale,
    /// 410: the session has ended. Begin a new one.
    Ended,
    /// 413: the body is too large.
    TooLarge,
    /// 429: too many requests are in progress, or answers unread.
    Overloaded,
    /// 503: the coordinators do not answer.
    Unavailable,
}

impl ErrorKind {
    /// Names of the kinds, in the order of the variants.
    pub const WORDS: [&str; 10] = [
        "invalid",
        "forbidden",
        "not_found",
        "method",
        "busy",
        "stale",
        "ended",
        "too_large",
        "overloaded",
        "unavailable",
    ];

    /// Returns the HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::Invalid => 400,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Method => 405,
            Self::Busy | Self::Stale => 409,
            Self::Ended => 410,
            Self::TooLarge => 413,
            Self::Overloaded => 429,
            Self::Unavailable => 503,
        }
    }
}

impl ErrorBody {
    /// Creates an error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}
