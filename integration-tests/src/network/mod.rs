//! The network between the members of a cluster, and what can be done to it.
//!
//! Two ways, with the same words. [`Namespaces`] gives every member a network namespace of its own: packets are lost in
//! the router between them, as on a real network, and the kernel's TCP does what it does; that needs root. [`Proxies`]
//! puts a proxy before every member: bytes stand still, late, or end in a reset; that works anywhere.

mod namespaces;
mod owner;
mod proxies;
mod pump;

use self::namespaces::PORT;
pub use namespaces::Namespaces;
pub use proxies::Proxies;

use crate::ports::free_addresses;
use archon_local_cluster::Place;
use archon_skip::skipped;
use std::time::Duration;

/// Where every client of the test stands, the command line included.
pub const CLIENTS: &str = "clients";

/// How the members of a cluster are to be connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Network {
    /// By loopback, with nothing in between.
    #[default]
    Loopback,
    /// Each in a network namespace of its own.
    Namespaces,
    /// Each behind a proxy.
    Proxies,
}

impl Network {
    /// Whether this machine allows it; a test is skipped if not.
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
    /// Nothing in between.
    Loopback,
    /// Network namespaces.
    Namespaces(Namespaces),
    /// Proxies.
    Proxies(Proxies),
}

impl Links {
    /// Makes the network. Where it consists of namespaces, the calling thread moves into that of the clients, and so
    /// does whatever it starts from now on.
    pub fn new(network: Network) -> Self {
        match network {
            Network::Loopback => Self::Loopback,
            Network::Namespaces => Self::Namespaces(Namespaces::new()),
            Network::Proxies => Self::Proxies(Proxies::new()),
        }
    }

    /// A place for a new member.
    pub fn add(&mut self, name: &str) -> Place {
        match self {
            Self::Loopback => free_addresses(1).remove(0).into(),
            Self::Namespaces(namespaces) => format!("{}:{PORT}", namespaces.add(name)).into(),
            Self::Proxies(proxies) => proxies.add(name),
        }
    }

    /// What stands before the command of a member, so that it runs at its place.
    pub fn before(&self, name: &str) -> Vec<String> {
        match self {
            Self::Namespaces(namespaces) => vec!["nsenter".into(), namespaces.net_option(name)],
            Self::Loopback | Self::Proxies(_) => Vec::new(),
        }
    }

    /// Notes which process a member is.
    pub fn runs_as(&self, name: &str, pid: u32) {
        if let Self::Proxies(proxies) = self {
            proxies.runs_as(name, pid);
        }
    }

    /// Whether traffic leaves loopback, which the program allows only if told to.
    pub const fn beyond_loopback(&self) -> bool {
        matches!(self, Self::Namespaces(_))
    }

    /// From now on nothing that `from` sends reaches `to`; nobody is told.
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

    /// Cuts both ways.
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

    /// From now on connections that `from` makes to `to` come to nothing, also those that there are; what `to` itself begins goes on. A proxy takes
    /// connections, and does nothing with them; where there are namespaces, what comes for the member's port is lost on the way, as at a firewall.
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

    /// Everything that `host` sends and is sent passes at this rate at most; `None`: freely again.
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

    /// What `from` sends reaches `to` this much later.
    ///
    /// # Panics
    /// Where there are no proxies.
    pub fn delay(&mut self, from: &str, to: &str, delay: Duration) {
        let Self::Proxies(proxies) = self else { panic!("only proxies can delay") };
        proxies.change(from, to, |link| link.delay = delay);
    }

    /// Breaks every connection between the two.
    ///
    /// # Panics
    /// Where there are no proxies.
    pub fn reset(&mut self, one: &str, other: &str) {
        let Self::Proxies(proxies) = self else { panic!("only proxies can reset") };
        proxies.change(one, other, |link| link.resets += 1);
        proxies.change(other, one, |link| link.resets += 1);
    }

    /// Everything passes freely again.
    pub fn mend_everything(&mut self) {
        match self {
            Self::Loopback => {}
            Self::Namespaces(namespaces) => namespaces.mend_everything(),
            Self::Proxies(proxies) => proxies.mend_everything(),
        }
    }
}
