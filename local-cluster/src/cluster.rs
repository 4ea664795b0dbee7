//! The processes: coordinators and nodes on free ports, in a directory that goes away at the end.

use crate::child::Child;
use crate::error::Error;
use crate::wait::{Look, wait_for};
use archon_client::{Admin, Status};
use archon_load::watch;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many coordinators there are.
pub const COORDINATORS: u64 = 3;
/// How many partitions the table has.
pub const PARTITIONS: u32 = 9;
/// How many copies each partition has.
pub const COPIES: usize = 3;
/// The first nodes, in order of registration.
pub const FIRST_NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
/// The node that joins later.
pub const LATE_NODE: &str = "ephesus";

/// How often new ports are tried when somebody else took one between choosing and listening.
const PORT_ATTEMPTS: u32 = 5;
/// How long anything may take to come about.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a stopping process may take: a node has ten seconds to hand over.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// How long one request may take while waiting for something.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// The running processes. Dropping it kills what still runs and removes the directory.
///
/// The processes also end with the thread that started them, so that even an owner that is killed leaves none behind:
/// start them from one that lives as long as the process does, such as the main thread.
#[derive(Debug)]
pub struct Cluster {
    /// What is started: `archon`, or a program that becomes `archon` where its first argument is a verb of it.
    program: PathBuf,
    // In this order: processes end before their directory goes.
    nodes: BTreeMap<String, Child>,
    coordinators: BTreeMap<u64, Child>,
    addresses: BTreeMap<u64, String>,
    /// Where the coordinators keep their data; every attempt to start them has a place of its own.
    data: PathBuf,
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
    /// Starts three coordinators and three nodes and waits until every partition is served with three copies.
    ///
    /// # Errors
    /// What stood in the way.
    pub async fn start(program: impl Into<PathBuf>) -> Result<Self, Error> {
        let mut cluster = Self::new(program, false)?;
        cluster.start_quorum().await?;
        for name in FIRST_NODES {
            cluster.start_node(name)?;
        }
        let admin = cluster.admin()?;
        tokio::select! {
            whole = watch::until_whole(&admin, COPIES, PATIENCE) => drop(whole?),
            ended = cluster.watch() => return Err(ended),
        }
        Ok(cluster)
    }

    /// An empty cluster with its directory; its processes will run `program`.
    ///
    /// # Errors
    /// When no temporary directory can be made.
    pub fn new(program: impl Into<PathBuf>, keep: bool) -> Result<Self, Error> {
        let directory = tempfile::Builder::new().prefix("archon-cluster-").tempdir().map_err(Error::Directory)?;
        let directory = if keep { Directory::Kept(directory.keep()) } else { Directory::Temporary(directory) };
        let data = directory.path().to_owned();
        let (nodes, coordinators, addresses) = Default::default();
        Ok(Self { program: program.into(), nodes, coordinators, addresses, data, directory })
    }

    /// The coordinators' addresses.
    pub fn endpoints(&self) -> Vec<String> {
        self.addresses.values().cloned().collect()
    }

    /// The address of one coordinator.
    pub fn address(&self, id: u64) -> &str {
        self.addresses.get(&id).map_or("", String::as_str)
    }

    /// Where everything is.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Whether the directory stays after the end.
    pub fn keeps_directory(&self) -> bool {
        matches!(self.directory, Directory::Kept(_))
    }

    /// Asks the quorum, a short time per request.
    ///
    /// # Errors
    /// When the client cannot be made.
    pub fn admin(&self) -> Result<Admin, Error> {
        Ok(Admin::new(self.endpoints(), REQUEST_LIMIT)?)
    }

    /// Starts the quorum on free ports and waits until it has a leader.
    ///
    /// # Errors
    /// When no leader comes about, or processes end early on every attempt.
    pub async fn start_quorum(&mut self) -> Result<(Status, Duration), Error> {
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
                    Ok(status) if status.leader_id.is_some() => Look::Yes(status),
                    Ok(_) => Look::NotYet("no leader yet".to_owned()),
                    Err(error) => Look::NotYet(error.to_string()),
                })
            });
            match elected.await {
                Err(Error::Ended { .. }) if attempt < PORT_ATTEMPTS && self.port_taken() => {
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
    pub fn restart_coordinator(&mut self, id: u64) -> Result<(), Error> {
        self.start_coordinator(id)
    }

    fn start_coordinator(&mut self, id: u64) -> Result<(), Error> {
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
        self.coordinators.insert(id, Child::start(&self.program, &name, args, &log)?);
        Ok(())
    }

    /// Starts a node on a port that the system chooses.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_node(&mut self, name: &str) -> Result<(), Error> {
        self.start_node_at(name, "127.0.0.1:0")
    }

    /// Starts a node at an address, with the data it had if it ran before.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_node_at(&mut self, name: &str, listen: &str) -> Result<(), Error> {
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
        self.nodes.insert(name.to_owned(), Child::start(&self.program, name, args, &log)?);
        Ok(())
    }

    /// Kills a coordinator with SIGKILL; says its process id.
    ///
    /// # Errors
    /// When there is no such coordinator.
    pub fn kill_coordinator(&mut self, id: u64) -> Result<u32, Error> {
        let child = self.coordinators.remove(&id);
        let mut child = child.ok_or_else(|| Error::NotRunning(format!("coordinator {id}")))?;
        child.kill();
        Ok(child.pid())
    }

    /// Kills a node with SIGKILL; says its process id.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn kill_node(&mut self, name: &str) -> Result<u32, Error> {
        let mut child = self.nodes.remove(name).ok_or_else(|| Error::NotRunning(format!("node {name}")))?;
        child.kill();
        Ok(child.pid())
    }

    /// Fails if a process has ended that nobody stopped.
    ///
    /// # Errors
    /// The name of the process and how it ended.
    pub fn check_alive(&mut self) -> Result<(), Error> {
        for child in self.coordinators.values_mut().chain(self.nodes.values_mut()) {
            if let Some(status) = child.ended() {
                return Err(Error::Ended { name: child.name().to_owned(), status, log: child.tail().1 });
            }
        }
        Ok(())
    }

    /// Waits until a process ends by itself, which none should.
    pub async fn watch(&mut self) -> Error {
        loop {
            if let Err(ended) = self.check_alive() {
                return ended;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Stops everything in order: nodes first, then the quorum. The directory goes when the cluster is dropped.
    ///
    /// # Errors
    /// When a process does not stop in time or does not end with success.
    pub async fn stop(&mut self) -> Result<(), Error> {
        let nodes = stop_all(self.nodes.values_mut()).await;
        let coordinators = stop_all(self.coordinators.values_mut()).await;
        nodes.and(coordinators)
    }

    /// The ends of all logs.
    pub fn tails(&self) -> Vec<(PathBuf, Vec<String>)> {
        self.coordinators.values().chain(self.nodes.values()).map(Child::tail).collect()
    }

    fn port_taken(&self) -> bool {
        let taken = |lines: Vec<String>| lines.iter().any(|line| line.to_lowercase().contains("in use"));
        self.coordinators.values().any(|child| taken(child.tail().1))
    }
}

/// Asks all to stop, then waits for them; one that overstays is killed when it is dropped.
async fn stop_all<'a>(children: impl Iterator<Item = &'a mut Child>) -> Result<(), Error> {
    let mut children: Vec<&mut Child> = children.collect();
    children.iter_mut().for_each(|child| child.ask_to_stop());
    wait_for::<_, Error>("all processes to stop when asked", STOP_LIMIT, async || {
        let running: Vec<&str> = children
            .iter_mut()
            .filter_map(|child| if child.ended().is_none() { Some(child.name()) } else { None })
            .collect();
        Ok(if running.is_empty() { Look::Yes(()) } else { Look::NotYet(format!("{} still run", running.join(", "))) })
    })
    .await?;
    for child in children {
        if let Some(status) = child.ended().filter(|status| !status.success()) {
            return Err(Error::Stop { name: child.name().to_owned(), status });
        }
    }
    Ok(())
}

/// Addresses with ports that were free a moment ago. All are held until all are chosen, so that they differ.
fn free_ports(count: u64) -> Result<BTreeMap<u64, String>, Error> {
    let mut listeners = Vec::new();
    for id in 1..=count {
        listeners.push((id, TcpListener::bind("127.0.0.1:0").map_err(Error::Port)?));
    }
    listeners.iter().map(|(id, listener)| Ok((*id, listener.local_addr().map_err(Error::Port)?.to_string()))).collect()
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
        let cluster = Cluster::new("archon", false).unwrap();
        let path = cluster.directory().to_owned();
        assert!(path.is_dir() && !cluster.keeps_directory());
        drop(cluster);
        assert!(!path.exists());
        let kept = Cluster::new("archon", true).unwrap();
        let path = kept.directory().to_owned();
        drop(kept);
        assert!(path.is_dir());
        std::fs::remove_dir_all(path).unwrap();
    }
}
