//! The network between the members of a cluster, and faults on it.
//!
//! Two implementations of one interface. [`Namespaces`] gives every member a network namespace of its own: the router
//! between them drops packets, as on a real network, and the kernel's TCP reacts; needs root. [`Proxies`] puts a proxy
//! in front of every member: bytes are held back, delayed, or end in a reset; works anywhere.

mod callers;
mod namespaces;
mod proxies;
mod pump;
mod socket_inodes;

use self::namespaces::PORT;
pub use namespaces::Namespaces;
pub use proxies::Proxies;

use crate::ports::free_addresses;
use archon_local_cluster::Place;
use archon_testkit::skipped;
use std::time::Duration;

/// Name of the host of all clients of the test, the command line included.
pub const CLIENTS: &str = "clients";

/// Kind of connection between the members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Network {
    /// Loopback without faults.
    #[default]
    Loopback,
    /// A network namespace per member.
    Namespaces,
    /// A proxy in front of each member.
    Proxies,
}

impl Network {
    /// Returns true if this machine allows it; otherwise the test is skipped.
    pub fn available(self) -> bool {
        let available = self != Self::Namespaces || Namespaces::available();
        if !available {
            skipped("this machine does not let a test make network namespaces (that needs root)");
        }
        available
    }
}

/// The network of one cluster.
#[derive(Debug)]
pub enum Links {
    /// Loopback without faults.
    Loopback,
    /// Network namespaces.
    Namespaces(Namespaces),
    /// Proxies.
    Proxies(Proxies),
}

impl Links {
    /// Creates the network. With namespaces, the calling thread moves into that of the clients, and so do the processes
    /// it starts from now on.
    pub fn new(network: Network) -> Self {
        match network {
            Network::Loopback => Self::Loopback,
            Network::Namespaces => Self::Namespaces(Namespaces::new()),
            Network::Proxies => Self::Proxies(Proxies::new()),
        }
    }

    /// Adds a place for a new member.
    pub fn add(&mut self, name: &str) -> Place {
        match self {
            Self::Loopback => free_addresses(1).remove(0).into(),
            Self::Namespaces(namespaces) => format!("{}:{PORT}", namespaces.add(name)).into(),
            Self::Proxies(proxies) => proxies.add(name),
        }
    }

    /// Returns the command prefix that runs a member at its place.
    pub fn before(&self, name: &str) -> Vec<String> {
        match self {
            Self::Namespaces(namespaces) => vec!["nsenter".into(), namespaces.net_option(name)],
            Self::Loopback | Self::Proxies(_) => Vec::new(),
        }
    }

    /// Records the process of a member.
    pub fn runs_as(&self, name: &str, pid: u32) {
        if let Self::Proxies(proxies) = self {
            proxies.runs_as(name, pid);
        }
    }

    /// Returns true if traffic leaves loopback, which the program allows only with a flag.
    pub const fn beyond_loopback(&self) -> bool {
        matches!(self, Self::Namespaces(_))
    }

    /// Silently drops everything that `from` sends to `to`.
    ///
    /// # Panics
    /// On a network that cannot do it.
    pub fn cut(&mut self, from: &str, to: &str) {
        match self {
            Self::Loopback => panic!("{from} and {to} are connected by loopback, which cannot be cut"),
            Self::Namespaces(namespaces) => namespaces.cut(from, to),
            Self::Proxies(proxies) => proxies.change(from, to, |link| link.cut = true),
        }
    }

    /// Cuts both directions.
    pub fn cut_both(&mut self, one: &str, other: &str) {
        self.cut(one, other);
        self.cut(other, one);
    }

    /// Undoes [`Links::cut`].
    pub fn mend(&mut self, from: &str, to: &str) {
        match self {
            Self::Loopback => {}
            Self::Namespaces(namespaces) => namespaces.mend(from, to),
            Self::Proxies(proxies) => proxies.change(from, to, |link| link.cut = false),
        }
    }

    /// Undoes [`Links::cut_both`].
    pub fn mend_both(&mut self, one: &str, other: &str) {
        self.mend(one, other);
        self.mend(other, one);
    }

    /// Blocks connections that `from` makes to `to`, existing ones included; connections that `to` opens continue. A
    /// proxy accepts connections and does nothing with them; with namespaces, packets to the member's port are dropped,
    /// as by a firewall.
    ///
    /// # Panics
    /// On a network that cannot do it.
    pub fn shut(&mut self, from: &str, to: &str) {
        match self {
            Self::Loopback => panic!("{from} and {to} are connected by loopback, where nothing is in between"),
            Self::Namespaces(namespaces) => namespaces.shut(from, to),
            Self::Proxies(proxies) => proxies.shut(from, to, true),
        }
    }

    /// Undoes [`Links::shut`].
    pub fn open(&mut self, from: &str, to: &str) {
        match self {
            Self::Loopback => {}
            Self::Namespaces(namespaces) => namespaces.open(from, to),
            Self::Proxies(proxies) => proxies.shut(from, to, false),
        }
    }

    /// Limits everything that `host` sends and receives to this rate; `None` removes the limit.
    ///
    /// # Panics
    /// On a network that cannot do it.
    pub fn slow(&mut self, host: &str, bytes_per_second: Option<u64>) {
        match self {
            Self::Loopback => panic!("{host} is connected by loopback, which cannot be slowed"),
            Self::Namespaces(namespaces) => namespaces.slow(host, bytes_per_second),
            Self::Proxies(proxies) => proxies.slow(host, bytes_per_second),
        }
    }

    /// Delays everything that `from` sends to `to`.
    ///
    /// # Panics
    /// Without proxies.
    pub fn delay(&mut self, from: &str, to: &str, delay: Duration) {
        let Self::Proxies(proxies) = self else { panic!("only proxies can delay") };
        proxies.change(from, to, |link| link.delay = delay);
    }

    /// Breaks every connection between the two.
    ///
    /// # Panics
    /// Without proxies.
    pub fn reset(&mut self, one: &str, other: &str) {
        let Self::Proxies(proxies) = self else { panic!("only proxies can reset") };
        proxies.change(one, other, |link| link.resets += 1);
        proxies.change(other, one, |link| link.resets += 1);
    }

    /// Removes all faults.
    pub fn mend_everything(&mut self) {
        match self {
            Self::Loopback => {}
            Self::Namespaces(namespaces) => namespaces.mend_everything(),
            Self::Proxies(proxies) => proxies.mend_everything(),
        }
    }
}
