//! What a metric is called, what it means, and by what it is told apart.

/// How the values of a metric go on.
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
    /// What it is called where metrics are described.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// By what the series of one metric are told apart. The values are a closed set, so that no client, key or partition can
/// make another series.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Every value that it may have.
    pub values: &'static [&'static str],
}

/// One metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Definition {
    /// Its name: begins with `archon_` and the room, ends in its unit, and in `_total` if it is a counter.
    pub name: &'static str,
    /// How its values go on.
    pub kind: Kind,
    /// What it counts, for people.
    pub help: &'static str,
    /// By what its series are told apart; most metrics have one series and no label.
    pub labels: &'static [Label],
}

impl Definition {
    /// A number that only rises.
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, help, labels: &[] }
    }

    /// A number that goes up and down.
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, help, labels: &[] }
    }

    /// Durations by buckets.
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { name, kind: Kind::Histogram, help, labels: &[] }
    }

    /// The same, with series that these labels tell apart.
    #[must_use]
    pub const fn by(self, labels: &'static [Label]) -> Self {
        Self { labels, ..self }
    }
}
