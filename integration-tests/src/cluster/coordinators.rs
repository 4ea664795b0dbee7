//! Coordinators of a cluster: their addresses and how they are started.

use super::{Cluster, coordinator_name};
use crate::ports::free_addresses;
use archon_client::Role;
use archon_local_cluster::{Place, Process, newcomer_arguments};
use std::ffi::OsString;

impl Cluster {
    /// Starts or restarts coordinator `index`, from 0.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_coordinator(&mut self, index: usize) {
        let environment = self.environment_of(&coordinator_name(index));
        let process = self.coordinators[index].start(&environment, self.directory.path());
        self.links.runs_as(&coordinator_name(index), process.unwrap_or_else(|error| panic!("{error}")).pid());
    }

    /// Gives every coordinator a new address and restarts it on its data; none may be running. `peers` returns the peer
    /// addresses for the coordinator at an index.
    ///
    /// # Panics
    /// If one cannot be started.
    pub fn move_coordinators(&mut self, peers: impl Fn(usize, &[String]) -> Vec<String>) {
        let names: Vec<String> = (0..self.coordinators.len()).map(coordinator_name).collect();
        let places: Vec<Place> = names.iter().map(|name| self.links.add(name)).collect();
        let addresses: Vec<String> = places.iter().map(|place| place.reached_at.clone()).collect();
        for (index, (name, place)) in names.iter().zip(places).enumerate() {
            assert!(self.coordinators[index].process().is_none(), "{name} runs");
            let (id, data) = (index as u64 + 1, self.data_directory(name));
            let arguments = self.options.coordinator(id, &place, &peers(index, &addresses), &data);
            self.coordinators[index] = self.member((Role::Coordinator, &id.to_string()), name, place, arguments);
        }
        for index in 0..names.len() {
            self.start_coordinator(index);
        }
    }

    /// Starts a coordinator that joins through the earlier ones, and returns its index.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn join_coordinator(&mut self, flags: &[&str]) -> usize {
        let (index, through) = (self.coordinators.len(), self.coordinator_addresses());
        let (id, name) = (index as u64 + 1, coordinator_name(index));
        let (place, data) = (self.links.add(&name), self.data_directory(&name));
        let mut arguments = newcomer_arguments(id, &place, &through, &data);
        arguments.extend(flags.iter().map(Into::into));
        arguments.extend(self.metrics_arguments(&name));
        let member = self.member((Role::Coordinator, &id.to_string()), &name, place, arguments);
        self.coordinators.push(member);
        self.start_coordinator(index);
        index
    }

    /// Returns the console arguments of the next coordinator, if the cluster has consoles.
    pub(super) fn console_arguments(&mut self) -> Vec<OsString> {
        if !self.options.consoles {
            return Vec::new();
        }
        let address = free_addresses(1).remove(0);
        self.consoles.push(address.clone());
        vec!["--http-listen".into(), address.into()]
    }

    /// Returns the console address of coordinator `index`, from 0.
    ///
    /// # Panics
    /// If the cluster was started without consoles.
    pub fn console_address(&self, index: usize) -> &str {
        self.consoles.get(index).expect("the coordinator serves a console")
    }

    /// Removes and returns the process of coordinator `index`, to be killed or stopped.
    ///
    /// # Panics
    /// If it does not run.
    pub fn take_coordinator(&mut self, index: usize) -> Process {
        self.coordinators[index].take().expect("the coordinator runs")
    }

    /// Returns the process of coordinator `index`.
    ///
    /// # Panics
    /// If it does not run.
    pub fn coordinator(&self, index: usize) -> &Process {
        self.coordinators[index].process().expect("the coordinator runs")
    }
}
