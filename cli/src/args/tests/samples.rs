//! Subjects of the findings and events in tests.

use archon_client::Subject;

pub(super) const NODE: &str = "athens";

pub(super) fn node() -> Subject {
    Subject::Node { node_id: 1, node: NODE.to_owned() }
}

pub(super) fn table() -> Subject {
    Subject::Table { table_id: 2, table: "orders".to_owned() }
}

pub(super) fn partition() -> Subject {
    Subject::Partition { table_id: 2, table: "orders".to_owned(), partition: 7 }
}

pub(super) fn text(text: &str) -> String {
    text.to_owned()
}
