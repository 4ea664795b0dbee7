//! Rolling upgrade of a cluster as in the runbook: coordinators first, the leader last, each back before the next one
//! stops.

use crate::cluster::TIMEOUT;
use crate::process::ProcessExt;
use crate::release::Release;
use crate::scene::Scene;

/// Operations answered between two members, so that load meets every mixture of versions.
const BETWEEN: u64 = 40;

impl Scene {
    /// Upgrades coordinator `index`, from 0, to a version, and waits until it is back in the quorum.
    ///
    /// # Panics
    /// If it does not stop cleanly or does not come back.
    pub fn roll_coordinator(&mut self, index: usize, release: &Release) {
        let name = format!("coordinator-{}", index + 1);
        self.say(&format!("{name} becomes {release:?}"));
        let ended = self.cluster.take_coordinator(index).terminate(TIMEOUT);
        assert!(ended.success(), "{name} did not end in order: {ended}");
        self.cluster.install(&name, release);
        self.cluster.start_coordinator(index);
        let what = format!("the quorum to have {name} back");
        self.cluster.wait_json(&what, TIMEOUT, &["quorum", "list"], |quorum| {
            let mut members = quorum["coordinators"].as_array().into_iter().flatten();
            let back = members.all(|member| member["entries_behind"] == 0 && member["role"] != "unreachable");
            back && quorum["spare_voters"] == 1
        });
        self.progress(BETWEEN);
    }

    /// Upgrades a node to a version, and waits until every partition has all its copies.
    ///
    /// # Panics
    /// If it does not stop cleanly or does not come back.
    pub fn roll_node(&mut self, name: &str, release: &Release) {
        self.say(&format!("{name} becomes {release:?}"));
        let ended = self.cluster.take_node(name).terminate(TIMEOUT);
        assert!(ended.success(), "{name} did not end in order: {ended}");
        self.cluster.install(name, release);
        self.cluster.start_node(name);
        self.wait_whole();
        self.progress(BETWEEN);
    }

    /// Upgrades the coordinators to a version, the leader last.
    ///
    /// # Panics
    /// As [`Scene::roll_coordinator`].
    pub fn roll_coordinators(&mut self, release: &Release) {
        let leader = self.cluster.wait_leader().0;
        let count = self.cluster.coordinator_addresses().len();
        for index in (0..count).filter(|index| *index != leader).chain([leader]) {
            self.roll_coordinator(index, release);
        }
    }

    /// Upgrades the whole cluster to a version.
    ///
    /// # Panics
    /// As [`Scene::roll_coordinator`].
    pub fn roll(&mut self, release: &Release) {
        self.roll_coordinators(release);
        for name in self.cluster.node_names() {
            self.roll_node(&name, release);
        }
    }
}
