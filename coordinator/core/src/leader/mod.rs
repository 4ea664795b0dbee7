//! Work of the leading coordinator: turns, answers to members, and the duties of nodes.

pub(crate) mod duties;
pub(crate) mod report;
pub mod term;
pub(crate) mod turn;
