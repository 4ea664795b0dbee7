//! What a node lacks of tables and nodes, as the answer to a heartbeat brings it: encoded once for all that hold the same, and passed on by
//! relays as it is.

use super::control::{check_versions, decode_nodes, decode_table};
use super::{ConvertError, bounded, ids};
use crate::v1;
use archon_types::{Incarnation, NodeDelta, TableList, TablePiece, Version, limits};
use bytes::Bytes;
use prost::Message as _;

/// What a node lacks of tables and nodes, all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct News {
    /// Tables that changed, each whole or as what is newer than the node holds.
    pub deltas: Vec<TablePiece>,
    /// The nodes that changed, if any did.
    pub nodes: Option<NodeDelta>,
    /// Which tables there are, if one was dropped.
    pub tables: Option<TableList>,
    /// With this the node holds everything up to here.
    pub complete: Version,
    /// Nothing in it has a higher version.
    pub newest: Version,
    /// Addresses of the coordinators.
    pub coordinators: Vec<String>,
}

impl News {
    /// The message, with deltas and nodes that are encoded already in place of its own. No nodes: empty.
    pub fn with_encoded(mut self, deltas: Vec<Bytes>, nodes: Bytes) -> Bytes {
        self.deltas.clear();
        self.nodes = None;
        v1::News { deltas, nodes, ..v1::News::from(self) }.encode_to_vec().into()
    }

    /// As a node reads it that registered as this life.
    ///
    /// # Errors
    /// It is none, or one of versions that cannot be.
    pub fn read(bytes: &[u8], incarnation: Incarnation) -> Result<Self, ConvertError> {
        let wire = v1::News::decode(bytes).map_err(|error| ConvertError::new("News", error.to_string()))?;
        let news = Self::try_from(wire)?;
        let News { deltas, nodes, tables, complete, newest, .. } = &news;
        check_versions(incarnation, *newest, deltas, nodes.as_ref(), tables.as_ref(), *complete)?;
        Ok(news)
    }
}

impl From<News> for v1::News {
    fn from(news: News) -> Self {
        Self {
            deltas: news.deltas.into_iter().map(super::control::encode_table).collect(),
            nodes: news.nodes.map(super::control::encode_nodes).unwrap_or_default(),
            tables: news.tables.map(Into::into),
            complete: news.complete.get(),
            newest: news.newest.get(),
            coordinators: news.coordinators,
        }
    }
}

impl TryFrom<v1::News> for News {
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
        fn news_round_trip(delta in testing::delta(), tables in proptest::option::of(Just(()))) {
            let nodes = NodeDelta { since: delta.since, version: delta.version, nodes: delta.nodes.clone(), removed: delta.removed.clone() };
            let news = News {
                nodes: Some(nodes),
                deltas: vec![TablePiece { delta, from: 0, next: None }],
                tables: tables.map(|()| TableList { version: Version::new(9), last: TableId::new(4), tables: vec![TableId::new(3)] }),
                // Versions are drawn from all there are.
                complete: Version::new(7),
                newest: Version::new(u64::MAX),
                coordinators: vec!["127.0.0.1:7001".into()],
            };
            let bytes = Bytes::from(v1::News::from(news.clone()).encode_to_vec());
            prop_assert_eq!(News::read(&bytes, Incarnation::new(u64::MAX)), Ok(news));
        }

        #[test]
        fn any_bytes_are_news_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = News::read(&bytes, Incarnation::new(7));
        }
    }

    #[test]
    fn news_of_versions_that_cannot_be_are_refused() {
        let news = |complete, newest| News {
            deltas: Vec::new(),
            nodes: None,
            tables: None,
            complete: Version::new(complete),
            newest: Version::new(newest),
            coordinators: Vec::new(),
        };
        let read = |news: News| {
            let bytes = Bytes::from(v1::News::from(news).encode_to_vec());
            News::read(&bytes, Incarnation::new(40)).map_err(|error| error.field)
        };
        assert!(read(news(50, 50)).is_ok());
        assert_eq!(read(news(51, 50)), Err("complete"));
        assert_eq!(read(news(0, 50)), Err("News.complete"));
        assert_eq!(read(news(50, u64::MAX)), Err("newest"));
    }
}
