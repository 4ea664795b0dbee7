//! Archon: three coordinators and three nodes, with a table of two copies, one of three, and one by ranges; and the table of two
//! copies through the Redis listeners of the nodes.

use crate::redis::Redis;
use crate::redis_rs::RedisRs;
use crate::report::{ARCHON, ARCHON_LIBRARY, ARCHON_REDIS};
use crate::system::{self, LIBRARY_CLIENTS, LIBRARY_THREADS, RunOutcome, START_LIMIT, System, drive};
use archon_client::{Admin, PartitionStatus, RangeLimits, ReplicaState, Transport};
use archon_integration_tests::{Cluster, Options};
use archon_load::watch::{until, until_whole};
use archon_load::{Archon, Connector, KeyText, Mix, Workload};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const PARTITIONS: u32 = 64;
/// Partitions of the table by ranges, each with the same number of keys.
const RANGES: u64 = 8;

/// Kind of a compared table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hashed,
    Ranges,
}

/// Clients of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clients {
    /// One of the library, on one thread.
    One,
    /// Those of the library in a program of several threads.
    Library,
    /// Those of redis-rs, in the same program.
    RedisRs,
    /// All share one connection to each Redis listener.
    RedisPipelined,
}

struct ArchonSystem<C> {
    name: &'static str,
    copies: u8,
    kind: Kind,
    clients: Clients,
    target: Arc<C>,
    cluster: Rc<Cluster>,
}

/// Starts the cluster, for this number of keys.
pub(crate) fn start(program: Option<&str>, keys: u64) -> anyhow::Result<Vec<Box<dyn System>>> {
    let options =
        Options { partitions: PARTITIONS, replication: 2, redis: &NODES, on_disk: true, ..Options::default() };
    let exe = match program {
        Some(program) => program.to_owned(),
        None => std::env::current_exe()?.display().to_string(),
    };
    let cluster = Rc::new(Cluster::start(&exe, &options));
    let endpoints = cluster.coordinator_addresses();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let admin = Admin::new(endpoints.clone(), Duration::from_secs(5))?;
        until_whole(&admin, 2, START_LIMIT).await?;
        admin.create_table("three", PARTITIONS, 3).await?;
        let split_at = (1..RANGES).map(|part| KeyText::new(part * keys / RANGES).bytes().to_vec().into());
        admin.create_range_table("ranges", split_at.collect(), RangeLimits::NONE, 3).await?;
        let whole = async || {
            let mut rows = Vec::new();
            for table in ["three", "ranges"] {
                rows.extend(admin.table(table).await.map_err(|error| error.to_string())?);
            }
            let live = |row: &archon_client::PartitionSummary| {
                row.status == PartitionStatus::Online
                    && row.copies.iter().filter(|copy| copy.state == ReplicaState::Live).count() == 3
            };
            if rows.iter().all(live) { Ok(()) } else { Err("not every partition has three copies".to_owned()) }
        };
        until("the tables with three copies", START_LIMIT, whole).await?;
        Ok::<_, anyhow::Error>(())
    })?;
    let system = |name: &'static str, copies: u8, kind: Kind, table: &str| {
        let target = Archon {
            endpoints: endpoints.clone(),
            table: table.into(),
            timeout: Duration::from_secs(10),
            transport: Transport::default(),
        };
        let clients = if name == ARCHON_LIBRARY { Clients::Library } else { Clients::One };
        let (target, cluster) = (Arc::new(target), Rc::clone(&cluster));
        Box::new(ArchonSystem { name, copies, kind, clients, target, cluster }) as Box<dyn System>
    };
    let listeners: Vec<String> = cluster.redis_addresses().map(str::to_owned).collect();
    Ok(vec![
        system(ARCHON_LIBRARY, 2, Kind::Hashed, "default"),
        system(ARCHON, 2, Kind::Hashed, "default"),
        by_redis(ARCHON_REDIS[0], Clients::RedisRs, RedisRs::new(&listeners)?, &cluster),
        by_redis(ARCHON_REDIS[1], Clients::RedisPipelined, listening(&listeners)?, &cluster),
        system("Archon, R = 3", 3, Kind::Hashed, "three"),
        system("Archon, R = 3, ranges", 3, Kind::Ranges, "ranges"),
    ])
}

/// Returns clients of the Redis listeners, once a node knows all of them.
fn listening(listeners: &[String]) -> anyhow::Result<Redis> {
    system::until("the Redis listeners", || Redis::pipelined(&listeners[0], listeners.len()))
}

/// Returns the default table through the Redis listeners.
fn by_redis<C: Connector>(name: &'static str, clients: Clients, target: C, cluster: &Rc<Cluster>) -> Box<dyn System> {
    let (target, cluster) = (Arc::new(target), Rc::clone(cluster));
    Box::new(ArchonSystem { name, copies: 2, kind: Kind::Hashed, clients, target, cluster })
}

impl<C> ArchonSystem<C> {
    const fn is_library(&self) -> bool {
        matches!(self.clients, Clients::Library | Clients::RedisRs)
    }
}

impl<C: Connector> System for ArchonSystem<C> {
    fn name(&self) -> &str {
        self.name
    }

    fn shape(&self) -> String {
        let how = match self.clients {
            Clients::One => "one client of the library for all tasks, on one thread, one stream per client and node",
            Clients::Library => {
                "four clients of the library on two threads, shared by all tasks, one stream per client and node"
            }
            Clients::RedisRs => {
                "four clients of redis-rs on two threads, shared by all tasks, each with one pipelined connection to each node"
            }
            Clients::RedisPipelined => "all clients share one connection to each node, pipelined and coalesced",
        };
        format!("{how}; a write is answered when {} copies have synced it, a read is linearizable", self.copies)
    }

    fn pids(&self) -> Vec<u32> {
        let coordinators = (0..self.cluster.coordinator_addresses().len()).map(|i| self.cluster.coordinator(i).pid());
        coordinators.chain(NODES.map(|name| self.cluster.node(name).pid())).collect()
    }

    fn connections(&self, _clients: usize) -> usize {
        if self.is_library() { LIBRARY_CLIENTS } else { 1 }
    }

    fn threads(&self, asked: usize) -> usize {
        if self.is_library() { LIBRARY_THREADS } else { asked }
    }

    fn does(&self, mix: Mix) -> bool {
        match mix {
            Mix::Scan { .. } => matches!(self.clients, Clients::One | Clients::Library),
            _ => self.kind == Kind::Hashed,
        }
    }

    fn has_own_keys(&self) -> bool {
        // The library has written those of the same table.
        matches!(self.clients, Clients::One | Clients::Library)
    }

    fn run(&self, workload: &Workload) -> anyhow::Result<RunOutcome> {
        drive(&self.target, workload)
    }
}
