//! Status and findings: those of the core, and those that only the process knows.

pub(super) mod alerts;
pub(crate) mod bars;
pub(super) mod certificates;
pub(crate) mod disks;
pub(super) mod status;
pub(super) mod subjects;
pub(super) mod voters;
