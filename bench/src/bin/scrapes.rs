//! What scrapes cost: how long one of a coordinator takes that knows many nodes, and how much less is read and written while every
//! member is scraped many times a second. One cluster of processes, one run.
//!
//! ```text
//! cargo run --release -p archon-bench --bin scrapes -- [--nodes 10000] [--partitions 4096] [--scrapes 200] [--rounds 8] [--seconds 5] [--json]
//! ```

use anyhow::Context;
use archon_bench::{ToolArgs, become_archon, played_node};
use archon_client::Transport;
use archon_integration_tests::scrape::Scrape;
use archon_integration_tests::{Cluster, Options, http};
use archon_load::{Archon, BeatStream, End, Mix, Run, Workload, cpu_of};
use archon_proto::convert::session::Registered;
use archon_proto::v1::session_client::SessionClient;
use clap::Parser;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, block_in_place};
use tonic::transport::{Channel, Endpoint};

/// Registrations that are under way at once.
const REGISTERING: usize = 64;
/// How often a node tries to register before the run is given up.
const REGISTER_TRIES: u32 = 50;
/// How long a first heartbeat may take to be answered.
const BEAT_TIMEOUT: Duration = Duration::from_secs(5);
const TRY_AGAIN: Duration = Duration::from_millis(200);
/// Scrapes of one member, one after the other, by which its CPU time for one is measured: it is told in steps of 10 ms.
const SCRAPES_FOR_CPU: u32 = 1_000;

/// What scrapes cost.
#[derive(Parser, Debug)]
#[command(name = "scrapes")]
struct Arguments {
    /// Nodes that register beside the three that serve; they fall silent at once, so the coordinators know them as failed.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=19_000))]
    nodes: u32,
    /// Partitions of the table, three copies of each.
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    partitions: u32,
    /// Scrapes of the leading coordinator that are timed.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    scrapes: u32,
    /// Rounds of load, each one without scrapes and one with them; none: only scrapes are timed.
    #[arg(long, default_value_t = 8)]
    rounds: u32,
    /// Length of each in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Clients that put the load on, half reads and half writes.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Scrapes of each member per second under load.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    hertz: u64,
    /// What tools share.
    #[command(flatten)]
    tool: ToolArgs,
}

/// What one kind of member takes to be scraped.
#[derive(Serialize, Debug)]
struct Scraped {
    member: String,
    bytes: usize,
    median_ms: f64,
    max_ms: f64,
    /// The CPU time that the member takes for one.
    cpu_us: f64,
}

/// One round: the same load without and with scrapes.
#[derive(Serialize, Debug)]
struct Round {
    without_ops_per_second: f64,
    with_ops_per_second: f64,
    scrapes: u64,
}

#[derive(Serialize, Debug)]
struct Report {
    nodes_known: f64,
    partitions: f64,
    scraped: Vec<Scraped>,
    rounds: Vec<Round>,
    /// The median of the rounds' ratios, with scrapes to without.
    ratio_median: f64,
    /// The ratios of rounds without scrapes to the ones before them: what the machine alone makes of the same load.
    noise: Vec<f64>,
    /// CPU time that scrapes of all members take, of one second of all processors, in percent.
    cpu_percent: f64,
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = become_archon() {
        return Ok(code);
    }
    let arguments = Arguments::parse();
    arguments.tool.report(measure(&arguments), |report| print(report, &arguments))?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(arguments: &Arguments) -> anyhow::Result<Report> {
    let options = Options { partitions: arguments.partitions, metrics: true, ..Options::replicated() };
    let cluster = arguments.tool.start(&options)?;
    let leader = block_in_place(|| cluster.wait_leader().0);
    register(&cluster.coordinator_addresses()[leader], arguments).await?;
    let report = block_in_place(|| scrape_all(&cluster, leader, arguments))?;
    arguments.tool.keep_logs(&cluster)?;
    Ok(report)
}

/// Has many nodes register, which are never heard of again.
async fn register(leader: &str, arguments: &Arguments) -> anyhow::Result<()> {
    let began = Instant::now();
    let channel = Endpoint::from_shared(format!("http://{leader}"))?.connect().await?;
    let mut registering = JoinSet::new();
    for number in 0..arguments.nodes {
        if registering.len() >= REGISTERING
            && let Some(registered) = registering.join_next().await
        {
            registered??;
        }
        registering.spawn(register_one(leader.to_owned(), SessionClient::new(channel.clone()), number));
    }
    while let Some(registered) = registering.join_next().await {
        registered??;
    }
    arguments.tool.talk(format_args!("{} nodes registered in {:.1} s", arguments.nodes, began.elapsed().as_secs_f64()));
    Ok(())
}

/// Registers and heartbeats once: a node that never acted is soon forgotten.
async fn register_one(leader: String, mut client: SessionClient<Channel>, number: u32) -> anyhow::Result<()> {
    let address = format!("127.2.{}.{}:7201", number / 250, number % 250 + 1);
    let request = played_node::registration(number as usize, address);
    let mut tries = 1;
    let answer = loop {
        match client.register(request.clone()).await {
            Ok(answer) => break answer.into_inner(),
            Err(status) if tries == REGISTER_TRIES => return Err(status).context("register"),
            Err(_) => tokio::time::sleep(TRY_AGAIN).await,
        }
        tries += 1;
    };
    let registered = Registered::try_from(answer)?;
    let mut stream = BeatStream::connect(&leader, registered.cluster).await?;
    // Whether a lease came of it is of no account.
    let _ = stream.beat(played_node::beat(&registered, 1), BEAT_TIMEOUT).await;
    Ok(())
}

/// One scrape: how long it took, and what was told.
fn scrape(address: &str) -> anyhow::Result<(Duration, String)> {
    let began = Instant::now();
    let answer = http::get(address, "/metrics")?;
    let took = began.elapsed();
    anyhow::ensure!(answer.status == 200, "a scrape of {address} was answered {}", answer.head);
    Ok((took, answer.body))
}

fn scrape_all(cluster: &Cluster, leader: usize, arguments: &Arguments) -> anyhow::Result<Report> {
    let leading = format!("coordinator-{}", leader + 1);
    let told = Scrape::read(&scrape(cluster.metrics_address(&leading))?.1).map_err(anyhow::Error::msg)?;
    let sum_of = |name: &str| -> f64 {
        told.series.iter().filter(|(series, _)| series.starts_with(name)).map(|(_, value)| value).sum()
    };
    let (nodes_known, partitions) = (sum_of("archon_cluster_nodes{"), sum_of("archon_cluster_partitions{"));
    anyhow::ensure!(nodes_known >= f64::from(arguments.nodes), "it knows {nodes_known} nodes only");
    let follower = (leader + 1) % cluster.coordinator_addresses().len();
    let node = "athens";
    let members = [
        (leading.clone(), cluster.coordinator(leader).pid()),
        (format!("coordinator-{}", follower + 1), cluster.coordinator(follower).pid()),
        (node.to_owned(), cluster.node(node).pid()),
    ];
    let scraped: Vec<Scraped> = members
        .iter()
        .map(|(member, pid)| of_member(member, cluster.metrics_address(member), *pid, arguments.scrapes))
        .collect::<anyhow::Result<_>>()?;
    let rounds = under_load(cluster, arguments)?;
    let mut ratios: Vec<f64> =
        rounds.iter().map(|round| round.with_ops_per_second / round.without_ops_per_second).collect();
    let noise = rounds.windows(2).map(|two| two[1].without_ops_per_second / two[0].without_ops_per_second).collect();
    // Three coordinators, of which one leads, and three nodes.
    let [leads, follows, serves] = [0, 1, 2].map(|index| scraped.get(index).map_or(0.0, |member| member.cpu_us));
    let cpu = (leads + 2.0 * follows + 3.0 * serves) * arguments.hertz as f64 / 1e6;
    let processors = std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64);
    Ok(Report {
        nodes_known,
        partitions,
        scraped,
        rounds,
        ratio_median: median(&mut ratios),
        noise,
        cpu_percent: 100.0 * cpu / processors,
    })
}

fn of_member(member: &str, address: &str, pid: u32, scrapes: u32) -> anyhow::Result<Scraped> {
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..scrapes {
        let (took, body) = scrape(address)?;
        times.push(took.as_secs_f64() * 1e3);
        bytes = body.len();
    }
    // What it does without being scraped, for as long, is taken off.
    let cpu_before = cpu_of(pid);
    let began = Instant::now();
    for _ in 0..SCRAPES_FOR_CPU {
        scrape(address)?;
    }
    let (took, cpu) = (began.elapsed(), cpu_of(pid).saturating_sub(cpu_before));
    let cpu_before = cpu_of(pid);
    std::thread::sleep(took);
    let idle = cpu_of(pid).saturating_sub(cpu_before);
    let max_ms = times.iter().copied().fold(0.0, f64::max);
    Ok(Scraped {
        member: member.to_owned(),
        bytes,
        median_ms: median(&mut times),
        max_ms,
        cpu_us: cpu.saturating_sub(idle).as_secs_f64() * 1e6 / f64::from(SCRAPES_FOR_CPU),
    })
}

/// The same load in turns, without and with every member being scraped; which comes first changes from round to round.
fn under_load(cluster: &Cluster, arguments: &Arguments) -> anyhow::Result<Vec<Round>> {
    let target = Arc::new(Archon {
        endpoints: cluster.coordinator_addresses(),
        table: "default".into(),
        timeout: Duration::from_secs(10),
        transport: Transport::default(),
    });
    let workload = Workload {
        mix: Mix::Mixed { get_percent: 50 },
        keys: 10_000,
        end: End::After(Duration::from_secs(arguments.seconds)),
        ..Workload::puts(arguments.clients as usize)
    };
    if arguments.rounds > 0 {
        Run::start(&target, &workload.each_key_once(Mix::Load, 64))?.wait()?;
    }
    let drive = || -> anyhow::Result<f64> {
        let measured = Run::start(&target, &workload)?.wait()?;
        anyhow::ensure!(measured.failed == 0, "{} operations failed: {:?}", measured.failed, measured.failures);
        Ok(measured.ops_per_second)
    };
    let mut rounds = Vec::new();
    for round in 0..arguments.rounds {
        let before = if round % 2 == 0 { Some(drive()?) } else { None };
        let (with_ops_per_second, scrapes) = while_scraped(cluster, arguments.hertz, drive)?;
        let without_ops_per_second = before.map_or_else(drive, Ok)?;
        let done = Round { without_ops_per_second, with_ops_per_second, scrapes };
        arguments.tool.talk(format_args!("round {}: {done:?}", round + 1));
        rounds.push(done);
    }
    Ok(rounds)
}

/// Does something while a thread per member scrapes it.
fn while_scraped<T>(
    cluster: &Cluster,
    hertz: u64,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, u64)> {
    let coordinators = (1..=cluster.coordinator_addresses().len()).map(|number| format!("coordinator-{number}"));
    let members: Vec<String> = coordinators.chain(["athens", "byzantium", "cyrene"].map(str::to_owned)).collect();
    let (over, scrapes) = (AtomicBool::new(false), AtomicU64::new(0));
    let interval = Duration::from_secs(1) / u32::try_from(hertz)?;
    std::thread::scope(|scope| {
        for member in &members {
            let (address, over, scrapes) = (cluster.metrics_address(member), &over, &scrapes);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    scrapes.fetch_add(u64::from(scrape(address).is_ok()), Ordering::Relaxed);
                    std::thread::sleep(interval.saturating_sub(began.elapsed()));
                }
            });
        }
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    })
    .map(|done| (done, scrapes.load(Ordering::Relaxed)))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        _ if values.is_empty() => f64::NAN,
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

fn print(report: &Report, arguments: &Arguments) {
    println!("the leading coordinator knows {} nodes and {} partitions", report.nodes_known, report.partitions);
    for Scraped { member, bytes, median_ms, max_ms, cpu_us } in &report.scraped {
        println!(
            "a scrape of {member}: median {median_ms:.2} ms, max {max_ms:.2} ms of {}, {bytes} bytes, {cpu_us:.0} µs of CPU",
            arguments.scrapes
        );
    }
    println!("all six members at {} Hz: {:.3} % of this machine's CPU time", arguments.hertz, report.cpu_percent);
    if !report.rounds.is_empty() {
        println!("operations per second, with scrapes to without, median of rounds: {:.4}", report.ratio_median);
        let noise: Vec<String> = report.noise.iter().map(|ratio| format!("{ratio:.3}")).collect();
        println!("a round without scrapes to the one before: {}", noise.join(" "));
    }
}
