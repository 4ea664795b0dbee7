//! What keys and idle partitions cost in memory and on disk, and how long a node with many of both takes to stop and to
//! start.
//!
//! ```text
//! cargo run --release -p archon-bench --bin footprint -- [--keys N] [--partitions P] [--json]
//! ```

use anyhow::Context;
use archon_bench::{ToolArgs, become_archon, disk_bytes, resident_bytes};
use archon_client::{Admin, NodeStatus, PartitionStatus, ReplicaState, Role};
use archon_integration_tests::{Cluster, Ending, Options};
use archon_load::watch::{until, until_whole};
use archon_load::{Archon, End, KEY_BYTES, Mix, Run, Workload};
use clap::Parser;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::block_in_place;
use tokio::time::sleep;

/// What `archon` itself allocates with: its processes are this program in another role.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
/// Copies of each partition: one on every node, so that each node holds everything.
const COPIES: u8 = 3;
const TIMEOUT: Duration = Duration::from_secs(300);
/// What may wait for the storage engines when everything is said to be there: what nodes write of themselves meanwhile.
const WAITING_FEW_BYTES: u64 = 1024 * 1024;
/// After a change, before memory is looked at.
const SETTLE: Duration = Duration::from_secs(3);

/// Measures memory, disk and start-up.
#[derive(Parser, Clone, Debug)]
struct Args {
    /// Keys to load.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    keys: u64,
    /// Bytes of each value.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    value_bytes: u32,
    /// Partitions of the table.
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    partitions: u32,
    #[command(flatten)]
    tool: ToolArgs,
}

/// What was found. Memory is what is resident, the mean of the three nodes or coordinators unless said otherwise.
#[derive(Clone, Debug, Serialize)]
struct Report {
    keys: u64,
    key_bytes: usize,
    value_bytes: u32,
    partitions: u32,
    /// A node without the table.
    node_empty_bytes: f64,
    /// More per idle copy of a partition.
    node_bytes_per_idle_partition: f64,
    coordinator_bytes_per_partition: f64,
    /// Loading all keys, each at three copies.
    load_seconds: f64,
    /// More per key, once the storage engine has everything.
    node_bytes_per_key: f64,
    /// The same after the node was stopped and started again: without what loading left in caches and allocators.
    node_bytes_per_key_restarted: f64,
    /// The node's storage engine on the disk, per key.
    disk_bytes_per_key: f64,
    /// The node's write-ahead log on the disk, which does not grow with the keys.
    log_bytes: u64,
    /// From SIGTERM until the process has ended: hands its leaderships over, writes what gathered to the storage engine,
    /// syncs. A thousand keys were overwritten right before.
    stop_ms: f64,
    /// From starting the process until it answers; first after SIGTERM, then after SIGKILL.
    start_answers_ms: [f64; 2],
    /// Until every copy on it counts again.
    start_whole_ms: [f64; 2],
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = become_archon() {
        return Ok(code);
    }
    let args = Args::parse();
    args.tool.report(run(&args), print)?;
    Ok(ExitCode::SUCCESS)
}

async fn run(args: &Args) -> anyhow::Result<Report> {
    let options = Options { partitions: 1, replication: COPIES, ..Options::default() };
    let mut cluster = args.tool.start(&options)?;
    let measured = measure(args, &mut cluster).await;
    args.tool.keep_logs(&cluster)?;
    measured
}

async fn measure(args: &Args, cluster: &mut Cluster) -> anyhow::Result<Report> {
    let admin = Admin::new(cluster.coordinator_addresses(), Duration::from_secs(30))?;
    until_whole(&admin, usize::from(COPIES), TIMEOUT).await?;
    sleep(SETTLE).await;
    let (node_empty, coordinator_empty) = memory(cluster);

    admin.create_table("many", args.partitions, COPIES).await?;
    whole(&admin).await?;
    sleep(SETTLE).await;
    let (node_idle, coordinator_idle) = memory(cluster);

    let archon = Archon {
        endpoints: cluster.coordinator_addresses(),
        table: "many".into(),
        timeout: Duration::from_secs(60),
        transport: cluster.transport(Role::Admin),
    };
    let archon = Arc::new(archon);
    let workload = Workload { keys: args.keys, value_bytes: args.value_bytes as usize, ..Workload::puts(1) };
    let loading = Run::start(&archon, &workload.each_key_once(Mix::Load, 512))?;
    let loaded = block_in_place(|| loading.wait())?;
    anyhow::ensure!(loaded.failed == 0, "{:?}", loaded.failures);
    flushed(&admin).await?;
    sleep(SETTLE).await;
    let (node_full, _) = memory(cluster);
    let data = cluster.node_data(NODES[0]);
    let log_bytes = block_in_place(|| disk_bytes(&data.join("wal")))?;
    let engine_bytes = block_in_place(|| disk_bytes(&data))? - log_bytes;

    let (mut started, mut stop, mut restarted) = (Vec::new(), Duration::ZERO, 0.0);
    for killed in [false, true] {
        let some = Workload { end: End::Operations(1_000), warm_up: Duration::ZERO, ..workload.clone() };
        let written = Run::start(&archon, &Workload { clients: 64, ..some })?;
        let written = block_in_place(|| written.wait())?;
        anyhow::ensure!(written.failed == 0, "{:?}", written.failures);
        let before = incarnation(&admin).await?;
        let mut process = cluster.take_node(NODES[0]);
        let address = cluster.node_address(NODES[0]).to_owned();
        let ending = Instant::now();
        if killed {
            block_in_place(|| process.kill());
        } else {
            let status = block_in_place(|| process.terminate(TIMEOUT));
            anyhow::ensure!(status.success(), "the node ended with {status}");
            stop = ending.elapsed();
        }
        let began = Instant::now();
        cluster.start_node(NODES[0]);
        let answers = async || admin.node_stats(&address).await.map_err(|error| error.to_string());
        until("the node to answer", TIMEOUT, answers).await?;
        let answered = began.elapsed();
        // Until it has registered anew, what was whole before would count.
        let registered = async || match incarnation(&admin).await {
            Ok(now) if now > before => Ok(()),
            Ok(now) => Err(format!("incarnation {now}")),
            Err(error) => Err(error.to_string()),
        };
        until("the node to register", TIMEOUT, registered).await?;
        whole(&admin).await?;
        started.push((answered, began.elapsed()));
        if !killed {
            sleep(SETTLE).await;
            restarted = resident_bytes(cluster.node(NODES[0]).pid());
        }
    }
    let per = |more: f64, less: f64, count: f64| (more - less).max(0.0) / count;
    let ms =
        |of: fn(&(Duration, Duration)) -> Duration| [0, 1].map(|index: usize| of(&started[index]).as_secs_f64() * 1e3);
    Ok(Report {
        keys: args.keys,
        key_bytes: KEY_BYTES,
        value_bytes: args.value_bytes,
        partitions: args.partitions,
        node_empty_bytes: node_empty,
        node_bytes_per_idle_partition: per(node_idle, node_empty, f64::from(args.partitions)),
        coordinator_bytes_per_partition: per(coordinator_idle, coordinator_empty, f64::from(args.partitions)),
        load_seconds: loaded.seconds,
        node_bytes_per_key: per(node_full, node_idle, args.keys as f64),
        node_bytes_per_key_restarted: per(restarted, node_idle, args.keys as f64),
        disk_bytes_per_key: engine_bytes as f64 / args.keys as f64,
        log_bytes,
        stop_ms: stop.as_secs_f64() * 1e3,
        start_answers_ms: ms(|(answers, _)| *answers),
        start_whole_ms: ms(|(_, whole)| *whole),
    })
}

async fn incarnation(admin: &Admin) -> anyhow::Result<u64> {
    let nodes = admin.list_nodes().await?;
    let first = nodes.into_iter().find(|node| node.name == NODES[0]);
    Ok(first.with_context(|| format!("there is no node {}", NODES[0]))?.incarnation)
}

/// Every partition of the large table has all its copies, on nodes that are alive.
async fn whole(admin: &Admin) -> anyhow::Result<()> {
    let look = async || {
        let nodes = admin.list_nodes().await.map_err(|error| error.to_string())?;
        let alive = nodes.iter().filter(|node| node.status == NodeStatus::Alive).count();
        let rows = admin.table("many").await.map_err(|error| error.to_string())?;
        let is_whole = |row: &archon_client::PartitionSummary| {
            let live = row.copies.iter().filter(|copy| copy.state == ReplicaState::Live).count();
            row.status == PartitionStatus::Online && live == usize::from(COPIES)
        };
        let missing = rows.iter().filter(|row| !is_whole(row)).count();
        if missing == 0 && alive == NODES.len() {
            Ok(())
        } else {
            Err(format!("{missing} partitions lack a copy, {alive} nodes are alive"))
        }
    };
    until("every partition to be whole", TIMEOUT, look).await?;
    Ok(())
}

/// Every node's storage engine has what was written.
async fn flushed(admin: &Admin) -> anyhow::Result<()> {
    let look = async || {
        let mut waiting = 0;
        for node in admin.list_nodes().await.map_err(|error| error.to_string())? {
            let stats = admin.node_stats(&node.address).await.map_err(|error| error.to_string())?;
            waiting += stats.get("archon_engine_queue_bytes") + stats.get("archon_node_memtable_bytes");
        }
        if waiting <= WAITING_FEW_BYTES { Ok(()) } else { Err(format!("{waiting} bytes wait")) }
    };
    until("the storage engines to have everything", TIMEOUT, look).await?;
    Ok(())
}

/// Resident memory of the nodes and of the coordinators, means.
fn memory(cluster: &Cluster) -> (f64, f64) {
    let mean = |pids: Vec<u32>| pids.iter().map(|pid| resident_bytes(*pid)).sum::<f64>() / pids.len() as f64;
    let coordinators = 0..cluster.coordinator_addresses().len();
    (
        mean(NODES.iter().map(|name| cluster.node(name).pid()).collect()),
        mean(coordinators.map(|index| cluster.coordinator(index).pid()).collect()),
    )
}

fn print(report: &Report) {
    let Report { keys, key_bytes, value_bytes, partitions, .. } = report;
    println!(
        "{partitions} partitions of three copies on three nodes; {keys} keys of {key_bytes} + {value_bytes} bytes"
    );
    println!("an empty node: {:.1} MiB resident", report.node_empty_bytes / 1024.0 / 1024.0);
    println!(
        "an idle partition: {:.1} KiB per copy in a node, {:.1} KiB in a coordinator",
        report.node_bytes_per_idle_partition / 1024.0,
        report.coordinator_bytes_per_partition / 1024.0
    );
    println!(
        "a key: {:.0} bytes resident in each node ({:.0} once it was started again) and {:.0} bytes in its storage engine; \
         all were written in {:.1} s",
        report.node_bytes_per_key, report.node_bytes_per_key_restarted, report.disk_bytes_per_key, report.load_seconds
    );
    println!("the log of a node: {:.0} MiB", report.log_bytes as f64 / 1024.0 / 1024.0);
    println!("stopping a node, with everything written to its storage engine: {:.0} ms", report.stop_ms);
    for (index, how) in ["stopped", "killed"].into_iter().enumerate() {
        println!(
            "started after it was {how}: answers after {:.0} ms, every copy counts after {:.0} ms",
            report.start_answers_ms[index], report.start_whole_ms[index]
        );
    }
}
