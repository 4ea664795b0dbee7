//! What a service says that it carries.

/// What a participant carries in all, as its service sees it: shown by `archon node list`, never looked at for safety.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServiceLoad {
    /// Bytes that it keeps, about.
    pub bytes_stored: u64,
    /// Operations in the last second.
    pub operations_per_second: u64,
}
