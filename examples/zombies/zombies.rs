//! Simulates a published design of leases without a coordinator, as described, and relayed heartbeats under the same
//! faults: a cut-off half of a cluster, paralysis by limbo, and the load of the coordinator.
//!
//! ```sh
//! cargo run --release -p archon-zombies --example zombies -- --servers 1000 --runs 2000
//! ```
//!
//! The design is in `src/pings/`, the same faults with this cluster's own decisions in `src/carried/`.

use archon_zombies::{Arguments, Figures, charts, text};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match zombies(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn zombies(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let figures = Figures::new(arguments)?;
    print!("{}", text(&figures));
    if let Some(directory) = &figures.arguments.svg {
        println!();
        for file in charts(&figures, directory)? {
            println!("{}", file.display());
        }
    }
    Ok(())
}
