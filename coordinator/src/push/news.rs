//! Encoded table updates in the answers to relayed heartbeats, made once for all nodes that hold the same. `core`
//! decides their content, and when they replace a push.

use super::deltas::{encode_rows, encode_some_nodes};
use archon_coordinator_core::ClusterState;
use archon_coordinator_core::term::{self, Piece, Pieces};
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_security::BeatKey;
use archon_types::{TableId, Version};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Maximum number of held versions for which they are encoded until something changes: 16 MiB in total.
const KEPT_MAX: usize = 256;

/// Encoded update of a node, to be passed on.
#[derive(Clone, Debug)]
pub(crate) struct EncodedNews {
    pub(crate) bytes: Bytes,
    /// Its representation in a proof.
    pub(crate) digest: Bytes,
}

/// Updates encoded for the present state.
#[derive(Default)]
pub(crate) struct UpdateCache(Mutex<CachedUpdates>);

#[derive(Default)]
struct CachedUpdates {
    made_for: (Version, Vec<String>),
    /// By the version that the node holds; `None` if it is too large for an answer.
    since: BTreeMap<Version, Option<EncodedNews>>,
}

impl UpdateCache {
    /// Returns the update of a holder of everything up to `since`, if it fits into an answer. It contains the
    /// `coordinators`.
    pub(crate) fn of(&self, state: &ClusterState, since: Version, coordinators: &[String]) -> Option<EncodedNews> {
        let newest = state.table_version();
        if since >= newest {
            return None;
        }
        // Locked during the encoding, so that waiting callers do not repeat it.
        let mut kept = self.0.lock();
        if kept.made_for.0 != newest || kept.made_for.1 != coordinators {
            *kept = CachedUpdates { made_for: (newest, coordinators.to_vec()), since: BTreeMap::new() };
        }
        if let Some(known) = kept.since.get(&since) {
            return known.clone();
        }
        if kept.since.len() >= KEPT_MAX {
            return None;
        }
        let made = make(state, since, coordinators);
        kept.since.insert(since, made.clone());
        made
    }
}

fn make(state: &ClusterState, since: Version, coordinators: &[String]) -> Option<EncodedNews> {
    let term::TableUpdates { nodes, rows, tables, complete, newest } = term::news(state, since, &Encoding)?;
    let coordinators = coordinators.to_vec();
    let news = TableUpdates { deltas: Vec::new(), nodes: None, tables, complete, newest, coordinators };
    let bytes = news.with_encoded(rows, nodes.unwrap_or_default());
    Some(EncodedNews { digest: BeatKey::digest(&bytes), bytes })
}

/// Encodes pieces of the present state.
struct Encoding;

impl Pieces for Encoding {
    type Rows = Bytes;
    type Nodes = Bytes;

    fn rows(&self, state: &ClusterState, table: TableId, since: Version, from: u64) -> Option<Piece<Bytes>> {
        encode_rows(state, table, since, from)
    }

    fn nodes(&self, state: &ClusterState, since: Version) -> Option<Piece<Bytes>> {
        Some(encode_some_nodes(state, since))
    }
}

#[cfg(test)]
mod tests {
    use super::super::deltas::testing::{register, state};
    use super::*;
    use archon_types::Incarnation;

    fn here() -> Vec<String> {
        vec!["127.0.0.1:7001".to_owned()]
    }

    #[test]
    fn news_are_encoded_once_per_held_version() {
        let mut state = state();
        register(&mut state);
        let (kept, since) = (UpdateCache::default(), state.table_version());
        assert!(kept.of(&state, since, &here()).is_none(), "it holds everything");
        register(&mut state);
        let first = kept.of(&state, since, &here()).unwrap();
        for _ in 0..100 {
            let again = kept.of(&state, since, &here()).unwrap();
            assert_eq!(again.bytes.as_ptr(), first.bytes.as_ptr(), "shared, not copied");
        }
        let news = TableUpdates::read(&first.bytes, Incarnation::new(1)).unwrap();
        assert_eq!((news.complete, news.coordinators), (state.table_version(), here()));
        assert_eq!(news.nodes.unwrap().nodes.len(), 1);
        assert!(news.deltas.is_empty(), "no row of a table changed");
        register(&mut state);
        let later = kept.of(&state, since, &here()).unwrap();
        assert_eq!(TableUpdates::read(&later.bytes, Incarnation::new(1)).unwrap().nodes.unwrap().nodes.len(), 2);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut state = state();
        let versions: Vec<Version> = (0..=KEPT_MAX)
            .map(|_| {
                register(&mut state);
                state.table_version()
            })
            .collect();
        register(&mut state);
        let kept = UpdateCache::default();
        let made = versions.iter().filter(|since| kept.of(&state, **since, &here()).is_some()).count();
        assert_eq!(made, KEPT_MAX, "the rest is pushed");
    }
}
