//! The demonstration's processes: coordinators and nodes on free ports, in a directory that goes away at the end.

use super::child::Child;
use super::narrator::Narrator;
use super::wait::{Look, wait_for};
use crate::exit::{Exit, Failure};
use crate::view::Status;
use archon_client::Admin;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many coordinators there are.
pub(super) const COORDINATORS: u64 = 3;
/// How many partitions the table has.
pub(super) const PARTITIONS: u16 = 9;
/// How many copies each partition has.
pub(super) const COPIES: usize = 3;
/// The first nodes, in order of registration.
pub(crate) const FIRST_NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
/// The node that joins later.
pub(crate) const LATE_NODE: &str = "ephesus";

/// How often new ports are tried when somebody else took one between choosing and listening.
const PORT_ATTEMPTS: u32 = 5;
/// How long anything may take to come about.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How long a stopping process may take: a node has ten seconds to hand over.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// How long one request may take while waiting for something.
pub(super) const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// The running processes. Dropping it kills what still runs and removes the directory.
pub(crate) struct Cluster {
    // In this order: processes end before their directory goes.
    nodes: BTreeMap<String, Child>,
    coordinators: BTreeMap<u64, Child>,
    addresses: BTreeMap<u64, String>,
    /// Where the coordinators keep their data; every attempt to start them has a place of its own.
    data: PathBuf,
    directory: Directory,
}

/// A temporary directory that is removed when dropped, or kept on request.
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
    /// An empty cluster with its directory.
    ///
    /// # Errors
    /// When no temporary directory can be made.
    pub(crate) fn new(keep: bool) -> Result<Self, Failure> {
        let directory = tempfile::Builder::new().prefix("archon-demo-").tempdir().map_err(|error| {
            Failure::failed(format!("making a temporary directory: {error}"))
                .with_remedy("point TMPDIR to a directory with some free space")
        })?;
        let directory = if keep { Directory::Kept(directory.keep()) } else { Directory::Temporary(directory) };
        let data = directory.path().to_owned();
        let (nodes, coordinators, addresses) = Default::default();
        Ok(Self { nodes, coordinators, addresses, data, directory })
    }

    /// The coordinators' addresses.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.addresses.values().cloned().collect()
    }

    /// The address of one coordinator.
    pub(super) fn address(&self, id: u64) -> &str {
        self.addresses.get(&id).map_or("", String::as_str)
    }

    /// Where everything is.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Whether the directory stays after the end.
    pub(super) fn keeps_directory(&self) -> bool {
        matches!(self.directory, Directory::Kept(_))
    }

    /// Asks the quorum, a short time per request.
    ///
    /// # Errors
    /// When the client cannot be made.
    pub(crate) fn admin(&self) -> Result<Admin, Failure> {
        Ok(Admin::new(self.endpoints(), REQUEST_LIMIT)?)
    }

    /// Starts the quorum on free ports and waits until it has a leader.
    ///
    /// # Errors
    /// When no leader comes about, or processes end early on every attempt.
    pub(crate) async fn start_quorum(&mut self) -> Result<(Status, Duration), Failure> {
        let mut attempt = 1;
        loop {
            self.coordinators.clear();
            self.addresses = free_ports(COORDINATORS)?;
            self.data = self.directory().join(format!("attempt-{attempt}"));
            for id in 1..=COORDINATORS {
                self.start_coordinator(id)?;
            }
            let admin = self.admin()?;
            let elected = wait_for("a leading coordinator", PATIENCE, async || {
                self.check_alive()?;
                Ok(match admin.status().await {
                    Ok(status) if status.leader.is_some() => Look::Yes(status),
                    Ok(_) => Look::NotYet("no leader yet".to_owned()),
                    Err(error) => Look::NotYet(error.to_string()),
                })
            });
            match elected.await {
                Err(failure) if failure.exit == Exit::Unreachable && attempt < PORT_ATTEMPTS && self.port_taken() => {
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Starts a coordinator again after it was killed, with the data it had.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn restart_coordinator(&mut self, id: u64) -> Result<(), Failure> {
        self.start_coordinator(id)
    }

    fn start_coordinator(&mut self, id: u64) -> Result<(), Failure> {
        let peers: Vec<String> = self.addresses.iter().map(|(id, address)| format!("{id}={address}")).collect();
        let args: Vec<OsString> = vec![
            "coordinator".into(),
            "--id".into(),
            id.to_string().into(),
            "--listen".into(),
            self.address(id).into(),
            "--peers".into(),
            peers.join(",").into(),
            "--data-dir".into(),
            self.data.join(format!("coordinator-{id}")).into(),
            "--partitions".into(),
            PARTITIONS.to_string().into(),
            "--replication".into(),
            COPIES.to_string().into(),
            "--min-nodes".into(),
            FIRST_NODES.len().to_string().into(),
        ];
        let name = format!("coordinator-{id}");
        let log = self.directory().join(format!("{name}.log"));
        self.coordinators.insert(id, Child::start(&name, args, &log)?);
        Ok(())
    }

    /// Starts a node on a port that the system chooses.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn start_node(&mut self, name: &str) -> Result<(), Failure> {
        self.start_node_at(name, "127.0.0.1:0")
    }

    /// Starts a node at an address, with the data it had if it ran before.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start_node_at(&mut self, name: &str, listen: &str) -> Result<(), Failure> {
        let args: Vec<OsString> = vec![
            "node".into(),
            "--name".into(),
            name.into(),
            "--listen".into(),
            listen.into(),
            "--coordinators".into(),
            self.endpoints().join(",").into(),
            "--data-dir".into(),
            self.directory().join(name).into(),
        ];
        let log = self.directory().join(format!("{name}.log"));
        self.nodes.insert(name.to_owned(), Child::start(name, args, &log)?);
        Ok(())
    }

    /// Kills a coordinator with SIGKILL; says its process id.
    ///
    /// # Errors
    /// When there is no such coordinator.
    pub(super) fn kill_coordinator(&mut self, id: u64) -> Result<u32, Failure> {
        let mut child = self
            .coordinators
            .remove(&id)
            .ok_or_else(|| Failure::failed(format!("expected a coordinator {id} to kill, but there is none")))?;
        child.kill();
        Ok(child.pid())
    }

    /// Kills a node with SIGKILL; says its process id.
    ///
    /// # Errors
    /// When there is no such node.
    pub(crate) fn kill_node(&mut self, name: &str) -> Result<u32, Failure> {
        let mut child = self
            .nodes
            .remove(name)
            .ok_or_else(|| Failure::failed(format!("expected a node {name} to kill, but there is none")))?;
        child.kill();
        Ok(child.pid())
    }

    /// Fails if a process has ended that nobody stopped.
    ///
    /// # Errors
    /// The name of the process and how it ended.
    pub(super) fn check_alive(&mut self) -> Result<(), Failure> {
        for child in self.coordinators.values_mut().chain(self.nodes.values_mut()) {
            if let Some(status) = child.ended() {
                return Err(Failure::new(Exit::Unreachable, format!("{} ended by itself: {status}", child.name())));
            }
        }
        Ok(())
    }

    /// Waits until a process ends by itself, which none should.
    pub(super) async fn watch(&mut self) -> Failure {
        loop {
            if let Err(failure) = self.check_alive() {
                return Failure { exit: Exit::Failed, ..failure };
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Stops everything in order: nodes first, then the quorum. The directory goes when the cluster is dropped.
    ///
    /// # Errors
    /// When a process does not stop in time or does not end with success.
    pub(super) async fn stop(&mut self, narrator: &Narrator) -> Result<(), Failure> {
        narrator.say("Stopping: the nodes first, then the coordinators.");
        let nodes = stop_all(self.nodes.values_mut()).await;
        let coordinators = stop_all(self.coordinators.values_mut()).await;
        nodes.and(coordinators)
    }

    /// The ends of all logs.
    pub(super) fn tails(&self) -> Vec<(PathBuf, Vec<String>)> {
        self.coordinators.values().chain(self.nodes.values()).map(Child::tail).collect()
    }

    fn port_taken(&self) -> bool {
        let taken = |lines: Vec<String>| lines.iter().any(|line| line.to_lowercase().contains("in use"));
        self.coordinators.values().any(|child| taken(child.tail().1))
    }
}

/// Asks all to stop, then waits for them; one that overstays is killed when it is dropped.
async fn stop_all<'a>(children: impl Iterator<Item = &'a mut Child>) -> Result<(), Failure> {
    let mut children: Vec<&mut Child> = children.collect();
    children.iter_mut().for_each(|child| child.ask_to_stop());
    wait_for("all processes to stop when asked", STOP_LIMIT, async || {
        let running: Vec<&str> = children
            .iter_mut()
            .filter_map(|child| if child.ended().is_none() { Some(child.name()) } else { None })
            .collect();
        Ok(if running.is_empty() { Look::Yes(()) } else { Look::NotYet(format!("{} still run", running.join(", "))) })
    })
    .await?;
    for child in children {
        if let Some(status) = child.ended().filter(|status| !status.success()) {
            return Err(Failure::failed(format!("expected {} to stop with status 0, but: {status}", child.name())));
        }
    }
    Ok(())
}

/// Addresses with ports that were free a moment ago. All are held until all are chosen, so that they differ.
fn free_ports(count: u64) -> Result<BTreeMap<u64, String>, Failure> {
    let wrong = |error: std::io::Error| Failure::failed(format!("looking for a free port on 127.0.0.1: {error}"));
    let mut listeners = Vec::new();
    for id in 1..=count {
        listeners.push((id, TcpListener::bind("127.0.0.1:0").map_err(wrong)?));
    }
    listeners.iter().map(|(id, listener)| Ok((*id, listener.local_addr().map_err(wrong)?.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ() {
        let ports = free_ports(3).unwrap();
        let distinct: std::collections::BTreeSet<_> = ports.values().collect();
        assert_eq!(distinct.len(), 3);
    }

    #[test]
    fn the_directory_goes_unless_kept() {
        let cluster = Cluster::new(false).unwrap();
        let path = cluster.directory().to_owned();
        assert!(path.is_dir() && !cluster.keeps_directory());
        drop(cluster);
        assert!(!path.exists());
        let kept = Cluster::new(true).unwrap();
        let path = kept.directory().to_owned();
        drop(kept);
        assert!(path.is_dir());
        std::fs::remove_dir_all(path).unwrap();
    }
}
