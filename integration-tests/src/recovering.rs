//! Recovery of coordinators from their remaining data.

use crate::cluster::{Cluster, coordinator_name};
use crate::process::ProcessExt as _;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

impl Cluster {
    /// Returns the data directory of coordinator `id`.
    pub fn coordinator_data(&self, id: usize) -> PathBuf {
        self.directory().join(coordinator_name(id - 1))
    }

    /// Recovers from the state in `from`, in the directory and at the address of the stopped coordinator `id`, and
    /// starts it. Returns the command's output.
    ///
    /// # Panics
    /// If it is refused.
    pub fn recover(&mut self, id: usize, from: &Path, flags: &[&str]) -> Value {
        let (into, address) = (self.coordinator_data(id), self.coordinator_addresses()[id - 1].clone());
        let (from, into, number) = (from.display().to_string(), into.display().to_string(), id.to_string());
        let asked = ["quorum", "recover", "--from", &from, "--into", &into, "--id", &number, "--address", &address];
        let timid = self.archon(&asked);
        assert!(timid.code == 4 && timid.stderr.contains("nothing was created"), "{timid:?}");
        let told = self.json(&[&asked[..], flags, &["--accept-data-loss"]].concat());
        let told = told.unwrap_or_else(|error| panic!("{error}"));
        self.start_coordinator(id - 1);
        told
    }

    /// Waits until the coordinators are of this generation and have recovered the nodes' state.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn wait_recovered(&self, generation: u64) {
        self.wait_json("the recovery to end", TIMEOUT, &["quorum", "list"], |quorum| {
            quorum["recovery"].is_null() && quorum["generation"] == json!(generation)
        });
    }

    /// Stops coordinator `id` cleanly and moves its directory aside.
    ///
    /// # Panics
    /// If it does not stop cleanly.
    pub fn put_aside(&mut self, id: usize, name: &str) -> PathBuf {
        assert!(self.take_coordinator(id - 1).terminate(TIMEOUT).success(), "coordinator {id} stops in order");
        let aside = self.directory().join(name);
        fs::rename(self.coordinator_data(id), &aside).expect("the directory moves");
        aside
    }
}

/// Copies a directory, as a backup does.
///
/// # Panics
/// If it cannot be read or written.
pub fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy_directory(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("a file")),
        }
    }
}
