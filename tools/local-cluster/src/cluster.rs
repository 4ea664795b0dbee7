//! Processes of a cluster: coordinators and nodes on free ports, in a directory that is removed at the end.

use crate::error::Error;
use crate::issuer::Issuer;
use crate::member::{Layout, Member, Place, node_arguments};
use crate::ports::free_addresses;
use crate::process::Process;
use archon_client::{Admin, Right, Role, Status, Transport};
use archon_load::{CheckOutcome, Wait, wait_for, watch};
use archon_types::Failover;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first nodes, in order of registration.
pub const FIRST_NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
/// The node that joins later.
pub const LATE_NODE: &str = "ephesus";
/// Three coordinators, and three copies of each of nine partitions.
pub const SMALL: Layout = Layout {
    coordinators: 3,
    nodes_min: FIRST_NODES.len(),
    partitions: 9,
    replication: 3,
    failover: Failover::Standard,
};

/// Attempts with new ports, in case another process takes one between choosing and listening.
const PORT_ATTEMPTS: u32 = 5;
/// Time-out of every wait.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// Time-out of a stop: a node has ten seconds to hand over.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// Time-out of one request while polling.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(2);
/// Name in the certificate of the cluster's operator.
pub const YOU: &str = "you";
/// Lines of a log that an error report contains.
const TAIL_LINES: usize = 12;

/// The running processes. Dropping it kills the remaining processes and removes the directory.
///
/// The processes also end with the thread that started them, so that even a killed owner leaves none behind: start them
/// from a thread that lives as long as the process, such as the main thread.
#[derive(Debug)]
pub struct Cluster {
    /// Program to start: `archon`, or a program that acts as `archon` if its first argument is a verb.
    program: PathBuf,
    layout: Layout,
    // In this order: processes end before their directory is removed.
    nodes: BTreeMap<String, Member>,
    coordinators: BTreeMap<u64, Member>,
    /// Additional arguments of each node.
    nodes_are_told: Vec<OsString>,
    /// Certificate issuer for its processes, with TLS.
    issuer: Option<Issuer>,
    /// Console addresses of the coordinators, if they serve consoles.
    consoles: Option<Vec<String>>,
    directory: Directory,
}

/// A temporary directory that is removed when dropped, or kept on request.
#[derive(Debug)]
enum Directory {
    Temporary(tempfile::TempDir),
    Kept(PathBuf),
}

impl Directory {
    fn path(&self) -> &Path {
        match self {
            Self::Temporary(directory) => directory.path(),
            Self::Kept(path) => path,
        }
    }
}

impl Cluster {
    /// Starts the quorum and three nodes and waits until every partition is served with all its copies.
    ///
    /// # Errors
    /// The reason of the failure.
    pub async fn start(program: impl Into<PathBuf>, layout: Layout) -> Result<Self, Error> {
        let mut cluster = Self::new(program, layout, false)?;
        cluster.start_all().await?;
        Ok(cluster)
    }

    /// As [`Cluster::start`], for a cluster made with [`Cluster::new`].
    ///
    /// # Errors
    /// The reason of the failure.
    pub async fn start_all(&mut self) -> Result<(), Error> {
        self.start_quorum().await?;
        for name in FIRST_NODES {
            self.start_node(name)?;
        }
        let admin = self.admin()?;
        tokio::select! {
            whole = watch::until_whole(&admin, usize::from(self.layout.replication), TIMEOUT) => drop(whole?),
            ended = self.watch() => return Err(ended),
        }
        Ok(())
    }

    /// Creates an empty cluster with its directory; its processes will run `program`.
    ///
    /// # Errors
    /// If no temporary directory can be created.
    pub fn new(program: impl Into<PathBuf>, layout: Layout, keep: bool) -> Result<Self, Error> {
        let directory = tempfile::Builder::new().prefix("archon-cluster-").tempdir().map_err(Error::Directory)?;
        let directory = if keep { Directory::Kept(directory.keep()) } else { Directory::Temporary(directory) };
        let (nodes, coordinators) = Default::default();
        Ok(Self {
            program: program.into(),
            layout,
            nodes,
            coordinators,
            nodes_are_told: Vec::new(),
            issuer: None,
            consoles: None,
            directory,
        })
    }

    /// Adds arguments to every node. Call before any node starts.
    pub fn tell_nodes(&mut self, arguments: &[&str]) {
        self.nodes_are_told.extend(arguments.iter().map(OsString::from));
    }

    /// Enables TLS, with certificates of the cluster's own authority. Call before any process starts.
    ///
    /// # Errors
    /// If the authority cannot be created.
    pub fn use_tls(&mut self) -> Result<(), Error> {
        self.issuer = Some(Issuer::new(&self.directory().join("tls"))?);
        Ok(())
    }

    /// Enables consoles on the coordinators. Call before any process starts.
    pub fn serve_consoles(&mut self) {
        self.consoles = Some(Vec::new());
    }

    /// Returns the console addresses, in order of coordinator numbers; empty without consoles.
    pub fn consoles(&self) -> Vec<String> {
        let scheme = if self.issuer.is_some() { "https" } else { "http" };
        self.consoles.iter().flatten().map(|address| format!("{scheme}://{address}/")).collect()
    }

    /// Returns the transport for a role.
    ///
    /// # Errors
    /// If the certificate cannot be issued.
    pub fn transport(&self, role: Role) -> Result<Transport, Error> {
        self.issuer.as_ref().map_or(Ok(Transport::default()), |issuer| issuer.transport(role, YOU))
    }

    /// Returns the directory of credentials of a caller without a server; `None` without TLS.
    ///
    /// # Errors
    /// If the certificate cannot be issued.
    pub fn credentials(&self, role: Role, name: &str) -> Result<Option<PathBuf>, Error> {
        self.issuer.as_ref().map(|issuer| issuer.credentials(role, name, [])).transpose()
    }

    /// Returns the directory of credentials of a node on this machine that the caller starts; `None` without TLS.
    ///
    /// # Errors
    /// If the certificate cannot be issued.
    pub fn node_credentials(&self, name: &str) -> Result<Option<PathBuf>, Error> {
        self.issuer.as_ref().map(|issuer| issuer.credentials(Role::Node, name, ["127.0.0.1:0"])).transpose()
    }

    /// Returns the credential arguments of a member; empty without TLS.
    fn tls_arguments(&self, role: Role, name: &str, place: &Place) -> Result<Vec<OsString>, Error> {
        let issuer = self.issuer.iter();
        let arguments: Result<Vec<_>, Error> =
            issuer.map(|issuer| issuer.member_arguments(role, name, place)).collect();
        Ok(arguments?.concat())
    }

    /// Returns the coordinators' addresses.
    pub fn endpoints(&self) -> Vec<String> {
        self.coordinators.values().map(|member| member.address().to_owned()).collect()
    }

    /// Returns the address of one coordinator.
    pub fn address(&self, id: u64) -> &str {
        self.coordinators.get(&id).map_or("", Member::address)
    }

    /// Returns the directory of the cluster.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns true if the directory stays after the end.
    pub fn keeps_directory(&self) -> bool {
        matches!(self.directory, Directory::Kept(_))
    }

    /// Returns an administration client with a short time-out per request.
    ///
    /// # Errors
    /// If the client cannot be built.
    pub fn admin(&self) -> Result<Admin, Error> {
        Ok(Admin::with_transport(self.endpoints(), REQUEST_LIMIT, self.transport(Role::Admin)?)?)
    }

    /// Starts the quorum on free ports and waits for a leader.
    ///
    /// # Errors
    /// If no leader is elected, or processes exit early on every attempt.
    pub async fn start_quorum(&mut self) -> Result<(Status, Duration), Error> {
        let mut attempt = 1;
        loop {
            self.place_coordinators(attempt)?;
            self.start_coordinators()?;
            match self.leader().await {
                Err(Error::Ended { .. }) if attempt < PORT_ATTEMPTS && self.port_taken() => attempt += 1,
                outcome => {
                    let found = outcome?;
                    self.let_clients_in().await?;
                    return Ok(found);
                }
            }
        }
    }

    /// Grants every certificate of this cluster read and write: all were issued by the cluster's owner.
    async fn let_clients_in(&self) -> Result<(), Error> {
        if self.issuer.is_some() {
            self.admin()?.grant(Right::Write, None, None).await?;
        }
        Ok(())
    }

    /// Assigns ports to the coordinators, and a data directory for this attempt.
    fn place_coordinators(&mut self, attempt: u32) -> Result<(), Error> {
        let addresses = free_addresses(self.layout.coordinators)?;
        let data = self.directory().join(format!("attempt-{attempt}"));
        if let Some(consoles) = &mut self.consoles {
            *consoles = free_addresses(self.layout.coordinators)?;
        }
        let member = |(id, address): (u64, &String)| {
            let (name, place) = (format!("coordinator-{id}"), Place::from(address.clone()));
            let mut arguments = self.layout.coordinator(id, &place, &addresses, &data.join(&name));
            arguments.extend(self.tls_arguments(Role::Coordinator, &id.to_string(), &place)?);
            let console = self.consoles.as_ref().and_then(|consoles| consoles.get(id as usize - 1));
            arguments.extend(console.into_iter().flat_map(|address| ["--http-listen".into(), address.into()]));
            Ok((id, Member::new(&name, place, self.command(arguments))))
        };
        self.coordinators = (1..).zip(&addresses).map(member).collect::<Result<_, Error>>()?;
        Ok(())
    }

    fn command(&self, arguments: Vec<OsString>) -> Vec<OsString> {
        [vec![self.program.clone().into()], arguments].concat()
    }

    /// Starts the stopped coordinators on their data.
    ///
    /// # Errors
    /// If one cannot be started.
    pub fn start_coordinators(&mut self) -> Result<(), Error> {
        for member in self.coordinators.values_mut().filter(|member| member.process().is_none()) {
            member.start(&[], self.directory.path())?;
        }
        Ok(())
    }

    /// Waits for a leading coordinator; fails as soon as a process exits by itself.
    ///
    /// # Errors
    /// If none leads in time.
    pub async fn leader(&mut self) -> Result<(Status, Duration), Error> {
        let admin = self.admin()?;
        wait_for("a leading coordinator", TIMEOUT, Wait::EVERY, async || {
            self.check_alive()?;
            Ok(match admin.status().await {
                Ok(status) if status.leader_id.is_some() => CheckOutcome::Yes(status),
                Ok(_) => CheckOutcome::NotYet("no leader yet".to_owned()),
                Err(error) => CheckOutcome::NotYet(error.to_string()),
            })
        })
        .await
    }

    /// Starts a node: a new one on a free port, or a stopped one at its address on its data.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_node(&mut self, name: &str) -> Result<(), Error> {
        if !self.nodes.contains_key(name) {
            let place = Place::from(free_addresses(1)?.concat());
            let mut arguments = node_arguments(name, &place, &self.endpoints(), &self.directory().join(name));
            arguments.extend(self.tls_arguments(Role::Node, name, &place)?);
            arguments.extend(self.nodes_are_told.iter().cloned());
            self.nodes.insert(name.to_owned(), Member::new(name, place, self.command(arguments)));
        }
        let member = self.nodes.get_mut(name).ok_or_else(|| Error::NotRunning(name.to_owned()))?;
        member.start(&[], self.directory.path())?;
        Ok(())
    }

    /// Kills a coordinator with SIGKILL; returns its process id.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill_coordinator(&mut self, id: u64) -> Result<u32, Error> {
        kill(self.coordinators.get_mut(&id), || format!("coordinator-{id}"))
    }

    /// Kills all running coordinators with SIGKILL, at once.
    pub fn kill_coordinators(&mut self) {
        self.coordinators.values_mut().filter_map(|member| member.take().ok()).for_each(drop);
    }

    /// Kills a node with SIGKILL; returns its process id.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill_node(&mut self, name: &str) -> Result<u32, Error> {
        kill(self.nodes.get_mut(name), || name.to_owned())
    }

    /// Stops a node cleanly (SIGTERM).
    ///
    /// # Errors
    /// If it does not run, does not stop in time, or fails.
    pub async fn stop_node(&mut self, name: &str) -> Result<(), Error> {
        stop(self.nodes.get_mut(name).into_iter()).await
    }

    /// Stops all coordinators at once, cleanly (SIGTERM).
    ///
    /// # Errors
    /// If one does not stop in time or fails.
    pub async fn stop_coordinators(&mut self) -> Result<(), Error> {
        stop(self.coordinators.values_mut()).await
    }

    /// Fails if a process has exited by itself.
    ///
    /// # Errors
    /// The name of the process and its exit status.
    pub fn check_alive(&mut self) -> Result<(), Error> {
        let members = self.coordinators.values_mut().chain(self.nodes.values_mut());
        for process in members.filter_map(Member::process_mut) {
            if let Some(status) = process.exited() {
                let log = process.log_tail(TAIL_LINES);
                return Err(Error::Ended { name: process.name().to_owned(), status, log });
            }
        }
        Ok(())
    }

    /// Waits until a process exits by itself, which none should.
    pub async fn watch(&mut self) -> Error {
        loop {
            if let Err(ended) = self.check_alive() {
                return ended;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Stops everything cleanly: nodes first, then the quorum. The directory is removed when the cluster is dropped.
    ///
    /// # Errors
    /// If a process does not stop in time or fails.
    pub async fn stop(&mut self) -> Result<(), Error> {
        let nodes = stop(self.nodes.values_mut()).await;
        nodes.and(self.stop_coordinators().await)
    }

    /// Returns the ends of all logs.
    pub fn tails(&self) -> Vec<(PathBuf, String)> {
        let tail = |process: &Process| (process.log_file().to_owned(), process.log_tail(TAIL_LINES));
        self.coordinators.values().chain(self.nodes.values()).filter_map(Member::process).map(tail).collect()
    }

    fn port_taken(&self) -> bool {
        self.tails().iter().any(|(_, log)| log.to_lowercase().contains("in use"))
    }
}

fn kill(member: Option<&mut Member>, name: impl FnOnce() -> String) -> Result<u32, Error> {
    let mut process = member.ok_or_else(|| Error::NotRunning(name()))?.take()?;
    process.kill();
    Ok(process.pid())
}

/// Stops all running members at once, then waits for them; one that exceeds the time-out is killed.
async fn stop(members: impl Iterator<Item = &mut Member>) -> Result<(), Error> {
    let mut processes: Vec<Process> = members.filter_map(|member| member.take().ok()).collect();
    processes.iter().for_each(Process::ask_to_end);
    wait_for::<_, Error>("all processes to stop when asked", STOP_LIMIT, Wait::EVERY, async || {
        let still = processes.iter_mut().filter_map(|process| process.exited().is_none().then_some(process.name()));
        let still: Vec<&str> = still.collect();
        Ok(if still.is_empty() {
            CheckOutcome::Yes(())
        } else {
            CheckOutcome::NotYet(format!("{} still run", still.join(", ")))
        })
    })
    .await?;
    for process in &mut processes {
        if let Some(status) = process.exited().filter(|status| !status.success()) {
            return Err(Error::Stop { name: process.name().to_owned(), status });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_removed_unless_kept() {
        let cluster = Cluster::new("archon", SMALL, false).unwrap();
        let path = cluster.directory().to_owned();
        assert!(path.is_dir() && !cluster.keeps_directory());
        drop(cluster);
        assert!(!path.exists());
        let kept = Cluster::new("archon", SMALL, true).unwrap();
        let path = kept.directory().to_owned();
        drop(kept);
        assert!(path.is_dir());
        std::fs::remove_dir_all(path).unwrap();
    }
}
