//! Values of a metric at one moment.

use crate::histogram::{Distribution, Histogram};
use crate::metric::{Metric, TimeCounter};
use crate::per_thread::PerThread;
use archon_types::{Definition, Kind};
use std::time::Duration;

/// A value of a series.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value {
    /// A count.
    Whole(u64),
    /// A measurement.
    Real(f64),
    /// Durations in buckets.
    Distribution(Distribution),
}

/// One series of a metric.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Label values, in the order of the definition's labels.
    pub labels: Vec<&'static str>,
    /// Its value.
    pub value: Value,
}

/// A metric with all its series.
#[derive(Clone, PartialEq, Debug)]
pub struct Family {
    /// Its definition.
    pub definition: &'static Definition,
    /// Its series; empty if there is no value now.
    pub series: Vec<Series>,
}

impl Family {
    /// Reads the current values of a metric.
    pub fn read(definition: &'static Definition, reading: &impl Reading) -> Self {
        Self { definition, series: reading.series() }
    }
}

/// A source of a metric's values.
pub trait Reading {
    /// Returns the current series, with label values in the order of the definition's labels.
    fn series(&self) -> Vec<Series>;
}

fn one(value: Value) -> Vec<Series> {
    vec![Series { labels: Vec::new(), value }]
}

impl Reading for u64 {
    fn series(&self) -> Vec<Series> {
        one(Value::Whole(*self))
    }
}

impl Reading for bool {
    fn series(&self) -> Vec<Series> {
        u64::from(*self).series()
    }
}

/// In seconds.
impl Reading for Duration {
    fn series(&self) -> Vec<Series> {
        one(Value::Real(self.as_secs_f64()))
    }
}

impl Reading for Distribution {
    fn series(&self) -> Vec<Series> {
        one(Value::Distribution(*self))
    }
}

/// An unknown value has no series.
impl<R: Reading> Reading for Option<R> {
    fn series(&self) -> Vec<Series> {
        self.as_ref().map(Reading::series).unwrap_or_default()
    }
}

impl Reading for Metric {
    fn series(&self) -> Vec<Series> {
        self.get().series()
    }
}

impl Reading for TimeCounter {
    fn series(&self) -> Vec<Series> {
        self.get().series()
    }
}

impl Reading for Histogram {
    fn series(&self) -> Vec<Series> {
        self.read().series()
    }
}

impl Reading for PerThread<Histogram> {
    fn series(&self) -> Vec<Series> {
        self.sum::<Distribution>(Histogram::read).series()
    }
}

/// Values by one or more labels.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LabelledValues<R>(Vec<(Vec<&'static str>, R)>);

impl<R> LabelledValues<R> {
    /// Creates a single value with these label values.
    pub fn one(labels: impl Into<Vec<&'static str>>, value: R) -> Self {
        Self(vec![(labels.into(), value)])
    }
}

/// By the values of a single label.
impl<R> FromIterator<(&'static str, R)> for LabelledValues<R> {
    fn from_iter<I: IntoIterator<Item = (&'static str, R)>>(values: I) -> Self {
        Self(values.into_iter().map(|(label, value)| (vec![label], value)).collect())
    }
}

impl<R: Reading> Reading for LabelledValues<R> {
    fn series(&self) -> Vec<Series> {
        let labelled = |(labels, value): &(Vec<&'static str>, R)| {
            value.series().into_iter().map(|series| Series { labels: labels.clone(), ..series }).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(labelled).collect()
    }
}

/// One number of a series, with its full name.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// The metric's name, with its labels as `name{label="value"}`.
    pub name: String,
    /// Set for numbers that only increase.
    pub counter: bool,
    /// Help text.
    pub help: &'static str,
    /// The value.
    pub value: f64,
}

/// Flattens families into numbers with full names. Durations become a count (`_count`), a total (`_sum`), and the
/// number within each bound (`_bucket`).
pub fn flat(families: &[Family]) -> Vec<Sample> {
    let mut all = Vec::new();
    for Family { definition, series } in families {
        for Series { labels, value } in series {
            let pairs: Vec<String> = definition
                .labels
                .iter()
                .zip(labels)
                .map(|(label, value)| format!("{}=\"{value}\"", label.name))
                .collect();
            let mut push_with = |suffix: &str, more: &[String], value: f64| {
                let pairs = [&pairs, more].concat().join(",");
                let labels = if pairs.is_empty() { String::new() } else { format!("{{{pairs}}}") };
                let name = format!("{}{suffix}{labels}", definition.name);
                all.push(Sample { name, counter: definition.kind != Kind::Gauge, help: definition.help, value });
            };
            let mut push = |suffix: &str, value: f64| push_with(suffix, &[], value);
            match value {
                Value::Whole(value) => push("", *value as f64),
                Value::Real(value) => push("", *value),
                Value::Distribution(distribution) => {
                    push("_count", distribution.count() as f64);
                    push("_sum", distribution.sum().as_secs_f64());
                    let mut upto = 0;
                    for (bound, count) in distribution.buckets() {
                        upto += count;
                        push_with("_bucket", &[format!("le=\"{bound}\"")], upto as f64);
                    }
                }
            }
        }
    }
    all
}
