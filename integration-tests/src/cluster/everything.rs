//! Actions on all members of a cluster at once, and their data directories.

use super::Cluster;
use crate::image::DiskImage;
use archon_local_cluster::{Member, Process};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Size of a member's own disk, as a sparse file.
const DISK_MEGABYTES: u64 = 1_024;

impl Cluster {
    /// Sends SIGKILL to every process at once.
    pub fn kill_everything(&mut self) {
        self.stop_and_kill(|| ());
    }

    /// Cuts the power of every disk at once, ends every process, and remounts the disks.
    ///
    /// # Panics
    /// If the system refuses, or the cluster has no disks of its own.
    pub fn cut_power(&mut self) {
        assert!(!self.disks.is_empty(), "this cluster was started without disks of its own");
        let disks = std::mem::take(&mut self.disks);
        self.stop_and_kill(|| {
            for disk in disks.values() {
                disk.cut_power().expect("a disk of this test's own can be shut down");
            }
        });
        for disk in disks.values() {
            disk.replace().expect("a disk mounts again after its power failed");
        }
        self.disks = disks;
    }

    /// Returns the disks, by member (`coordinator-1`, `node-athens`).
    pub const fn disks(&self) -> &BTreeMap<String, DiskImage> {
        &self.disks
    }

    /// Returns a node's data directory.
    pub fn node_data(&self, name: &str) -> PathBuf {
        let member = format!("node-{name}");
        let own = self.disks.get(&member).map(|disk| disk.path().join("data"));
        own.unwrap_or_else(|| self.directory.path().join(member))
    }

    fn stop_and_kill(&mut self, meanwhile: impl FnOnce()) {
        let members = self.coordinators.iter_mut().chain(self.nodes.values_mut());
        let mut processes: Vec<Process> = members.filter_map(|member| member.take().ok()).collect();
        // Paused first, so that no process sees another die.
        processes.iter().for_each(Process::pause);
        meanwhile();
        processes.iter_mut().for_each(Process::kill);
    }

    /// Starts every former or stopped member that does not run.
    pub fn start_everything(&mut self) {
        for index in 0..self.coordinators.len() {
            if self.coordinators[index].process().is_none() {
                self.start_coordinator(index);
            }
        }
        let names: Vec<String> =
            self.nodes.iter().filter(|(_, m)| m.process().is_none()).map(|(n, _)| n.clone()).collect();
        for name in names {
            self.start_node(&name);
        }
    }

    /// Sends SIGCONT to every running or paused process.
    pub fn resume_everything(&self) {
        let members = self.coordinators.iter().chain(self.nodes.values());
        members.filter_map(Member::process).for_each(Process::resume);
    }

    /// Returns a member's data directory; on a new disk of its own if the options ask for one.
    pub(super) fn data_directory(&mut self, member: &str) -> PathBuf {
        let root = self.directory.path();
        if !self.options.disks {
            return root.join(member);
        }
        let disk = DiskImage::create(root, member, DISK_MEGABYTES).expect("root may mount a disk");
        let data = disk.path().join("data");
        self.disks.insert(member.to_owned(), disk);
        data
    }
}
