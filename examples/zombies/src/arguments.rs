//! Arguments of the program.

use crate::carried::NODES_MAX;
use clap::Parser;
use std::path::PathBuf;

/// Half of a cluster is cut off, and one server dies: what leases without a coordinator make of that, and what heartbeats that others
/// carry do.
///
/// In a published design servers ping each other. One that gets no answer, or the answer of a server that has stopped serving, stops
/// serving itself until a coordinator has answered it ("limbo"). That is played as written, many times, beside this cluster's own
/// decisions under the same faults. Nothing is started and no network is used; the same seed prints the same figures.
#[derive(Clone, PartialEq, Eq, Debug, Parser)]
#[command(name = "zombies", version, max_term_width = 100)]
pub struct Arguments {
    /// How many servers there are.
    ///
    /// Heartbeats are carried for 20,000 of them at most, since no cluster has more nodes. Ten times as many take ten times as long.
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(20..=100_000))]
    pub servers: u32,
    /// Over how many runs a mean is taken where half of the servers are cut off.
    ///
    /// Of what takes longer there are fewer, and the report says how many. The more runs, the closer the means: four times as many
    /// halve the error.
    #[arg(long, value_name = "R", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub runs: u32,
    /// What everything is drawn from.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub seed: u64,
    /// Writes the charts as SVG files into this directory, which is made if it is not there.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
}

impl Arguments {
    /// Returns the number of members with relayed heartbeats.
    pub fn members(&self) -> u32 {
        self.servers.min(NODES_MAX as u32)
    }
}
