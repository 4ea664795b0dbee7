//! Replacements without metrics, which compile to nothing.

use super::{CallbackEnd, CallbackKind, OperationKind, OutcomeKind, Redirect};
use crate::admin::call::Effect;
use crate::error::Error;
use archon_member::Holdings;
use archon_types::{Answer, ErrorKind, Millis, Version};
use std::time::Duration;

/// Replaces the metrics of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientMeasures {}

impl ClientMeasures {
    pub(crate) fn operation(self, _: impl Into<OperationKind>) -> Operation {
        Operation
    }

    pub(crate) fn retried(self, _: ErrorKind) {}

    pub(crate) fn redirected(self, _: Redirect) {}

    pub(crate) fn connection(self) -> GaugeGuard {
        GaugeGuard
    }

    pub(crate) fn stream(self) -> GaugeGuard {
        GaugeGuard
    }

    pub(crate) fn stream_broke(self) {}

    pub(crate) fn opening<F: Future>(self, opens: F) -> F {
        opens
    }

    pub(crate) fn fetching<F: Future>(self, fetches: F) -> F {
        fetches
    }

    pub(crate) fn refreshed(self, _: Version) {}
}

/// Replaces a gauge guard.
pub(crate) struct GaugeGuard;

/// Replaces a timed operation.
pub(crate) struct Operation;

impl Operation {
    pub(crate) fn answered(self, _: &Result<Answer, Error>) {}

    pub(crate) fn ended(self, _: OutcomeKind) {}
}

/// Replaces the metrics of the administration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AdminMeasures {}

impl AdminMeasures {
    pub(crate) fn calling<F: Future>(self, _: Effect, call: F) -> F {
        call
    }
}

/// Replaces the metrics of a participant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ParticipantMeasures {}

impl ParticipantMeasures {
    pub(crate) fn decided(self, _: &Holdings, _: impl FnOnce() -> Millis) {}

    pub(crate) fn registered(self) {}

    pub(crate) fn heartbeat(self, _: Duration, _: bool) {}

    pub(crate) fn lapsed(self) {}

    pub(crate) fn lost(self) {}

    pub(crate) fn callback(self, _: CallbackKind) -> Callback {
        Callback
    }

    pub(crate) fn called(self, _: &Callback, _: CallbackEnd) {}
}

/// Replaces a timed callback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback;
