//! Definitions of metrics: name, meaning and labels.

/// Kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only rises, from zero at the start of the process. Its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations, counted by buckets whose bounds never change. Its name ends in `_seconds`.
    Histogram,
}

impl Kind {
    /// Returns the name in descriptions of metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Label that distinguishes the series of one metric. The values are a closed set, so that clients, keys and partitions
/// cannot create series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// Name of the label.
    pub name: &'static str,
    /// All possible values.
    pub values: &'static [&'static str],
}

/// One metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Name: begins with `archon_` and the room, ends in its unit, and in `_total` if it is a counter.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// Meaning, for people.
    pub help: &'static str,
    /// Labels that distinguish its series; most metrics have one series and no label.
    pub labels: &'static [Label],
}

impl Definition {
    /// Defines a number that only rises.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, help, labels: &[] }
    }

    /// Defines a number that goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, help, labels: &[] }
    }

    /// Defines a histogram of durations.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram, help, labels: &[] }
    }

    /// Returns the metric with one series per value of these labels.
    #[must_use]
    pub const fn by(self, labels: &'static [Label]) -> Self {
        Self { labels, ..self }
    }
}
