//! Metrics of a participant.

use super::series::{Series, describe};
use super::{CallbackEnd, CallbackKind};
use crate::metrics::{
    CALLBACK_SECONDS, HEARTBEAT_SECONDS, LEASES_LAPSED, LOSSES, PARTICIPANT_DEFINITIONS, PARTITIONS, REGISTRATIONS,
};
use ::metrics::{Counter, Gauge, Histogram};
use archon_member::Holdings;
use archon_types::Millis;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Metrics of a participant.
#[derive(Debug)]
pub(crate) struct ParticipantMeasures {
    partitions: Series<Gauge>,
    registrations: Series<Counter>,
    heartbeat_seconds: Series<Histogram>,
    leases_lapsed: Series<Counter>,
    callback_seconds: Series<Histogram>,
    losses: Series<Counter>,
    /// This participant's share of the gauge, which all participants of a process have in common.
    owned: AtomicUsize,
}

impl Default for ParticipantMeasures {
    fn default() -> Self {
        describe(PARTICIPANT_DEFINITIONS);
        Self {
            partitions: Series::of(&PARTITIONS),
            registrations: Series::of(&REGISTRATIONS),
            heartbeat_seconds: Series::of(&HEARTBEAT_SECONDS),
            leases_lapsed: Series::of(&LEASES_LAPSED),
            callback_seconds: Series::of(&CALLBACK_SECONDS),
            losses: Series::of(&LOSSES),
            owned: AtomicUsize::new(0),
        }
    }
}

impl ParticipantMeasures {
    /// Updates the gauge after a decision. The caller holds the lock of the decisions.
    pub(crate) fn decided(&self, holdings: &Holdings, now: impl FnOnce() -> Millis) {
        let owned = holdings.owned(now()).count();
        let before = self.owned.swap(owned, Ordering::Relaxed);
        if owned != before {
            self.partitions.with(&[], |gauge| gauge.increment(owned as f64 - before as f64));
        }
    }

    /// Counts a registration.
    pub(crate) fn registered(&self) {
        self.registrations.with(&[], |counter| counter.increment(1));
    }

    /// Records the duration of a round of heartbeats, which was answered or not.
    pub(crate) fn heartbeat(&self, took: Duration, is_answered: bool) {
        self.heartbeat_seconds.with(&[usize::from(!is_answered)], |histogram| histogram.record(took));
    }

    /// Counts an expired lease.
    pub(crate) fn lapsed(&self) {
        self.leases_lapsed.with(&[], |counter| counter.increment(1));
    }

    /// Counts a lost partition.
    pub(crate) fn lost(&self) {
        self.losses.with(&[], |counter| counter.increment(1));
    }

    /// Starts a callback.
    pub(crate) fn callback(&self, kind: CallbackKind) -> Callback {
        Callback { kind, began: Instant::now() }
    }

    /// Records the end of a callback.
    pub(crate) fn called(&self, callback: &Callback, end: CallbackEnd) {
        let took = callback.began.elapsed();
        self.callback_seconds.with(&[callback.kind as usize, end as usize], |histogram| histogram.record(took));
    }
}

/// A running callback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback {
    kind: CallbackKind,
    began: Instant,
}

impl Drop for ParticipantMeasures {
    fn drop(&mut self) {
        // A participant that is dropped without a stop still owned partitions.
        let owned = self.owned.load(Ordering::Relaxed);
        self.partitions.with(&[], |gauge| gauge.decrement(owned as f64));
    }
}
