//! Input of a coordinator: Raft messages and log entries, snapshots, its identity.

use crate::target::{Target, Verdict};
use archon_coordinator::fuzzing;
use std::fs;

const IDENTITY_FILE: &str = "identity.json";

fn value(input: &[u8]) -> Verdict {
    let Some((kind, bytes)) = input.split_first() else { return Verdict::Refused("empty".into()) };
    Verdict::of(fuzzing::raft_value(*kind, bytes), |shape| (*shape).to_owned())
}

fn message(input: &[u8]) -> Verdict {
    let Some((kind, bytes)) = input.split_first() else { return Verdict::Refused("empty".into()) };
    Verdict::of(fuzzing::raft_message(*kind, bytes), |shape| (*shape).to_owned())
}

fn in_a_file(name: &str, input: &[u8], read: fn(&std::path::Path) -> Result<(), String>) -> Verdict {
    let Ok(directory) = tempfile::tempdir() else { return Verdict::Refused("no temporary directory".into()) };
    let path = directory.path().join(name);
    if fs::write(&path, input).is_err() {
        return Verdict::Refused("no room for a file".into());
    }
    let result = read(directory.path());
    // Only an accepted identity may change: before the quorum exists, its peer list is corrected.
    if result.is_err() || name != IDENTITY_FILE {
        assert_eq!(fs::read(&path).ok().as_deref(), Some(input), "reading a file changes it");
    }
    // The path differs each time and carries no information.
    let result = result.map_err(|text| text.replace(&directory.path().display().to_string(), "DIR"));
    Verdict::of(result, |()| "read".into())
}

fn snapshot(input: &[u8]) -> Verdict {
    in_a_file(fuzzing::SNAPSHOT_FILE, input, fuzzing::snapshot)
}

/// The checksum is at 24 and covers everything from 28 on; lengths precede it.
fn fix_snapshot_checksums(input: &mut [u8]) {
    if input.len() > 28 {
        let header_bytes = u32::from_le_bytes([input[12], input[13], input[14], input[15]]);
        let body_bytes = (input.len() as u64 - 28).saturating_sub(u64::from(header_bytes));
        input[16..24].copy_from_slice(&body_bytes.to_le_bytes());
        let sum = crc32c::crc32c(&input[28..]);
        input[24..28].copy_from_slice(&sum.to_le_bytes());
    }
}

fn identity(input: &[u8]) -> Verdict {
    in_a_file(IDENTITY_FILE, input, fuzzing::identity)
}

pub(super) fn targets() -> Vec<Target> {
    vec![
        Target::new("coordinator/raft-value", value, fuzzing::raft_values),
        Target::new("coordinator/raft-message", message, fuzzing::raft_messages),
        Target {
            fix_checksums: Some(fix_snapshot_checksums),
            ..Target::new("coordinator/snapshot", snapshot, fuzzing::snapshots)
        },
        Target::new("coordinator/identity", identity, fuzzing::identities),
    ]
}
