//! A coordinator or a node: how it is started, where it is reached, and its process while it runs.

use crate::error::Error;
use crate::process::Process;
use archon_types::Failover;
use std::ffi::OsString;
use std::path::Path;

/// What the first start of a quorum decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Coordinators.
    pub coordinators: usize,
    /// Nodes to wait for before the first assignment.
    pub nodes_min: usize,
    /// Partitions of the default table.
    pub partitions: u32,
    /// Copies of each partition.
    pub replication: u8,
    /// How soon others take over from a node that died.
    pub failover: Failover,
}

/// Where a member listens, and how others reach it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The address it listens on.
    pub listen: String,
    /// The address that others are told.
    pub reached_at: String,
}

impl From<String> for Place {
    /// With nothing in between.
    fn from(address: String) -> Self {
        Self { listen: address.clone(), reached_at: address }
    }
}

impl Layout {
    /// The arguments of coordinator `id` of those that are reached at these addresses.
    pub fn coordinator(&self, id: u64, place: &Place, addresses: &[String], data: &Path) -> Vec<OsString> {
        let peers: Vec<String> =
            (1..).zip(addresses).map(|(id, address): (u64, _)| format!("{id}={address}")).collect();
        let mut arguments = words(&["coordinator", "--id", &id.to_string(), "--listen", &place.listen]);
        arguments.extend(words(&["--peers", &peers.join(",")]));
        arguments.extend(words(&["--partitions", &self.partitions.to_string()]));
        arguments.extend(words(&["--replication", &self.replication.to_string()]));
        arguments.extend(words(&["--min-nodes", &self.nodes_min.to_string()]));
        arguments.extend(words(&["--failover", self.failover.as_str()]));
        arguments.extend(["--data-dir".into(), data.into()]);
        arguments
    }
}

/// The arguments of a coordinator that joins a quorum through one that is reached at these addresses.
pub fn newcomer_arguments(id: u64, place: &Place, through: &[String], data: &Path) -> Vec<OsString> {
    let mut arguments = words(&["coordinator", "--id", &id.to_string(), "--listen", &place.listen]);
    arguments.extend(words(&["--join", &through.join(",")]));
    arguments.extend(["--data-dir".into(), data.into()]);
    if place.reached_at != place.listen {
        arguments.extend(words(&["--advertise", &place.reached_at]));
    }
    arguments
}

/// The arguments of a node of the quorum that is reached at these addresses.
pub fn node_arguments(name: &str, place: &Place, coordinators: &[String], data: &Path) -> Vec<OsString> {
    let mut arguments = words(&["node", "--name", name, "--listen", &place.listen]);
    arguments.extend(words(&["--coordinators", &coordinators.join(",")]));
    arguments.extend(["--data-dir".into(), data.into()]);
    if place.reached_at != place.listen {
        arguments.extend(words(&["--advertise", &place.reached_at]));
    }
    arguments
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(Into::into).collect()
}

/// A member of a cluster, which may be down.
#[derive(Debug)]
pub struct Member {
    name: String,
    address: String,
    command: Vec<OsString>,
    /// Where in it the program stands: something may be wrapped around it.
    program: usize,
    process: Option<Process>,
}

impl Member {
    /// A member that does not run yet: its program first.
    pub fn new(name: &str, place: Place, command: Vec<OsString>) -> Self {
        Self::within(name, place, Vec::new(), command)
    }

    /// The same, started by another command that comes before.
    pub fn within(name: &str, place: Place, before: Vec<OsString>, command: Vec<OsString>) -> Self {
        let (program, command) = (before.len(), before.into_iter().chain(command).collect());
        Self { name: name.to_owned(), address: place.reached_at, command, program, process: None }
    }

    /// Has it run another program from its next start on.
    pub fn install(&mut self, program: &Path) {
        if let Some(word) = self.command.get_mut(self.program) {
            program.as_os_str().clone_into(word);
        }
    }

    /// Where others reach it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Starts it, the first time or again, on the data it has; its log goes to `directory`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&mut self, environment: &[(&str, String)], directory: &Path) -> Result<&Process, Error> {
        let process = Process::start(&self.name, &self.command, environment, directory)?;
        Ok(self.process.insert(process))
    }

    /// Its process, if it was started and not taken out.
    pub const fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// The same, to look after it.
    pub const fn process_mut(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// Takes its process out, to be killed or ended.
    ///
    /// # Errors
    /// When it does not run.
    pub fn take(&mut self) -> Result<Process, Error> {
        self.process.take().ok_or_else(|| Error::NotRunning(self.name.clone()))
    }
}
