//! Refusals of authority: each is counted, and told to the log and to whoever keeps them, unless one caller, or all together, have so many
//! that the log and the disk would be full of them.

use crate::identity::Identity;
use crate::refusal_limit::{RefusalLimit, Who};
use parking_lot::Mutex;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// What is told of a refusal, or of so many that were not told one by one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Who was refused, if it showed a certificate of the cluster.
    pub identity: Option<Arc<Identity>>,
    /// The coordinator that made the call for it, if it was made at a console.
    pub via: Option<Arc<Identity>>,
    /// The address that it came from; of several that were left out the one that they count for, if they were of one caller.
    pub from: Option<IpAddr>,
    /// What it asked for: the path of a call, or words.
    pub call: Option<String>,
    /// In whose name it spoke, if that is why.
    pub subject: Option<String>,
    /// Why it was refused.
    pub why: String,
    /// How many like it were left out, of which this tells.
    pub left_out: u64,
}

/// Records refusals. It is called by whoever refuses, so it never waits.
pub trait RefusalRecorder: fmt::Debug + Send + Sync {
    /// Takes note of one.
    fn note(&self, refusal: Refusal);
}

/// The refusals of a member.
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
    /// Has `recorder` told as well, unless there is one already.
    pub fn recorded_by(&self, recorder: Arc<dyn RefusalRecorder>) {
        // Whoever comes second would see nothing: there is one place that says so, at the start of a member.
        let _ = self.recorder.set(recorder);
    }

    /// How many there were, also those that were not told one by one.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes note of a refusal of somebody who counts for the address `counts_for`.
    pub fn note(&self, refusal: Refusal, counts_for: IpAddr) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let who = refusal.identity.clone().map_or(Who::Address(counts_for), Who::Identity);
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

    /// Tells how many were left out, once that time is over, or `at_once`.
    pub fn settle(&self, at_once: bool) {
        let left_out = self.limit.lock().end(self.begun.elapsed(), at_once);
        self.tell_left_out(left_out);
    }

    fn tell_left_out(&self, left_out: Vec<(Who, u64)>) {
        for (who, left_out) in left_out {
            let (identity, from) = match who {
                Who::Identity(identity) => (Some(identity), None),
                Who::Address(from) => (None, Some(from)),
                Who::Others => (None, None),
            };
            let why = match left_out {
                1 => "1 more refusal, which was not told".to_owned(),
                _ => format!("{left_out} more refusals, which were not told one by one"),
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
    use crate::identity::Role;
    use crate::refusal_limit::OF_ONE_MAX;

    #[derive(Default, Debug)]
    struct Told(Mutex<Vec<Refusal>>);

    impl RefusalRecorder for Told {
        fn note(&self, refusal: Refusal) {
            self.0.lock().push(refusal);
        }
    }

    #[test]
    fn a_witness_hears_of_all_refusals_one_by_one_or_by_number() {
        let (refusals, told) = (Refusals::default(), Arc::new(Told::default()));
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
    fn a_single_refusal_that_was_left_out_was_told_as_several() {
        let (refusals, told) = (Refusals::default(), Arc::new(Told::default()));
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
        assert_eq!((last.left_out, last.why.as_str()), (1, "1 more refusal, which was not told"));
    }
}
