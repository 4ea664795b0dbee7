//! A coordinator or a node: its command, its addresses, and its process while it runs.

use crate::error::Error;
use crate::process::Process;
use archon_types::Failover;
use std::ffi::OsString;
use std::path::Path;

/// Settings that the first start of a quorum fixes.
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
    /// Failover timing.
    pub failover: Failover,
}

/// Listening address of a member, and its address for others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The address it listens on.
    pub listen: String,
    /// The address given to others.
    pub reached_at: String,
}

impl From<String> for Place {
    /// The same address for both.
    fn from(address: String) -> Self {
        Self { listen: address.clone(), reached_at: address }
    }
}

impl Layout {
    /// Returns the arguments of coordinator `id` in a quorum at these addresses.
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

/// Returns the arguments of a coordinator that joins a quorum through the one at these addresses.
pub fn newcomer_arguments(id: u64, place: &Place, through: &[String], data: &Path) -> Vec<OsString> {
    let mut arguments = words(&["coordinator", "--id", &id.to_string(), "--listen", &place.listen]);
    arguments.extend(words(&["--join", &through.join(",")]));
    arguments.extend(["--data-dir".into(), data.into()]);
    if place.reached_at != place.listen {
        arguments.extend(words(&["--advertise", &place.reached_at]));
    }
    arguments
}

/// Returns the arguments of a node of the quorum at these addresses.
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

/// A member of a cluster, running or stopped.
#[derive(Debug)]
pub struct Member {
    name: String,
    address: String,
    command: Vec<OsString>,
    /// Index of the program in the command: a wrapper may precede it.
    program: usize,
    process: Option<Process>,
}

impl Member {
    /// Creates a stopped member; its command begins with the program.
    pub fn new(name: &str, place: Place, command: Vec<OsString>) -> Self {
        Self::within(name, place, Vec::new(), command)
    }

    /// As [`Member::new`], with a wrapper command in front.
    pub fn within(name: &str, place: Place, before: Vec<OsString>, command: Vec<OsString>) -> Self {
        let (program, command) = (before.len(), before.into_iter().chain(command).collect());
        Self { name: name.to_owned(), address: place.reached_at, command, program, process: None }
    }

    /// Sets the program for the next start.
    pub fn install(&mut self, program: &Path) {
        if let Some(word) = self.command.get_mut(self.program) {
            program.as_os_str().clone_into(word);
        }
    }

    /// Returns its address for others.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Starts or restarts it on its data; its log goes to `directory`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(&mut self, environment: &[(&str, String)], directory: &Path) -> Result<&Process, Error> {
        let process = Process::start(&self.name, &self.command, environment, directory)?;
        Ok(self.process.insert(process))
    }

    /// Returns its process, if it was started and not taken.
    pub const fn process(&self) -> Option<&Process> {
        self.process.as_ref()
    }

    /// As [`Member::process`], mutable.
    pub const fn process_mut(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// Removes and returns its process, to be killed or stopped.
    ///
    /// # Errors
    /// If it does not run.
    pub fn take(&mut self) -> Result<Process, Error> {
        self.process.take().ok_or_else(|| Error::NotRunning(self.name.clone()))
    }
}
