//! Greedy clients, as any client that can connect may be one: shows their cost for others.
//!
//! They follow the protocol, but request far more than they could use, read no answers, or never finish a message. They
//! repeat every refused request.

mod attack_counts;
mod kind;
mod raw;
mod redis;
mod tactics;
mod target;

pub use attack_counts::AttackCounts;
pub use kind::Attack;
pub use target::Target;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A running attack, which ends when this is dropped.
#[derive(Debug)]
pub struct Attackers {
    deeds: Arc<AttackCounts>,
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Attackers {
    /// Starts the attack; must be called on a runtime.
    pub fn begin(attack: Attack, target: &Target) -> Self {
        let (deeds, tasks, end) = (Arc::<AttackCounts>::default(), TaskTracker::new(), CancellationToken::new());
        for number in 0..tactics::attackers(attack) {
            let (target, deeds, end) = (target.clone(), Arc::clone(&deeds), end.clone());
            tasks.spawn(async move { end.run_until_cancelled(tactics::attack(attack, number, &target, &deeds)).await });
        }
        Self { deeds, tasks, end }
    }

    /// Returns the connections made, operations sent, and refusals so far.
    pub fn deeds(&self) -> (u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.deeds.connections), of(&self.deeds.sent), of(&self.deeds.refused))
    }

    /// Ends it, and returns once every connection is closed.
    pub async fn end(self) {
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_names_round_trip_and_unknown_ones_list_all() {
        for attack in Attack::ALL {
            assert_eq!(attack.name().parse(), Ok(attack));
        }
        assert!("floods".parse::<Attack>().unwrap_err().contains("slow-readers"));
    }
}
