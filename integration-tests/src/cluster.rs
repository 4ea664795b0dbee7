//! A cluster of real processes: coordinators and nodes on free loopback ports, in a temporary directory.

mod asked;
mod coordinators;
mod everything;
mod polled;
mod turn;

use crate::image::DiskImage;
use crate::network::Links;
use crate::options::Options;
use crate::ports::free_addresses;
use crate::process::{environment, spawn};
use crate::release::Release;
use archon_client::{Admin, Client, ClientBuilder, Role, Transport};
use archon_local_cluster::{Issuer, Member, Place, Process, YOU, node_arguments};
use archon_testkit::{ScratchDirectory, wait_for};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub use turn::{Room, Turn};

pub use archon_local_cluster::TIMEOUT;
pub use asked::{CALL_LIMIT, CommandOutput};

/// A running cluster. Dropping it kills every process and removes every file; on panic it prints the ends of the logs.
#[derive(Debug)]
pub struct Cluster {
    exe: PathBuf,
    coordinators: Vec<Member>,
    nodes: BTreeMap<String, Member>,
    /// Metrics addresses of members.
    metrics: BTreeMap<String, String>,
    /// Addresses of nodes for Redis clients.
    redis: BTreeMap<String, String>,
    /// Console addresses of the coordinators, in their order.
    consoles: Vec<String>,
    links: Links,
    /// Certificate issuer for the members, with TLS.
    issuer: Option<Issuer>,
    options: Options,
    /// Installed versions, by member.
    releases: BTreeMap<String, Release>,
    /// By member; unmounted before the directory is removed.
    disks: BTreeMap<String, DiskImage>,
    directory: ScratchDirectory,
    _turn: Turn,
}

impl Cluster {
    /// Starts the processes and waits until every partition is `Online` (or, with too few nodes, until the quorum
    /// answers). `exe` is `env!("CARGO_BIN_EXE_archon-under-test")`.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn start(exe: &str, options: &Options) -> Self {
        let turn = Turn::take(options.room);
        let directory = match options.on_disk {
            true => ScratchDirectory::on_disk(),
            false => ScratchDirectory::in_memory(),
        };
        let directory = directory.expect("a temporary directory");
        let issuer = options.tls.then(|| Issuer::new(&directory.path().join("tls")).expect("an authority"));
        let mut links = Links::new(options.network);
        let names: Vec<String> = (0..options.coordinators).map(coordinator_name).collect();
        let places: Vec<Place> = names.iter().map(|name| links.add(name)).collect();
        let mut cluster = Self {
            exe: exe.into(),
            coordinators: Vec::new(),
            nodes: BTreeMap::new(),
            metrics: BTreeMap::new(),
            redis: BTreeMap::new(),
            consoles: Vec::new(),
            links,
            issuer,
            options: options.clone(),
            releases: BTreeMap::new(),
            disks: BTreeMap::new(),
            directory,
            _turn: turn,
        };
        let addresses: Vec<String> = places.iter().map(|place| place.reached_at.clone()).collect();
        for ((id, name), place) in (1..).zip(&names).zip(places) {
            let data = cluster.data_directory(name);
            let mut arguments = options.coordinator(id, &place, &addresses, &data);
            arguments.extend(cluster.metrics_arguments(name));
            arguments.extend(cluster.console_arguments());
            let member = cluster.member((Role::Coordinator, &id.to_string()), name, place, arguments);
            cluster.coordinators.push(member);
        }
        for index in 0..options.coordinators {
            cluster.start_coordinator(index);
        }
        for name in &options.nodes {
            cluster.start_node(name);
        }
        if options.nodes.len() >= options.nodes_min {
            cluster.wait_online();
        } else {
            cluster.wait_leader();
        }
        if options.tls && options.clients_may {
            let grant = ["access", "grant", "write", "--every-client", "--all-tables"];
            wait_for("clients to be let in", TIMEOUT, || cluster.json(&grant));
        }
        cluster
    }

    /// As [`start`](Self::start), and waits until every partition has its full number of `Live` copies.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn start_whole(exe: &str, options: &Options) -> Self {
        let cluster = Self::start(exe, options);
        cluster.wait_whole(options.replication.into());
        cluster
    }

    /// Returns the directory of all data.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the coordinators' addresses, comma-separated.
    pub fn coordinator_list(&self) -> String {
        self.coordinator_addresses().join(",")
    }

    /// Returns the coordinators' addresses.
    pub fn coordinator_addresses(&self) -> Vec<String> {
        self.coordinators.iter().map(|member| member.address().to_owned()).collect()
    }

    /// Builds a client for reads and writes; its time-out is that of waits, for operations that must not fail.
    pub fn client(&self) -> ClientBuilder {
        Client::builder(self.coordinator_addresses()).transport(self.transport(Role::Client)).timeout(TIMEOUT)
    }

    /// Returns an administration client.
    ///
    /// # Panics
    /// If it cannot be built.
    pub fn admin(&self, timeout: Duration) -> Admin {
        Admin::with_transport(self.coordinator_addresses(), timeout, self.transport(Role::Admin)).expect("addresses")
    }

    /// Returns the transport for a role.
    ///
    /// # Panics
    /// If its certificate cannot be issued.
    pub fn transport(&self, role: Role) -> Transport {
        let insecure = Transport::plaintext(self.links.beyond_loopback());
        self.issuer.as_ref().map_or(insecure, |issuer| issuer.transport(role, YOU).expect("a certificate"))
    }

    /// Returns true if members talk by TLS.
    pub const fn talks_by_tls(&self) -> bool {
        self.issuer.is_some()
    }

    /// Returns the certificate issuer.
    ///
    /// # Panics
    /// Without TLS.
    pub fn issuer(&self) -> &Issuer {
        self.issuer.as_ref().expect("the cluster was started with TLS")
    }

    /// Returns the network between the members.
    pub fn links(&mut self) -> &mut Links {
        &mut self.links
    }

    /// Restarts a stopped node at its address on its data, with the current coordinator addresses.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_node_told_anew(&mut self, name: &str) {
        let place = Place::from(self.node_address(name).to_owned());
        let arguments = node_arguments(name, &place, &self.coordinator_addresses(), &self.node_data(name));
        let member = self.member((Role::Node, name), name, place, arguments);
        self.nodes.insert(name.to_owned(), member);
        self.start_node(name);
    }

    /// Starts a new node, or restarts a stopped one at its address on its data.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_node(&mut self, name: &str) {
        if !self.nodes.contains_key(name) {
            let place = self.links.add(name);
            let data = self.data_directory(&format!("node-{name}"));
            let mut arguments = node_arguments(name, &place, &self.coordinator_addresses(), &data);
            let flags = [("--engine", self.options.engine), ("--memory", self.options.memory)];
            for (flag, value) in flags.into_iter().filter_map(|(flag, value)| Some((flag, value?))) {
                arguments.extend([flag.into(), value.into()]);
            }
            arguments.extend(self.metrics_arguments(name));
            arguments.extend(self.redis_arguments(name));
            let member = self.member((Role::Node, name), name, place, arguments);
            self.nodes.insert(name.into(), member);
        }
        let environment = self.environment_of(name);
        let member = self.nodes.get_mut(name).expect("inserted above");
        let process = member.start(&environment, self.directory.path());
        self.links.runs_as(name, process.unwrap_or_else(|error| panic!("{error}")).pid());
    }

    /// Returns the version that a member (`coordinator-1`, `athens`) runs, or will run from its next start.
    fn release_of(&self, member: &str) -> &Release {
        const UNDER_TEST: &Release = &Release { program: None, protocol_max: None };
        self.releases.get(member).or(self.options.release.as_ref()).unwrap_or(UNDER_TEST)
    }

    fn environment_of(&self, member: &str) -> Vec<(&'static str, String)> {
        environment().into_iter().chain(self.release_of(member).environment()).collect()
    }

    /// Sets the version that a member (`coordinator-1`, `athens`) runs from its next (or first) start.
    pub fn install(&mut self, name: &str, release: &Release) {
        self.releases.insert(name.to_owned(), release.clone());
        let program = release.program.clone().unwrap_or_else(|| self.exe.clone());
        let coordinator = (0..self.coordinators.len()).find(|index| coordinator_name(*index) == name);
        let member = match coordinator {
            Some(index) => self.coordinators.get_mut(index),
            None => self.nodes.get_mut(name),
        };
        if let Some(member) = member {
            member.install(&program);
        }
    }

    /// Returns the names of the nodes that were started.
    pub fn node_names(&self) -> Vec<String> {
        self.nodes.keys().cloned().collect()
    }

    /// Returns the arguments for a member's metrics server, if the cluster has metrics.
    fn metrics_arguments(&mut self, name: &str) -> Vec<OsString> {
        if !self.options.metrics {
            return Vec::new();
        }
        let address = free_addresses(1).remove(0);
        self.metrics.insert(name.to_owned(), address.clone());
        vec!["--metrics-listen".into(), address.into()]
    }

    /// Returns the arguments for a node's Redis listener, if it has one.
    fn redis_arguments(&mut self, name: &str) -> Vec<OsString> {
        if !self.options.redis.contains(&name) {
            return Vec::new();
        }
        let address = free_addresses(1).remove(0);
        self.redis.insert(name.to_owned(), address.clone());
        vec!["--redis-listen".into(), address.into()]
    }

    /// Returns the address of a node for Redis clients.
    ///
    /// # Panics
    /// If it has none.
    pub fn redis_address(&self, node: &str) -> &str {
        self.redis.get(node).expect("the node listens for Redis clients")
    }

    /// Returns the addresses of all nodes for Redis clients.
    pub fn redis_addresses(&self) -> impl Iterator<Item = &str> {
        self.redis.values().map(String::as_str)
    }

    /// Returns the metrics address of a member (`coordinator-1`, `athens`).
    ///
    /// # Panics
    /// If the cluster was started without metrics, or has no such member.
    pub fn metrics_address(&self, member: &str) -> &str {
        self.metrics.get(member).expect("the member tells its metrics")
    }

    fn member(&self, (role, own): (Role, &str), name: &str, place: Place, arguments: Vec<OsString>) -> Member {
        let shown: Vec<OsString> = match &self.issuer {
            Some(issuer) => issuer.member_arguments(role, own, &place).expect("a certificate").to_vec(),
            // Plaintext beyond loopback must be asked for.
            None => self.links.beyond_loopback().then(|| "--insecure".into()).into_iter().collect(),
        };
        let program = self.release_of(name).program.as_ref().unwrap_or(&self.exe);
        let command = [program.clone().into()].into_iter().chain(arguments).chain(shown).collect();
        let before = self.links.before(name).into_iter().map(OsString::from).collect();
        Member::within(name, place, before, command)
    }

    /// Returns the arguments to start a node of this cluster.
    ///
    /// # Panics
    /// If the data path is not UTF-8.
    pub fn node_arguments(&self, name: &str, listen: &str, data: &Path) -> Vec<String> {
        let place = listen.to_owned().into();
        let mut arguments = node_arguments(name, &place, &self.coordinator_addresses(), data);
        if let Some(issuer) = &self.issuer {
            arguments.extend(issuer.member_arguments(Role::Node, name, &place).expect("a certificate"));
        }
        arguments.into_iter().map(|word| word.into_string().expect("paths of tests are text")).collect()
    }

    /// Returns the credential arguments for a process that a test starts itself, reached at 127.0.0.1; empty without
    /// TLS.
    ///
    /// # Panics
    /// If the certificate cannot be issued.
    pub fn credentials_arguments(&self, role: Role, name: &str) -> Vec<String> {
        if !self.talks_by_tls() {
            return Vec::new();
        }
        vec!["--tls-dir".to_owned(), self.credentials(role, name).display().to_string()]
    }

    /// Starts a process of the program under test that is not a member.
    pub fn spawn(&self, name: &str, arguments: &[String]) -> Process {
        spawn(&self.exe, name, arguments, self.directory.path())
    }

    /// Removes and returns the process of a node, to be killed or stopped.
    ///
    /// # Panics
    /// If it does not run.
    pub fn take_node(&mut self, name: &str) -> Process {
        self.nodes.get_mut(name).expect("the node was started once").take().expect("the node runs")
    }

    /// Returns the process of a node.
    ///
    /// # Panics
    /// If it does not run.
    pub fn node(&self, name: &str) -> &Process {
        self.nodes.get(name).and_then(Member::process).expect("the node runs")
    }

    /// Returns a node's address.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn node_address(&self, name: &str) -> &str {
        self.nodes.get(name).expect("the node was started once").address()
    }

    /// Copies every log to `directory`, to inspect after the run.
    ///
    /// # Errors
    /// If a log cannot be copied.
    pub fn copy_logs(&self, directory: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(directory)?;
        for file in std::fs::read_dir(self.directory.path())?.flatten() {
            if file.path().extension().is_some_and(|extension| extension == "log") {
                std::fs::copy(file.path(), directory.join(file.file_name()))?;
            }
        }
        Ok(())
    }
}

/// Returns the name of coordinator `index` (from 0) in logs and on the network.
pub fn coordinator_name(index: usize) -> String {
    format!("coordinator-{}", index + 1)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(keep) = std::env::var_os("ARCHON_TEST_KEEP_LOGS")
            && let Err(error) = self.copy_logs(Path::new(&keep))
        {
            eprintln!("the logs could not be copied to {}: {error}", keep.display());
        }
        if std::thread::panicking() {
            let processes = self.coordinators.iter().chain(self.nodes.values()).filter_map(Member::process);
            for process in processes {
                eprintln!("--- end of the log of {}\n{}", process.name(), process.log_tail(30));
            }
        }
    }
}
