//! What the coordinators' decisions cost by the size of the cluster: every figure for several sizes, so that growth is
//! seen. No processes: `heartbeats` measures a quorum.
//!
//! ```text
//! cargo run --release -p archon-bench --bin coordinator-scale -- [--sizes NODES/PARTITIONS,…] [--replication N] [--json]
//! ```

mod core;
mod figures;
mod world;

use clap::Parser;
use std::process::ExitCode;

/// How decisions, snapshots, pushes and heartbeats grow with the cluster.
#[derive(Parser, Debug)]
#[command(name = "coordinator-scale")]
struct Arguments {
    /// Sizes as NODES/PARTITIONS, smallest first
    #[arg(long, value_delimiter = ',', default_value = "1000/100000,3000/300000,10000/1000000")]
    sizes: Vec<String>,
    /// Copies of each partition
    #[arg(long, default_value_t = 3)]
    replication: u8,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut all = Vec::new();
    for size in &arguments.sizes {
        let (nodes, partitions) = parse(size)?;
        all.push(core::measure(nodes, partitions, arguments.replication)?);
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        figures::print(&all);
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(size: &str) -> anyhow::Result<(usize, usize)> {
    let parts =
        size.split_once('/').and_then(|(nodes, partitions)| Some((nodes.parse().ok()?, partitions.parse().ok()?)));
    let (nodes, partitions) = parts.ok_or_else(|| anyhow::anyhow!("{size:?} is not NODES/PARTITIONS"))?;
    anyhow::ensure!(nodes >= 20, "{nodes} nodes are too few to compare; give at least 20");
    anyhow::ensure!(partitions > 2 * nodes, "give more than two partitions per node");
    anyhow::ensure!(nodes <= 16_384, "at most 16,384 nodes: as many partitions are led by one of them, in one table");
    Ok((nodes, partitions))
}
