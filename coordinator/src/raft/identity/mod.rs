//! Identity of a coordinator: generations of the cluster, watermarks of the voters' directories, and protocols.

pub(super) mod generations;
pub(super) mod kept_marks;
pub(super) mod later_generations;
#[cfg(test)]
mod later_generations_tests;
pub(crate) mod majority;
pub(super) mod protocol_support;
pub(super) mod succession;
