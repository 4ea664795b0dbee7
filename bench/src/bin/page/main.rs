//! What a console's page costs: a browser opens it at a coordinator whose cluster has many nodes and partitions, all of them played but for
//! the coordinators. Prints when something is seen, how many bytes travel, and how long the processors work, in the page and in the
//! coordinators. Needs chromium and chromedriver.
//!
//! ```text
//! cargo run --release -p archon-bench --bin page -- [--nodes 1000] [--partitions 100000] [--replication 3] [--seconds 20] [--pictures DIR] [--json]
//! ```

mod cluster;
mod counted;
mod look;
mod report;

use archon_bench::{ToolArgs, become_archon};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// What a console's page costs.
#[derive(Parser, Debug)]
#[command(name = "page")]
struct Arguments {
    /// Nodes, which are played: they heartbeat, say what they carry, and hold nothing.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,
    /// Partitions, in as many tables as that takes.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    partitions: u32,
    /// Copies of each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    replication: u8,
    /// How long it is watched, in seconds.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..))]
    seconds: u64,
    /// Milliseconds between the heartbeats of a node, each of which says another load.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(100..=800))]
    heartbeat_ms: u64,
    /// Where pictures of the page are put.
    #[arg(long)]
    pictures: Option<PathBuf>,
    /// What tools share.
    #[command(flatten)]
    tool: ToolArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = become_archon() {
        return Ok(code);
    }
    let arguments = Arguments::parse();
    arguments.tool.report(look::measure(&arguments), report::print)?;
    Ok(ExitCode::SUCCESS)
}
