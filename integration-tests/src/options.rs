//! Options of a cluster to start.

use crate::cluster::Room;
use crate::network::Network;
use crate::release::Release;
use archon_local_cluster::{Layout, Place};
use archon_types::{Failover, LeaseTiming};
use std::ffi::OsString;
use std::path::Path;

/// Timing with which a process may stand still for five seconds: for tests that expect leases to last, on a machine that
/// may be busy. The default replication time-out allows no longer interval of heartbeats.
pub const LONG_LEASES: LeaseTiming =
    LeaseTiming { heartbeat_ms: 400, lease_ms: 6_000, failure_timeout_ms: 7_500, margin_ms: 300 };

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of coordinators.
    pub coordinators: usize,
    /// Names of the first nodes.
    pub nodes: Vec<&'static str>,
    /// Partitions of the default table.
    pub partitions: u32,
    /// Nodes to wait for before the first assignment.
    pub nodes_min: usize,
    /// Copies of each partition.
    pub replication: u8,
    /// Kind of network.
    pub network: Network,
    /// Storage engine of the nodes, if not the default.
    pub engine: Option<&'static str>,
    /// Memory limit of each node, if not a fraction of the machine's.
    pub memory: Option<&'static str>,
    /// Serves metrics on each coordinator and node, see [`Cluster::metrics_address`](crate::Cluster::metrics_address).
    pub metrics: bool,
    /// Nodes that listen for Redis clients, see [`Cluster::redis_address`](crate::Cluster::redis_address).
    pub redis: &'static [&'static str],
    /// Serves a console on each coordinator, see [`Cluster::console_address`](crate::Cluster::console_address).
    pub consoles: bool,
    /// Uses TLS between all members, with certificates of the cluster's own authority. The whole suite does so where
    /// `ARCHON_TEST_TLS` is set.
    pub tls: bool,
    /// Grants every client read and write on every table, with TLS; without it nothing is granted.
    pub clients_may: bool,
    /// Program version of the members, if not the one under test.
    pub release: Option<Release>,
    /// Gives each coordinator and node a disk of its own, see [`DiskImage`](crate::image::DiskImage); needs root.
    pub disks: bool,
    /// Keeps data on the machine's disk, for measurements. Else it is in memory, see
    /// [`ScratchDirectory`](archon_testkit::ScratchDirectory).
    pub on_disk: bool,
    /// Timing of the leases of nodes, if not the default; such as [`LONG_LEASES`].
    pub timing: Option<LeaseTiming>,
    /// Part of the machine that it takes from clusters of other tests of this process.
    pub room: Room,
}

impl Default for Options {
    /// Default scenario: three coordinators, three nodes, nine partitions of one copy each.
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
            redis: &[],
            consoles: false,
            tls: std::env::var_os("ARCHON_TEST_TLS").is_some(),
            clients_may: true,
            release: None,
            disks: false,
            on_disk: false,
            timing: None,
            room: Room::Part,
        }
    }
}

impl Options {
    /// Returns the arguments of coordinator `id` of a quorum at these addresses, with the layout decided by the first
    /// start of the quorum.
    pub(crate) fn coordinator(&self, id: u64, place: &Place, addresses: &[String], data: &Path) -> Vec<OsString> {
        let Self { coordinators, nodes_min, partitions, replication, .. } = *self;
        let layout = Layout { coordinators, nodes_min, partitions, replication, failover: Failover::Standard };
        let mut arguments = layout.coordinator(id, place, addresses, data);
        if let Some(timing) = self.timing {
            let LeaseTiming { heartbeat_ms, lease_ms, failure_timeout_ms, margin_ms } = timing;
            for (flag, value) in [
                ("--heartbeat-ms", heartbeat_ms),
                ("--lease-ms", lease_ms),
                ("--failure-timeout-ms", failure_timeout_ms),
                ("--margin-ms", margin_ms),
            ] {
                arguments.extend([flag.into(), value.to_string().into()]);
            }
        }
        arguments
    }

    /// Returns the default with three copies of each of 64 partitions: the program's own default for three nodes.
    pub fn replicated() -> Self {
        Self { partitions: 64, replication: 3, ..Self::default() }
    }
}
