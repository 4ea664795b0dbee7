//! The network: slow, lossy, and cut here and there, also in one direction only.

use crate::random::Random;
use crate::scenario::Scenario;

/// Who sends and who receives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum End {
    Host(usize),
    Coordinator(usize),
    Client(usize),
}

/// A cut: nothing goes from the one to the other side until it is over.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) from: Vec<End>,
    pub(crate) to: Vec<End>,
    pub(crate) until: u64,
}

/// The state of the network.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    cuts: Vec<Cut>,
    calm: bool,
}

impl Network {
    pub(crate) fn cut(&mut self, cut: Cut) {
        self.cuts.push(cut);
    }

    /// No more faults.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        self.calm = true;
    }

    /// How long a message takes, once per delivery: none if it is lost, two entries if it arrives twice.
    pub(crate) fn delays(&mut self, truth: u64, from: End, to: End, random: &mut Random, plan: &Scenario) -> Vec<u64> {
        self.cuts.retain(|cut| cut.until > truth);
        let delay = |random: &mut Random| match random.permille(plan.slow_permille) {
            true => random.between(5, plan.slow_ms),
            false => random.between(0, 4),
        };
        if self.calm {
            return vec![random.between(0, 4)];
        }
        let is_cut = self.cuts.iter().any(|cut| cut.from.contains(&from) && cut.to.contains(&to));
        if is_cut || random.permille(plan.loss_permille) {
            return Vec::new();
        }
        let mut delays = vec![delay(random)];
        if random.permille(plan.twice_permille) {
            delays.push(delay(random));
        }
        delays
    }
}
