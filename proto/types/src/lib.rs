//! The vocabulary of Archon: identifiers, slots, limits, the partition table, operations, errors and lease
//! arithmetic.
//!
//! This crate is pure: no clock, no randomness, no I/O, ordered collections only. Every other crate uses these types,
//! so each term has one meaning everywhere.

pub mod access;
pub mod backoff;
pub mod condition;
mod disk_full;
mod doors;
pub mod duty;
pub mod error;
pub mod event;
mod failover;
pub mod generation;
pub mod ids;
pub mod key_range;
pub mod lease;
pub mod limits;
mod log_pin;
pub mod member_certificate;
pub mod merge;
pub mod metric;
mod mixed;
pub mod moves;
pub mod mutant;
pub mod node;
pub mod node_traits;
pub mod op;
mod op_kind;
mod over;
pub mod packed_entries;
pub mod participant;
pub mod partition;
pub mod partition_table;
pub mod piece;
pub mod plaintext;
pub mod plan;
pub mod position;
mod protocol;
mod quorum;
pub mod range_limits;
pub mod reason;
mod registration;
pub mod relays;
pub mod removed;
pub mod reshaping;
pub mod role;
pub mod setting;
pub mod settings;
pub mod slot;
pub mod split;
pub mod subject;
pub mod table;
pub mod text;
pub mod trace_context;
pub mod transport_kind;
pub mod word;

pub use access::{
    Access, AccessList, OWN_SINCE, RIGHTS_MAX, Right, Scope, WITHDRAWN_MAX, client_text, denial, grantee_text,
    own_denial,
};
pub use backoff::Backoff;
pub use condition::Condition;
pub use disk_full::{DiskFull, DiskLimit};
pub use doors::{
    DOORS_SINCE, DoorFailure, DoorReport, DoorState, SHUT_DOORS_MAX, ShutDoor, doors_of, keeper_count, keepers,
    keepers_of,
};
pub use duty::{Duty, Fact, ReplicaName, Report};
pub use error::{ErrorDetail, ErrorKind};
pub use event::EventCode;
pub use failover::Failover;
pub use generation::{
    GENERATION_KEYS_SINCE, GENERATIONS_MAX, NUMBERS_PER_GENERATION, begins_at, first_number, generation_of,
};
pub use ids::{
    BootId, ClientId, ClusterId, Epoch, GenerationKey, Incarnation, Millis, NodeId, PartitionId, PlacementId, PushKey,
    RequestId, Revision, Seq, StorageId, TableId, Version,
};
pub use key_range::{KeyRange, ScanOrder, check_split_points};
pub use lease::{Lease, LeaseTiming, LeaseTimingError};
pub use log_pin::LogPin;
pub use member_certificate::{AuthorityPrint, MemberCertificate, Renewal, ends_soon};
pub use merge::{MERGE_BYTES_MAX, Merge, MergeSide};
pub use mixed::mixed;
pub use moves::{MoveCode, MoveKind, MovePhase, UnmetCode};
pub use node::{Node, NodeGoal, NodeStatus};
pub use node_traits::{NodeTraits, TraitsChange};
pub use op::{Answer, Op, OpId};
pub use op_kind::OpKind;
pub use over::Over;
pub use participant::{Participant, TABLES_SERVED_MAX};
pub use partition::{Partition, PartitionStatus, Placement, ReplicaState};
pub use partition_table::{PartitionTable, Route};
pub use piece::{Assembled, Assembly, TablePiece};
pub use position::Position;
pub use protocol::{MemberKind, NEWS_SINCE, OVER_SINCE, PROTOCOL_FIRST, PROTOCOL_MAX, PROTOCOL_NEWEST, ProtocolRange};
pub use quorum::{DoubtKind, QuorumChange};
pub use range_limits::{Outgrown, RangeLimits, TableChange, TableTraits, Undersized};
pub use reason::{OTHER_HISTORY_REMEDY, ReasonCode, Severity};
pub use registration::Register;
pub use relays::{PARTICIPANTS_CARRIED_MAX, RelayAddress, RelayCandidate, carried_max, relay_count, relays, relays_of};
pub use removed::RemovedNodes;
pub use reshaping::{ReshapingKind, ReshapingPhase};
pub use role::CoordinatorRole;
pub use setting::{Setting, SettingChange, SettingStep, SettingUnit};
pub use settings::{Settings, SettingsError};
pub use slot::{HASH_PARTITIONS_MAX, SLOTS, partition_of, slot_of, tag_of};
pub use split::{Middle, RightCopy, RightStage, Split};
pub use table::{
    DEFAULT_TABLE, Holds, Keys, KeysBy, NodeDelta, Partitioning, RANGES_FIRST_MAX, Table, TableDelta, TableList,
};
pub use trace_context::{TRACEPARENT, TraceContext};
pub use transport_kind::TransportKind;
pub use word::{UnknownWord, Vocabulary, Word};
