//! A partition as a plain map, for tests.

use super::view::{View, ViewError};
use crate::engine::{Page, PageLimit};
use crate::operations::effect::Effect;
use archon_types::ScanOrder;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Rows by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Rows(pub(crate) BTreeMap<Bytes, Bytes>);

impl Rows {
    pub(crate) fn apply(&mut self, effect: &Effect) {
        self.0.retain(|key, _| !effect.clears(key));
        for change in effect.rows() {
            match change.value {
                Some(value) => self.0.insert(change.key, value),
                None => self.0.remove(&change.key),
            };
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
}
