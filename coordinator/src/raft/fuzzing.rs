//! Entry points for the fuzzer: input from other voters and from this voter's disk.

use super::log::codec;
use super::network::judge::{PeerMessage, SnapshotHeader, Standard, TERM_JUMP_MAX};
use super::snapshot::SnapshotDir;
use super::types::{Entry, LogId, SnapshotMeta, TypeConfig, Vote, Voter};
use crate::config::FirstStart;
use crate::identity::Identity;
use archon_coordinator_core::{Actor, ClusterState, Command, CommandBatch, apply};
use archon_types::{ClusterId, Millis, ProtocolRange, Settings};
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// Name under which [`snapshot`] finds a file.
pub const SNAPSHOT_FILE: &str = "snapshot-00000000000000000007-00000000000000000001.snap";

const CLUSTER: Uuid = Uuid::from_u128(0xa4c4_0001);

/// Decodes a value as the log, a snapshot or a peer message holds it; `kind` selects the type. A decoded value must
/// encode and decode to the same bytes.
///
/// # Errors
/// Description of the fault.
pub fn raft_value(kind: u8, bytes: &[u8]) -> Result<&'static str, String> {
    match kind % 9 {
        0 => again::<Entry>("log entry", bytes),
        1 => again::<Vote>("vote", bytes),
        2 => again::<Option<LogId>>("position", bytes),
        3 => again::<(Vote, SnapshotMeta, u64)>("snapshot header", bytes),
        4 => again::<VoteRequest<TypeConfig>>("vote request", bytes),
        5 => again::<TransferLeaderRequest<TypeConfig>>("transfer request", bytes),
        6 => again::<AppendEntriesRequest<TypeConfig>>("append", bytes),
        7 => again::<CommandBatch>("commands", bytes),
        _ => again::<ClusterState>("state", bytes),
    }
}

/// Judges a peer message as one of voter 2 that this voter, in term 5, has received. Accepted messages satisfy the
/// conditions without which openraft would end.
///
/// # Errors
/// Description of the fault.
pub fn raft_message(kind: u8, bytes: &[u8]) -> Result<&'static str, String> {
    let by = Standard { sender: 2, term: 5 };
    let granted = |vote: &Vote| {
        assert!(vote.committed && vote.leader_id.voted_for == 2, "somebody else's vote passed: {vote:?}");
        assert!(vote.leader_id.term <= 5 + TERM_JUMP_MAX, "a term beyond elections passed: {vote:?}");
    };
    match kind % 4 {
        0 => {
            let append: AppendEntriesRequest<TypeConfig> = judged("append", bytes, by)?;
            granted(&append.vote);
            let indexes: Vec<u64> = append.entries.iter().map(|entry| entry.log_id.index).collect();
            assert!(indexes.windows(2).all(|pair| pair[0] + 1 == pair[1]), "entries with a hole passed: {indexes:?}");
            Ok("append")
        }
        1 => {
            let request: VoteRequest<TypeConfig> = judged("vote request", bytes, by)?;
            assert!(!request.vote.committed && request.vote.leader_id.voted_for == 2, "{request:?} passed");
            Ok("vote request")
        }
        2 => {
            let transfer: TransferLeaderRequest<TypeConfig> = judged("transfer request", bytes, by)?;
            granted(transfer.from_leader());
            Ok("transfer request")
        }
        _ => {
            let (vote, meta, _): SnapshotHeader = judged("snapshot header", bytes, by)?;
            granted(&vote);
            let term = meta.last_log_id.map(|last| last.leader_id.term);
            assert!(
                term.is_some_and(|term| term <= vote.leader_id.term),
                "a snapshot beyond its vote passed: {meta:?}"
            );
            Ok("snapshot header")
        }
    }
}

fn judged<T: DeserializeOwned + PeerMessage>(what: &'static str, bytes: &[u8], by: Standard) -> Result<T, String> {
    let value: T = codec::decode(what, bytes).map_err(|error| error.to_string())?;
    value.judge(by).map(|()| value)
}

/// Returns real messages for [`raft_message`], each after its kind.
pub fn raft_messages() -> Vec<Vec<u8>> {
    let (leads, asks) = (Vote::new_committed(6, 2), Vote::new(6, 2));
    let position = |index| LogId { leader_id: 5.into(), index };
    let entries = [8, 9].map(|index| Entry { log_id: position(index), payload: openraft::EntryPayload::Blank });
    let append = AppendEntriesRequest::<TypeConfig> {
        vote: leads,
        prev_log_id: Some(position(7)),
        entries: entries.into(),
        leader_commit: Some(position(7)),
    };
    let member = |id: u64| (id, Voter { address: format!("127.0.0.1:{id}"), storage: CLUSTER });
    let nodes: BTreeMap<u64, Voter> = [1, 2, 3].map(member).into();
    let voters = openraft::Membership::new(vec![[1, 2, 3].into()], nodes).unwrap_or_default();
    let last_membership = openraft::StoredMembership::new(Some(position(0)), voters);
    let meta = SnapshotMeta { last_log_id: Some(position(7)), last_membership };
    let transfer = TransferLeaderRequest::<TypeConfig>::new(leads, 1, Some(position(7)));
    let request = VoteRequest::<TypeConfig>::new(asks, Some(position(7)));
    let mut messages = Vec::new();
    let mut add = |kind: u8, encoded: std::io::Result<bytes::Bytes>| {
        messages.extend(encoded.map(|bytes| [&[kind][..], &bytes[..]].concat()));
    };
    add(0, codec::encode("append", &append));
    add(1, codec::encode("vote request", &request));
    add(2, codec::encode("transfer request", &transfer));
    add(3, codec::encode("snapshot header", &(leads, meta, 17u64)));
    messages
}

fn again<T: Serialize + DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<&'static str, String> {
    let value: T = codec::decode(what, bytes).map_err(|error| error.to_string())?;
    let encoded = codec::encode(what, &value).map_err(|error| error.to_string())?;
    let decoded: T = codec::decode(what, &encoded).map_err(|error| format!("{what} once encoded: {error}"))?;
    let twice = codec::encode(what, &decoded).map_err(|error| error.to_string())?;
    assert_eq!(encoded, twice, "decoding does not restore {what}");
    Ok(what)
}

fn batch() -> CommandBatch {
    CommandBatch {
        request: None,
        at: Millis::new(1_700_000_000_000),
        who: Actor::Coordinator(1),
        proposer: 1,
        term: 3,
        commands: vec![Command::Bootstrap { cluster: ClusterId::new(CLUSTER), settings: Settings::default() }],
    }
}

fn state() -> ClusterState {
    let mut state = ClusterState::default();
    apply(&mut state, 5, &batch());
    state
}

/// Returns real values for [`raft_value`], each after its kind.
pub fn raft_values() -> Vec<Vec<u8>> {
    let vote = Vote::new(3, 1);
    let position = LogId { leader_id: 3.into(), index: 7 };
    let entry = Entry { log_id: position, payload: openraft::EntryPayload::Normal(Arc::new(batch())) };
    let request = VoteRequest::<TypeConfig>::new(vote, Some(position));
    let mut values = Vec::new();
    let mut add = |kind: u8, encoded: std::io::Result<bytes::Bytes>| {
        values.extend(encoded.map(|bytes| [&[kind][..], &bytes[..]].concat()));
    };
    add(0, codec::encode("log entry", &entry));
    add(1, codec::encode("vote", &vote));
    add(2, codec::encode("position", &Some(position)));
    add(3, codec::encode("snapshot header", &(vote, SnapshotMeta::default(), 17u64)));
    add(4, codec::encode("vote request", &request));
    add(7, codec::encode("commands", &batch()));
    add(8, codec::encode("state", &state()));
    values
}

/// Reads the newest snapshot of a directory.
///
/// # Errors
/// Description of the fault, or that there is no snapshot.
pub fn snapshot(directory: &Path) -> Result<(), String> {
    let snapshots = SnapshotDir::open(directory, CLUSTER).map_err(|error| error.to_string())?;
    match snapshots.newest().map_err(|error| error.to_string())? {
        Some((_, body)) => codec::decode::<ClusterState>("snapshot", &body).map(|_| ()).map_err(|e| e.to_string()),
        None => Err("there is none".into()),
    }
}

/// Returns real snapshot files.
pub fn snapshots() -> Vec<Vec<u8>> {
    let publish = || -> Option<Vec<u8>> {
        let directory = tempfile::tempdir().ok()?;
        let snapshots = SnapshotDir::open(directory.path(), CLUSTER).ok()?;
        let body = codec::encode("snapshot", &state()).ok()?;
        snapshots.publish(&SnapshotMeta::default(), &body).ok()?;
        let file = fs::read_dir(directory.path()).ok()?.next()?.ok()?;
        fs::read(file.path()).ok()
    };
    publish().into_iter().collect()
}

fn founds() -> FirstStart {
    FirstStart::Found { peers: BTreeMap::from([(1, "127.0.0.1:7000".to_owned())]) }
}

/// Opens the identity of a data directory.
///
/// # Errors
/// Description of the fault.
pub fn identity(directory: &Path) -> Result<(), String> {
    Identity::open(directory, 1, Some(&founds()), ProtocolRange::SPOKEN, |_| false, || CLUSTER)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Returns real identity files.
pub fn identities() -> Vec<Vec<u8>> {
    let make = || -> Option<Vec<u8>> {
        let directory = tempfile::tempdir().ok()?;
        Identity::open(directory.path(), 1, Some(&founds()), ProtocolRange::SPOKEN, |_| false, || CLUSTER).ok()?;
        fs::read(directory.path().join("identity.json")).ok()
    };
    make().into_iter().collect()
}
