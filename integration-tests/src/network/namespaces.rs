//! A network namespace for every member, and a router between them that drops selected packets.
//!
//! Each member has one link, to the router, and a subnet of its own (10.77.N.0/24). Nothing leads out of the router, so
//! the addresses cannot collide with any other network, or with another test's. A routing rule of the router that drops
//! what comes in by one link for one address is a cut in one direction: silent, for new connections and old ones.

use super::CLIENTS;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

static NETWORKS: AtomicU32 = AtomicU32::new(0);

/// Port of every member.
pub(super) const PORT: &str = "7100";
/// Burst size of a slow link, in bytes: several packets.
const BURST: &str = "16kb";
/// Time that a packet may wait on a slow link before it is dropped.
const WAIT: &str = "400ms";

/// The namespaces of one cluster, removed when dropped.
#[derive(Debug)]
pub struct Namespaces {
    prefix: String,
    /// Number of each host's link and subnet.
    hosts: BTreeMap<String, usize>,
    cuts: BTreeSet<(String, String)>,
    shut: BTreeSet<(String, String)>,
    slow: BTreeSet<String>,
}

impl Namespaces {
    /// Returns true if this machine allows namespaces. Tried once: two concurrent attempts would mistake each other's
    /// namespace for a refusal.
    pub fn available() -> bool {
        static AVAILABLE: LazyLock<bool> = LazyLock::new(|| {
            let name = format!("archon-{}-probe", std::process::id());
            let run = |arguments: &[&str]| {
                let status = Command::new("ip").args(arguments).stderr(Stdio::null()).status();
                status.is_ok_and(|status| status.success())
            };
            let made = run(&["netns", "add", &name]);
            let ruled = made && run(&["-n", &name, "rule", "add", "iif", "lo", "to", "10.77.0.2/32", "blackhole"]);
            if made {
                run(&["netns", "del", &name]);
            }
            ruled
        });
        *AVAILABLE
    }

    /// Creates the router and the clients' namespace, and moves the calling thread there.
    ///
    /// # Panics
    /// If the machine does not allow it; see [`Namespaces::available`].
    pub(super) fn new() -> Self {
        remove_leftovers();
        let prefix = format!("archon-{}-{}", std::process::id(), NETWORKS.fetch_add(1, Ordering::Relaxed));
        let mut namespaces = Self {
            prefix,
            hosts: BTreeMap::new(),
            cuts: BTreeSet::new(),
            shut: BTreeSet::new(),
            slow: BTreeSet::new(),
        };
        let router = namespaces.router();
        ip(&["netns", "add", &router], "");
        let forward = ["netns", "exec", &router, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1"];
        ip(&forward, "");
        namespaces.add(CLIENTS);
        let place = File::open(format!("/run/netns/{}", namespaces.space(CLIENTS))).expect("the namespace was made");
        move_into_link_name_space(place.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may enter it");
        namespaces
    }

    /// Creates a host and returns its address.
    pub(super) fn add(&mut self, host: &str) -> String {
        let number = self.hosts.len() + 1;
        assert!(self.hosts.insert(host.to_owned(), number).is_none(), "{host} is there already");
        let (space, router) = (self.space(host), self.router());
        let link =
            format!("netns add {space}\nlink add v{number} netns {router} type veth peer name eth0 netns {space}\n");
        ip(&["-batch", "-"], &link);
        let inside = format!(
            "link set lo up\naddr add 10.77.{number}.2/24 dev eth0\nlink set eth0 up\nroute add default via 10.77.{number}.1\n"
        );
        ip(&["-n", &space, "-batch", "-"], &inside);
        let outside = format!("addr add 10.77.{number}.1/24 dev v{number}\nlink set v{number} up\n");
        ip(&["-n", &router, "-batch", "-"], &outside);
        format!("10.77.{number}.2")
    }

    /// Returns the option of `nsenter` that starts a program at this host.
    pub(super) fn net_option(&self, host: &str) -> String {
        format!("--net=/run/netns/{}", self.space(host))
    }

    pub(super) fn cut(&mut self, from: &str, to: &str) {
        if self.cuts.insert((from.to_owned(), to.to_owned())) {
            self.rule("add", from, to, &[]);
        }
    }

    pub(super) fn mend(&mut self, from: &str, to: &str) {
        if self.cuts.remove(&(from.to_owned(), to.to_owned())) {
            self.rule("del", from, to, &[]);
        }
    }

    /// Drops everything that `from` sends to the port of `to`.
    pub(super) fn shut(&mut self, from: &str, to: &str) {
        if self.shut.insert((from.to_owned(), to.to_owned())) {
            self.rule("add", from, to, &to_port());
        }
    }

    pub(super) fn open(&mut self, from: &str, to: &str) {
        if self.shut.remove(&(from.to_owned(), to.to_owned())) {
            self.rule("del", from, to, &to_port());
        }
    }

    pub(super) fn slow(&mut self, host: &str, bytes_per_second: Option<u64>) {
        if bytes_per_second.is_none() && !self.slow.contains(host) {
            return;
        }
        let (number, space, router) = (self.number(host), self.space(host), self.router());
        let (inside, outside) = ("eth0".to_owned(), format!("v{number}"));
        for (space, device) in [(&space, &inside), (&router, &outside)] {
            match bytes_per_second {
                Some(rate) => {
                    let rate = format!("{}bit", rate * 8);
                    let shape = ["tbf", "rate", &rate, "burst", BURST, "latency", WAIT];
                    let mut arguments = vec!["-n", space, "qdisc", "replace", "dev", device, "root"];
                    arguments.extend(shape);
                    run("tc", &arguments, "");
                }
                None => run("tc", &["-n", space, "qdisc", "del", "dev", device, "root"], ""),
            }
        }
        match bytes_per_second {
            Some(_) => drop(self.slow.insert(host.to_owned())),
            None => drop(self.slow.remove(host)),
        }
    }

    pub(super) fn mend_everything(&mut self) {
        for (from, to) in std::mem::take(&mut self.cuts) {
            self.rule("del", &from, &to, &[]);
        }
        for (from, to) in std::mem::take(&mut self.shut) {
            self.rule("del", &from, &to, &to_port());
        }
        for host in self.slow.clone() {
            self.slow(&host, None);
        }
    }

    /// Adds or removes a rule that drops packets from one link to one address, restricted by `only`.
    fn rule(&self, verb: &str, from: &str, to: &str, only: &[&str]) {
        let (link, address) = (format!("v{}", self.number(from)), format!("10.77.{}.2/32", self.number(to)));
        let router = self.router();
        let mut arguments = vec!["-n", &router, "rule", verb, "iif", &link, "to", &address];
        arguments.extend(only);
        arguments.push("blackhole");
        ip(&arguments, "");
    }

    fn number(&self, host: &str) -> usize {
        *self.hosts.get(host).unwrap_or_else(|| panic!("there is no host {host}"))
    }

    fn space(&self, host: &str) -> String {
        format!("{}-{host}", self.prefix)
    }

    fn router(&self) -> String {
        self.space("router")
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        let spaces = self.hosts.keys().map(|host| self.space(host)).chain([self.router()]);
        for space in spaces {
            // The rest of the namespace goes with its last process.
            let _ = Command::new("ip").args(["netns", "del", &space]).stderr(Stdio::null()).status();
        }
    }
}

/// Removes leftovers of killed runs.
fn remove_leftovers() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("archon-").and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !fs::exists(format!("/proc/{pid}")).unwrap_or(true)) {
            let _ = Command::new("ip").args(["netns", "del", &name]).stderr(Stdio::null()).status();
        }
    }
}

/// Restricts a rule to the member port.
const fn to_port() -> [&'static str; 4] {
    ["ipproto", "tcp", "dport", PORT]
}

fn ip(arguments: &[&str], input: &str) {
    run("ip", arguments, input);
}

fn run(program: &str, arguments: &[&str], input: &str) {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
    if let Some(mut stdin) = child.stdin.take() {
        // If the program ends early, its status below tells why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {} said: {said}\n{input}", arguments.join(" "));
}
