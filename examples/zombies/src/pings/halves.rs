//! Half of the cluster is cut off from the other half and from the coordinator. A zombie is a cut-off server that is
//! not in limbo yet: it serves, and another server may serve the same partitions.

use super::{INTERVAL, parts};
use crate::random::Random;

/// Number of rounds in which zombies are counted.
pub const ROUNDS: usize = 8;

/// Timing of pings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// All at the same instant, each on the previous state of the others: the rounds of the design.
    InStep,
    /// Each at an instant of its own in the interval; an unanswered ping times out after this many intervals, one at
    /// most.
    OutOfStep {
        /// Zero: a missing answer is known at once.
        given_up_after: f64,
    },
}

/// Results of many runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Halves {
    /// Number of runs.
    pub runs: u32,
    /// Mean number of remaining zombies after each round.
    pub left: [f64; ROUNDS],
    /// Variance of that number between runs.
    pub variance: [f64; ROUNDS],
    /// Number of runs without a zombie after each round.
    pub over: [u32; ROUNDS],
}

impl Halves {
    /// Returns the number of rounds after which this share of the runs had no zombie, if any.
    pub fn over_in(&self, share: f64) -> Option<usize> {
        self.over.iter().position(|over| f64::from(*over) >= share * f64::from(self.runs)).map(|round| round + 1)
    }
}

/// Returns the mean that the design computes: z zombies of n servers become z²/n.
pub fn recurrence(servers: u32) -> [f64; ROUNDS] {
    let servers = f64::from(servers);
    let mut left = servers / 2.0;
    std::array::from_fn(|_| {
        left = left * left / servers;
        left
    })
}

/// Cuts half of the servers off, in this many runs.
pub fn halves(servers: u32, pace: Pace, runs: u32, seed: u64) -> Halves {
    let (mut sum, mut squares, mut over) = ([0.0; ROUNDS], [0.0; ROUNDS], [0; ROUNDS]);
    for run in 0..runs {
        for (round, left) in one_run(servers, pace, &mut Random::of_run(seed, run.into())).into_iter().enumerate() {
            sum[round] += f64::from(left);
            squares[round] += f64::from(left).powi(2);
            over[round] += u32::from(left == 0);
        }
    }
    let count = f64::from(runs);
    let left = sum.map(|sum| sum / count);
    let variance = std::array::from_fn(|round| (squares[round] / count - left[round].powi(2)).max(0.0));
    Halves { runs, left, variance, over }
}

fn one_run(servers: u32, pace: Pace, random: &mut Random) -> [u32; ROUNDS] {
    let cut_off = servers / 2;
    let (mut instants, given_up_after) = match pace {
        Pace::InStep => (vec![0; cut_off as usize], 0),
        Pace::OutOfStep { given_up_after } => {
            ((0..cut_off).map(|_| random.below(INTERVAL)).collect::<Vec<_>>(), parts(given_up_after))
        }
    };
    // The cut-off servers are the first ones, in the order of their pings.
    instants.sort_unstable();
    let mut limbo_from = vec![u32::MAX; cut_off as usize];
    let mut zombies: Vec<u32> = (0..cut_off).collect();
    std::array::from_fn(|round| {
        let began = round as u32 * INTERVAL;
        for server in &zombies {
            let pinger = *server as usize;
            let now = began + instants[pinger];
            if limbo_from[pinger] <= now {
                continue;
            }
            let other = another(*server, servers, random);
            if other >= cut_off {
                limbo_from[pinger] = limbo_from[pinger].min(now + given_up_after);
            } else if limbo_from[other as usize] < now {
                limbo_from[pinger] = now;
            }
        }
        zombies.retain(|server| limbo_from[*server as usize] >= began + INTERVAL);
        zombies.len() as u32
    })
}

/// Returns one of the servers, but not this one.
fn another(server: u32, servers: u32, random: &mut Random) -> u32 {
    let drawn = random.below(servers - 1);
    drawn + u32::from(drawn >= server)
}
