//! What a rebalance costs those who use the cluster, and how fast it moves data: loads keys into three nodes, lets a
//! fourth join and moves its share to it while clients read and write.
//!
//! ```text
//! cargo run --release -p archon-bench --bin rebalance -- [--keys N] [--value-bytes S] [--json] [--logs DIR]
//! ```
//!
//! Without clients (`--writers 0 --readers 0`) it tells how fast an idle cluster moves.

use archon_bench::traffic::{KindReport, PhaseReport, VALUE_BYTES_MIN};
use archon_bench::{Keys, TableArgs, ToolArgs, Traffic, become_archon};
use archon_client::{Admin, Client, NodeStatus};
use archon_integration_tests::Cluster;
use archon_load::cpu_of;
use archon_load::watch::{partitions, rebalance, until_node, until_whole};
use clap::Parser;
use serde::Serialize;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Measures a rebalance under load.
#[derive(Parser, Clone, Debug)]
struct Args {
    /// Keys to load.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    keys: u64,
    /// Bytes of each value.
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u64).range(VALUE_BYTES_MIN as u64..=1_048_576))]
    value_bytes: u64,
    /// Clients that write, each waiting for its answer before it writes again.
    #[arg(long, default_value_t = 24)]
    writers: u64,
    /// Clients that read, likewise.
    #[arg(long, default_value_t = 24)]
    readers: u64,
    #[command(flatten)]
    table: TableArgs,
    /// How long clients run before and after the move.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How long the move may take.
    #[arg(long, default_value_t = 540)]
    patience_seconds: u64,
    #[command(flatten)]
    tool: ToolArgs,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    keys: u64,
    value_bytes: u64,
    load_seconds: f64,
    moves: usize,
    move_seconds: f64,
    /// Keys and values moved, without what stands around them, in megabytes (10^6).
    moved_megabytes: f64,
    megabytes_per_second: f64,
    phases: Vec<PhaseReport>,
    /// CPU time of each process while partitions moved, in per cent of one core.
    cpu_percent: Vec<(String, f64)>,
    /// Keys whose acknowledged value was not found at the end.
    missing: Vec<String>,
}

const NODES: [&str; 4] = ["athens", "byzantium", "cyrene", "ephesus"];
/// Operations under way while loading and checking.
const AT_ONCE: u64 = 512;

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = become_archon() {
        return Ok(code);
    }
    let args = Args::parse();
    let report = args.tool.report(run(&args), print)?;
    let failed: u64 =
        report.phases.iter().flat_map(|phase| phase.get.iter().chain(&phase.put)).map(|kind| kind.failed).sum();
    anyhow::ensure!(report.missing.is_empty(), "{:#?}", &report.missing[..report.missing.len().min(20)]);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run(args: &Args) -> anyhow::Result<Report> {
    let mut cluster = args.tool.start(&args.table.options())?;
    let measured = measure(args, &mut cluster).await;
    args.tool.keep_logs(&cluster)?;
    measured
}

async fn measure(args: &Args, cluster: &mut Cluster) -> anyhow::Result<Report> {
    let patience = Duration::from_secs(args.patience_seconds);
    let client = Client::builder(cluster.coordinator_addresses()).build().await?;
    let admin = Admin::new(cluster.coordinator_addresses(), Duration::from_secs(5))?;
    let keys = Keys { count: args.keys, value_bytes: args.value_bytes as usize };
    let began = Instant::now();
    keys.load(&client.with_timeout(Duration::from_secs(60)), AT_ONCE).await?;
    let load_seconds = began.elapsed().as_secs_f64();
    args.tool.talk(format!("loaded {} keys of {} bytes in {load_seconds:.1} s", args.keys, args.value_bytes));

    let mut traffic = Traffic::start(&client, keys, args.writers, args.readers, &["before", "during", "after"]);
    let clients = args.writers + args.readers > 0;
    let calm = Duration::from_secs(if clients { args.seconds } else { 1 });
    sleep(calm).await;
    cluster.start_node(NODES[3]);
    until_node(&admin, NODES[3], NodeStatus::Alive, patience).await?;
    let cpu_before = cpu(cluster, &measured_processes());
    traffic.next_phase();
    let began = Instant::now();
    let moves = rebalance(&admin, patience).await?;
    let length = began.elapsed();
    traffic.next_phase();
    let cpu_after = cpu(cluster, &measured_processes());
    until_whole(&admin, usize::from(args.table.replication), patience).await?;
    sleep(calm).await;
    let (phases, acknowledged) = traffic.stop().await?;

    let copied = copies_on(&admin, NODES[3]).await?;
    let moved_megabytes =
        (copied as u64 * args.keys * keys.bytes_each()) as f64 / f64::from(args.table.partitions) / 1e6;
    let cpu_percent = cpu_before
        .into_iter()
        .zip(cpu_after)
        .map(|((name, before), (_, after))| {
            (name, 100.0 * after.saturating_sub(before).as_secs_f64() / length.as_secs_f64())
        })
        .collect();
    let missing = keys.missing(&client, acknowledged, AT_ONCE).await?;
    Ok(Report {
        keys: args.keys,
        value_bytes: args.value_bytes,
        load_seconds,
        moves,
        move_seconds: length.as_secs_f64(),
        moved_megabytes,
        megabytes_per_second: moved_megabytes / length.as_secs_f64(),
        phases,
        cpu_percent,
        missing,
    })
}

/// The processes whose CPU time is told: the nodes, and the tool itself with all its clients.
fn measured_processes() -> Vec<&'static str> {
    NODES.into_iter().chain(["clients"]).collect()
}

fn cpu(cluster: &Cluster, names: &[&str]) -> Vec<(String, Duration)> {
    let pid = |name: &str| if name == "clients" { std::process::id() } else { cluster.node(name).pid() };
    names.iter().map(|name| ((*name).to_owned(), cpu_of(pid(name)))).collect()
}

async fn copies_on(admin: &Admin, node: &str) -> anyhow::Result<usize> {
    let rows = partitions(admin).await.map_err(anyhow::Error::msg)?;
    Ok(rows.iter().filter(|row| row.copies.iter().any(|copy| copy.node == node)).count())
}

fn print(report: &Report) {
    println!(
        "moved {:.0} MB in {} moves in {:.1} s: {:.1} MB/s",
        report.moved_megabytes, report.moves, report.move_seconds, report.megabytes_per_second
    );
    for phase in &report.phases {
        for (kind, seen) in [("get", &phase.get), ("put", &phase.put)] {
            if let Some(seen) = seen {
                println!("{:<6} ({:>5.1} s) {kind}: {}", phase.phase, phase.seconds, line(seen));
            }
        }
    }
    let cpu: Vec<String> = report.cpu_percent.iter().map(|(name, percent)| format!("{name} {percent:.0} %")).collect();
    println!("CPU while moving, of one core: {}", cpu.join(", "));
    println!("keys missing or older than acknowledged: {} of {}", report.missing.len(), report.keys);
}

fn line(seen: &KindReport) -> String {
    let failure =
        seen.last_failure.as_ref().map(|failure| format!("; the last failure: {failure}")).unwrap_or_default();
    format!(
        "{:>7.0}/s, p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms, longest gap {:.1} ms, {} failed{failure}",
        seen.per_second, seen.p50_ms, seen.p99_ms, seen.max_ms, seen.longest_gap_ms, seen.failed
    )
}
