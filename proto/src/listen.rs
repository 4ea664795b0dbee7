//! How members listen: with segments short enough that no connection waits for TCP's persist timer.
//!
//! Over loopback a segment may have 64 KiB, and a receiver that has seen small messages offers a window of about as much.
//! A sender whose window is shorter than a segment sends nothing, and a receiver that could not offer twice as much tells of
//! no more room: after a message longer than the window the connection stands still, for 200 ms, with empty buffers. With
//! segments of a fraction of the window there is always room for one. Segments on a network are shorter anyway.

use socket2::SockRef;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Longest segment of a connection, in either direction: longer than any on a network, jumbo frames included, and a quarter
/// of the smallest window that is offered with empty buffers.
pub const SEGMENT_BYTES_MAX: u32 = 16 * 1024;

/// Has all connections that `listener` accepts from now on agree on segments of [`SEGMENT_BYTES_MAX`] at most, both ways.
///
/// # Errors
/// What the system says; the listener is as it was then.
pub fn bound_segments(listener: &impl AsFd) -> io::Result<()> {
    SockRef::from(listener).set_tcp_mss(SEGMENT_BYTES_MAX)
}

/// How long a member waits before it tries to accept again, after that failed for want of descriptors above all.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// How often failures to accept are told while they go on.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Failures to accept connections: each is counted by whoever accepts, and told rarely, since many come at once.
#[derive(Debug, Default)]
pub struct AcceptFailures {
    unreported: u64,
    reported: Option<Instant>,
}

impl AcceptFailures {
    /// One more at `now`. Returns how many there were since they were told last, if they should be told now.
    pub fn note(&mut self, now: Instant) -> Option<u64> {
        self.unreported += 1;
        if self.reported.is_some_and(|reported| now.saturating_duration_since(reported) < REPORT_INTERVAL) {
            return None;
        }
        self.reported = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn failures_to_accept_are_told_at_once_and_then_rarely_with_their_number() {
        let (mut failures, begun) = (AcceptFailures::default(), Instant::now());
        assert_eq!(failures.note(begun), Some(1));
        for millis in (20..10_000).step_by(20) {
            assert_eq!(failures.note(begun + Duration::from_millis(millis)), None);
        }
        assert_eq!(failures.note(begun + REPORT_INTERVAL), Some(500));
        assert_eq!(failures.note(begun + REPORT_INTERVAL), None);
    }

    #[test]
    fn both_ends_of_an_accepted_connection_send_short_segments() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        bound_segments(&listener).unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        for (side, stream) in [("connected", &connected), ("accepted", &accepted)] {
            let segment_bytes = SockRef::from(stream).tcp_mss().unwrap();
            assert!(segment_bytes <= SEGMENT_BYTES_MAX, "{side}: {segment_bytes}");
        }
    }
}
