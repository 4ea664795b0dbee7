//! How long writes stand still when something happens to the cluster, and whether an acknowledged write was lost.
//!
//! Starts three coordinators and three nodes with three copies of each partition, writes in a closed loop with many
//! probers, each on its own key, and disturbs the cluster. Printed per round is the longest time between two
//! acknowledged writes of one prober, over all probers.
//!
//! ```text
//! cargo run --release -p archon-bench --bin gaps -- [SCENARIO…] [--rounds N] [--json] [--logs DIR]
//! ```

use anyhow::Context;
use archon_bench::{TableArgs, ToolArgs, become_archon, spread};
use archon_client::{Admin, Client, NodeGoal, NodeStatus};
use archon_integration_tests::Cluster;
use archon_load::watch::{led, partitions, rebalance, until, until_node, until_whole};
use archon_load::{Probers, Window};
use clap::{Parser, ValueEnum};
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use tokio::task::block_in_place;
use tokio::time::sleep;

/// What happens. Without any, all happen in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Scenario {
    /// Nothing, for comparison.
    Calm,
    /// The node that leads most is killed (SIGKILL), and started again when the others have taken over.
    Kill,
    /// The node that leads most is asked to end (SIGTERM), and started again.
    Stop,
    /// A fourth node joins and partitions are moved to it; in the next round it is drained.
    Move,
    /// All coordinators are killed at once and started again.
    QuorumKill,
    /// All coordinators are asked to end at once and started again.
    QuorumStop,
    /// All coordinators are down for a while.
    Outage,
}

/// Measures how long writes stand still when something happens.
#[derive(Parser, Clone, Debug)]
struct Args {
    /// What happens; everything if nothing is named.
    scenarios: Vec<Scenario>,
    /// Rounds of each scenario; otherwise 10 of kill and stop, 4 of the others, 1 outage.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Writers, each with its own key in a closed loop.
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    probers: u16,
    /// Readers besides, likewise.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(..=4_096))]
    readers: u16,
    #[command(flatten)]
    table: TableArgs,
    /// How long the outage lasts.
    #[arg(long, default_value_t = 60)]
    outage_seconds: u64,
    /// How long the cluster may take to heal.
    #[arg(long, default_value_t = 120)]
    patience_seconds: u64,
    #[command(flatten)]
    tool: ToolArgs,
}

/// One disturbance.
#[derive(Clone, Debug, Serialize)]
struct Round {
    scenario: Scenario,
    /// Counted from 1.
    round: u32,
    /// What was done to whom.
    what: String,
    #[serde(flatten)]
    seen: Window,
    /// What was seen while the cluster was made whole again.
    healing: Option<Window>,
}

#[derive(Clone, Debug, Serialize)]
struct Summary {
    scenario: Scenario,
    rounds: usize,
    min_ms: f64,
    median_ms: f64,
    max_ms: f64,
    healing_max_ms: f64,
    failed: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    probers: u16,
    replication: u8,
    rounds: Vec<Round>,
    summary: Vec<Summary>,
    /// Acknowledged writes that were not found at the end.
    missing: Vec<String>,
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = become_archon() {
        return Ok(code);
    }
    let args = Args::parse();
    if let Ok(filter) = std::env::var("ARCHON_LOG") {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    }
    let report = args.tool.report(run(&args), print_all)?;
    let failed: u64 = report.summary.iter().map(|summary| summary.failed).sum();
    anyhow::ensure!(report.missing.is_empty(), "{:#?}", report.missing);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_all(report: &Report) {
    for summary in &report.summary {
        let gaps = report.rounds.iter().filter(|round| round.scenario == summary.scenario);
        let gaps = gaps.map(|round| Duration::from_secs_f64(round.seen.write_gap_ms / 1e3)).collect();
        println!(
            "{:<11} {:>2} rounds, longest write gap: {}; while healing {:.0} ms; {} operations failed",
            name(summary.scenario),
            summary.rounds,
            spread(gaps),
            summary.healing_max_ms,
            summary.failed
        );
    }
    println!("acknowledged writes missing: {}", report.missing.len());
}

fn name(scenario: Scenario) -> String {
    scenario.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Everything a round needs.
struct Stage {
    cluster: Cluster,
    admin: Admin,
    probers: Probers,
    args: Args,
    rounds: Vec<Round>,
}

async fn run(args: &Args) -> anyhow::Result<Report> {
    let cluster = args.tool.start(&args.table.options())?;
    let client = Client::builder(cluster.coordinator_addresses()).build().await?;
    let admin = Admin::new(cluster.coordinator_addresses(), Duration::from_secs(2))?;
    let probers = Probers::start(&client, args.probers, args.readers, args.table.partitions);
    let mut stage = Stage { cluster, admin, probers, args: args.clone(), rounds: Vec::new() };
    let played = stage.play().await;
    let Stage { cluster, probers, rounds, .. } = stage;
    let missing = probers.stop(&client).await;
    args.tool.keep_logs(&cluster)?;
    played?;
    let summary = summarise(&rounds);
    Ok(Report { probers: args.probers, replication: args.table.replication, rounds, summary, missing: missing? })
}

fn summarise(rounds: &[Round]) -> Vec<Summary> {
    let mut summary = Vec::new();
    for scenario in Scenario::value_variants() {
        let rounds: Vec<&Round> = rounds.iter().filter(|round| round.scenario == *scenario).collect();
        let mut gaps: Vec<f64> = rounds.iter().map(|round| round.seen.write_gap_ms).collect();
        gaps.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (gaps.first(), gaps.last()) else { continue };
        let healing = rounds.iter().filter_map(|round| round.healing.as_ref());
        summary.push(Summary {
            scenario: *scenario,
            rounds: gaps.len(),
            min_ms: *min,
            median_ms: gaps[gaps.len() / 2],
            max_ms: *max,
            healing_max_ms: healing.clone().map(|window| window.write_gap_ms).fold(0.0, f64::max),
            failed: rounds.iter().map(|round| round.seen.failed).sum::<u64>()
                + healing.map(|window| window.failed).sum::<u64>(),
        });
    }
    summary
}

/// The node that joins for the moves.
const FOURTH: &str = "ephesus";
/// How long the cluster runs undisturbed before and after what happens.
const CALM: Duration = Duration::from_secs(1);

impl Stage {
    fn patience(&self) -> Duration {
        Duration::from_secs(self.args.patience_seconds)
    }

    async fn play(&mut self) -> anyhow::Result<()> {
        self.whole().await?;
        let all = Scenario::value_variants();
        let scenarios = if self.args.scenarios.is_empty() { all.to_vec() } else { self.args.scenarios.clone() };
        for scenario in scenarios {
            let ordinary = match scenario {
                Scenario::Kill | Scenario::Stop => 10,
                Scenario::Calm | Scenario::Move | Scenario::QuorumKill | Scenario::QuorumStop => 4,
                Scenario::Outage => 1,
            };
            for round in 1..=self.args.rounds.unwrap_or(ordinary) {
                self.moving().await?;
                sleep(CALM).await;
                self.probers.mark();
                let (what, seen, healing) =
                    self.round(scenario, round).await.with_context(|| format!("{}, round {round}", name(scenario)))?;
                let round = Round { scenario, round, what, seen, healing };
                if !self.args.tool.json {
                    print(&round);
                }
                self.rounds.push(round);
            }
        }
        Ok(())
    }

    /// One disturbance, and what was seen during it and while the cluster healed.
    async fn round(&mut self, scenario: Scenario, round: u32) -> anyhow::Result<(String, Window, Option<Window>)> {
        match scenario {
            Scenario::Calm => {
                sleep(2 * CALM).await;
                Ok(("nothing happened".into(), self.probers.window(), None))
            }
            Scenario::Kill | Scenario::Stop => self.node_ends(scenario == Scenario::Kill).await,
            Scenario::Move => self.moves(round % 2 == 1).await,
            Scenario::QuorumKill | Scenario::QuorumStop => self.quorum_restarts(scenario == Scenario::QuorumKill).await,
            Scenario::Outage => self.outage().await,
        }
    }

    async fn node_ends(&mut self, killed: bool) -> anyhow::Result<(String, Window, Option<Window>)> {
        let rows = partitions(&self.admin).await.map_err(anyhow::Error::msg)?;
        let probed: Vec<u16> = self.probers.partitions().collect();
        let led = led(&rows);
        let victim = led.iter().max_by_key(|(_, led)| led.iter().filter(|id| probed.contains(id)).count());
        let (victim, led) = victim.context("nobody leads anything")?;
        let led_probed = led.iter().filter(|id| probed.contains(id)).count();
        let what = format!(
            "{victim}, which led {led_probed} of {} probed partitions, was {}",
            probed.len(),
            if killed { "killed" } else { "stopped" }
        );
        let process = self.cluster.take_node(victim);
        let limit = self.patience();
        if killed {
            block_in_place(|| process.kill());
        } else {
            let status = block_in_place(|| process.terminate(limit));
            anyhow::ensure!(status.success(), "{victim} ended with {status}");
        }
        until_node(&self.admin, victim, NodeStatus::Failed, limit).await?;
        self.moving().await?;
        sleep(CALM).await;
        let seen = self.probers.window();
        self.probers.mark();
        self.cluster.start_node(victim);
        self.whole().await?;
        rebalance(&self.admin, limit).await?;
        self.whole().await?;
        sleep(CALM).await;
        Ok((what, seen, Some(self.probers.window())))
    }

    async fn moves(&mut self, joins: bool) -> anyhow::Result<(String, Window, Option<Window>)> {
        let limit = self.patience();
        if joins {
            let known = self.admin.list_nodes().await?.iter().any(|node| node.name == FOURTH);
            if known {
                self.admin.set_node(FOURTH, NodeGoal::Serve).await?;
            } else {
                self.cluster.start_node(FOURTH);
            }
            until_node(&self.admin, FOURTH, NodeStatus::Alive, limit).await?;
        } else {
            self.admin.set_node(FOURTH, NodeGoal::Drain).await?;
        }
        self.probers.mark();
        let moved = rebalance(&self.admin, limit).await?;
        self.whole().await?;
        if !joins {
            let emptied = async || {
                let nodes = self.admin.list_nodes().await.map_err(|error| error.to_string())?;
                let held = nodes.iter().find(|node| node.name == FOURTH).map_or(0, |node| node.copies_held);
                if held == 0 { Ok(()) } else { Err(format!("{FOURTH} holds {held} copies")) }
            };
            until(&format!("{FOURTH} to be empty"), limit, emptied).await?;
        }
        sleep(CALM).await;
        let what = format!("{moved} moves {} {FOURTH}", if joins { "to" } else { "away from" });
        Ok((what, self.probers.window(), None))
    }

    async fn quorum_restarts(&mut self, killed: bool) -> anyhow::Result<(String, Window, Option<Window>)> {
        self.end_quorum(killed)?;
        for index in 0..self.cluster.coordinator_addresses().len() {
            self.cluster.start_coordinator(index);
        }
        let (_, took) = self.leader().await?;
        self.whole().await?;
        sleep(CALM).await;
        let how = if killed { "killed" } else { "stopped" };
        let what = format!("all coordinators were {how} and started; one led after {} ms", took.as_millis());
        Ok((what, self.probers.window(), None))
    }

    async fn outage(&mut self) -> anyhow::Result<(String, Window, Option<Window>)> {
        self.end_quorum(true)?;
        sleep(Duration::from_secs(self.args.outage_seconds)).await;
        let seen = self.probers.window();
        self.probers.mark();
        for index in 0..self.cluster.coordinator_addresses().len() {
            self.cluster.start_coordinator(index);
        }
        self.leader().await?;
        self.whole().await?;
        sleep(CALM).await;
        let what = format!("all coordinators were down for {} s", self.args.outage_seconds);
        Ok((what, seen, Some(self.probers.window())))
    }

    fn end_quorum(&mut self, killed: bool) -> anyhow::Result<()> {
        let count = self.cluster.coordinator_addresses().len();
        let processes: Vec<_> = (0..count).map(|index| self.cluster.take_coordinator(index)).collect();
        if killed {
            processes.into_iter().for_each(|process| block_in_place(|| process.kill()));
            return Ok(());
        }
        processes.iter().for_each(|process| process.ask_to_end());
        for mut process in processes {
            let status = block_in_place(|| process.wait_exit(self.patience()));
            anyhow::ensure!(status.success(), "{} ended with {status}", process.name());
        }
        Ok(())
    }

    async fn leader(&self) -> anyhow::Result<(u64, Duration)> {
        let look = async || match self.admin.status().await {
            Ok(status) => status.leader_id.ok_or_else(|| "nobody leads".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        Ok(until("a leading coordinator", self.patience(), look).await?)
    }

    /// Every prober succeeds again.
    async fn moving(&self) -> anyhow::Result<()> {
        let before = self.probers.successes();
        let look = async || {
            let stuck =
                self.probers.successes().iter().zip(&before).filter(|(now, before)| **now < **before + 2).count();
            if stuck == 0 { Ok(()) } else { Err(format!("{stuck} probers do not move: {:?}", self.probers.window())) }
        };
        until("every prober to move", self.patience(), look).await?;
        Ok(())
    }

    /// Every partition has all its copies, and every prober succeeds.
    async fn whole(&self) -> anyhow::Result<()> {
        until_whole(&self.admin, usize::from(self.args.table.replication), self.patience()).await?;
        self.moving().await
    }
}

fn print(round: &Round) {
    let healing = match &round.healing {
        Some(healing) => format!(
            "; while healing {:.0} ms (partition {} since {})",
            healing.write_gap_ms, healing.partition, healing.since
        ),
        None => String::new(),
    };
    let seen = &round.seen;
    println!(
        "{:<11} {:>2}: longest write gap {:.0} ms (partition {} since {}; median {:.0} ms), read gap {:.0} ms{healing}; {}",
        name(round.scenario),
        round.round,
        seen.write_gap_ms,
        seen.partition,
        seen.since,
        seen.write_gap_median_ms,
        seen.read_gap_ms,
        round.what
    );
    for window in [Some(seen), round.healing.as_ref()].into_iter().flatten() {
        if let Some(failure) = &window.last_failure {
            println!("{:<15} {} operations failed, the last: {failure}", "", window.failed);
        }
    }
}
