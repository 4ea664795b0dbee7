//! The vocabulary of Archon: identifiers, slots, limits, the partition table, operations, errors and lease
//! arithmetic.
//!
//! This crate is pure: no clock, no randomness, no I/O, ordered collections only. Every other crate uses these types,
//! so each term has one meaning everywhere.

mod admin;
mod common;
mod error;
mod generation;
mod ids;
mod lease;
mod members;
pub mod mutant;
mod operations;
mod registration;
mod tables;

pub use admin::access::{
    Access, AccessList, OWN_SINCE, RIGHTS_MAX, Right, Scope, WHENEVER, WITHDRAWN_MAX, check_identity, client_text,
    denial, grantee_text, own_denial, weight_denial, weight_limit_text,
};
pub use admin::event::{EventCode, EventFacts, RecordedEvent};
pub use admin::finding::{
    AuthorityUse, CondemnedCopies, Finding, OTHER_HISTORY_REMEDY, OutdatedMember, Severity, StandingOrder, Supply,
};
pub use admin::moves::{MoveCode, MoveKind, MovePhase, UnmetCode};
pub use admin::open_enum::{OpenEnum, UnknownWord, Vocabulary};
pub use admin::plan;
pub use admin::quorum::{DoubtKind, QuorumChange};
pub use admin::range_change::{RangeChangeKind, RangeChangePhase};
pub use admin::reason::{Facts, ReasonCode};
pub use admin::role::CoordinatorRole;
pub use admin::setting::{Setting, SettingChange, SettingChanged, SettingStep, SettingUnit};
pub use admin::settings::{Settings, SettingsError, min_in_sync_default};
pub use admin::subject;
pub use common::backoff::Backoff;
pub use common::disk_full::{DiskFull, DiskLimit};
pub use common::hex;
pub use common::key_text::KeyText;
pub use common::limits;
pub use common::log_pin::LogPin;
pub use common::metric::{Definition, Kind, Label};
pub use common::mixed::mixed;
pub use common::text::{bare_key, bytes_text, into_plain, plain, shown_key};
pub use common::trace_context::{TRACEPARENT, TraceContext};
pub use error::{ErrorDetail, ErrorKind};
pub use generation::{
    GENERATION_KEYS_SINCE, GENERATIONS_MAX, NUMBERS_PER_GENERATION, begins_at, first_number, generation_of,
};
pub use ids::{
    BootId, ClientId, ClusterId, Epoch, GenerationKey, Incarnation, Millis, NodeId, PartitionId, PlacementId, PushKey,
    RequestId, Revision, Seq, StorageId, TableId, Version,
};
pub use lease::{Lease, LeaseTiming, LeaseTimingError};
pub use members::doors::{
    DOORS_SINCE, DoorFailure, DoorReport, DoorState, SHUT_DOORS_MAX, ShutDoor, doors_of, keeper_count, keepers,
    keepers_of,
};
pub use members::duty::{Duty, Fact, ReplicaName, Report};
pub use members::failover::Failover;
pub use members::fencing_proof::FencingProof;
pub use members::member_certificate::{AuthorityPrint, MemberCertificate, Renewal, ends_soon};
pub use members::node::{Node, NodeGoal, NodeStatus, REDIS_SINCE};
pub use members::node_traits::{NodeTraits, TraitsChange};
pub use members::participant::{Participant, TABLES_SERVED_MAX};
pub use members::plaintext::{check_plaintext, is_loopback};
pub use members::protocol::{
    MemberKind, NEWS_SINCE, OVER_SINCE, PROTOCOL_FIRST, PROTOCOL_MAX, PROTOCOL_NEWEST, ProtocolRange,
};
pub use members::relays::{
    PARTICIPANTS_CARRIED_MAX, RelayAddress, RelayCandidate, carried_max, relay_count, relays, relays_of,
};
pub use members::transport_kind::TransportKind;
pub use operations::expiry::Expiry;
pub use operations::op;
pub use operations::op::{Answer, Op, OpId, StoredValue};
pub use operations::op_kind::OpKind;
pub use operations::packed_entries::{pack_entry, unpack_entries};
pub use operations::transaction;
pub use operations::transaction::{Change, Check, ManyKeys, Transaction, Write};
pub use registration::Register;
pub use tables::condition::Condition;
pub use tables::key_range::{KeyRange, ScanOrder, check_split_points};
pub use tables::merge::{MERGE_BYTES_MAX, Merge, MergeSide};
pub use tables::partition::{Partition, PartitionStatus, Placement, ReplicaState};
pub use tables::partition_table::{PartitionTable, Route};
pub use tables::piece::{Assembly, AssemblyResult, TablePiece, node_bytes};
pub use tables::position::Position;
pub use tables::range_limits::{
    ExceededLimit, LowUsage, RangeLimits, SPLIT_BYTES_MIN, SPLIT_RATE_MIN, TableChange, TableTraits,
};
pub use tables::removed::RemovedNodes;
pub use tables::slot::{HASH_PARTITIONS_MAX, SLOTS, partition_of, slot_of, slots_of, tag_of};
pub use tables::split::{Middle, RightCopy, RightStage, Split, check_split_at};
pub use tables::table::{
    DEFAULT_TABLE, Keys, KeysBy, NodeDelta, Partitioning, RANGES_FIRST_MAX, Table, TableContent, TableDelta, TableList,
};
