//! Archon: three coordinators and three nodes, with a table of two copies, one of three, and one by ranges.

use crate::report::{ARCHON, ARCHON_LIBRARY};
use crate::system::{LIBRARY_CLIENTS, LIBRARY_THREADS, START_LIMIT, Seen, System, drive};
use archon_client::{Admin, PartitionStatus, RangeLimits, ReplicaState, Transport};
use archon_integration_tests::{Cluster, Options};
use archon_load::watch::{until, until_whole};
use archon_load::{Archon, Workload};
use archon_load::{KeyText, Mix};
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

struct ArchonSystem {
    name: &'static str,
    copies: u8,
    kind: Kind,
    /// True if used like the library in a program of several threads.
    library: bool,
    target: Arc<Archon>,
    cluster: Rc<Cluster>,
}

/// Starts the cluster, for this number of keys.
pub(crate) fn start(program: Option<&str>, keys: u64) -> anyhow::Result<Vec<Box<dyn System>>> {
    let options = Options { partitions: PARTITIONS, replication: 2, ..Options::default() };
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
        let (target, cluster, library) = (Arc::new(target), Rc::clone(&cluster), name == ARCHON_LIBRARY);
        Box::new(ArchonSystem { name, copies, kind, library, target, cluster }) as Box<dyn System>
    };
    Ok(vec![
        system(ARCHON_LIBRARY, 2, Kind::Hashed, "default"),
        system(ARCHON, 2, Kind::Hashed, "default"),
        system("Archon, R = 3", 3, Kind::Hashed, "three"),
        system("Archon, R = 3, ranges", 3, Kind::Ranges, "ranges"),
    ])
}

impl System for ArchonSystem {
    fn name(&self) -> &str {
        self.name
    }

    fn shape(&self) -> String {
        let how = match self.library {
            true => "four clients of the library on two threads, shared by all tasks",
            false => "one client of the library for all tasks, on one thread",
        };
        format!(
            "{how}, one stream per client and node; a write is answered when {} copies have synced it, a read is linearizable",
            self.copies
        )
    }

    fn pids(&self) -> Vec<u32> {
        let coordinators = (0..self.cluster.coordinator_addresses().len()).map(|i| self.cluster.coordinator(i).pid());
        coordinators.chain(NODES.map(|name| self.cluster.node(name).pid())).collect()
    }

    fn connections(&self, _clients: usize) -> usize {
        if self.library { LIBRARY_CLIENTS } else { 1 }
    }

    fn threads(&self, asked: usize) -> usize {
        if self.library { LIBRARY_THREADS } else { asked }
    }

    fn does(&self, mix: Mix) -> bool {
        matches!(mix, Mix::Scan { .. }) || self.kind == Kind::Hashed
    }

    fn run(&self, workload: &Workload) -> anyhow::Result<Seen> {
        drive(&self.target, workload)
    }
}
