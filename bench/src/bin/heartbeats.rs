//! Registers many nodes with a quorum on this machine, heartbeats from each at the configured interval over a stream of its
//! own, and prints missed replies, latency and the coordinators' CPU. With RELAYS the heartbeats travel by so many real relays, which
//! run in this process.
//!
//! ```text
//! cargo run --release -p archon-bench --bin heartbeats [NODES [SECONDS [PARTITIONS [RELAYS]]]]
//! ```

use anyhow::Context;
use archon_bench::played_relays::PlayedRelays;
use archon_bench::played_session::PlayedSession;
use archon_bench::{become_archon, own_path, played_control};
use archon_integration_tests::{Cluster, Options};
use archon_load::cpu_of;
use archon_types::ErrorKind;
use hdrhistogram::Histogram;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const INTERVAL: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_millis(150);
/// Without a missed heartbeat for this long, the cluster counts as settled.
const QUIET: Duration = Duration::from_secs(2);
/// How long all nodes together may take to register.
const JOIN_LIMIT: Duration = Duration::from_secs(60);

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = become_archon() {
        return Ok(code);
    }
    let mut arguments = std::env::args().skip(1);
    let nodes = arguments.next().map_or(Ok(1_000), |text| text.parse())?;
    let seconds = arguments.next().map_or(Ok(20), |text| text.parse())?;
    let partitions = arguments.next().map_or(Ok(4_096), |text| text.parse())?;
    let relays = arguments.next().map_or(Ok(0), |text| text.parse())?;
    tokio::runtime::Runtime::new()?.block_on(run(nodes, Duration::from_secs(seconds), partitions, relays))?;
    Ok(ExitCode::SUCCESS)
}

async fn run(nodes: usize, length: Duration, partitions: u32, relays: usize) -> anyhow::Result<()> {
    let options = Options { nodes: vec![], partitions, nodes_min: nodes, ..Options::default() };
    let cluster = Cluster::start(&own_path()?, &options);
    let (leader, _) = cluster.wait_leader();
    let leader_address = cluster.coordinator_addresses()[leader].clone();

    let addresses = played_control::serve(nodes, Arc::new(|_| {}), |_| {}).await?;
    let relays = Arc::new(PlayedRelays::start(relays).await?);
    let phase = Arc::new(Phase::default());
    let began = Instant::now();
    let mut beating = JoinSet::new();
    for (number, address) in addresses.into_iter().enumerate() {
        beating.spawn(live(leader_address.clone(), number, address, phase.clone(), Arc::clone(&relays)));
    }
    while phase.registered.load(Ordering::Relaxed) < nodes {
        anyhow::ensure!(began.elapsed() < JOIN_LIMIT, "only {:?} of {nodes} nodes registered", phase.registered);
        if let Some(ended) = beating.try_join_next() {
            ended?.with_context(|| {
                format!("the leading coordinator's log ends with\n{}", cluster.coordinator(leader).log_tail(20))
            })?;
        }
        tokio::time::sleep(INTERVAL).await;
    }
    println!("{nodes} nodes registered in {:.1} s", began.elapsed().as_secs_f64());
    // The first assignment brings every node its duties and the whole table: not what is measured here, but told.
    let settling = Instant::now();
    loop {
        let before = phase.missed.load(Ordering::Relaxed);
        tokio::time::sleep(QUIET).await;
        if phase.missed.load(Ordering::Relaxed) == before {
            break;
        }
        anyhow::ensure!(settling.elapsed() < JOIN_LIMIT, "heartbeats are still missed after {JOIN_LIMIT:?}");
    }
    println!(
        "settled {:.1} s later; {} heartbeats were missed until then",
        (settling.elapsed() - QUIET).as_secs_f64(),
        phase.missed.load(Ordering::Relaxed)
    );
    let ways = if relays.count() == 0 { "straight".to_owned() } else { format!("by {} relays", relays.count()) };
    println!("heartbeats every {} ms each for {} s, {ways}", INTERVAL.as_millis(), length.as_secs());

    let pids: Vec<u32> = (0..options.coordinators).map(|index| cluster.coordinator(index).pid()).collect();
    let cpu_before: Vec<Duration> = pids.iter().map(|pid| cpu_of(*pid)).collect();
    let measured = Instant::now();
    phase.measuring.store(true, Ordering::Relaxed);
    tokio::time::sleep(length).await;
    phase.over.store(true, Ordering::Relaxed);
    let wall = measured.elapsed();
    let cpu_after: Vec<Duration> = pids.iter().map(|pid| cpu_of(*pid)).collect();
    let mut total = Beats::new()?;
    while let Some(beats) = beating.join_next().await {
        let beats = beats??;
        total.micros.add(&beats.micros)?;
        total.sent += beats.sent;
        total.missed += beats.missed;
        total.lapsed += beats.lapsed;
        total.registered_again += beats.registered_again;
    }
    println!("heartbeats: {} sent, {} missed (no lease within {} ms)", total.sent, total.missed, DEADLINE.as_millis());
    println!("leases lapsed: {}; registered again: {}", total.lapsed, total.registered_again);
    println!(
        "reply: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        total.micros.value_at_quantile(0.5) as f64 / 1e3,
        total.micros.value_at_quantile(0.99) as f64 / 1e3,
        total.micros.max() as f64 / 1e3
    );
    for (index, (before, after)) in cpu_before.iter().zip(cpu_after).enumerate() {
        let share = 100.0 * after.saturating_sub(*before).as_secs_f64() / wall.as_secs_f64();
        let role = if index == leader { "leads" } else { "follows" };
        println!("coordinator {} ({role}): {share:.0} % of one core", index + 1);
    }
    let status = cluster.json(&["status"]).map_err(anyhow::Error::msg)?;
    println!(
        "nodes live {}, failed {}, partitions {}",
        status["nodes_alive"], status["nodes_failed"], status["partitions_total"]
    );
    Ok(())
}

/// Where the run stands, shared by all nodes.
#[derive(Debug, Default)]
struct Phase {
    registered: AtomicUsize,
    /// Heartbeats without a lease so far, measured or not.
    missed: AtomicUsize,
    measuring: AtomicBool,
    over: AtomicBool,
}

struct Beats {
    micros: Histogram<u64>,
    sent: u64,
    missed: u64,
    lapsed: u64,
    registered_again: u64,
}

impl Beats {
    fn new() -> anyhow::Result<Self> {
        let micros = Histogram::new_with_bounds(1, 10_000_000, 3)?;
        Ok(Self { micros, sent: 0, missed: 0, lapsed: 0, registered_again: 0 })
    }
}

/// One node's session, as a real node keeps it: heartbeats from the moment it registered, a new registration when its
/// life is over. Only what happens while the run is measured counts.
async fn live(
    leader: String,
    number: usize,
    address: String,
    phase: Arc<Phase>,
    relays: Arc<PlayedRelays>,
) -> anyhow::Result<Beats> {
    let mut session = PlayedSession::begin(&leader, number, address, INTERVAL, &relays).await?;
    phase.registered.fetch_add(1, Ordering::Relaxed);
    let mut beats = Beats::new()?;
    let mut lease_until = Instant::now();
    let mut next = Instant::now();
    while !phase.over.load(Ordering::Relaxed) {
        tokio::time::sleep_until(next.into()).await;
        let measuring = phase.measuring.load(Ordering::Relaxed);
        let began = Instant::now();
        let mut missed = false;
        match session.heartbeat(DEADLINE, None).await {
            Ok(lease_ms) if lease_ms > 0 => {
                if measuring {
                    beats.micros.record(u64::try_from(began.elapsed().as_micros())?)?;
                    beats.lapsed += u64::from(Instant::now() > lease_until);
                }
                lease_until = began + Duration::from_millis(lease_ms);
            }
            Err(ErrorKind::StaleIncarnation) => {
                missed = true;
                // One that is refused, as where the former life is not failed yet, is tried again by the next heartbeat.
                let again = session.register().await.is_ok();
                beats.registered_again += u64::from(measuring && again);
            }
            Err(ErrorKind::Unreachable) => {
                missed = true;
                session.connect().await;
            }
            _ => missed = true,
        }
        beats.sent += u64::from(measuring);
        beats.missed += u64::from(measuring && missed);
        phase.missed.fetch_add(usize::from(missed), Ordering::Relaxed);
        next = began + session.after(began);
    }
    Ok(beats)
}
