//! Experiments. Times are in milliseconds from the fault.

use super::coordinator::CommandRefusal;
use super::world::{Plan, World};
use crate::random::Random;

/// Time before the fault.
const CALM_MS: u64 = 2_000;
/// Interval of lease checks.
const LOOK_MS: u64 = 25;
/// Relays exist in these clusters, of any size.
const RELAYS_FROM: u64 = 2;

/// Result: half of the cluster is cut off.
#[derive(Clone, PartialEq, Debug)]
pub struct CutOffResult {
    /// Number of runs.
    pub runs: u32,
    /// Times of lease checks, and the mean share of cut-off members with a lease.
    pub serving: Vec<(u64, f64)>,
    /// Times at which the first and the last lease of cut-off members ended, in any run.
    pub ended: (u64, u64),
    /// Times at which the first and the last of them failed, in any run.
    pub failed: (u64, u64),
    /// Number of members failed while their lease held: two could have owned the same.
    pub failed_too_soon: usize,
    /// Number of other members that failed, or had no lease at some check.
    pub others_hurt: usize,
}

/// Cuts half of the members off, in this many runs.
///
/// # Errors
/// If the cluster cannot have so many members.
pub fn cut_off(members: u32, runs: u32, seed: u64) -> Result<CutOffResult, CommandRefusal> {
    const WATCHED_MS: u64 = 2_000;
    let half = members / 2;
    let mut serving: Vec<(u64, f64)> = (0..=WATCHED_MS / LOOK_MS).map(|look| (look * LOOK_MS, 0.0)).collect();
    let mut found = CutOffResult {
        runs,
        serving: Vec::new(),
        ended: (u64::MAX, 0),
        failed: (u64::MAX, 0),
        failed_too_soon: 0,
        others_hurt: 0,
    };
    for run in 0..runs {
        let mut random = Random::of_run(seed, run.into());
        let calm = CALM_MS + u64::from(random.below(200));
        let mut world = World::new(Plan { members, relays_from: RELAYS_FROM, answer_ms: 1, loss: 0.0 }, random)?;
        world.run_until(calm);
        world.network.cut_off = half;
        for (look, share) in &mut serving {
            world.run_until(calm + *look);
            *share += (0..half).filter(|member| world.has_lease(*member)).count() as f64 / f64::from(half * runs);
            found.others_hurt += (half..members).filter(|member| !world.has_lease(*member)).count();
        }
        for member in 0..half {
            // A lease that holds at the end has not ended.
            let until = world.members[member as usize].grants.until().map_or(0, |until| until.get());
            found.ended = spread(found.ended, until.saturating_sub(calm));
            found.failed = spread(found.failed, world.failed.get(&member).map_or(u64::MAX, |at| at - calm));
        }
        found.others_hurt += world.failed.range(half..).count();
        found.failed_too_soon += world.failed_too_soon.len();
    }
    found.serving = serving;
    Ok(found)
}

fn spread((low, high): (u64, u64), found: u64) -> (u64, u64) {
    (low.min(found), high.max(found))
}

/// Result: one member dies.
#[derive(Clone, PartialEq, Debug)]
pub struct Death {
    /// Mean share of the living without a lease, in the second half of the time.
    pub without_lease: f64,
    /// Number of living members that failed.
    pub living_failed: usize,
    /// Number of members failed while their lease held.
    pub failed_too_soon: usize,
    /// Leases that ended before the next one came, of all members.
    pub lapses: u64,
    /// Time at which the dead member failed.
    pub failed_at: Option<u64>,
}

/// Kills a member where the coordinator takes `answer_ms` to answer.
///
/// # Errors
/// If the cluster cannot have so many members.
pub fn death(members: u32, answer_ms: u64, seed: u64) -> Result<Death, CommandRefusal> {
    const WATCHED_MS: u64 = 6_000;
    let mut random = Random::of_run(seed, answer_ms);
    let calm = CALM_MS + answer_ms;
    let dead = random.below(members);
    let mut world = World::new(Plan { members, relays_from: RELAYS_FROM, answer_ms, loss: 0.0 }, random)?;
    world.run_until(calm);
    world.network.dead = Some(dead);
    let (mut without, mut looks) = (0, 0);
    for look in (0..WATCHED_MS).step_by(LOOK_MS as usize).filter(|look| *look >= WATCHED_MS / 2) {
        world.run_until(calm + look);
        without += (0..members).filter(|member| *member != dead && !world.has_lease(*member)).count();
        looks += 1;
    }
    let failed_at = world.failed.remove(&dead).map(|at| at - calm);
    Ok(Death {
        without_lease: without as f64 / f64::from(looks * (members - 1)),
        living_failed: world.failed.len(),
        failed_too_soon: world.failed_too_soon.len(),
        lapses: world.counts.lapses,
        failed_at,
    })
}

/// Result: no coordinator answers for a while.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OutageResult {
    /// Share of members that lost their lease.
    pub lapsed: f64,
    /// Number of members failed while their lease held.
    pub failed_too_soon: usize,
}

/// Disconnects the coordinator for this many milliseconds.
///
/// # Errors
/// If the cluster cannot have so many members.
pub fn away(members: u32, away_ms: u64, seed: u64) -> Result<OutageResult, CommandRefusal> {
    let plan = Plan { members, relays_from: RELAYS_FROM, answer_ms: 1, loss: 0.0 };
    let mut world = World::new(plan, Random::of_run(seed, away_ms))?;
    world.run_until(CALM_MS);
    world.network.cut_off = members;
    world.run_until(CALM_MS + away_ms);
    world.network.cut_off = 0;
    world.run_until(CALM_MS + away_ms + 1_000);
    let lapsed = world.counts.lapses as f64 / f64::from(members);
    Ok(OutageResult { lapsed, failed_too_soon: world.failed_too_soon.len() })
}

/// Path of heartbeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeartbeatPath {
    /// Each member contacts the coordinator itself.
    Straight,
    /// Relays carry them.
    Carried,
}

/// Load of the coordinator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Messages per second.
    pub messages: f64,
    /// Heartbeats in them.
    pub beats: f64,
    /// Leases that ended before the next one came, per member and hour.
    pub lapses: f64,
}

impl Load {
    /// Returns the share of a core: about a microsecond per heartbeat and ten per message, as measured on real
    /// processes (ADR 0060).
    pub fn cores(self) -> f64 {
        (self.beats + 10.0 * self.messages) / 1e6
    }
}

/// Measures the coordinator's load for this many seconds, with this probability of message loss.
///
/// # Errors
/// If the cluster cannot have so many members.
pub fn load(members: u32, way: HeartbeatPath, loss: f64, seconds: u32, seed: u64) -> Result<Load, CommandRefusal> {
    let relays_from = if way == HeartbeatPath::Carried { RELAYS_FROM } else { 0 };
    let mut world = World::new(Plan { members, relays_from, answer_ms: 1, loss }, Random::of_run(seed, 0))?;
    world.run_until(CALM_MS);
    let before = world.counts.clone();
    world.run_until(CALM_MS + 1_000 * u64::from(seconds));
    let a_second = |count: u64, before: u64| (count - before) as f64 / f64::from(seconds);
    let counts = &world.counts;
    Ok(Load {
        messages: a_second(counts.messages, before.messages),
        beats: a_second(counts.beats, before.beats),
        lapses: a_second(counts.lapses, before.lapses) * 3_600.0 / f64::from(members),
    })
}
