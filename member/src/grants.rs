//! What the coordinator has granted a registration of the member: the lease, and the leaderships it does not cover
//! (PROTOCOL rules 14 and 15).

use crate::heartbeat::{Heartbeat, LeaseAnswer};
use crate::mutant::{Broken, Mutant};
use archon_types::{Epoch, Lease, Millis, PartitionId};
use std::collections::BTreeMap;

/// What the answer to a heartbeat came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It answers another heartbeat, or another life's: it counts for nothing.
    Foreign,
    /// It was overtaken by the answer to a later heartbeat, or came after the registration's end: it could only bring back a
    /// leadership that was withdrawn since.
    Overtaken,
    /// The lease is extended.
    Granted {
        /// For how long there was none, in milliseconds; zero if the last one had not run out.
        lapsed_ms: u64,
        /// Leaderships that it does not cover, to be given up.
        withdrawn: Vec<(PartitionId, Epoch)>,
    },
}

/// What one registration was granted. It begins with no lease, and ends for good.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    lease: Lease,
    /// Leaderships that the lease does not cover: those in these epochs and before.
    withdrawn: BTreeMap<PartitionId, Epoch>,
    /// Number of the newest heartbeat whose answer was taken in.
    newest: u64,
    broken: Broken,
}

impl Grants {
    /// Nothing is granted yet.
    pub fn new(broken: Broken) -> Self {
        Self { broken, ..Self::default() }
    }

    /// Takes in the answer to a heartbeat, which arrived at `now` on the local clock.
    pub fn take(&mut self, heartbeat: Heartbeat, answer: LeaseAnswer, now: Millis) -> Taken {
        if !heartbeat.is_answered_by(&answer) {
            return Taken::Foreign; // rule 14
        }
        if answer.number <= self.newest {
            return Taken::Overtaken;
        }
        let withdrawn = if self.broken.breaks(Mutant::NodeWideLease) { Vec::new() } else { answer.withdrawn };
        let from = if self.broken.breaks(Mutant::LeaseFromReceipt) { now } else { heartbeat.sent() }; // rule 14
        let lapsed_ms = self.lease.until().map_or(0, |until| now.since(until));
        self.newest = answer.number;
        self.lease.extend(from, answer.lease_ms);
        self.withdrawn.clear();
        for (partition, epoch) in &withdrawn {
            let held = self.withdrawn.entry(*partition).or_insert(*epoch);
            *held = (*held).max(*epoch);
        }
        Taken::Granted { lapsed_ms, withdrawn }
    }

    /// Ends the lease for good: the registration is over, and no answer to it counts any more.
    pub fn end(&mut self) {
        *self = Self { newest: u64::MAX, ..Self::default() };
    }

    /// Whether the lease holds at `now`, whatever it covers.
    pub fn is_valid(&self, now: Millis) -> bool {
        self.lease.is_valid(now)
    }

    /// Whether the lease covers the leadership of `partition` in `epoch` at `now`.
    pub fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool {
        self.lease.is_valid(now) && self.withdrawn.get(&partition).is_none_or(|withdrawn| *withdrawn < epoch)
    }

    /// When the lease ends, if there is one.
    pub fn until(&self) -> Option<Millis> {
        self.lease.until()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heartbeat::Heartbeats;
    use archon_types::{Incarnation, TableId};

    const LIFE: Incarnation = Incarnation::new(3);

    fn partition(index: u32) -> PartitionId {
        PartitionId::new(TableId::new(1), index)
    }

    fn answer(heartbeat: Heartbeat, withdrawn: Vec<(PartitionId, Epoch)>) -> LeaseAnswer {
        heartbeat.answer(1_000, withdrawn)
    }

    fn granted(lapsed_ms: u64, withdrawn: Vec<(PartitionId, Epoch)>) -> Taken {
        Taken::Granted { lapsed_ms, withdrawn }
    }

    #[test]
    fn the_lease_counts_from_sending_and_ends() {
        let (mut heartbeats, mut grants) = (Heartbeats::new(LIFE), Grants::default());
        assert!(!grants.is_valid(Millis::new(0)));
        let heartbeat = heartbeats.send(Millis::new(100));
        assert_eq!(grants.take(heartbeat, answer(heartbeat, vec![]), Millis::new(120)), granted(0, vec![]));
        assert!(grants.is_valid(Millis::new(1_099)));
        assert!(!grants.is_valid(Millis::new(1_100)));
        let late = heartbeats.send(Millis::new(1_200));
        assert_eq!(grants.take(late, answer(late, vec![]), Millis::new(1_300)), granted(200, vec![]));
    }

    #[test]
    fn an_answer_to_another_heartbeat_or_life_grants_nothing() {
        let (mut heartbeats, mut grants) = (Heartbeats::new(LIFE), Grants::default());
        let (first, second) = (heartbeats.send(Millis::new(100)), heartbeats.send(Millis::new(600)));
        assert_eq!(grants.take(second, answer(first, vec![]), Millis::new(700)), Taken::Foreign);
        let other = LeaseAnswer { incarnation: Incarnation::new(2), ..answer(second, vec![]) };
        assert_eq!(grants.take(second, other, Millis::new(700)), Taken::Foreign);
        assert_eq!(grants.until(), None);
    }

    fn a_lease_does_not_outlive_its_length_after_sending(mutant: Option<Mutant>) -> bool {
        let (mut heartbeats, mut grants) = (Heartbeats::new(LIFE), Grants::new(Broken::by(mutant)));
        let heartbeat = heartbeats.send(Millis::new(100));
        grants.take(heartbeat, answer(heartbeat, vec![]), Millis::new(900));
        !grants.is_valid(Millis::new(1_100))
    }

    fn what_is_withdrawn_is_not_covered(mutant: Option<Mutant>) -> bool {
        let (mut heartbeats, mut grants) = (Heartbeats::new(LIFE), Grants::new(Broken::by(mutant)));
        let heartbeat = heartbeats.send(Millis::new(100));
        grants.take(heartbeat, answer(heartbeat, vec![(partition(1), Epoch::new(4))]), Millis::new(100));
        !grants.covers(partition(1), Epoch::new(4), Millis::new(200))
    }

    archon_types::shown_by! {
        LeaseFromReceipt => a_lease_does_not_outlive_its_length_after_sending,
        NodeWideLease => what_is_withdrawn_is_not_covered,
    }

    #[test]
    fn a_withdrawn_leadership_is_not_covered_and_a_late_answer_does_not_bring_it_back() {
        let (mut heartbeats, mut grants) = (Heartbeats::new(LIFE), Grants::default());
        let (first, second) = (heartbeats.send(Millis::new(50)), heartbeats.send(Millis::new(100)));
        let withdrawn = vec![(partition(1), Epoch::new(4))];
        let taken = grants.take(second, answer(second, withdrawn.clone()), Millis::new(110));
        assert_eq!(taken, granted(0, withdrawn));
        assert_eq!(grants.take(first, answer(first, vec![]), Millis::new(120)), Taken::Overtaken);
        let now = Millis::new(200);
        assert!(!grants.covers(partition(1), Epoch::new(4), now));
        assert!(grants.covers(partition(1), Epoch::new(5), now));
        assert!(grants.covers(partition(2), Epoch::new(4), now));
    }

    #[test]
    fn after_the_end_no_answer_counts() {
        let (mut heartbeats, mut grants) = (Heartbeats::new(LIFE), Grants::default());
        let (first, second) = (heartbeats.send(Millis::new(100)), heartbeats.send(Millis::new(100)));
        assert_eq!(grants.take(first, answer(first, vec![]), Millis::new(100)), granted(0, vec![]));
        grants.end();
        assert_eq!(grants.take(second, answer(second, vec![]), Millis::new(100)), Taken::Overtaken);
        assert!(!grants.is_valid(Millis::new(101)));
    }
}
