//! A partition as a plain map, for tests.

use super::view::{ClientPage, View, ViewError};
use crate::engine::{Page, PageLimit};
use crate::exactly_once::window::Window;
use crate::operations::effect::Effect;
use archon_types::{ClientId, ScanOrder};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// Rows by key, and windows by client.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rows(pub(crate) BTreeMap<Bytes, Bytes>, pub(crate) BTreeMap<ClientId, Window>);

impl Rows {
    pub(crate) fn apply(&mut self, effect: &Effect) {
        self.0.retain(|key, _| !effect.clears(key));
        for change in effect.rows() {
            match change.value {
                Some(value) => self.0.insert(change.key, value),
                None => self.0.remove(&change.key),
            };
        }
        effect.forget.iter().for_each(|client| drop(self.1.remove(client)));
        if let Some(record) = &effect.record {
            let window = self.1.entry(record.client).or_insert_with(|| Window::new(record, effect.at));
            window.record(record, effect.at);
        }
    }
}

impl View for Rows {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        Ok(self.0.get(key).cloned())
    }

    fn page(&self, from: Bound<&[u8]>, to: &[u8], order: ScanOrder, limit: PageLimit) -> Result<Page, ViewError> {
        let rows = self.0.range::<[u8], _>((from, Bound::Unbounded)).take_while(|(key, _)| &key[..] < to);
        let mut rows: Vec<_> = rows.collect();
        if order == ScanOrder::Descending {
            rows.reverse();
        }
        Ok(Page::of(rows.into_iter(), limit))
    }

    fn window(&self, client: ClientId) -> Result<Option<Arc<Window>>, ViewError> {
        Ok(self.1.get(&client).cloned().map(Arc::new))
    }

    fn clients(&self, from: ClientId, clients_max: usize) -> Result<ClientPage, ViewError> {
        let mut rest = self.1.range(from..).map(|(client, window)| (*client, window.last));
        let page: Vec<_> = rest.by_ref().take(clients_max).collect();
        Ok((page, rest.next().map(|(client, _)| client)))
    }
}
