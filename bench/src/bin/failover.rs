//! Kills the leading coordinator ten times under client load and prints how long the quorum was without an answer,
//! how long a client waited at most, and how often a node's lease lapsed on the way.
//!
//! ```text
//! cargo run --release -p archon-bench --bin failover [ROUNDS]
//! ```

use archon_bench::{become_archon, own_path, spread};
use archon_client::Client;
use archon_integration_tests::{Cluster, Load, Options};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = become_archon() {
        return Ok(code);
    }
    let rounds = std::env::args().nth(1).map_or(Ok(10), |text| text.parse())?;
    tokio::runtime::Runtime::new()?.block_on(run(rounds))?;
    Ok(ExitCode::SUCCESS)
}

async fn run(rounds: usize) -> anyhow::Result<()> {
    let options = Options::default();
    let mut cluster = Cluster::start(&own_path()?, &options);
    let addresses = cluster.coordinator_addresses();
    let client = Client::builder(addresses).timeout(Duration::from_secs(10)).build().await?;
    let load = Load::start(&client, "failover", 8);
    let mut answered = Vec::new();
    for round in 1..=rounds {
        let (leader, _) = cluster.wait_leader();
        cluster.take_coordinator(leader).kill();
        let (next, took) = cluster.wait_leader();
        println!(
            "round {round}: coordinator {} killed, {} answers after {} ms",
            leader + 1,
            next + 1,
            took.as_millis()
        );
        answered.push(took);
        cluster.start_coordinator(leader);
        cluster.wait_online();
    }
    let report = load.stop().await;
    let lapses: usize = options.nodes.iter().map(|name| cluster.node(name).log().matches("lease lapsed").count()).sum();
    for name in &options.nodes {
        for line in cluster.node(name).log().lines().filter(|line| line.contains("lease lapsed")) {
            println!("{name}: {line}");
        }
    }
    println!("a new leader answered status: {}", spread(answered));
    println!("client operations: {} answered, {} failed", report.operations, report.failures.len());
    println!("longest gap of a writer: {} ms", report.longest_gap.as_millis());
    println!("leases lapsed: {lapses}");
    let missing = report.missing(&client).await;
    println!("acknowledged keys missing: {}", missing.len());
    anyhow::ensure!(report.failures.is_empty() && missing.is_empty(), "{:?} {missing:?}", report.failures);
    Ok(())
}
