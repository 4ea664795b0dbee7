//! Registration of a node or participant.

pub use archon_types::Register;
