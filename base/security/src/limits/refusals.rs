//! Refusals of requests: counted, logged and recorded, with a rate limit so that they cannot fill the log and the
//! disk.

use crate::callers::identity::Identity;
use crate::limits::refusal_limit::{RefusalCaller, RefusalLimit};
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A refusal, or a summary of several that were not reported individually.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Identity of the caller, if it has a certificate of the cluster.
    pub identity: Option<Arc<Identity>>,
    /// Coordinator that made the call on behalf of the caller, for calls at a console.
    pub via: Option<Arc<Identity>>,
    /// Address of the caller. In a summary about one caller without identity: the address that it counts for.
    pub from: Option<IpAddr>,
    /// Requested operation: path of a gRPC call, or a description.
    pub call: Option<String>,
    /// Claimed identity, if that is the reason.
    pub subject: Option<String>,
    /// Reason of the refusal.
    pub why: String,
    /// Number of refusals that this summary represents.
    pub left_out: u64,
}

/// Records refusals. It is called while a request is refused, so it must not block.
pub trait RefusalRecorder: fmt::Debug + Send + Sync {
    /// Records one refusal.
    fn note(&self, refusal: Refusal);
}

/// The refusals of a process.
#[derive(Debug)]
pub struct Refusals {
    limit: Mutex<RefusalLimit>,
    begun: Instant,
    count: AtomicU64,
    recorder: OnceLock<Arc<dyn RefusalRecorder>>,
}

impl Default for Refusals {
    fn default() -> Self {
        let limit = Mutex::default();
        Self { limit, begun: Instant::now(), count: AtomicU64::new(0), recorder: OnceLock::new() }
    }
}

impl Refusals {
    /// Sets the recorder unless one is already set.
    pub fn recorded_by(&self, recorder: Arc<dyn RefusalRecorder>) {
        // A second recorder would receive nothing; only the start of a process sets one.
        let _ = self.recorder.set(recorder);
    }

    /// Returns the number of refusals, including those that were not reported individually.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts and reports a refusal of a caller that counts for the address `counts_for`.
    pub fn note(&self, refusal: Refusal, counts_for: IpAddr) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let who = refusal.identity.clone().map_or(RefusalCaller::Address(counts_for), RefusalCaller::Identity);
        let now = self.begun.elapsed();
        let (left_out, told) = {
            let mut limit = self.limit.lock();
            (limit.end(now, false), limit.note(who, now))
        };
        self.tell_left_out(left_out);
        if told {
            self.tell(refusal);
        }
    }

    /// Reports the number of omitted refusals once the interval is complete, or `at_once`.
    pub fn settle(&self, at_once: bool) {
        let left_out = self.limit.lock().end(self.begun.elapsed(), at_once);
        self.tell_left_out(left_out);
    }

    fn tell_left_out(&self, left_out: Vec<(RefusalCaller, u64)>) {
        for (who, left_out) in left_out {
            let (identity, from) = match who {
                RefusalCaller::Identity(identity) => (Some(identity), None),
                RefusalCaller::Address(from) => (None, Some(from)),
                RefusalCaller::Others => (None, None),
            };
            let why = match left_out {
                1 => "1 more refusal, which was not logged".to_owned(),
                _ => format!("{left_out} more refusals, which were not logged one by one"),
            };
            self.tell(Refusal { identity, via: None, from, call: None, subject: None, why, left_out });
        }
    }

    fn tell(&self, refusal: Refusal) {
        let Refusal { identity, via, from, call, why, .. } = &refusal;
        let (who, from) = (identity.as_ref().map(tracing::field::display), from.map(tracing::field::display));
        let via = via.as_ref().map(tracing::field::display);
        tracing::warn!(target: "audit", who, via, from, call, "refused: {why}");
        if let Some(recorder) = self.recorder.get() {
            recorder.note(refusal);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::callers::identity::Role;
    use crate::limits::refusal_limit::OF_ONE_MAX;

    #[derive(Default, Debug)]
    struct RecordedRefusals(Mutex<Vec<Refusal>>);

    impl RefusalRecorder for RecordedRefusals {
        fn note(&self, refusal: Refusal) {
            self.0.lock().push(refusal);
        }
    }

    #[test]
    fn recorder_receives_refusals_singly_or_as_summary() {
        let (refusals, told) = (Refusals::default(), Arc::new(RecordedRefusals::default()));
        refusals.recorded_by(Arc::clone(&told) as Arc<dyn RefusalRecorder>);
        let mallory = Arc::new(Identity::new(Role::Client, "mallory").unwrap());
        let from: IpAddr = [10, 0, 0, 7].into();
        let refusal = Refusal {
            identity: Some(Arc::clone(&mallory)),
            via: None,
            from: Some(from),
            call: Some("/archon.v1.Admin/SetNode".into()),
            subject: None,
            why: "no".into(),
            left_out: 0,
        };
        for _ in 0..100 {
            refusals.note(refusal.clone(), from);
        }
        refusals.settle(false);
        assert_eq!(told.0.lock().len(), OF_ONE_MAX as usize, "the minute is not over");
        refusals.settle(true);
        let told = told.0.lock();
        assert_eq!(told[0], refusal);
        let last = told.last().unwrap();
        assert_eq!((last.left_out, &last.identity), (100 - u64::from(OF_ONE_MAX), &Some(mallory)));
        assert_eq!(refusals.count(), 100);
    }

    #[test]
    fn summary_of_one_refusal_uses_the_singular() {
        let (refusals, told) = (Refusals::default(), Arc::new(RecordedRefusals::default()));
        refusals.recorded_by(Arc::clone(&told) as Arc<dyn RefusalRecorder>);
        let from: IpAddr = [10, 0, 0, 7].into();
        let why = "no".into();
        let refusal =
            Refusal { identity: None, via: None, from: Some(from), call: None, subject: None, why, left_out: 0 };
        for _ in 0..=OF_ONE_MAX {
            refusals.note(refusal.clone(), from);
        }
        refusals.settle(true);
        let told = told.0.lock();
        let last = told.last().unwrap();
        assert_eq!((last.left_out, last.why.as_str()), (1, "1 more refusal, which was not logged"));
    }
}
