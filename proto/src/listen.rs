//! How members listen: with segments short enough that no connection waits for TCP's persist timer.
//!
//! Over loopback a segment may have 64 KiB, and a receiver that has seen small messages offers a window of about as much.
//! A sender whose window is shorter than a segment sends nothing, and a receiver that could not offer twice as much tells of
//! no more room: after a message longer than the window the connection stands still, for 200 ms, with empty buffers. With
//! segments of a fraction of the window there is always room for one. Segments on a network are shorter anyway.

use socket2::SockRef;
use std::io;
use std::os::fd::AsFd;

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

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
