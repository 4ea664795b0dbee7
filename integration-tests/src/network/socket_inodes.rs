//! Asks the kernel for the inode of one TCP socket, by sock_diag(7): the list in `/proc/net/tcp` would be read whole for each.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with, sockopt,
};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Type of the message, of the request and of an answer that holds a socket: `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// Flag of a message that asks: `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// Bytes of a netlink header, and of the question after it (`inet_diag_req_v2`).
const HEADER_BYTES: usize = 16;
const QUESTION_BYTES: usize = 56;
/// Place of `idiag_inode` in an answer.
const INODE_AT: usize = HEADER_BYTES + 68;
/// The kernel answers in the call that asks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A netlink socket for these questions.
#[derive(Debug)]
pub(super) struct SocketInodes(OwnedFd);

impl SocketInodes {
    /// Opens the netlink socket.
    ///
    /// # Errors
    /// The kernel lacks `inet_diag`.
    pub(super) fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        Ok(Self(socket))
    }

    /// Returns the inode of the socket that is connected from `local` to `remote`, both IPv4, if there is one.
    pub(super) fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<u64> {
        send(&self.0, &question(local, remote)?, SendFlags::empty()).ok()?;
        let mut answer = [0; 1_024];
        let (bytes, _) = recv(&self.0, &mut answer[..], RecvFlags::empty()).ok()?;
        let answer = &answer[..bytes];
        // Otherwise it is an error: there is no such socket.
        let found = answer.get(4..6)? == BY_FAMILY.to_ne_bytes();
        let inode = u32::from_ne_bytes(answer.get(INODE_AT..INODE_AT + 4)?.try_into().ok()?);
        found.then_some(u64::from(inode))
    }
}

/// Formats a question for exactly one socket: header, family, protocol, all states, ports and addresses.
fn question(local: SocketAddr, remote: SocketAddr) -> Option<Vec<u8>> {
    let (SocketAddr::V4(local), SocketAddr::V4(remote)) = (local, remote) else { return None };
    let mut bytes = Vec::with_capacity(HEADER_BYTES + QUESTION_BYTES);
    bytes.extend(((HEADER_BYTES + QUESTION_BYTES) as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    // Sequence number and sender, which the kernel repeats.
    bytes.extend([0; 8]);
    bytes.extend([AddressFamily::INET.as_raw() as u8, rustix::net::ipproto::TCP.as_raw().get() as u8, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        bytes.extend(address.octets());
        bytes.extend([0; 12]);
    }
    // Any interface, and no cookie.
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(u64::MAX.to_ne_bytes());
    Some(bytes)
}
