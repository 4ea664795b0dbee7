//! Text formats of metrics.

use crate::family::{Family, Series, Value};
use archon_types::{Definition, Kind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// A format of metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// OpenMetrics 1.0, which Prometheus servers request.
    OpenMetrics,
    /// The older text format, for other scrapers and people.
    Text,
}

impl Format {
    /// Returns the format for an `Accept` header: OpenMetrics only if the header names it.
    pub fn accepted(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") { Self::OpenMetrics } else { Self::Text }
    }

    /// Returns the media type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Renders all families as text.
///
/// # Errors
/// None for strings; the writer's type has one.
pub fn render(families: Vec<Family>, format: Format) -> Result<String, fmt::Error> {
    let counters: Vec<&str> =
        families.iter().filter(|family| is_counter(family.definition)).map(|family| stem(family.definition)).collect();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(CollectedFamilies(families)));
    let mut open = String::new();
    text::encode(&mut open, &registry)?;
    Ok(match format {
        Format::OpenMetrics => open,
        Format::Text => older(&open, &counters),
    })
}

/// Converts to the older format, in which the head of a counter has its full name and there is no end marker.
fn older(open: &str, counters: &[&str]) -> String {
    let mut out = String::with_capacity(open.len() + 8 * counters.len());
    for line in open.lines().filter(|line| *line != "# EOF") {
        let head = ["# HELP ", "# TYPE "].into_iter().find_map(|head| Some((head, line.strip_prefix(head)?)));
        match head.and_then(|(head, rest)| Some((head, rest.split_once(' ')?))) {
            Some((head, (name, rest))) if counters.contains(&name) => {
                out.extend([head, name, "_total ", rest, "\n"]);
            }
            _ => out.extend([line, "\n"]),
        }
    }
    out
}

fn is_counter(definition: &Definition) -> bool {
    definition.kind == Kind::Counter
}

/// Returns the name in the head of an OpenMetrics family: counters without `_total`.
fn stem(definition: &Definition) -> &'static str {
    match definition.kind {
        Kind::Counter => definition.name.strip_suffix("_total").unwrap_or(definition.name),
        Kind::Gauge | Kind::Histogram => definition.name,
    }
}

#[derive(Debug)]
struct CollectedFamilies(Vec<Family>);

impl Collector for CollectedFamilies {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for Family { definition, series } in self.0.iter().filter(|family| !family.series.is_empty()) {
            let kind = match definition.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(stem(definition), definition.help, None, kind)?;
            for Series { labels, value } in series {
                let names = definition.labels.iter().map(|label| label.name);
                let labels: Vec<(&str, &str)> = names.zip(labels.iter().copied()).collect();
                if labels.is_empty() {
                    encode(&mut metric, definition.kind, value)?;
                } else {
                    encode(&mut metric.encode_family(&labels)?, definition.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(metric: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> Result<(), fmt::Error> {
    match (kind, value) {
        (Kind::Counter, Value::Whole(value)) => metric.encode_counter::<NoLabelSet, _, f64>(value, None),
        (Kind::Counter, Value::Real(value)) => metric.encode_counter::<NoLabelSet, _, f64>(value, None),
        (_, Value::Whole(value)) => metric.encode_gauge(value),
        (_, Value::Real(value)) => metric.encode_gauge(value),
        (_, Value::Distribution(distribution)) => {
            let buckets: Vec<(f64, u64)> = distribution.buckets().collect();
            metric.encode_histogram::<NoLabelSet>(
                distribution.sum().as_secs_f64(),
                distribution.count(),
                &buckets,
                None,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::LabelledValues;
    use crate::histogram::Histogram;
    use crate::metric::Metric;
    use crate::metrics;
    use archon_types::Label;
    use std::time::Duration;

    const COLOUR: &[Label] = &[Label { name: "colour", values: &["black", "green"] }];

    metrics! {
        #[derive(Default)]
        struct Tea {
            cups: Metric = Definition::counter("archon_tea_cups_total", "cups that were filled");
            guests: LabelledValues<u64> = Definition::gauge(
                "archon_tea_guests",
                "guests by what they drink"
            ).by(COLOUR);
            away: Option<u64> = Definition::gauge("archon_tea_guests_away", "guests that did not come");
            steeping: Histogram = Definition::histogram("archon_tea_steeping_seconds", "how long a cup takes");
            spent: Duration = Definition::counter("archon_tea_spent_seconds_total", "time that all took together");
        }
    }

    fn tea() -> Vec<Family> {
        let guests = [("black", 3), ("green", 1)].into_iter().collect();
        let tea = Tea { guests, spent: Duration::from_millis(2_500), ..Tea::default() };
        tea.cups.add(4);
        tea.steeping.observe(Duration::from_micros(75));
        tea.steeping.observe(Duration::from_secs(9));
        tea.families()
    }

    #[test]
    fn text_format_uses_full_counter_names() {
        let text = render(tea(), Format::Text).unwrap();
        for line in [
            "# HELP archon_tea_cups_total cups that were filled",
            "# TYPE archon_tea_cups_total counter",
            "archon_tea_cups_total 4",
            "archon_tea_guests{colour=\"green\"} 1",
            "# TYPE archon_tea_steeping_seconds histogram",
            "archon_tea_steeping_seconds_bucket{le=\"0.0001\"} 1",
            "archon_tea_steeping_seconds_bucket{le=\"5.0\"} 1",
            "archon_tea_steeping_seconds_bucket{le=\"+Inf\"} 2",
            "archon_tea_steeping_seconds_count 2",
            "archon_tea_spent_seconds_total 2.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
        }
        assert_eq!(text.matches("# TYPE ").count(), Tea::DEFINITIONS.len() - 1, "all but what is not known");
        assert!(!text.contains("EOF") && !text.contains("guests_away"), "{text}");
    }

    #[test]
    fn open_metrics_heads_omit_total_and_text_ends_with_eof() {
        let text = render(tea(), Format::OpenMetrics).unwrap();
        assert!(text.contains("# TYPE archon_tea_cups counter\narchon_tea_cups_total 4\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn open_metrics_must_be_named_in_accept_header() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
        assert_eq!(Format::accepted("*/*"), Format::Text);
        assert_eq!(Format::accepted(""), Format::Text);
    }
}
