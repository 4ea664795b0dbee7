//! What tools share: the flags that choose their cluster, and how they print what they found.

use crate::own_path;
use anyhow::Context;
use archon_integration_tests::{Cluster, Options};
use serde::Serialize;
use std::path::PathBuf;
use tokio::task::block_in_place;

/// Flags of every tool.
#[derive(clap::Args, Clone, Debug)]
pub struct ToolArgs {
    /// Run this `archon` instead of the one built into the tool.
    #[arg(long)]
    program: Option<String>,
    /// Print one JSON document instead of text.
    #[arg(long)]
    pub json: bool,
    /// Keep the logs of all processes in this directory. ARCHON_TEST_LOG sets what they log, ARCHON_LOG what the
    /// client logs.
    #[arg(long)]
    logs: Option<PathBuf>,
}

/// Flags of tools that put load on one table of three nodes.
#[derive(clap::Args, Clone, Debug)]
pub struct TableArgs {
    /// Partitions of the table.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub partitions: u32,
    /// Copies of each partition, 1 to 3.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub replication: u8,
}

impl TableArgs {
    /// A cluster of three coordinators and three nodes with such a table.
    pub fn options(&self) -> Options {
        Options { partitions: self.partitions, replication: self.replication, ..Options::default() }
    }
}

impl ToolArgs {
    /// Starts a cluster and waits until it serves. To be called on a runtime of several threads.
    ///
    /// # Errors
    /// If this program cannot be found.
    ///
    /// # Panics
    /// If the cluster does not come up.
    pub fn start(&self, options: &Options) -> anyhow::Result<Cluster> {
        let exe = self.program.clone().map_or_else(own_path, Ok)?;
        Ok(block_in_place(|| Cluster::start(&exe, options)))
    }

    /// Copies the logs of the cluster's processes out of its directory, which goes away with it, if that was asked for.
    ///
    /// # Errors
    /// If one cannot be copied.
    pub fn keep_logs(&self, cluster: &Cluster) -> anyhow::Result<()> {
        match self.logs.as_deref() {
            Some(to) => cluster.copy_logs(to).with_context(|| format!("copying logs to {}", to.display())),
            None => Ok(()),
        }
    }

    /// Says how things go on, unless what is printed is JSON.
    pub fn talk(&self, line: impl std::fmt::Display) {
        if !self.json {
            println!("{line}");
        }
    }

    /// Measures on a runtime of several threads and prints what came of it, as JSON or by `print`.
    ///
    /// # Errors
    /// What went wrong while measuring.
    pub fn report<R: Serialize>(
        &self,
        measured: impl Future<Output = anyhow::Result<R>>,
        print: impl FnOnce(&R),
    ) -> anyhow::Result<R> {
        let report = tokio::runtime::Runtime::new()?.block_on(measured)?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&report)?);
        } else {
            print(&report);
        }
        Ok(report)
    }
}
