//! TCP connections to a name: all of its addresses are tried, side by side.

use crate::net::names::Seconds;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Time after which the next address is tried beside those that have not answered (RFC 8305, section 8).
const STAGGER: Duration = Duration::from_millis(200);
/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Connections to the addresses of one name, in the order in which they are made.
pub(crate) struct Dial {
    waiting: VecDeque<SocketAddr>,
    connecting: JoinSet<(SocketAddr, io::Result<TcpStream>)>,
    within: Duration,
}

impl Dial {
    /// Dials these addresses, each for as long as `within`.
    pub(crate) fn new(addresses: &[SocketAddr], port: u16, within: Duration) -> Self {
        let mut waiting: VecDeque<SocketAddr> = alternate(addresses).take(ADDRESSES_MAX).collect();
        waiting.iter_mut().for_each(|address| address.set_port(port));
        Self { waiting, connecting: JoinSet::new(), within }
    }

    /// Returns the next connection that is made, or the next failure; `None` once all addresses are used up. A caller that cannot use a
    /// connection asks for the next one.
    pub(crate) async fn next(&mut self) -> Option<(SocketAddr, io::Result<TcpStream>)> {
        loop {
            if self.connecting.is_empty() {
                self.start_next()?;
            }
            tokio::select! {
                joined = self.connecting.join_next() => match joined? {
                    Ok(dialled) => return Some(dialled),
                    Err(error) => tracing::debug!(%error, "an attempt to connect ended"),
                },
                () = sleep(STAGGER), if !self.waiting.is_empty() => {
                    self.start_next()?;
                }
            }
        }
    }

    fn start_next(&mut self) -> Option<()> {
        let (address, within) = (self.waiting.pop_front()?, self.within);
        self.connecting.spawn(async move {
            let connected = timeout(within, TcpStream::connect(address)).await.unwrap_or_else(|_| {
                let why = format!("no TCP connection within {}", Seconds(within));
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            });
            (address, connected)
        });
        Some(())
    }
}

/// The addresses in the order of the resolver, families in turn, so that one family without a route costs one attempt.
fn alternate(addresses: &[SocketAddr]) -> impl Iterator<Item = SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut other): (VecDeque<SocketAddr>, VecDeque<SocketAddr>) =
        addresses.iter().partition(|address| address.is_ipv6() == first_is_v6);
    let mut turn = false;
    std::iter::from_fn(move || {
        turn = !turn;
        let (now, later) = if turn { (&mut first, &mut other) } else { (&mut other, &mut first) };
        now.pop_front().or_else(|| later.pop_front())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;
    use tokio::net::TcpListener;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse::<IpAddr>().unwrap(), 0)).collect()
    }

    #[test]
    fn families_of_addresses_take_turns() {
        let all = addresses(&["::1", "::2", "::3", "10.0.0.1", "::4"]);
        let order: Vec<String> = alternate(&all).map(|address| address.ip().to_string()).collect();
        assert_eq!(order, ["::1", "10.0.0.1", "::2", "::3", "::4"]);
        assert_eq!(alternate(&[]).count(), 0);
    }

    #[tokio::test]
    async fn silent_address_does_not_delay_the_next_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // TEST-NET-1 has no hosts: a connection there is silent, or refused at once where there is no route.
        let addresses = addresses(&["192.0.2.1", "127.0.0.1"]);
        let mut dial = Dial::new(&addresses, port, Duration::from_secs(600));
        let (address, stream) = loop {
            match dial.next().await.unwrap() {
                (address, Ok(stream)) => break (address, stream),
                (address, Err(_)) => assert_ne!(address.ip(), addresses[1].ip()),
            }
        };
        assert_eq!((address, stream.peer_addr().unwrap()), (listener.local_addr().unwrap(), address));
    }

    #[tokio::test]
    async fn refused_address_is_followed_by_the_next_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let addresses = addresses(&["127.0.0.2", "127.0.0.1", "127.0.0.3"]);
        let mut dial = Dial::new(&addresses, port, Duration::from_secs(600));
        let mut outcomes = Vec::new();
        while let Some((address, dialled)) = dial.next().await {
            outcomes.push(dialled.is_ok());
            assert_eq!(address.ip(), addresses[outcomes.len() - 1].ip());
        }
        assert_eq!(outcomes, [false, true, false]);
    }
}
