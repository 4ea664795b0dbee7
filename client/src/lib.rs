//! Client library of Archon: keys and values with [`Client`], administration with [`Admin`].
//!
//! ```no_run
//! # async fn example() -> Result<(), archon_client::Error> {
//! use std::time::Duration;
//!
//! let client = archon_client::Client::builder(["127.0.0.1:7000", "127.0.0.1:7001"])
//!     .timeout(Duration::from_secs(5))
//!     .build()
//!     .await?;
//! let revision = client.put("handshake", "hello").await?;
//! let found = client.get("handshake").await?.expect("just written");
//! assert_eq!(found.revision, revision);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Client`] is cheap to clone and meant to be shared: concurrent operations share one stream per node and many
//! fit into a message. It caches the partition table, follows redirects, and retries within the deadline of each
//! call. Every write has an id, so a retry takes effect at most once; if the outcome is unknown, the error says so
//! ([`Error::outcome_unknown`]).

mod admin;
mod builder;
mod error;
mod kv;
mod lock;
mod measure;
#[cfg(feature = "metrics")]
pub mod metrics;
mod net;
mod participant;
mod revocations;
mod routing;
mod state;
mod stats;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trace;

pub use admin::Admin;
pub use admin::order_types::CheckThresholds;
pub use admin::quorum::QuorumSnapshot;
/// Requests and answers of the administration.
pub use archon_documents as documents;
pub use archon_documents::{
    AccessChanged, AccessRight, AccessSummary, BarSummary, CertificatesWithdrawn, Check, CoordinatorStatus,
    CopySummary, Door, DrainCheck, Event, ForceLeaderCheck, ForcedLeader, KeyLocation, LossCheck, MemberTiming,
    MoveStatus, NodeCheck, NodeGain, NodeLoss, NodeSummary, PartitionCopy, PartitionDescription, PartitionMerge,
    PartitionSplit, PartitionSummary, PendingQuorumChange, Quorum, QuorumRecovery, RangeChangeStatus, RangeSummary,
    Reason, RebalanceCancellation, RebalanceStatus, RebalanceSummary, RecoveryDoubt, RemoveCheck, SettingSummary,
    SettingsChanged, SettingsSummary, Status, TableCheck, TableSummary, UpgradeChanged, UpgradeMember, UpgradeSummary,
    WithdrawnCertificates,
};
/// Reason for the release of a partition, for [`Callbacks::release`].
pub use archon_member::ReleaseCause;
pub use archon_security::{CredentialsError, Identity, Role, Tls, Transport};
pub use archon_types::plan::{Move, Plan, UnmetGoal};
pub use archon_types::subject::{Cause, NodeName, Subject};
pub use archon_types::{
    Answer, Condition, CoordinatorRole, DoorState, DoubtKind, Epoch, ErrorDetail, ErrorKind, EventCode, Expiry,
    KeyRange, KeyText, KeysBy, MemberKind, MoveCode, MoveKind, MovePhase, NodeGoal, NodeId, NodeStatus,
    OTHER_HISTORY_REMEDY, Op, OpenEnum, PartitionId, PartitionStatus, Position, QuorumChange, RangeChangeKind,
    RangeChangePhase, RangeLimits, ReasonCode, ReplicaState, Revision, Right, Setting, SettingChange, SettingChanged,
    SettingUnit, Severity, StoredValue, TableChange, TableContent, TableId, TraitsChange, TransportKind, UnknownWord,
    UnmetCode, Version,
};
pub use builder::ClientBuilder;
/// The crate of the type [`Bytes`] of keys and values.
pub use bytes;
pub use bytes::Bytes;
pub use error::{Error, Outcome};
pub use kv::named::{NamedError, WriteName};
pub use kv::put_options::PutOptions;
pub use kv::scan::{Entry, Page, Scan};
pub use kv::snapshot::{Snapshot, SnapshotOf, SnapshotPage};
pub use kv::stale::StaleValue;
pub use kv::transaction::{Transaction, TransactionOutcome};
pub use kv::{Client, Counter, Value};
pub use lock::{Lock, LockError, LockLost, LockOptions};
pub use participant::{
    AcquireError, Callbacks, Grant, Participant, ParticipantBuilder, ParticipantStats, PartitionLost, ServiceLoad,
};
pub use revocations::follow_revocations;
pub use routing::owners::{NoPosition, OwnersPosition, OwnersWatch};
pub use routing::routes::{Owner, RouteChanges, RouteMap, Routes};
pub use stats::NodeStats;

/// Compiles the Rust examples of the crate's README with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadme;
