//! What one operation takes on its whole way, in things that can be counted: system calls, syncs, batches, context
//! switches and allocations, of all nodes together and of the program that drives them.
//!
//! ```text
//! cargo run --release -p archon-bench --bin counts -- [put|get…] [--clients 1,256] [--seconds S] [--json]
//! ```
//!
//! System calls need `perf` and the right to use it; without, the rest is printed. Times are not what this is for:
//! counting allocations and calls slows everything a little.

mod allocations;
mod syscalls;

use allocations::{Allocations, Children, Counting, report_to_parent};
use archon_bench::{TableArgs, ToolArgs, become_archon};
use archon_client::{Admin, Transport};
use archon_integration_tests::Cluster;
use archon_load::watch::until_whole;
use archon_load::{Archon, End, Measured, Mix, Run, Workload};
use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::block_in_place;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const TIMEOUT: Duration = Duration::from_secs(120);
/// Clients that write all keys first.
const LOADERS: usize = 256;
/// How long the load runs before and after what is counted.
const AROUND: Duration = Duration::from_secs(1);

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    Put,
    Get,
}

/// Counts what an operation takes on its whole way.
#[derive(Parser, Clone, Debug)]
struct Args {
    /// Which operations; both if none is named.
    operations: Vec<Operation>,
    /// Numbers of clients.
    #[arg(long, value_delimiter = ',', default_value = "1,256", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: Vec<u32>,
    /// Seconds that are counted.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// How many keys.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    keys: u64,
    /// Bytes of each value.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    value_bytes: u32,
    #[command(flatten)]
    table: TableArgs,
    #[command(flatten)]
    tool: ToolArgs,
}

/// Everything per operation.
#[derive(Clone, Debug, Serialize)]
struct Counts {
    operation: Operation,
    clients: u32,
    ops_per_second: f64,
    nodes: Side,
    driver: Side,
    /// Counters of the nodes.
    log_syncs: f64,
    log_batches: f64,
    log_bytes: f64,
    engine_syncs: f64,
    shard_turns: f64,
    switches_voluntary: f64,
    switches_involuntary: f64,
}

/// The counts of all nodes together, or of the driving program.
#[derive(Clone, Debug, Default, Serialize)]
struct Side {
    /// Microseconds.
    cpu_us: f64,
    allocations: f64,
    allocated_bytes: f64,
    /// By name, all of them under `all`; empty where they cannot be counted.
    system_calls: BTreeMap<String, f64>,
}

fn main() -> anyhow::Result<ExitCode> {
    report_to_parent();
    if let Some(code) = become_archon() {
        return Ok(code);
    }
    let args = Args::parse();
    args.tool.report(run(&args), |_| {})?;
    Ok(ExitCode::SUCCESS)
}

async fn run(args: &Args) -> anyhow::Result<Vec<Counts>> {
    let children = Children::expect()?;
    let cluster = args.tool.start(&args.table.options())?;
    let counted = count_all(args, &cluster, &children).await;
    args.tool.keep_logs(&cluster)?;
    counted
}

async fn count_all(args: &Args, cluster: &Cluster, children: &Children) -> anyhow::Result<Vec<Counts>> {
    let admin = Admin::new(cluster.coordinator_addresses(), Duration::from_secs(10))?;
    until_whole(&admin, usize::from(args.table.replication), TIMEOUT).await?;
    let endpoints = cluster.coordinator_addresses();
    let archon = Arc::new(Archon {
        endpoints,
        table: "default".into(),
        timeout: Duration::from_secs(10),
        transport: Transport::default(),
    });
    let keys = Workload { keys: args.keys, value_bytes: args.value_bytes as usize, ..Workload::puts(LOADERS) };
    succeeded(block_in_place(|| Run::start(&archon, &keys.each_key_once(Mix::Load, LOADERS))?.wait())?)?;
    let operations = match &args.operations[..] {
        [] => &[Operation::Put, Operation::Get],
        named => named,
    };
    let mut all = Vec::new();
    for operation in operations {
        for clients in &args.clients {
            let mix = if *operation == Operation::Get { Mix::Get } else { Mix::Put };
            let length = Duration::from_secs(args.seconds);
            let end = End::After(length + AROUND);
            let workload = Workload { mix, clients: *clients as usize, warm_up: AROUND, end, ..keys.clone() };
            let seen = Watched { cluster, children, admin: &admin, length };
            let counts = seen.count(*operation, *clients, &archon, &workload).await?;
            args.tool.talk(Text(&counts));
            all.push(counts);
        }
    }
    Ok(all)
}

fn succeeded(measured: Measured) -> anyhow::Result<Measured> {
    anyhow::ensure!(measured.failed == 0, "operations failed: {:?}", measured.failures);
    Ok(measured)
}

/// A cluster under load.
struct Watched<'a> {
    cluster: &'a Cluster,
    children: &'a Children,
    admin: &'a Admin,
    length: Duration,
}

/// Counters at one moment.
struct Moment {
    nodes: BTreeMap<String, f64>,
    nodes_allocations: Allocations,
    own: Allocations,
}

impl Watched<'_> {
    fn pids(&self) -> Vec<u32> {
        NODES.iter().map(|name| self.cluster.node(name).pid()).collect()
    }

    /// The sums over all nodes.
    async fn now(&self) -> anyhow::Result<Moment> {
        let mut nodes: BTreeMap<String, f64> = BTreeMap::new();
        for name in NODES {
            let stats = self.admin.node_stats(self.cluster.node_address(name)).await?;
            for (name, value) in stats.values {
                *nodes.entry(name).or_default() += value;
            }
        }
        Ok(Moment { nodes, nodes_allocations: self.children.allocations(&self.pids())?, own: Allocations::own() })
    }

    async fn count(
        &self,
        operation: Operation,
        clients: u32,
        archon: &Arc<Archon>,
        workload: &Workload,
    ) -> anyhow::Result<Counts> {
        let before = self.now().await?;
        let load = Run::start(archon, workload)?;
        tokio::time::sleep(AROUND).await;
        let calls = [self.pids(), vec![std::process::id()]].map(|pids| syscalls::Counting::start(&pids, self.length));
        let calls = block_in_place(|| calls.map(|counting| counting.and_then(syscalls::Counting::end)));
        let seen = succeeded(block_in_place(|| load.wait())?)?;
        let after = self.now().await?;

        let ops = seen.ops_with_warm_up.max(1) as f64;
        let ops_while_calls = (seen.ops_per_second * self.length.as_secs_f64()).max(1.0);
        let [node_calls, own_calls] = calls.map(|calls| match calls {
            Ok(calls) => calls.into_iter().map(|(name, count)| (name, count as f64 / ops_while_calls)).collect(),
            Err(why) => {
                eprintln!("system calls are not counted: {}", why.trim());
                BTreeMap::new()
            }
        });
        let spent = |name: &str| {
            let at = |moment: &Moment| moment.nodes.get(name).copied().unwrap_or(0.0);
            (at(&after) - at(&before)).max(0.0) / ops
        };
        let side = |now: Allocations, then: Allocations, cpu_us: f64, system_calls: BTreeMap<String, f64>| {
            let made = now.since(then);
            let (allocations, allocated_bytes) = (made.calls as f64 / ops, made.bytes as f64 / ops);
            Side { cpu_us, allocations, allocated_bytes, system_calls }
        };
        let node_cpu = spent("archon_process_cpu_seconds_total") * 1e6;
        Ok(Counts {
            operation,
            clients,
            ops_per_second: seen.ops_per_second,
            nodes: side(after.nodes_allocations, before.nodes_allocations, node_cpu, node_calls),
            driver: side(after.own, before.own, seen.client_cpu_us_per_op, own_calls),
            log_syncs: spent("archon_wal_syncs_total"),
            log_batches: spent("archon_wal_batches_total"),
            log_bytes: spent("archon_wal_written_bytes_total"),
            engine_syncs: spent("archon_engine_syncs_total"),
            shard_turns: spent("archon_node_shard_turns_total"),
            switches_voluntary: spent("archon_process_switches_voluntary_total"),
            switches_involuntary: spent("archon_process_switches_involuntary_total"),
        })
    }
}

/// For people.
struct Text<'a>(&'a Counts);

impl std::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = self.0;
        let operation = counts.operation.to_possible_value();
        let operation = operation.as_ref().map_or("", |value| value.get_name());
        writeln!(
            f,
            "{operation}, {} clients, {:.0} per second; per operation:",
            counts.clients, counts.ops_per_second
        )?;
        writeln!(
            f,
            "  nodes   {:.3} log syncs, {:.3} log batches, {:.0} log bytes, {:.5} engine syncs, {:.3} shard turns, \
             {:.3} + {:.3} context switches (waited + made room)",
            counts.log_syncs,
            counts.log_batches,
            counts.log_bytes,
            counts.engine_syncs,
            counts.shard_turns,
            counts.switches_voluntary,
            counts.switches_involuntary
        )?;
        for (name, side) in [("nodes", &counts.nodes), ("driver", &counts.driver)] {
            write!(
                f,
                "  {name:<7} {:.1} µs of CPU, {:.2} allocations of {:.0} bytes together",
                side.cpu_us, side.allocations, side.allocated_bytes
            )?;
            if let Some(all) = side.system_calls.get("all") {
                write!(f, ", {all:.2} system calls:")?;
                let mut named: Vec<_> = side.system_calls.iter().filter(|(name, _)| *name != "all").collect();
                named.sort_by(|a, b| b.1.total_cmp(a.1));
                for (name, count) in named.into_iter().filter(|(_, count)| **count >= 0.001) {
                    write!(f, " {name} {count:.3}")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
