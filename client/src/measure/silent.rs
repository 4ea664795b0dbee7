//! Nothing is counted, and nothing is left of it.

use super::{CallbackEnd, CallbackKind, OperationKind, OutcomeKind, Redirect};
use crate::admin_call::Effect;
use crate::error::Error;
use archon_member::Holdings;
use archon_types::{Answer, ErrorKind, Millis, Version};

/// In place of what a client counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientMeasures {}

impl ClientMeasures {
    pub(crate) fn operation(self, _: impl Into<OperationKind>) -> Operation {
        Operation
    }

    pub(crate) fn retried(self, _: ErrorKind) {}

    pub(crate) fn redirected(self, _: Redirect) {}

    pub(crate) fn connection(self) -> Held {
        Held
    }

    pub(crate) fn stream(self) -> Held {
        Held
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

/// In place of what counts for as long as it is held.
pub(crate) struct Held;

/// In place of an operation that is timed.
pub(crate) struct Operation;

impl Operation {
    pub(crate) fn answered(self, _: &Result<Answer, Error>) {}

    pub(crate) fn ended(self, _: OutcomeKind) {}
}

/// In place of what administration counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AdminMeasures {}

impl AdminMeasures {
    pub(crate) fn calling<F: Future>(self, _: Effect, call: F) -> F {
        call
    }
}

/// In place of what a participant counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ParticipantMeasures {}

impl ParticipantMeasures {
    pub(crate) fn decided(self, _: &Holdings, _: impl FnOnce() -> Millis) {}

    pub(crate) fn registered(self) {}

    pub(crate) fn heartbeat<F: Future>(self, beats: F) -> F {
        beats
    }

    pub(crate) fn lapsed(self) {}

    pub(crate) fn lost(self) {}

    pub(crate) fn callback(self, _: CallbackKind) -> Callback {
        Callback
    }

    pub(crate) fn called(self, _: &Callback, _: CallbackEnd) {}
}

/// In place of a callback that is timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callback;
