//! Call quotas: calls of one kind in progress at one process, in total and per caller.
//!
//! A call is in progress until its response is read: long polls, streams and plain calls count alike.

use crate::{Caller, Identity};
use archon_types::{ErrorDetail, ErrorKind};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Calls in progress of all callers of a process. Each of 20,000 participants has one poll at the leading coordinator.
const CALLS_MAX: usize = 32_768;
/// Calls in progress of one caller: a fleet of clients shares one certificate.
const CALLER_CALLS_MAX: usize = 4_096;
/// Watches of health, of all callers and of one: each looks ten times a second.
const WATCHES_MAX: usize = 1_024;
const CALLER_WATCHES_MAX: usize = 64;
/// `1 / RESERVED_PART` of all calls is reserved for callers that have few.
const RESERVED_PART: usize = 4;
/// A caller has few calls up to this number, and up to `1 / FEW_PART` of the reserve: so at least this many callers share
/// the reserve.
const FEW_CALLS: usize = 16;
const FEW_PART: usize = 4;
/// Delay before a refused caller retries, in milliseconds.
const RETRY_AFTER_MS: u64 = 1_000;

/// A quota of calls in progress. Clones share it.
#[derive(Clone, Debug)]
pub struct CallQuota(Arc<Quota>);

#[derive(Debug)]
struct Quota {
    /// Name of the calls, for refusals.
    calls: &'static str,
    calls_max: usize,
    caller_max: usize,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    used: usize,
    callers: HashMap<CallerKey, usize>,
}

/// The identity of a caller, or its address where it shows none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum CallerKey {
    Identity(Arc<Identity>),
    Address(IpAddr),
}

impl CallQuota {
    /// Creates a quota of `calls_max` calls, `caller_max` of them for one caller. `calls` names them in refusals, such as
    /// `open watches`.
    pub fn new(calls: &'static str, calls_max: usize, caller_max: usize) -> Self {
        Self(Arc::new(Quota { calls, calls_max, caller_max, counts: Mutex::default() }))
    }

    /// Creates the quota of all calls of a process.
    pub fn calls() -> Self {
        Self::new("calls in progress", CALLS_MAX, CALLER_CALLS_MAX)
    }

    /// Creates the quota of the health watches of a process.
    pub fn watches() -> Self {
        Self::new("open watches of health", WATCHES_MAX, CALLER_WATCHES_MAX)
    }

    /// Returns the calls in progress.
    pub fn used(&self) -> usize {
        self.0.counts.lock().used
    }

    /// Counts a call of `caller` until the permit is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Overloaded`] if the caller, or all callers, have too many.
    pub fn enter(&self, caller: &Caller) -> Result<CallPermit, ErrorDetail> {
        let key = match &caller.identity {
            Some(identity) => CallerKey::Identity(Arc::clone(identity)),
            None => CallerKey::Address(caller.from),
        };
        let Quota { calls, calls_max, caller_max, counts } = &*self.0;
        let mut counts = counts.lock();
        let held = counts.callers.get(&key).copied().unwrap_or(0);
        // If one caller can have all of them, none are reserved for others.
        let reserved = if caller_max >= calls_max { 0 } else { calls_max / RESERVED_PART };
        let has_few = held < few_calls(reserved);
        let left = if has_few { 0 } else { reserved };
        let refused = |who: String, count: usize, max: usize| {
            let why = format!("{who} has {count} {calls}, and the limit is {max}; wait until some have ended");
            Err(ErrorDetail::new(ErrorKind::Overloaded, why).with_retry_after_ms(RETRY_AFTER_MS))
        };
        if held >= *caller_max {
            return refused(key.to_string(), held, *caller_max);
        }
        if counts.used + left >= *calls_max {
            return refused("this process".to_owned(), counts.used, calls_max - left);
        }
        counts.used += 1;
        *counts.callers.entry(key.clone()).or_default() += 1;
        Ok(CallPermit { quota: self.clone(), key })
    }
}

/// Returns the number up to which a caller has few calls, for a reserve of this many. Each caller can have one.
fn few_calls(reserved: usize) -> usize {
    FEW_CALLS.min(reserved / FEW_PART).max(1)
}

impl std::fmt::Display for CallerKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Identity(identity) => identity.fmt(formatter),
            Self::Address(address) => write!(formatter, "the address {address}"),
        }
    }
}

/// A call in progress.
#[derive(Debug)]
#[must_use = "dropping the permit ends the call at once"]
pub struct CallPermit {
    quota: CallQuota,
    key: CallerKey,
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut counts = self.quota.0.counts.lock();
        counts.used -= 1;
        if let Some(held) = counts.callers.get_mut(&self.key) {
            *held -= 1;
            if *held == 0 {
                counts.callers.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(last: u8) -> Caller {
        let address = IpAddr::from([10, 0, 0, last]);
        Caller::new(address, address, None, Arc::default())
    }

    #[test]
    fn caller_is_limited_to_its_part() {
        let quota = CallQuota::new("calls in progress", 128, 32);
        let mut held: Vec<CallPermit> = (0..32).map(|_| quota.enter(&caller(1)).unwrap()).collect();
        let refusal = quota.enter(&caller(1)).unwrap_err();
        assert_eq!(refusal.kind, ErrorKind::Overloaded);
        assert!(refusal.message.contains("10.0.0.1 has 32 calls in progress"), "{refusal}");
        held.push(quota.enter(&caller(2)).unwrap());
        drop(held.remove(0));
        held.push(quota.enter(&caller(1)).unwrap());
        drop(held);
        assert_eq!((quota.used(), quota.0.counts.lock().callers.len()), (0, 0));
    }

    #[test]
    fn callers_with_few_calls_have_reserved_ones() {
        let quota = CallQuota::new("calls in progress", 128, 32);
        let callers = (1..=4).flat_map(|from| [from; 32]);
        let held: Vec<CallPermit> = callers.map_while(|from| quota.enter(&caller(from)).ok()).collect();
        assert_eq!(held.len(), 96 + few_calls(32), "three callers have their part, the fourth has few");
        let newcomer = quota.enter(&caller(9)).unwrap();
        assert!(quota.enter(&caller(4)).unwrap_err().message.contains("this process has"), "the rest is reserved");
        drop((held, newcomer));
        assert_eq!(quota.used(), 0);
    }

    #[test]
    fn small_quotas_leave_calls_for_further_callers() {
        for (calls_max, caller_max) in [(16, 8), (32, 16), (64, 32)] {
            let quota = CallQuota::new("open watches", calls_max, caller_max);
            // Each of the first three takes all that it gets.
            let greedy = (1..=3).flat_map(|from| std::iter::repeat_n(from, calls_max));
            let greedy: Vec<CallPermit> = greedy.filter_map(|from| quota.enter(&caller(from)).ok()).collect();
            let further: Vec<_> = (4..=5).map(|from| quota.enter(&caller(from))).collect();
            assert!(further.iter().all(Result::is_ok), "{} of {calls_max} are taken: {further:?}", greedy.len());
        }
    }

    #[test]
    fn quota_without_a_limit_per_caller_reserves_nothing() {
        let quota = CallQuota::new("open watches", 32, 32);
        let held: Vec<CallPermit> = (0..32).map(|_| quota.enter(&caller(1)).unwrap()).collect();
        let refusal = quota.enter(&caller(2)).unwrap_err();
        assert!(refusal.message.contains("this process has 32 open watches, and the limit is 32"), "{refusal}");
        drop(held);
    }
}
