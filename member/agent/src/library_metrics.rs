//! Recorder of the metrics that the client library counts in this process.

use archon_client::metrics::{DEFINITIONS, Definition, Kind};
use archon_telemetry::{Family, Histogram as Times, Series, Value};
use metrics::atomics::AtomicU64;
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Metrics of the client library and the participant library, by the name of the definition and the values of its
/// labels. Definitions bound the number of series.
#[derive(Debug, Default)]
pub(crate) struct LibraryMetrics(Mutex<BTreeMap<&'static str, BTreeMap<Vec<&'static str>, Cell>>>);

impl LibraryMetrics {
    /// Returns the recorder of this process, and installs it at the first call. Participants and clients that were built
    /// before are not counted.
    pub(crate) fn installed() -> &'static Arc<Self> {
        static INSTALLED: OnceLock<Arc<LibraryMetrics>> = OnceLock::new();
        INSTALLED.get_or_init(|| {
            let recorder = Arc::<Self>::default();
            // A program that embeds the agent may have a recorder of its own, which then has the metrics.
            let _ = metrics::set_global_recorder(Arc::clone(&recorder));
            recorder
        })
    }

    /// Reads all series.
    pub(crate) fn families(&self) -> Vec<Family> {
        let known = self.0.lock();
        let series = |name| known.get(name).into_iter().flatten();
        let family = |definition: &'static Definition| Family {
            definition,
            series: series(definition.name)
                .map(|(labels, cell)| Series { labels: labels.clone(), value: cell.read() })
                .collect(),
        };
        DEFINITIONS.iter().flat_map(|group| group.iter()).map(family).collect()
    }

    /// Returns the cell of a series; `None` for a series that no definition has.
    fn cell(&self, key: &Key, kind: Kind) -> Option<Cell> {
        let mut all = DEFINITIONS.iter().flat_map(|group| group.iter());
        let definition = all.find(|definition| definition.name == key.name() && definition.kind == kind)?;
        let values = definition.labels.iter().map(|label| {
            let given = key.labels().find(|given| given.key() == label.name)?;
            label.values.iter().copied().find(|value| *value == given.value())
        });
        let labels = values.collect::<Option<Vec<_>>>()?;
        let mut known = self.0.lock();
        Some(known.entry(definition.name).or_default().entry(labels).or_insert_with(|| Cell::new(kind)).clone())
    }
}

impl Recorder for LibraryMetrics {
    fn describe_counter(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<metrics::Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.cell(key, Kind::Counter) {
            Some(Cell::Counter(count)) => Counter::from_arc(count),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.cell(key, Kind::Gauge) {
            Some(Cell::Gauge(level)) => Gauge::from_arc(level),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.cell(key, Kind::Histogram) {
            Some(Cell::Histogram(durations)) => Histogram::from_arc(durations),
            _ => Histogram::noop(),
        }
    }
}

/// Value of one series.
#[derive(Clone, Debug)]
enum Cell {
    Counter(Arc<AtomicU64>),
    /// Bits of a floating-point number.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Durations>),
}

impl Cell {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Counter => Self::Counter(Arc::default()),
            Kind::Gauge => Self::Gauge(Arc::default()),
            Kind::Histogram => Self::Histogram(Arc::default()),
        }
    }

    fn read(&self) -> Value {
        match self {
            Self::Counter(count) => Value::Whole(count.load(Ordering::Relaxed)),
            Self::Gauge(level) => Value::Real(f64::from_bits(level.load(Ordering::Relaxed))),
            Self::Histogram(durations) => Value::Distribution(durations.0.read()),
        }
    }
}

#[derive(Debug, Default)]
struct Durations(Times);

impl HistogramFn for Durations {
    fn record(&self, seconds: f64) {
        self.0.observe(Duration::try_from_secs_f64(seconds).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics::{Label, Level};

    const METADATA: Metadata<'static> = Metadata::new("", Level::INFO, None);

    #[test]
    fn recorded_values_are_read_by_definition() {
        let library = LibraryMetrics::default();
        library.register_counter(&Key::from_name("archon_participant_losses_total"), &METADATA).increment(3);
        let partitions = library.register_gauge(&Key::from_name("archon_participant_partitions"), &METADATA);
        partitions.increment(5.0);
        partitions.decrement(1.0);
        let labels = vec![Label::new("callback", "release"), Label::new("outcome", "ok")];
        let key = Key::from_parts("archon_participant_callback_seconds", labels);
        library.register_histogram(&key, &METADATA).record(0.25);
        library.register_counter(&Key::from_name("archon_participant_unknown_total"), &METADATA).increment(1);
        let odd = Key::from_parts("archon_participant_callback_seconds", vec![Label::new("callback", "odd")]);
        library.register_histogram(&odd, &METADATA).record(1.0);
        let mut found: Vec<_> = library.families().into_iter().filter(|family| !family.series.is_empty()).collect();
        found.sort_by_key(|family| family.definition.name);
        let [calls, losses, owned] = &found[..] else { panic!("{found:?}") };
        assert_eq!(losses.series[0].value, Value::Whole(3));
        assert_eq!(owned.series[0].value, Value::Real(4.0));
        assert_eq!(calls.series.len(), 1);
        assert_eq!(calls.series[0].labels, ["release", "ok"]);
        assert!(matches!(calls.series[0].value, Value::Distribution(times) if times.count() == 1));
    }
}
