//! Operations on keys, and packed entries.

pub(crate) mod expiry;
pub mod op;
pub(crate) mod op_kind;
pub(crate) mod packed_entries;
pub mod transaction;
