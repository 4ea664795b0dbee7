//! Doors for the fuzzer: what comes from other voters and from this one's own disk.

use super::codec;
use super::snapshot::SnapshotDir;
use super::types::{Entry, LogId, SnapshotMeta, TypeConfig, Vote};
use crate::identity::Identity;
use archon_coordinator_core::{Actor, ClusterState, Command, CommandBatch, apply};
use archon_types::{ClusterId, Millis, Settings};
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

/// A value as the log, a snapshot or a peer message holds it; `kind` says of which type. What is decoded must encode and
/// decode to the same bytes.
///
/// # Errors
/// What is wrong with it.
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

fn again<T: Serialize + DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<&'static str, String> {
    let value: T = codec::decode(what, bytes).map_err(|error| error.to_string())?;
    let encoded = codec::encode(what, &value).map_err(|error| error.to_string())?;
    let decoded: T = codec::decode(what, &encoded).map_err(|error| format!("{what} once encoded: {error}"))?;
    let twice = codec::encode(what, &decoded).map_err(|error| error.to_string())?;
    assert_eq!(encoded, twice, "{what} changes on its way");
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

/// Real values for [`raft_value`], each after its kind.
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
/// What is wrong with it, or that there is none.
pub fn snapshot(directory: &Path) -> Result<(), String> {
    let snapshots = SnapshotDir::open(directory, CLUSTER).map_err(|error| error.to_string())?;
    match snapshots.newest().map_err(|error| error.to_string())? {
        Some((_, body)) => codec::decode::<ClusterState>("snapshot", &body).map(|_| ()).map_err(|e| e.to_string()),
        None => Err("there is none".into()),
    }
}

/// Real snapshot files.
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

fn peers() -> BTreeMap<u64, String> {
    BTreeMap::from([(1, "127.0.0.1:7000".to_owned())])
}

/// Opens the identity of a data directory.
///
/// # Errors
/// What is wrong with it.
pub fn identity(directory: &Path) -> Result<(), String> {
    Identity::open(directory, 1, &peers(), |_| false, || CLUSTER).map(|_| ()).map_err(|error| error.to_string())
}

/// Real identity files.
pub fn identities() -> Vec<Vec<u8>> {
    let make = || -> Option<Vec<u8>> {
        let directory = tempfile::tempdir().ok()?;
        Identity::open(directory.path(), 1, &peers(), |_| false, || CLUSTER).ok()?;
        fs::read(directory.path().join("identity.json")).ok()
    };
    make().into_iter().collect()
}
