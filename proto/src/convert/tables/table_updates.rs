//! Table updates of a node, in the answer to a heartbeat: encoded once for all nodes with the same holdings, and passed
//! on unchanged by relays.

use crate::convert::members::control::{check_versions, decode_nodes, decode_table};
use crate::convert::{ConvertError, bounded, ids};
use crate::v1;
use archon_types::{Incarnation, NodeDelta, TableList, TablePiece, Version, limits};
use bytes::Bytes;
use prost::Message as _;

/// Complete table updates of a node: the rows of tables and nodes that it lacks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableUpdates {
    /// Tables that changed, each complete or as the rows newer than the node's.
    pub deltas: Vec<TablePiece>,
    /// The nodes that changed, if any did.
    pub nodes: Option<NodeDelta>,
    /// The list of tables, if one was dropped.
    pub tables: Option<TableList>,
    /// With this the node holds everything up to this version.
    pub complete: Version,
    /// Upper bound of all versions in it.
    pub newest: Version,
    /// Addresses of the coordinators.
    pub coordinators: Vec<String>,
}

impl TableUpdates {
    /// Returns the message, with encoded deltas and nodes in place of its own. No nodes: empty.
    pub fn with_encoded(mut self, deltas: Vec<Bytes>, nodes: Bytes) -> Bytes {
        self.deltas.clear();
        self.nodes = None;
        v1::News { deltas, nodes, ..v1::News::from(self) }.encode_to_vec().into()
    }

    /// Reads it as a node that registered as this incarnation.
    ///
    /// # Errors
    /// It is malformed, or has impossible versions.
    pub fn read(bytes: &[u8], incarnation: Incarnation) -> Result<Self, ConvertError> {
        let wire = v1::News::decode(bytes).map_err(|error| ConvertError::new("News", error.to_string()))?;
        let news = Self::try_from(wire)?;
        let TableUpdates { deltas, nodes, tables, complete, newest, .. } = &news;
        check_versions(incarnation, *newest, deltas, nodes.as_ref(), tables.as_ref(), *complete)?;
        Ok(news)
    }
}

impl From<TableUpdates> for v1::News {
    fn from(news: TableUpdates) -> Self {
        Self {
            deltas: news.deltas.into_iter().map(crate::convert::members::control::encode_table).collect(),
            nodes: news.nodes.map(crate::convert::members::control::encode_nodes).unwrap_or_default(),
            tables: news.tables.map(Into::into),
            complete: news.complete.get(),
            newest: news.newest.get(),
            coordinators: news.coordinators,
        }
    }
}

impl TryFrom<v1::News> for TableUpdates {
    type Error = ConvertError;

    fn try_from(wire: v1::News) -> Result<Self, ConvertError> {
        bounded(wire.coordinators.len(), limits::COORDINATORS_MAX, "News.coordinators")?;
        wire.coordinators.iter().try_for_each(|address| ids::check_address(address, "News.coordinators").map(drop))?;
        Ok(Self {
            deltas: wire.deltas.iter().map(|bytes| decode_table(bytes, "News.deltas")).collect::<Result<_, _>>()?,
            nodes: decode_nodes(&wire.nodes, "News.nodes")?,
            tables: wire.tables.map(TableList::try_from).transpose()?,
            complete: Version::new(ids::non_zero(wire.complete, "News.complete")?),
            newest: Version::new(wire.newest),
            coordinators: wire.coordinators,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing;
    use archon_types::TableId;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn table_updates_round_trip(delta in testing::delta(), tables in proptest::option::of(Just(()))) {
            let nodes = NodeDelta { since: delta.since, version: delta.version, nodes: delta.nodes.clone(), removed: delta.removed.clone() };
            let news = TableUpdates {
                nodes: Some(nodes),
                deltas: vec![TablePiece { delta, from: 0, next: None }],
                tables: tables.map(|()| TableList { version: Version::new(9), last: TableId::new(4), tables: vec![TableId::new(3)] }),
                // Versions are drawn from the full range.
                complete: Version::new(7),
                newest: Version::new(u64::MAX),
                coordinators: vec!["127.0.0.1:7001".into()],
            };
            let bytes = Bytes::from(v1::News::from(news.clone()).encode_to_vec());
            prop_assert_eq!(TableUpdates::read(&bytes, Incarnation::new(u64::MAX)), Ok(news));
        }

        #[test]
        fn any_bytes_are_a_table_update_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = TableUpdates::read(&bytes, Incarnation::new(7));
        }
    }

    #[test]
    fn nodes_without_known_fields_are_no_nodes() {
        // Field 99, of a later version.
        let nodes = Bytes::from_static(&[0x98, 0x06, 0x01]);
        let wire = v1::News { nodes, complete: 1, ..v1::News::default() };
        assert_eq!(TableUpdates::try_from(wire).map(|news| news.nodes), Ok(None));
    }

    #[test]
    fn table_updates_with_impossible_versions_are_refused() {
        let news = |complete, newest| TableUpdates {
            deltas: Vec::new(),
            nodes: None,
            tables: None,
            complete: Version::new(complete),
            newest: Version::new(newest),
            coordinators: Vec::new(),
        };
        let read = |news: TableUpdates| {
            let bytes = Bytes::from(v1::News::from(news).encode_to_vec());
            TableUpdates::read(&bytes, Incarnation::new(40)).map_err(|error| error.field)
        };
        assert!(read(news(50, 50)).is_ok());
        assert_eq!(read(news(51, 50)), Err("complete"));
        assert_eq!(read(news(0, 50)), Err("News.complete"));
        assert_eq!(read(news(50, u64::MAX)), Err("newest"));
    }
}
