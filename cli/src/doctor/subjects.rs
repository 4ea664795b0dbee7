//! Subjects of findings that are about no single file or member.

/// Subject of findings about the machine in general.
pub(crate) const MACHINE: &str = "this machine";

/// Subject of findings about all members together.
pub(crate) const CLUSTER: &str = "the cluster";
