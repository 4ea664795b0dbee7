//! Timing of an operation with a waiting client.

use archon_host::WaitsFor;
use archon_types::{Op, OpKind, PartitionId};
use std::time::{Duration, Instant};

/// Most causes of waiting noted per operation.
const WAITS_MAX: usize = 4;

/// An operation with a waiting client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedRequest {
    /// Its kind.
    pub(crate) op: OpKind,
    /// Its partition.
    pub(crate) partition: PartitionId,
    /// Its arrival.
    pub(crate) at: Instant,
    /// Beginning of the first and the last turn in which a shard took it up.
    taken: Option<(Instant, Instant)>,
    /// Causes of its waits, in order of time, each noted once.
    waited_for: [Option<WaitsFor>; WAITS_MAX],
    /// True while it waits and has not been taken up again.
    is_waiting: bool,
}

/// Duration of an operation by stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stages {
    /// Until a shard took it up.
    pub(crate) queued: Duration,
    /// Until its last evaluation, or until it was abandoned: see [`TimedRequest::waited_for`].
    pub(crate) waited: Duration,
    /// Until the log batch of its turn was durable here; none if it is not, or if too many batches followed.
    pub(crate) logged: Option<Duration>,
    /// Until its answer was sent.
    pub(crate) rest: Duration,
}

impl TimedRequest {
    /// Starts with an operation that arrived at this moment.
    pub(crate) const fn new(op: &Op, partition: PartitionId, at: Instant) -> Self {
        Self { op: OpKind::of(op), partition, at, taken: None, waited_for: [None; WAITS_MAX], is_waiting: false }
    }

    /// Notes that a shard takes it up in the turn that began at `turn`.
    pub(crate) fn take_up(&mut self, turn: Instant) {
        let first = self.taken.map_or(turn, |(first, _)| first);
        self.taken = Some((first, turn));
        self.is_waiting = false;
    }

    /// Notes that it cannot be evaluated yet.
    pub(crate) fn waits(&mut self, waits_for: WaitsFor) {
        self.is_waiting = true;
        let free = self.waited_for.iter_mut().find(|noted| noted.is_none_or(|noted| noted == waits_for));
        if let Some(free) = free {
            *free = Some(waits_for);
        }
    }

    /// Returns the causes of its waits.
    pub(crate) fn waited_for(&self) -> impl Iterator<Item = WaitsFor> + '_ {
        self.waited_for.iter().flatten().copied()
    }

    /// Returns its stages up to `answered`. `logged_at` returns when the log batch of the turn that began at a moment
    /// was durable.
    pub(crate) fn stages(&self, answered: Instant, logged_at: impl FnOnce(Instant) -> Option<Instant>) -> Stages {
        let (first, last) = self.taken.unwrap_or((answered, answered));
        // An operation abandoned while it waits was not taken up again.
        let last = if self.is_waiting { answered } else { last };
        let logged_at = if self.op.is_read() { None } else { logged_at(last) };
        let logged_at = logged_at.map(|at| at.min(answered));
        Stages {
            // It may have arrived during the turn that took it up.
            queued: first.saturating_duration_since(self.at),
            waited: last.saturating_duration_since(first),
            logged: logged_at.map(|at| at.saturating_duration_since(last)),
            rest: answered.saturating_duration_since(logged_at.unwrap_or(last).max(self.at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::TableId;
    use bytes::Bytes;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn asked(op: &Op, at: Instant) -> TimedRequest {
        TimedRequest::new(op, PartitionId::new(TableId::new(1), 3), at)
    }

    fn put() -> Op {
        Op::Put { key: Bytes::from_static(b"k"), value: Bytes::from_static(b"v") }
    }

    #[test]
    fn stages_add_up_to_total_duration() {
        let arrived = Instant::now();
        let mut write = asked(&put(), arrived);
        write.take_up(arrived + ms(5));
        write.waits(WaitsFor::Leadership);
        write.take_up(arrived + ms(15));
        write.waits(WaitsFor::Clients);
        write.waits(WaitsFor::Clients);
        write.take_up(arrived + ms(25));
        assert_eq!(write.waited_for().collect::<Vec<_>>(), [WaitsFor::Leadership, WaitsFor::Clients]);
        let logged_at = |turn: Instant| (turn == arrived + ms(25)).then_some(arrived + ms(125));
        let stages = write.stages(arrived + ms(200), logged_at);
        assert_eq!(stages, Stages { queued: ms(5), waited: ms(20), logged: Some(ms(100)), rest: ms(75) });
        assert_eq!(stages.queued + stages.waited + ms(100) + stages.rest, ms(200));
    }

    #[test]
    fn read_has_no_logged_stage() {
        let arrived = Instant::now();
        let mut read = asked(&Op::Get { key: Bytes::from_static(b"k") }, arrived);
        read.take_up(arrived + ms(1));
        let stages = read.stages(arrived + ms(9), |turn| Some(turn + ms(2)));
        assert_eq!(stages, Stages { queued: ms(1), waited: ms(0), logged: None, rest: ms(8) });
    }

    #[test]
    fn abandoned_read_counts_as_waiting() {
        let arrived = Instant::now();
        let mut read = asked(&Op::Get { key: Bytes::from_static(b"k") }, arrived);
        read.take_up(arrived + ms(1));
        read.waits(WaitsFor::Confirmation);
        let stages = read.stages(arrived + ms(9), |_| None);
        assert_eq!(stages, Stages { queued: ms(1), waited: ms(8), logged: None, rest: ms(0) });
    }

    #[test]
    fn operation_never_taken_up_counts_as_queued() {
        let arrived = Instant::now();
        let stages = asked(&put(), arrived).stages(arrived + ms(9), |_| None);
        assert_eq!(stages, Stages { queued: ms(9), waited: ms(0), logged: None, rest: ms(0) });
    }

    #[test]
    fn arrival_within_turn_does_not_inflate_stages() {
        let turn = Instant::now();
        let mut write = asked(&put(), turn + ms(4));
        write.take_up(turn);
        let stages = write.stages(turn + ms(10), |_| None);
        assert_eq!(stages, Stages { queued: ms(0), waited: ms(0), logged: None, rest: ms(6) });
    }
}
