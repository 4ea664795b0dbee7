//! One server dies, without other faults. Servers that ping it go into limbo until the coordinator has answered; so do
//! servers that ping those in limbo. The experiment shows whether that ends.

use super::{INTERVAL, parts};
use crate::random::Random;

/// Parameters of the servers and their coordinator. Times are in intervals between pings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LimboCase {
    /// Number of servers, including the one that dies.
    pub servers: u32,
    /// Answer time of the coordinator.
    pub answer: f64,
    /// Time for which a server that hears of limbo waits for the coordinator's answer before it goes into limbo.
    pub delay: f64,
    /// Probability that a ping is lost.
    pub loss: f64,
    /// Number of simulated intervals.
    pub intervals: u32,
}

/// Results.
#[derive(Clone, PartialEq, Debug)]
pub struct Limbo {
    /// Mean share in limbo in each interval.
    pub shares: Vec<f64>,
    /// Number of runs without a server in limbo at the end.
    pub died_out: u32,
    /// Number of runs.
    pub runs: u32,
    /// Mean share in the second half of the intervals, in the runs in which limbo did not die out.
    pub lasting: f64,
    /// The least and the largest share in the second half, in those runs.
    pub swing: (f64, f64),
}

impl Limbo {
    /// Returns the mean share in the second half of the intervals, over all runs.
    pub fn in_the_long_run(&self) -> f64 {
        let second_half = &self.shares[self.shares.len() / 2..];
        second_half.iter().sum::<f64>() / second_half.len() as f64
    }
}

/// Returns the long-run share in limbo, computed with means. An infected server has asked the coordinator for `answer`
/// intervals and is in limbo for all of them but the first `delay`; the next ping that counts is the `⌈answer⌉`th after
/// that, and it hits a server in limbo with a probability equal to the share. So share = (answer − delay) / (⌈answer⌉ +
/// 1/share − 1).
pub fn computed_share(answer: f64, delay: f64) -> f64 {
    let infected = answer - delay - 1.0;
    if infected <= 0.0 { 0.0 } else { infected / (answer.ceil() - 1.0) }
}

/// Kills a server, in this many runs.
pub fn limbo(case: LimboCase, runs: u32, seed: u64) -> Limbo {
    let intervals = case.intervals as usize;
    let (mut shares, mut died_out) = (vec![0.0; intervals], 0);
    let (mut lasting, mut swing) = (0.0, (f64::INFINITY, 0.0_f64));
    for run in 0..runs {
        let counts = World::new(case, Random::of_run(seed, run.into())).play(case.intervals);
        let of_all = |count: u32| f64::from(count) / f64::from(case.servers - 1);
        for (interval, share) in shares.iter_mut().enumerate() {
            *share += (of_all(counts[2 * interval]) + of_all(counts[2 * interval + 1])) / 2.0;
        }
        if counts.ends_with(&[0, 0]) {
            died_out += 1;
            continue;
        }
        let second_half = &counts[intervals..];
        lasting += second_half.iter().map(|count| of_all(*count)).sum::<f64>() / second_half.len() as f64;
        swing =
            second_half.iter().fold(swing, |(low, high), count| (low.min(of_all(*count)), high.max(of_all(*count))));
    }
    shares.iter_mut().for_each(|share| *share /= f64::from(runs));
    let lasted = runs - died_out;
    if lasted == 0 {
        return Limbo { shares, died_out, runs, lasting: 0.0, swing: (0.0, 0.0) };
    }
    Limbo { shares, died_out, runs, lasting: lasting / f64::from(lasted), swing }
}

/// A server. Instants count from the beginning, in parts of an interval.
#[derive(Clone, Copy, Default)]
struct Server {
    /// Instant of its ping in each interval.
    pings_at: u32,
    /// In limbo from here…
    limbo_from: u32,
    /// …until the coordinator's answer.
    answered_at: u32,
}

impl Server {
    const fn in_limbo(&self, now: u32) -> bool {
        self.limbo_from <= now && now < self.answered_at
    }
}

struct World {
    /// In the order of their pings. The last one is dead, and does not ping.
    servers: Vec<Server>,
    answer: u32,
    delay: u32,
    loss: f64,
    /// Time at which the coordinator has announced the death: then pings to the dead server stop.
    condemned_at: u32,
    random: Random,
}

impl World {
    fn new(case: LimboCase, mut random: Random) -> Self {
        let mut instants: Vec<u32> = (1..case.servers).map(|_| random.below(INTERVAL)).collect();
        instants.sort_unstable();
        let mut servers: Vec<Server> =
            instants.into_iter().map(|pings_at| Server { pings_at, ..Server::default() }).collect();
        servers.push(Server::default());
        let (answer, delay) = (parts(case.answer), parts(case.delay));
        Self { servers, answer, delay, loss: case.loss, condemned_at: u32::MAX, random }
    }

    /// Returns the number of servers in limbo at the middle and at the end of each interval.
    fn play(mut self, intervals: u32) -> Vec<u32> {
        let living = self.servers.len() - 1;
        let half = self.servers[..living].partition_point(|server| server.pings_at < INTERVAL / 2);
        let mut counts = Vec::new();
        for began in (0..intervals).map(|interval| interval * INTERVAL) {
            for (pingers, ends) in [(0..half, began + INTERVAL / 2), (half..living, began + INTERVAL)] {
                for pinger in pingers {
                    self.ping(pinger, began + self.servers[pinger].pings_at);
                }
                counts.push(self.servers[..living].iter().filter(|server| server.in_limbo(ends - 1)).count() as u32);
            }
        }
        counts
    }

    fn ping(&mut self, pinger: usize, now: u32) {
        let dead = self.servers.len() - 1;
        let others = if now < self.condemned_at { dead } else { dead - 1 };
        let drawn = self.random.below(others as u32) as usize;
        let other = drawn + usize::from(drawn >= pinger);
        let found_dead = other == dead;
        let delay = match found_dead || self.random.happens(self.loss) {
            true => 0,
            false if self.servers[other].in_limbo(now) => self.delay,
            false => return,
        };
        let server = &mut self.servers[pinger];
        if server.answered_at <= now {
            server.answered_at = now + self.answer;
            server.limbo_from = now + delay;
        } else {
            // It has asked already, and its answer is in flight.
            server.limbo_from = server.limbo_from.min(now + delay);
        }
        if found_dead {
            self.condemned_at = self.condemned_at.min(server.answered_at);
        }
    }
}
