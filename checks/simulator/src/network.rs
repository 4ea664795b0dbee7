//! The network: slow, lossy, and cut in places, also in one direction only.

use crate::random::Random;
use crate::scenario::Scenario;

/// Sender or receiver.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    Host(usize),
    Coordinator(usize),
    Client(usize),
}

/// A cut: nothing passes from one side to the other until its end.
#[derive(Clone, Debug)]
pub(crate) struct NetworkCut {
    pub(crate) from: Vec<End>,
    pub(crate) to: Vec<End>,
    pub(crate) since: u64,
    pub(crate) until: u64,
}

/// A slow path: everything from one side to the other takes longer until its end.
#[derive(Clone, Debug)]
pub(crate) struct Lag {
    pub(crate) from: Vec<End>,
    pub(crate) to: Vec<End>,
    pub(crate) until: u64,
    pub(crate) millis: u64,
}

/// State of the network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    cuts: Vec<NetworkCut>,
    lags: Vec<Lag>,
    calm: bool,
}

impl Network {
    pub(crate) fn cut(&mut self, cut: NetworkCut) {
        self.cuts.push(cut);
    }

    pub(crate) fn lag(&mut self, lag: Lag) {
        self.lags.push(lag);
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.lags.clear();
        self.calm = true;
    }

    /// Returns true if nothing passes from one endpoint to the other.
    pub(crate) fn is_cut(&self, truth: u64, from: End, to: End) -> bool {
        let between = |cut: &NetworkCut| cut.from.contains(&from) && cut.to.contains(&to);
        self.cuts.iter().any(|cut| cut.since <= truth && truth < cut.until && between(cut))
    }

    /// Returns the delays of a message, one per delivery: none if it is lost, two if it arrives twice.
    pub(crate) fn delays(&mut self, truth: u64, from: End, to: End, random: &mut Random, plan: &Scenario) -> Vec<u64> {
        self.cuts.retain(|cut| cut.until > truth);
        self.lags.retain(|lag| lag.until > truth);
        let delay = |random: &mut Random| match random.permille(plan.slow_permille) {
            true => random.between(5, plan.slow_ms),
            false => random.between(0, 4),
        };
        if self.calm {
            return vec![random.between(0, 4)];
        }
        let between = |one: &[End], other: &[End]| one.contains(&from) && other.contains(&to);
        if self.is_cut(truth, from, to) || random.permille(plan.loss_permille) {
            return Vec::new();
        }
        let lag: u64 = self.lags.iter().filter(|lag| between(&lag.from, &lag.to)).map(|lag| lag.millis).sum();
        let mut delays = vec![lag + delay(random)];
        if random.permille(plan.twice_permille) {
            delays.push(lag + delay(random));
        }
        delays
    }
}
