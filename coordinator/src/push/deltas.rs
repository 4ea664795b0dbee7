//! Deltas of tables and nodes, encoded once and shared by all nodes that lack the same. Nearly all nodes hold the same
//! version at any time, so their pushes differ only in the duties.

use archon_coordinator_core::term::Piece;
use archon_coordinator_core::{ClusterState, nodes_delta, rows_piece};
use archon_proto::convert::members::control::{encode_nodes, encode_table};
use archon_types::limits::PIECE_BYTES_MAX;
use archon_types::{TableId, Version};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Maximum number of bytes kept; the oldest are dropped first. As large as everything about a million partitions.
const KEPT_BYTES_MAX: usize = 128 * 1024 * 1024;

/// An encoded delta.
type EncodedDelta = Piece<Bytes>;

/// A table, or the nodes; the version since which; the position from which.
type Key = (Option<TableId>, Version, u64);

struct CachedDelta {
    encoded: EncodedDelta,
    made: Instant,
}

/// Encoded deltas, kept for reuse.
#[derive(Default)]
pub(super) struct Deltas {
    kept: Mutex<Store>,
}

#[derive(Default)]
struct Store {
    deltas: BTreeMap<Key, CachedDelta>,
    order: VecDeque<Key>,
    bytes: usize,
    made: u64,
}

impl Deltas {
    /// Returns the piece at `from` of the rows of a table newer than `since`. While rows change constantly, one without
    /// the changes of the last `stale_max` suffices: the next one contains them. `None`: there is no such table.
    pub(super) fn table(
        &self,
        state: &ClusterState,
        table: TableId,
        since: Version,
        from: u64,
        stale_max: Duration,
    ) -> Option<EncodedDelta> {
        let make = || encode_rows(state, table, since, from);
        self.get((Some(table), since, from), state.rows_version_of(table), stale_max, make)
    }

    /// Returns the nodes newer than `since`, as many as fit into one push.
    pub(super) fn nodes(&self, state: &ClusterState, since: Version, stale_max: Duration) -> Option<EncodedDelta> {
        self.get((None, since, 0), state.nodes_version, stale_max, || Some(encode_some_nodes(state, since)))
    }

    fn get(
        &self,
        key: Key,
        newest: Version,
        stale_max: Duration,
        make: impl FnOnce() -> Option<EncodedDelta>,
    ) -> Option<EncodedDelta> {
        // Locked during the encoding, so that waiting callers do not repeat it.
        let mut store = self.kept.lock();
        if let Some(kept) = store.deltas.get(&key)
            && (kept.encoded.version >= newest || kept.made.elapsed() < stale_max)
        {
            return Some(kept.encoded.clone());
        }
        let encoded = make()?;
        store.keep(key, encoded.clone());
        Some(encoded)
    }

    /// Returns the number of encodings so far.
    #[cfg(test)]
    fn made(&self) -> u64 {
        self.kept.lock().made
    }
}

impl Store {
    fn keep(&mut self, key: Key, encoded: EncodedDelta) {
        self.made += 1;
        self.bytes += weight(&encoded);
        match self.deltas.insert(key, CachedDelta { encoded, made: Instant::now() }) {
            Some(before) => self.bytes -= weight(&before.encoded),
            None => self.order.push_back(key),
        }
        while self.bytes > KEPT_BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(gone) = self.deltas.remove(&oldest) {
                self.bytes -= weight(&gone.encoded);
            }
        }
    }
}

/// Returns the piece at `from` of the rows of a table newer than `since`. `None`: there is no such table.
pub(super) fn encode_rows(state: &ClusterState, table: TableId, since: Version, from: u64) -> Option<EncodedDelta> {
    let piece = rows_piece(state, table, since, from)?;
    let (version, next) = (piece.delta.version, piece.next);
    Some(encoded(encode_table(piece), version, next))
}

/// Returns the nodes newer than `since`, as many as fit.
pub(super) fn encode_some_nodes(state: &ClusterState, since: Version) -> EncodedDelta {
    let delta = nodes_delta(state, since, PIECE_BYTES_MAX);
    let version = delta.version;
    let next = (version < state.nodes_version).then_some(0);
    encoded(encode_nodes(delta), version, next)
}

fn encoded(content: Bytes, version: Version, next: Option<u64>) -> EncodedDelta {
    Piece { bytes: content.len(), content, version, next }
}

/// Returns the memory used by one, including its places in the store.
fn weight(encoded: &EncodedDelta) -> usize {
    const PLACES: usize = 256;
    encoded.bytes + PLACES
}

/// States of a cluster, for tests.
#[cfg(test)]
pub(super) mod testing {
    use archon_coordinator_core::{Actor, ClusterState, Command, CommandBatch, Register, apply};
    use archon_types::{BootId, ClusterId, Millis, Settings, StorageId};
    use uuid::Uuid;

    pub(in crate::push) fn state() -> ClusterState {
        let mut state = ClusterState::new();
        let settings = Settings { partitions: 100, ..Settings::default() };
        commit(&mut state, Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(1)), settings });
        state
    }

    pub(in crate::push) fn commit(state: &mut ClusterState, command: Command) {
        let who = Actor::Coordinator(1);
        let commands = vec![command];
        let batch = CommandBatch { request: None, at: Millis::new(1), who, proposer: 1, term: 1, commands };
        let index = state.applied + 1;
        assert!(apply(state, index, &batch).iter().all(|response| response.refusal().is_none()));
    }

    /// Registers one more node.
    pub(in crate::push) fn register(state: &mut ClusterState) {
        let number = state.applied;
        let storage = StorageId::new(Uuid::from_u128(number.into()));
        let boot = BootId::new(Uuid::from_u128(1));
        let register = Register::new(format!("n{number}"), format!("n{number}:1"), storage, boot);
        commit(state, Command::Register(Box::new(register)));
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{commit, register, state};
    use super::*;
    use archon_coordinator_core::Command;
    use archon_proto::v1;
    use archon_types::{Partitioning, TableContent};
    use prost::Message as _;

    #[test]
    fn delta_is_encoded_once_per_held_version() {
        let (state, deltas) = (state(), Deltas::default());
        let table = TableId::new(1);
        let first = deltas.table(&state, table, Version::ZERO, 0, Duration::ZERO).unwrap();
        for _ in 0..1_000 {
            let again = deltas.table(&state, table, Version::ZERO, 0, Duration::ZERO).unwrap();
            assert_eq!(again.content.as_ptr(), first.content.as_ptr(), "shared, not copied");
        }
        assert_eq!(deltas.made(), 1);
        let rows = v1::TableDelta::decode(&first.content[..]).unwrap();
        assert_eq!((rows.partitions.len(), rows.version), (100, state.version_of(table).get()));
        assert!(deltas.table(&state, TableId::new(9), Version::ZERO, 0, Duration::ZERO).is_none());
    }

    #[test]
    fn kept_deltas_are_bounded_and_oldest_are_dropped() {
        let mut store = Store::default();
        let encoded = |bytes| encoded(vec![0; bytes].into(), Version::new(1), None);
        let quarter = KEPT_BYTES_MAX / 4 - weight(&encoded(0));
        for table in 1..=5 {
            store.keep((Some(TableId::new(table)), Version::ZERO, 0), encoded(quarter));
        }
        let kept: Vec<u64> = store.deltas.keys().filter_map(|(table, ..)| table.map(TableId::get)).collect();
        assert_eq!((kept, store.bytes), (vec![2, 3, 4, 5], KEPT_BYTES_MAX));
        store.keep((Some(TableId::new(5)), Version::ZERO, 0), encoded(1));
        let left = KEPT_BYTES_MAX / 4 * 3 + weight(&encoded(1));
        assert_eq!((store.deltas.len(), store.order.len(), store.bytes), (4, 4, left));
    }

    #[test]
    fn change_makes_new_delta_unless_older_one_suffices() {
        let (mut state, deltas) = (state(), Deltas::default());
        let table = TableId::new(1);
        let before = deltas.table(&state, table, Version::ZERO, 0, Duration::ZERO).unwrap();
        commit(
            &mut state,
            Command::CreateTable {
                name: "other".into(),
                partitioning: Partitioning::Hash { partitions: 1 },
                replication: 3,
                holds: TableContent::Data,
            },
        );
        assert_eq!(deltas.table(&state, table, Version::ZERO, 0, Duration::ZERO).unwrap().version, before.version);
        assert_eq!(deltas.made(), 1, "another table changed, not this one");
        register(&mut state);
        deltas.table(&state, table, Version::ZERO, 0, Duration::ZERO).unwrap();
        assert_eq!(deltas.made(), 1, "a node changed, no row of this table");
        let one = deltas.nodes(&state, Version::ZERO, Duration::ZERO).unwrap();
        register(&mut state);
        let late = deltas.nodes(&state, Version::ZERO, Duration::from_secs(600)).unwrap();
        assert_eq!((late.version, deltas.made()), (one.version, 2));
        let two = deltas.nodes(&state, Version::ZERO, Duration::ZERO).unwrap();
        assert_eq!((two.version, two.next, deltas.made()), (state.nodes_version, None, 3));
        assert_eq!(v1::NodeDelta::decode(&two.content[..]).unwrap().nodes.len(), 2);
    }
}
