//! What kind of cluster to start.

use crate::network::Network;
use crate::release::Release;
use archon_local_cluster::Layout;
use archon_types::Failover;

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of coordinators.
    pub coordinators: usize,
    /// Names of the nodes to start with.
    pub nodes: Vec<&'static str>,
    /// Partitions of the default table.
    pub partitions: u32,
    /// Nodes to wait for before the first assignment.
    pub nodes_min: usize,
    /// Copies of each partition.
    pub replication: u8,
    /// How the members are connected.
    pub network: Network,
    /// The nodes' storage engine, if not the default one.
    pub engine: Option<&'static str>,
    /// What each node may use of memory, if not a part of the machine.
    pub memory: Option<&'static str>,
    /// Has each coordinator and node tell its metrics, see [`Cluster::metrics_address`](crate::Cluster::metrics_address).
    pub metrics: bool,
    /// Has each coordinator serve its console, see [`Cluster::console_address`](crate::Cluster::console_address).
    pub consoles: bool,
    /// Has all members talk by TLS, with certificates of an authority of the cluster's own. The whole suite does so where
    /// `ARCHON_TEST_TLS` is set.
    pub tls: bool,
    /// Lets every client read and write every table, where members talk by TLS; without, nothing is granted.
    pub clients_may: bool,
    /// The version of the program that members run, if not the one under test.
    pub release: Option<Release>,
    /// Gives each coordinator and node a disk of its own, see [`DiskImage`](crate::image::DiskImage); needs root.
    pub disks: bool,
    /// No cluster of another test of this process runs beside it: for what lease and failure time-outs bound, and for
    /// what the machine's speed decides.
    pub alone: bool,
}

impl Default for Options {
    /// The story of the seed: three coordinators, three cities, nine partitions of one copy each.
    fn default() -> Self {
        let nodes = vec!["athens", "byzantium", "cyrene"];
        Self {
            coordinators: 3,
            nodes,
            partitions: 9,
            nodes_min: 3,
            replication: 1,
            network: Network::Loopback,
            engine: None,
            memory: None,
            metrics: false,
            consoles: false,
            tls: std::env::var_os("ARCHON_TEST_TLS").is_some(),
            clients_may: true,
            release: None,
            disks: false,
            alone: false,
        }
    }
}

impl Options {
    /// What of it the first start of the quorum decides.
    pub(crate) const fn layout(&self) -> Layout {
        let Self { coordinators, nodes_min, partitions, replication, .. } = *self;
        Layout { coordinators, nodes_min, partitions, replication, failover: Failover::Standard }
    }

    /// The same with three copies of each of 64 partitions: what a cluster of three nodes is unless told otherwise.
    pub fn replicated() -> Self {
        Self { partitions: 64, replication: 3, ..Self::default() }
    }
}
