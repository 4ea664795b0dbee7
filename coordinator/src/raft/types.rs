//! Type parameters of openraft.

use archon_coordinator_core::{CommandBatch, Response};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use uuid::Uuid;

openraft::declare_raft_types!(
    /// What openraft calls a type configuration: our command, our answer, our voter.
    pub(crate) TypeConfig:
        D = Arc<CommandBatch>,
        R = BatchResult,
        NodeId = u64,
        Node = Voter,
        LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>,
);

/// A member in Raft's log. The storage id is the one with which it became a member: a coordinator with another one has
/// lost its votes and must not vote under this id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Voter {
    /// Address for its peers and clients.
    pub(crate) address: String,
    /// Its data directory.
    pub(crate) storage: Uuid,
}

/// Result of applying one batch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BatchResult {
    /// One answer per command; empty for an entry without commands.
    pub(crate) responses: Vec<Response>,
    /// The batch was decided under another term than the one it was logged in, so it changed nothing.
    pub(crate) void: bool,
}

/// Leadership as log ids carry it.
pub(crate) type CommittedLeaderId = openraft::type_config::alias::CommittedLeaderIdOf<TypeConfig>;
/// Position in the Raft log.
pub(crate) type LogId = openraft::LogId<CommittedLeaderId>;
/// Entry of the Raft log.
pub(crate) type Entry = openraft::type_config::alias::EntryOf<TypeConfig>;
/// Vote of this configuration.
pub(crate) type Vote = openraft::type_config::alias::VoteOf<TypeConfig>;
/// The voter set with the log id that set it.
pub(crate) type StoredMembership = openraft::type_config::alias::StoredMembershipOf<TypeConfig>;
/// The members, without the log id.
pub(crate) type Membership = openraft::Membership<u64, Voter>;
/// Position and membership of a snapshot.
pub(crate) type SnapshotMeta = openraft::type_config::alias::SnapshotMetaOf<TypeConfig>;
/// A snapshot: meta and encoded state.
pub(crate) type Snapshot = openraft::type_config::alias::SnapshotOf<TypeConfig, bytes::Bytes>;
