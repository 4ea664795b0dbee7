//! Load reported by a service.

/// Total load of a participant, as reported by its service: shown by `archon node list`, irrelevant for safety.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServiceLoad {
    /// Approximate bytes that it stores.
    pub bytes_stored: u64,
    /// Operations in the last second.
    pub operations_per_second: u64,
}
