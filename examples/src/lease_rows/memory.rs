//! Rows in memory.

use super::row::{Etag, ListedRow, Row};
use super::store::{Put, Rows, StoreError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A store within this process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct MemoryRows {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<u32, (Etag, Arc<Row>)>,
    last: u64,
}

impl MemoryRows {
    /// Creates a store with a row for each of this many partitions, none of which has had a holder.
    pub fn create(partitions: u32) -> Self {
        let rows = Self::default();
        for partition in 0..partitions {
            rows.operate(partition, |_| Some(Row::default()));
        }
        rows
    }

    /// Applies an operator's change to a row, under any ETag: a change, which ends its lease, or a deletion, which
    /// takes the partition offline.
    pub fn operate(&self, partition: u32, change: impl FnOnce(Row) -> Option<Row>) {
        let mut table = self.table();
        let before = table.rows.get(&partition).map_or_else(Row::default, |(_, row)| Row::clone(row));
        match change(before) {
            Some(row) => drop(table.write(partition, row)),
            None => drop(table.rows.remove(&partition)),
        }
    }

    /// [`Rows::list`], at once.
    pub fn read(&self) -> Vec<ListedRow> {
        let table = self.table();
        let listed = |(partition, (etag, row)): (&u32, &(Etag, Arc<Row>))| ListedRow {
            partition: *partition,
            etag: *etag,
            row: Arc::clone(row),
        };
        table.rows.iter().map(listed).collect()
    }

    /// [`Rows::put_if`], at once.
    pub fn write_if(&self, partition: u32, etag: Etag, row: Row) -> Put {
        let mut table = self.table();
        if table.rows.get(&partition).is_none_or(|(found, _)| *found != etag) {
            return Put::Conflict;
        }
        Put::Written(table.write(partition, row))
    }

    /// Returns the current row.
    pub fn get(&self, partition: u32) -> Option<Arc<Row>> {
        self.table().rows.get(&partition).map(|(_, row)| Arc::clone(row))
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn write(&mut self, partition: u32, row: Row) -> Etag {
        self.last += 1;
        let etag = Etag(self.last);
        self.rows.insert(partition, (etag, Arc::new(row)));
        etag
    }
}

impl Rows for MemoryRows {
    async fn list(&self) -> Result<Vec<ListedRow>, StoreError> {
        Ok(self.read())
    }

    async fn put_if(&self, partition: u32, etag: Etag, row: &Row) -> Put {
        self.write_if(partition, etag, row.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_written_only_by_its_etag_and_never_created() {
        let rows = MemoryRows::create(2);
        let listed = rows.read();
        let Put::Written(next) = rows.write_if(1, listed[1].etag, Row::default()) else { panic!("it was not written") };
        assert!(next > listed[1].etag);
        assert_eq!(rows.write_if(1, listed[1].etag, Row::default()), Put::Conflict);
        rows.operate(1, |_| None);
        assert_eq!(rows.write_if(1, next, Row::default()), Put::Conflict);
        assert_eq!(rows.read().len(), 1);
    }
}
