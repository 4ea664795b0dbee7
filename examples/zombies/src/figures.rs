//! All experiments of one report.

use crate::Arguments;
use crate::carried::{
    CommandRefusal, CutOffResult, Death, HeartbeatPath, Load, NODES_MAX, OutageResult, away, cut_off, death, load,
};
use crate::pings::{Halves, Limbo, LimboCase, Pace, halves, limbo};

/// Answer times of the coordinator, in intervals between pings.
pub const ANSWERS: [f64; 5] = [0.5, 1.0, 1.5, 5.0, 20.0];
/// Delays of limbo by hearsay, in intervals.
pub const DELAYS: [f64; 4] = [0.0, 0.5, 1.0, 2.0];
/// Number of intervals for which limbo is observed.
const INTERVALS: u32 = 200;
/// Probability that a ping or a message is lost, in experiments with loss.
const PING_LOSS: f64 = 0.001;
const MESSAGE_LOSS: f64 = 0.01;
/// The size that the design describes.
const LARGE: u32 = 100_000;
/// Answer times of the coordinator with relayed heartbeats, in milliseconds.
const ANSWERS_MS: [u64; 9] = [5, 10, 15, 50, 200, 500, 800, 900, 1_000];
/// Times without a coordinator, in milliseconds.
const AWAY_MS: [u64; 5] = [500, 700, 750, 800, 900];
/// Duration of counting, in seconds.
const SECONDS: u32 = 2;

/// Results of cutting off half of the servers, by each way to ping.
#[derive(Clone, PartialEq, Debug)]
pub struct HalvesResult {
    /// Number of servers.
    pub servers: u32,
    /// Each way, with its result.
    pub ways: Vec<(Pace, Halves)>,
}

/// Result of limbo in one case.
#[derive(Clone, PartialEq, Debug)]
pub struct LimboResult {
    /// The case.
    pub case: LimboCase,
    /// The result.
    pub limbo: Limbo,
}

/// Load of the coordinator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CoordinatorLoad {
    /// Number of members.
    pub members: u32,
    /// Probability that a message is lost.
    pub loss: f64,
    /// With direct heartbeats.
    pub straight: Load,
    /// With relays.
    pub carried: Load,
}

/// The whole report.
#[derive(Clone, PartialEq, Debug)]
pub struct Figures {
    /// The arguments.
    pub arguments: Arguments,
    /// Half of the servers cut off: of the requested number, and of 100,000.
    pub halves: Vec<HalvesResult>,
    /// Limbo, by answer time and then by delay.
    pub limbo: Vec<LimboResult>,
    /// Limbo with lost pings and an answer time of one interval.
    pub limbo_with_loss: LimboResult,
    /// Half of the members cut off, with relayed heartbeats.
    pub cut_off: CutOffResult,
    /// One member dies while the coordinator takes this many milliseconds to answer.
    pub deaths: Vec<(u64, Death)>,
    /// No coordinator answers for this many milliseconds.
    pub away: Vec<(u64, OutageResult)>,
    /// Load of the coordinator.
    pub bears: Vec<CoordinatorLoad>,
}

impl Figures {
    /// Runs all experiments.
    ///
    /// # Errors
    /// If the cluster of relayed heartbeats cannot be started.
    pub fn new(arguments: Arguments) -> Result<Self, CommandRefusal> {
        let (servers, runs, seed) = (arguments.servers, arguments.runs, arguments.seed);
        let members = arguments.members();
        // With 100,000 servers a hundredth of the runs takes as long.
        let large = (servers != LARGE).then(|| halves_of(LARGE, (runs / 100).max(10), seed));
        let limbo_runs = (runs / 20).clamp(1, 100);
        let of = |answer, delay, loss| {
            let case = LimboCase { servers, answer, delay, loss, intervals: INTERVALS };
            LimboResult { case, limbo: limbo(case, limbo_runs, seed) }
        };
        let limbo = ANSWERS.iter().flat_map(|answer| DELAYS.map(|delay| of(*answer, delay, 0.0))).collect();
        let deaths = ANSWERS_MS.map(|answer_ms| Ok((answer_ms, death(members, answer_ms, seed)?)));
        let away = AWAY_MS.map(|ms| Ok((ms, away(members, ms, seed)?)));
        Ok(Self {
            halves: std::iter::once(halves_of(servers, runs, seed)).chain(large).collect(),
            limbo,
            limbo_with_loss: of(1.0, 0.0, PING_LOSS),
            cut_off: cut_off(members, (runs / 100).clamp(1, 20), seed)?,
            deaths: deaths.into_iter().collect::<Result<_, _>>()?,
            away: away.into_iter().collect::<Result<_, _>>()?,
            bears: bears(members, seed)?,
            arguments,
        })
    }
}

fn halves_of(servers: u32, runs: u32, seed: u64) -> HalvesResult {
    let out_of_step = |given_up_after| Pace::OutOfStep { given_up_after };
    let ways = [Pace::InStep, out_of_step(0.0), out_of_step(0.5), out_of_step(1.0)];
    HalvesResult { servers, ways: ways.map(|pace| (pace, halves(servers, pace, runs, seed))).into() }
}

/// Runs with the requested number of members, and with ten times as many where a cluster may have them.
fn bears(members: u32, seed: u64) -> Result<Vec<CoordinatorLoad>, CommandRefusal> {
    let sizes = [members, 10 * members].into_iter().filter(|members| *members as usize <= NODES_MAX);
    let cases = sizes.flat_map(|members| [(members, 0.0), (members, MESSAGE_LOSS)]);
    let of = |(members, loss)| {
        let of = |way| load(members, way, loss, SECONDS, seed);
        Ok(CoordinatorLoad {
            members,
            loss,
            straight: of(HeartbeatPath::Straight)?,
            carried: of(HeartbeatPath::Carried)?,
        })
    };
    cases.map(of).collect()
}
