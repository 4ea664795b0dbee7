//! A cluster of this measurement's own on this machine, gone with it.

use crate::args::Connection;
use crate::exit::Failure;
use crate::output::Output;
use archon_client::{Admin, NodeStatus};
use archon_load::watch;
use archon_local_cluster::{Cluster, LATE_NODE};
use std::time::Duration;

/// How long a node may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Three coordinators and three nodes with three copies of each partition. Its processes end when it is dropped.
pub(super) struct Local {
    cluster: Cluster,
}

impl Local {
    /// Starts it and waits until every partition has all its copies.
    ///
    /// # Errors
    /// If it does not come up.
    pub(super) async fn start(output: &Output) -> Result<Self, Failure> {
        let cluster = Cluster::start(crate::own_program()?).await?;
        output.talk(format!("started a cluster of its own under {}", cluster.directory().display()));
        Ok(Self { cluster })
    }

    /// The options with which other verbs reach it; the reader's own if there is none.
    pub(super) fn connection(local: Option<&Self>, connection: &Connection) -> Connection {
        match local {
            Some(local) => Connection { coordinators: local.cluster.endpoints(), ..connection.clone() },
            None => connection.clone(),
        }
    }

    /// Kills a node with SIGKILL.
    ///
    /// # Errors
    /// If there is no such node.
    pub(super) fn kill(&mut self, name: &str) -> Result<(), Failure> {
        self.cluster.kill_node(name)?;
        Ok(())
    }

    /// Starts a fourth node and waits until it is there.
    ///
    /// # Errors
    /// If it does not come up.
    pub(super) async fn another_node(&mut self, admin: &Admin) -> Result<(), Failure> {
        self.cluster.start_node(LATE_NODE)?;
        let there = watch::until_node(admin, LATE_NODE, NodeStatus::Alive, PATIENCE).await;
        there.map_err(|failure| Failure::failed(failure.to_string()))
    }
}
