//! Sequential model of one key.

use super::operation::{Outcome, Record, Request};
use std::sync::Arc;

/// The state of one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Register {
    /// The value and its revision; the revision is open until an answer reports it.
    present: Option<(Arc<str>, Option<u64>)>,
    /// Greatest reported revision. Revisions of a key only rise, across deletions too.
    reported: u64,
}

impl Register {
    /// Returns the state after `record`, if its answer fits this state. For an unknown outcome, returns the state after
    /// its effect; `None` if it would have none here.
    pub fn after(&self, record: &Record) -> Option<Self> {
        match (&record.request, &record.outcome) {
            (Request::Get, Outcome::Value(None)) => self.present.is_none().then(|| self.clone()),
            (Request::Get, Outcome::Value(Some((value, revision)))) => {
                let (found, _) = self.present.as_ref()?;
                (found == value).then(|| self.seen(*revision))?
            }
            (Request::Put(value), Outcome::Written(revision)) => self.written(value.clone(), *revision),
            (Request::Put(value), Outcome::Unknown) => Some(self.unreported(value.clone())),
            (Request::Delete, Outcome::Deleted { existed }) => {
                (self.present.is_some() == *existed).then(|| self.absent())
            }
            (Request::Delete, Outcome::Unknown) => self.present.is_some().then(|| self.absent()),
            (Request::Replace { expected, value }, Outcome::Written(revision)) => {
                self.is(expected.as_ref()).then(|| self.written(value.clone(), *revision))?
            }
            (Request::Replace { expected, value }, Outcome::Unknown) => {
                self.is(expected.as_ref()).then(|| self.unreported(value.clone()))
            }
            (Request::Replace { expected, .. }, Outcome::ValueDiffers) => {
                (!self.is(expected.as_ref())).then(|| self.clone())
            }
            (Request::CompareAndSet { expected, value }, Outcome::Written(revision)) => {
                self.expected(*expected)?.written(value.clone(), *revision)
            }
            (Request::CompareAndSet { expected, value }, Outcome::Unknown) => {
                Some(self.expected(*expected)?.unreported(value.clone()))
            }
            (Request::CompareAndSet { expected, .. }, Outcome::ConditionFailed { found }) => {
                if expected == found {
                    return None;
                }
                self.expected(*found)
            }
            (Request::Increment(by), Outcome::Counter { value, revision }) => {
                let sum = self.sum(*by)?;
                (sum == *value).then(|| self.written(sum.to_string().into(), *revision))?
            }
            (Request::Increment(by), Outcome::Unknown) => {
                self.sum(*by).map(|sum| self.unreported(sum.to_string().into()))
            }
            (Request::Increment(by), Outcome::NotANumber) => self.sum(*by).is_none().then(|| self.clone()),
            // An answer to another request, an unanswered read, or a pair with two values.
            _ => None,
        }
    }

    /// Returns the state in which the condition of a compare-and-set held.
    fn expected(&self, revision: u64) -> Option<Self> {
        if revision == 0 { self.present.is_none().then(|| self.clone()) } else { self.seen(Some(revision)) }
    }

    /// Returns true if the value is this one (`None`: if the key is absent).
    fn is(&self, value: Option<&Arc<str>>) -> bool {
        self.present.as_ref().map(|(present, _)| present) == value
    }

    /// Records the revision that an answer reported for the present value, if it did.
    fn seen(&self, revision: Option<u64>) -> Option<Self> {
        let (value, known) = self.present.as_ref()?;
        match (known, revision) {
            (_, None) => Some(self.clone()),
            (Some(known), Some(revision)) => (*known == revision).then(|| self.clone()),
            (None, Some(_)) => self.written(value.clone(), revision),
        }
    }

    fn written(&self, value: Arc<str>, revision: Option<u64>) -> Option<Self> {
        let Some(reported) = revision else { return Some(self.unreported(value)) };
        (reported > self.reported).then_some(Self { present: Some((value, revision)), reported })
    }

    fn unreported(&self, value: Arc<str>) -> Self {
        Self { present: Some((value, None)), reported: self.reported }
    }

    const fn absent(&self) -> Self {
        Self { present: None, reported: self.reported }
    }

    fn sum(&self, by: i64) -> Option<i64> {
        let held = match &self.present {
            None => 0,
            Some((value, _)) => value.parse::<i64>().ok()?,
        };
        held.checked_add(by)
    }
}
