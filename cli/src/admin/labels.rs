//! Partitions as people name them: the table's name and the partition's number.

use archon_client::Admin;
use std::collections::BTreeMap;

/// The names of the tables, by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels(BTreeMap<u64, String>);

impl Labels {
    /// Asks for the names. A table that cannot be named now is shown by its id: that is no reason to fail.
    pub(crate) async fn fetch(admin: &Admin) -> Self {
        let tables = admin.list_tables().await.unwrap_or_default();
        Self(tables.into_iter().map(|table| (table.id, table.name)).collect())
    }

    /// `default/7`.
    pub(crate) fn of(&self, table_id: u64, partition: u16) -> String {
        match self.0.get(&table_id) {
            Some(name) => format!("{name}/{partition}"),
            None => format!("{table_id}/{partition}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_goes_by_its_name_if_that_is_known() {
        let labels = Labels(BTreeMap::from([(1, "default".to_owned())]));
        assert_eq!([labels.of(1, 7), labels.of(2, 0)], ["default/7", "2/0"]);
    }
}
