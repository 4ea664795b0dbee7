//! Pieces of tables and nodes, each as large as a message may be.

use crate::state::ClusterState;
use archon_types::{TableId, Version};

/// A part of a table, or of the nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece<T> {
    /// Content.
    pub content: T,
    /// Size of the content in bytes.
    pub bytes: usize,
    /// Version that its receiver then holds.
    pub version: Version,
    /// Position of the next piece, if some content was left out for lack of space.
    pub next: Option<u64>,
}

/// Source of pieces. It may be slightly behind the state: the rest follows with the next push.
pub trait Pieces {
    /// Rows of a table in their sent form.
    type Rows;
    /// Nodes in their sent form.
    type Nodes;

    /// Returns the piece at `from` of the rows of `table` newer than `since`; `None` if there is no such table.
    fn rows(&self, state: &ClusterState, table: TableId, since: Version, from: u64) -> Option<Piece<Self::Rows>>;

    /// Returns the nodes newer than `since`, as many as fit into one push.
    fn nodes(&self, state: &ClusterState, since: Version) -> Option<Piece<Self::Nodes>>;
}
