//! Bounds on parked operations.

/// Bounds on parked operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParkLimits {
    /// Longest wait for a leadership to settle, in milliseconds; after it, the operation is answered by the present
    /// state.
    pub settle_ms: u64,
    /// Longest wait for the push of a table version that the client has already seen, in milliseconds.
    pub behind_ms: u64,
    /// Longest wait of a new client's operation for a new leader to read its client records, in milliseconds.
    pub reading_ms: u64,
    /// Longest wait of a write for room in the engine, the log or at followers, in milliseconds.
    pub room_ms: u64,
    /// Bytes that may gather for one partition while earlier rows are on their way to the engine. The engine frees all
    /// of them at once, so a larger bound means a longer wait for every client once memory is full.
    pub gathered_bytes_max: usize,
    /// Most operations parked at one partition; more are refused, retryably.
    pub parked_max: usize,
}

impl Default for ParkLimits {
    fn default() -> Self {
        Self {
            settle_ms: 1_000,
            behind_ms: 200,
            reading_ms: 1_000,
            room_ms: 2_000,
            gathered_bytes_max: 32 * 1024 * 1024,
            parked_max: 1_024,
        }
    }
}
