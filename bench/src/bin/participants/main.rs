//! Registers many participants of a lease table with a quorum on this machine, and prints what their heartbeats, hand-overs and
//! deaths cost the coordinators.
//!
//! ```text
//! cargo run --release -p archon-bench --bin participants -- [--participants 10000] [--seconds 20] [--json]
//! ```
//!
//! The participants are played by one light client (`played.rs`): each has its own registration, heartbeats, poll for duties and
//! reports, as the library has, but they share some connections and one runtime, and no service runs behind them.

mod counted;
mod played;

use anyhow::Context;
use archon_bench::{ToolArgs, become_archon, resident_bytes};
use archon_client::Admin;
use archon_integration_tests::{Cluster, Options};
use archon_load::cpu_of;
use archon_types::LeaseTiming;
use clap::Parser;
use counted::Counted;
use played::World;
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::sleep;

const TABLE: &str = "jobs";
const TICK: Duration = Duration::from_millis(100);
/// How long one step of the run may take.
const TIMEOUT: Duration = Duration::from_secs(180);
/// How long nothing is granted before a table counts as settled.
const QUIET: Duration = Duration::from_secs(5);
/// Owners that give up a partition in a second, in the phase that measures hand-overs.
const DROPS_PER_SECOND: u32 = 100;

/// What a quorum of three coordinators spends on participants.
#[derive(Parser, Clone, Debug)]
#[command(name = "participants")]
struct Args {
    /// Participants, each of which is played.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=20_000))]
    participants: u32,
    /// Partitions of their table; as many as participants unless said otherwise.
    #[arg(long)]
    partitions: Option<u32>,
    /// How long heartbeats are measured, and then hand-overs.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Heartbeat, lease and take-over time in milliseconds.
    #[arg(long, value_delimiter = ',', default_value = "2000,6000,9000")]
    timing: Vec<u64>,
    #[command(flatten)]
    tool: ToolArgs,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Report {
    participants: u32,
    partitions: u32,
    timing_ms: Vec<u64>,
    /// All registered, one log entry each.
    register_seconds: f64,
    /// Then every partition owned, and nothing moves any more.
    settle_seconds: f64,
    /// More resident memory of the coordinator that leads, per participant with its share of the partitions and its poll.
    leader_bytes_per_participant: f64,
    /// The same of a follower.
    follower_bytes_per_participant: f64,
    heartbeats: Phase,
    hand_overs: Phase,
    /// From the report of the owner that gives it up until the next owner has it in its duties.
    hand_over_ms_p50: f64,
    hand_over_ms_p99: f64,
    deaths: Phase,
    /// Participants that fell silent at the same moment.
    died: u32,
    /// From the first of their partitions that another one got until the last.
    revocation_seconds: f64,
    /// Partitions that changed their owner a second, meanwhile.
    revocations_per_second: f64,
}

/// What happened while something was measured.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Phase {
    seconds: f64,
    heartbeats: u64,
    /// Without an answer within an eighth of the lease.
    heartbeats_missed: u64,
    /// Answers that came after the lease before had ended.
    leases_lapsed: u64,
    heartbeat_ms_p50: f64,
    heartbeat_ms_p99: f64,
    heartbeat_ms_max: f64,
    grants: u64,
    /// How often participants were sent to another coordinator.
    leader_changes: u64,
    /// CPU of the coordinator that led at the beginning, and of all followers together.
    leader_cpu_seconds: f64,
    followers_cpu_seconds: f64,
}

impl Phase {
    /// CPU of all coordinators per heartbeat, polls included, in microseconds.
    fn cpu_per_heartbeat_us(&self) -> f64 {
        (self.leader_cpu_seconds + self.followers_cpu_seconds) * 1e6 / self.heartbeats.max(1) as f64
    }

    /// CPU of all coordinators per grant beyond what the heartbeats of `quiet` took, in microseconds.
    fn cpu_per_grant_us(&self, quiet: &Self) -> f64 {
        let all = (self.leader_cpu_seconds + self.followers_cpu_seconds) * 1e6;
        (all - quiet.cpu_per_heartbeat_us() * self.heartbeats as f64).max(0.0) / self.grants.max(1) as f64
    }
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
    let options = Options { nodes: vec![], partitions: 1, nodes_min: 1, ..Options::default() };
    let cluster = args.tool.start(&options)?;
    let measured = measure(args, &cluster).await;
    args.tool.keep_logs(&cluster)?;
    measured
}

async fn measure(args: &Args, cluster: &Cluster) -> anyhow::Result<Report> {
    let partitions = args.partitions.unwrap_or(args.participants);
    let [heartbeat_ms, lease_ms, failure_timeout_ms] = args.timing[..] else {
        anyhow::bail!("--timing takes three times")
    };
    let timing = LeaseTiming { heartbeat_ms, lease_ms, failure_timeout_ms, ..LeaseTiming::default() }.check_safe()?;
    let mut report = Report { participants: args.participants, partitions, ..Report::default() };
    report.timing_ms.clone_from(&args.timing);
    let admin = Admin::new(cluster.coordinator_addresses(), TIMEOUT)?;
    admin.create_lease_table(TABLE, partitions).await?;
    let (leader, _) = block_in_place(|| cluster.wait_leader());
    let addresses = cluster.coordinator_addresses();
    let watched = Watched { pids: (0..addresses.len()).map(|index| cluster.coordinator(index).pid()).collect() };
    let (leader_empty, follower_empty) = watched.memory(leader);

    let world = World::new(&addresses, leader, TABLE, timing, args.participants)?;
    let began = Instant::now();
    let mut playing = JoinSet::new();
    for number in 0..args.participants {
        playing.spawn(Arc::clone(&world).play(number));
    }
    let all = u64::from(args.participants);
    let registered = || world.registered.load(Ordering::Relaxed);
    until("all to be registered", &mut playing, || registered() == all).await?;
    report.register_seconds = began.elapsed().as_secs_f64();
    eprintln!("{all} participants registered in {:.1} s", report.register_seconds);
    let began = Instant::now();
    until("all to be owned", &mut playing, || world.owned() == partitions as usize).await?;
    quiet(&world).await?;
    report.settle_seconds = (began.elapsed() - QUIET).as_secs_f64();
    eprintln!("all {partitions} owned, and evenly, {:.1} s later", report.settle_seconds);
    let (leader_full, follower_full) = watched.memory(world.leader());
    report.leader_bytes_per_participant = (leader_full - leader_empty) / f64::from(args.participants);
    report.follower_bytes_per_participant = (follower_full - follower_empty) / f64::from(args.participants);

    let length = Duration::from_secs(args.seconds);
    let phase = watched.begin(&world);
    sleep(length).await;
    report.heartbeats = phase.end(&world)?;
    eprintln!("heartbeats: {:?}", report.heartbeats);

    world.take_hand_overs();
    let phase = watched.begin(&world);
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / DROPS_PER_SECOND);
    let until_over = Instant::now() + length;
    let mut number = 0;
    while Instant::now() < until_over {
        ticks.tick().await;
        world.give_up(number % args.participants);
        number += 1;
    }
    report.hand_overs = phase.end(&world)?;
    let times = world.take_hand_overs();
    report.hand_over_ms_p50 = times.value_at_quantile(0.5) as f64 / 1e3;
    report.hand_over_ms_p99 = times.value_at_quantile(0.99) as f64 / 1e3;
    eprintln!("hand-overs: {:?}, p50 {} ms", report.hand_overs, report.hand_over_ms_p50);
    quiet(&world).await?;

    report.died = args.participants / 10;
    let phase = watched.begin(&world);
    let orphans = world.silence(report.died);
    until("the partitions of the dead to be owned", &mut playing, || world.owned() == partitions as usize).await?;
    report.deaths = phase.end(&world)?;
    let took = world.last_grants().context("nobody took anything over")?;
    report.revocation_seconds = took.as_secs_f64();
    report.revocations_per_second = orphans as f64 / took.as_secs_f64().max(0.001);
    playing.shutdown().await;
    Ok(report)
}

/// The coordinators' processes.
struct Watched {
    pids: Vec<u32>,
}

impl Watched {
    /// Resident bytes of the leader, and of a follower.
    fn memory(&self, leader: usize) -> (f64, f64) {
        let all: f64 = self.pids.iter().map(|pid| resident_bytes(*pid)).sum();
        let leading = resident_bytes(self.pids[leader]);
        (leading, (all - leading) / (self.pids.len() - 1) as f64)
    }

    /// CPU time of the leader, and of all followers.
    fn cpu(&self, leader: usize) -> (Duration, Duration) {
        let leading = cpu_of(self.pids[leader]);
        (leading, self.pids.iter().map(|pid| cpu_of(*pid)).sum::<Duration>().saturating_sub(leading))
    }

    fn begin(&self, world: &World) -> Begun<'_> {
        drop(world.take_counted());
        let leader = world.leader();
        let leader_changes = world.leader_changes.load(Ordering::Relaxed);
        Begun { watched: self, at: Instant::now(), leader, leader_changes, cpu: self.cpu(leader) }
    }
}

struct Begun<'a> {
    watched: &'a Watched,
    at: Instant,
    leader: usize,
    leader_changes: u64,
    cpu: (Duration, Duration),
}

impl Begun<'_> {
    fn end(self, world: &World) -> anyhow::Result<Phase> {
        let seconds = self.at.elapsed().as_secs_f64();
        let Counted { micros, missed, lapsed, grants, ended } = world.take_counted();
        anyhow::ensure!(ended == 0, "{ended} participants were told that their lives are over");
        let (leader, followers) = self.watched.cpu(self.leader);
        Ok(Phase {
            seconds,
            heartbeats: micros.len(),
            heartbeats_missed: missed,
            leases_lapsed: lapsed,
            heartbeat_ms_p50: micros.value_at_quantile(0.5) as f64 / 1e3,
            heartbeat_ms_p99: micros.value_at_quantile(0.99) as f64 / 1e3,
            heartbeat_ms_max: micros.max() as f64 / 1e3,
            grants,
            leader_changes: world.leader_changes.load(Ordering::Relaxed) - self.leader_changes,
            leader_cpu_seconds: leader.saturating_sub(self.cpu.0).as_secs_f64(),
            followers_cpu_seconds: followers.saturating_sub(self.cpu.1).as_secs_f64(),
        })
    }
}

/// Waits until nothing is granted for a while.
async fn quiet(world: &World) -> anyhow::Result<()> {
    let began = Instant::now();
    loop {
        drop(world.take_counted());
        sleep(QUIET).await;
        if world.take_counted().grants == 0 {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < TIMEOUT, "partitions still move after {TIMEOUT:?}");
    }
}

/// Waits for a condition, or for the first participant that cannot go on.
async fn until(
    what: &str,
    playing: &mut JoinSet<anyhow::Result<()>>,
    reached: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let began = Instant::now();
    while !reached() {
        if let Some(ended) = playing.try_join_next() {
            ended??;
        }
        anyhow::ensure!(began.elapsed() < TIMEOUT, "waited for {what}");
        sleep(TICK).await;
    }
    Ok(())
}

fn print(report: &Report) {
    let Report { participants, partitions, timing_ms, heartbeats, hand_overs, deaths, .. } = report;
    println!(
        "{participants} participants of a table of {partitions} leases; heartbeat, lease, take-over: {timing_ms:?} ms"
    );
    println!("registered in {:.1} s; all owned and even {:.1} s later", report.register_seconds, report.settle_seconds);
    println!(
        "per participant: {:.1} KiB resident where the coordinator leads, {:.1} KiB where it follows",
        report.leader_bytes_per_participant / 1024.0,
        report.follower_bytes_per_participant / 1024.0
    );
    for (what, phase) in [("heartbeats", heartbeats), ("hand-overs", hand_overs), ("deaths", deaths)] {
        println!(
            "{what}: {:.1} s; {} heartbeats answered, {} missed, {} leases lapsed; p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; {} \
             grants; {} changes of the leader; leader {:.0} %, followers {:.0} % of one core",
            phase.seconds,
            phase.heartbeats,
            phase.heartbeats_missed,
            phase.leases_lapsed,
            phase.heartbeat_ms_p50,
            phase.heartbeat_ms_p99,
            phase.heartbeat_ms_max,
            phase.grants,
            phase.leader_changes,
            100.0 * phase.leader_cpu_seconds / phase.seconds,
            100.0 * phase.followers_cpu_seconds / phase.seconds
        );
    }
    println!("CPU of all coordinators per heartbeat, polls included: {:.0} µs", heartbeats.cpu_per_heartbeat_us());
    println!("CPU of all coordinators per hand-over: {:.0} µs", hand_overs.cpu_per_grant_us(heartbeats));
    println!("a hand-over: p50 {:.1} ms, p99 {:.1} ms", report.hand_over_ms_p50, report.hand_over_ms_p99);
    println!(
        "{} participants died at once: what they owned had other owners within {:.1} s of the first, {:.0} a second",
        report.died, report.revocation_seconds, report.revocations_per_second
    );
}
