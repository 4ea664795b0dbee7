//! Where the CPU time of an operation goes, layer by layer, from one profile of everything that runs on a machine.
//!
//! ```text
//! perf record -e cpu-clock -F 997 --call-graph dwarf,4096 -a -o FILE -- sleep 6
//! perf script -i FILE --no-inline | inferno-collapse-perf > FOLDED
//! cargo run --release -p archon-bench --bin layers -- --operations-per-second N --seconds 6 < FOLDED
//! ```

mod layer;

use anyhow::{Context, ensure};
use clap::Parser;
use layer::{Layer, Sample};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::process::ExitCode;

/// Says how many microseconds of CPU an operation takes in each layer.
///
/// Reads stacks on its standard input, a line each as `inferno-collapse-perf` writes them: the thread's name and the
/// functions from the outermost to the innermost, separated by semicolons, and how many nanoseconds were spent there.
#[derive(Parser, Clone, Debug)]
struct Args {
    /// How many operations were done in each second while the profile was taken.
    #[arg(long)]
    operations_per_second: f64,
    /// How many seconds the profile was taken.
    #[arg(long)]
    seconds: f64,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let operations = args.operations_per_second * args.seconds;
    ensure!(operations > 0.0, "an operation's share is only known of more than none");
    let mut spent: BTreeMap<Layer, u64> = BTreeMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.context("cannot read the stacks")?;
        let sample = Sample::parse(&line).with_context(|| format!("this is no folded stack: {line:?}"))?;
        if let Some(layer) = sample.layer() {
            *spent.entry(layer).or_default() += sample.nanoseconds;
        }
    }
    ensure!(!spent.is_empty(), "no stack came on the standard input");
    println!("| layer | µs per operation |\n|---|---:|");
    let micros = |nanoseconds: u64| nanoseconds as f64 / 1_000.0 / operations;
    for (layer, nanoseconds) in &spent {
        println!("| {layer} | {:.2} |", micros(*nanoseconds));
    }
    let servers = spent.iter().filter(|(layer, _)| **layer != Layer::Client).map(|(_, nanoseconds)| nanoseconds).sum();
    println!("| **all servers** | **{:.2}** |", micros(servers));
    Ok(())
}
