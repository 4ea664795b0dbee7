//! Remaining time of orders with an automatic end, counted on the monotonic clock of the leading coordinator.

use crate::command::Command;
use crate::state::ClusterState;
use crate::state::controls::{Maintenance, Order};
use crate::state::protocols::MAINTENANCE_RECORDED_SINCE;
use archon_types::{Millis, NodeId};
use std::collections::BTreeMap;

/// Time between two records of the remaining time. A change of the leader prolongs an order by at most this.
const RECORD_EVERY_MS: u64 = 60_000;

/// Orders with an automatic end. The wall clock may be hours ahead of that of the coordinator that took the order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Countdowns(BTreeMap<NodeId, Countdown>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Countdown {
    /// The order: another one for the same member starts another count.
    order: (Millis, Millis),
    left_ms: u64,
    /// Time at which `left_ms` remained.
    since: Millis,
    /// Time of the last record.
    recorded: Millis,
}

impl Countdown {
    const fn left_ms(&self, now: Millis) -> u64 {
        self.left_ms.saturating_sub(now.since(self.since))
    }
}

impl Countdowns {
    /// Starts to count new orders, and forgets those that are gone.
    pub(crate) fn sync(&mut self, state: &ClusterState, now: Millis) {
        let order = |maintenance: &Maintenance| (maintenance.until, maintenance.note.at);
        self.0.retain(|member, counted| {
            state.controls.maintenance_of(*member).is_some_and(|maintenance| order(maintenance) == counted.order)
        });
        for (member, maintenance) in state.controls.maintenance() {
            let (order, left_ms) = (order(maintenance), maintenance.left_ms());
            self.0.entry(member).or_insert(Countdown { order, left_ms, since: now, recorded: now });
        }
    }

    /// Returns the remaining time of the maintenance of each member.
    pub(crate) fn left(&self, now: Millis) -> impl Iterator<Item = (NodeId, u64)> {
        self.0.iter().map(move |(member, counted)| (*member, counted.left_ms(now)))
    }

    /// Returns commands that end expired orders and record the remaining time of others, and the time at which the next
    /// ones are due.
    pub(crate) fn due(&mut self, state: &ClusterState, now: Millis) -> (Vec<Command>, Option<Millis>) {
        let (mut commands, mut due) = (Vec::new(), None::<Millis>);
        let over = self.0.iter().find(|(_, counted)| counted.left_ms(now) == 0);
        if let Some((member, _)) = over {
            let order = Order::Resume { member: *member };
            commands.push(Command::Control { if_controls: state.controls_version, order, why: String::new() });
        }
        let records = state.protocol >= MAINTENANCE_RECORDED_SINCE;
        for (member, counted) in self.0.iter_mut().filter(|(_, counted)| counted.left_ms(now) > 0) {
            let left_ms = counted.left_ms(now);
            if records && now.since(counted.recorded) >= RECORD_EVERY_MS {
                counted.recorded = now;
                commands.push(Command::RecordMaintenance { member: *member, until: counted.order.0, left_ms });
            }
            let next = now.plus(left_ms.min(RECORD_EVERY_MS));
            due = Some(due.map_or(next, |due| due.min(next)));
        }
        (commands, due)
    }
}
