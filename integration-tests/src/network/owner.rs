//! Finds the process at the other end of a connection on this machine.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

/// Returns the name of the process among `processes` (by process id) that holds the socket bound to `local`.
pub(super) fn owner_of(local: SocketAddr, remote: SocketAddr, processes: &BTreeMap<u32, String>) -> Option<String> {
    let wanted = format!("socket:[{}]", inode_of(local, remote)?);
    processes.iter().find(|(pid, _)| holds(**pid, &wanted)).map(|(_, name)| name.clone())
}

fn inode_of(local: SocketAddr, remote: SocketAddr) -> Option<u64> {
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let (local, remote) = (as_the_kernel_writes(local)?, as_the_kernel_writes(remote)?);
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (from, to) = (fields.nth(1)?, fields.next()?);
        // The fields after these two: state, queues, timer, retransmissions, user, time-out, inode.
        (from == local && to == remote).then(|| fields.nth(6)?.parse().ok())?
    })
}

/// Formats an IPv4 address as the kernel does, in the byte order of the machine.
fn as_the_kernel_writes(address: SocketAddr) -> Option<String> {
    match address {
        SocketAddr::V4(address) => {
            let number = u32::from_ne_bytes(address.ip().octets());
            Some(format!("{number:08X}:{:04X}", address.port()))
        }
        SocketAddr::V6(_) => None,
    }
}

fn holds(pid: u32, wanted: &str) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|link| link.as_os_str() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connection_is_traced_to_its_process() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (local, remote) = (stream.local_addr().expect("bound"), stream.peer_addr().expect("connected"));
        let me = BTreeMap::from([(1, "init".to_owned()), (std::process::id(), "me".to_owned())]);
        assert_eq!(owner_of(local, remote, &me), Some("me".to_owned()));
        assert_eq!(owner_of(local, remote, &BTreeMap::new()), None);
    }
}
