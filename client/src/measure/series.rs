//! Series of one metric: handles are created on first use and then cost a relaxed load.

use crate::metrics::{Definition, Kind};
use ::metrics::{Counter, Gauge, Histogram, Label, Unit};
use std::fmt;
use std::sync::OnceLock;

/// Handle of one series.
pub(super) trait Handle: Clone {
    /// Creates the handle.
    fn of(name: &'static str, labels: Vec<Label>) -> Self;
}

impl Handle for Counter {
    fn of(name: &'static str, labels: Vec<Label>) -> Self {
        ::metrics::counter!(name, labels)
    }
}

impl Handle for Gauge {
    fn of(name: &'static str, labels: Vec<Label>) -> Self {
        ::metrics::gauge!(name, labels)
    }
}

impl Handle for Histogram {
    fn of(name: &'static str, labels: Vec<Label>) -> Self {
        ::metrics::histogram!(name, labels)
    }
}

/// All series of one metric.
pub(super) struct Series<H> {
    definition: &'static Definition,
    handles: Box<[OnceLock<H>]>,
}

impl<H: Handle> Series<H> {
    /// Creates the set without series, except for metrics without labels, which are published before their first
    /// change.
    pub(super) fn of(definition: &'static Definition) -> Self {
        let count = definition.labels.iter().map(|label| label.values.len()).product();
        let series = Self { definition, handles: (0..count).map(|_| OnceLock::new()).collect() };
        if definition.labels.is_empty() {
            series.with(&[], |_| {});
        }
        series
    }

    /// Changes the series with these label values, given by their indexes in the definition.
    pub(super) fn with(&self, values: &[usize], change: impl FnOnce(&H)) {
        let labels = self.definition.labels;
        debug_assert_eq!(values.len(), labels.len(), "{}", self.definition.name);
        let place = labels.iter().zip(values).fold(0, |place, (label, value)| place * label.values.len() + value);
        let Some(handle) = self.handles.get(place) else { return };
        change(handle.get_or_init(|| {
            let pairs = labels.iter().zip(values);
            let pairs = pairs.filter_map(|(label, value)| Some(Label::new(label.name, *label.values.get(*value)?)));
            H::of(self.definition.name, pairs.collect())
        }));
    }

    /// Returns the only series of a metric without labels.
    pub(super) fn only(&self) -> H {
        H::of(self.definition.name, Vec::new())
    }
}

impl<H> fmt::Debug for Series<H> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.definition.name)
    }
}

/// Describes the metrics to the recorder.
pub(super) fn describe(definitions: &'static [Definition]) {
    for Definition { name, kind, help, .. } in definitions {
        let unit = if name.trim_end_matches("_total").ends_with("_seconds") { Unit::Seconds } else { Unit::Count };
        match kind {
            Kind::Counter => ::metrics::describe_counter!(*name, unit, *help),
            Kind::Gauge => ::metrics::describe_gauge!(*name, unit, *help),
            Kind::Histogram => ::metrics::describe_histogram!(*name, unit, *help),
        }
    }
}

/// Counts as one in a gauge until dropped.
pub(crate) struct GaugeGuard(Gauge);

impl GaugeGuard {
    pub(super) fn of(gauge: &Gauge) -> Self {
        gauge.increment(1.0);
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
