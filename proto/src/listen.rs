//! Listeners of members, with segments short enough that no connection waits for TCP's persist timer.
//!
//! Over loopback a segment may have 64 KiB, and a receiver that has seen small messages offers a window of about that
//! size. A sender whose window is shorter than a segment sends nothing, and a receiver that cannot offer twice as much
//! does not update the window: after a message longer than the window the connection stalls, for 200 ms, with empty
//! buffers. With segments of a fraction of the window there is always room for one. Segments on a network are shorter
//! anyway.

use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Longest segment of a connection, in either direction: longer than any on a network, jumbo frames included, and a
/// quarter of the smallest window that is offered with empty buffers.
pub const SEGMENT_BYTES_MAX: u32 = 16 * 1024;

/// Limits the segments of all connections that `listener` accepts from now on to [`SEGMENT_BYTES_MAX`], both ways.
///
/// # Errors
/// The error of the system; the listener is unchanged then.
pub fn bound_segments(listener: &impl AsFd) -> io::Result<()> {
    SockRef::from(listener).set_tcp_mss(SEGMENT_BYTES_MAX)
}

/// Silence of a peer after which the system probes it.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// Interval between probes, and their number.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 4;
/// Longest time without an acknowledgement of sent data.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Lets the system close a connection after its peer has vanished without closing it: within two minutes if nothing is
/// sent, otherwise within about half a minute. For protocols without keepalives of their own.
///
/// # Errors
/// The error of the system.
pub fn detect_lost_peer(connection: &impl AsFd) -> io::Result<()> {
    let connection = SockRef::from(connection);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    connection.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_PROBES))?;
    connection.set_tcp_user_timeout(Some(ACKNOWLEDGEMENT_TIMEOUT))
}

/// Pause of a member before it accepts again after a failure, mostly for lack of descriptors.
pub const ACCEPT_AGAIN: Duration = Duration::from_millis(20);
/// Interval between reports of continuing failures to accept.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Failures to accept connections: the caller counts each one, but reports them rarely, since many occur at once.
#[derive(Debug, Default)]
pub struct AcceptFailures {
    unreported: u64,
    reported: Option<Instant>,
}

impl AcceptFailures {
    /// Counts a failure at `now`. Returns the number since the last report, if a report is due.
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
    fn accept_failures_are_reported_at_once_then_rarely_in_sum() {
        let (mut failures, begun) = (AcceptFailures::default(), Instant::now());
        assert_eq!(failures.note(begun), Some(1));
        for millis in (20..10_000).step_by(20) {
            assert_eq!(failures.note(begun + Duration::from_millis(millis)), None);
        }
        assert_eq!(failures.note(begun + REPORT_INTERVAL), Some(500));
        assert_eq!(failures.note(begun + REPORT_INTERVAL), None);
    }

    #[test]
    fn lost_peers_are_probed_and_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        detect_lost_peer(&connected).unwrap();
        let socket = SockRef::from(&connected);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(ACKNOWLEDGEMENT_TIMEOUT));
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
