//! Throughput and latency, from counters of nodes. Two readings make a measurement.

use archon_client::NodeStats;
use serde::Serialize;
use std::collections::BTreeMap;

/// Measured operations, as nodes name them.
const OPERATIONS: [&str; 2] = ["get", "put"];

/// Load between two readings.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Load {
    /// Unix time of the measurement.
    at_ms: u64,
    /// Number of queried nodes.
    nodes_asked: usize,
    gets_per_second: f64,
    puts_per_second: f64,
    get_p50_ms: Option<f64>,
    get_p99_ms: Option<f64>,
    put_p50_ms: Option<f64>,
    put_p99_ms: Option<f64>,
}

/// Histogram counters of operations since the start of each node.
#[derive(Clone, Default, Debug)]
pub(crate) struct LoadSample {
    /// Per node and operation: upper bounds in seconds, with cumulative counts.
    nodes: BTreeMap<String, [Vec<(f64, f64)>; OPERATIONS.len()]>,
}

impl LoadSample {
    /// Extracts the counters from statistics of nodes.
    pub(crate) fn of(stats: impl IntoIterator<Item = NodeStats>) -> Self {
        let buckets =
            |stats: &NodeStats, name: &str| buckets(stats, "archon_node_operation_seconds", &format!("op=\"{name}\","));
        let nodes = stats.into_iter().map(|stats| (stats.node.clone(), OPERATIONS.map(|name| buckets(&stats, name))));
        Self { nodes: nodes.collect() }
    }

    /// Returns the load since `before`, `seconds` ago, of the nodes in both readings, scaled to all `nodes` if these
    /// are a sample.
    pub(crate) fn since(&self, before: &Self, seconds: f64, at_ms: u64, nodes: usize) -> Option<Load> {
        let both: Vec<_> = self.nodes.iter().filter_map(|(name, now)| Some((now, before.nodes.get(name)?))).collect();
        if both.is_empty() || seconds <= 0.0 {
            return None;
        }
        let done = |operation: usize| {
            let mut all = Vec::new();
            for (now, before) in &both {
                add_difference(&mut all, &now[operation], &before[operation]);
            }
            all
        };
        let (gets, puts) = (done(0), done(1));
        let share = nodes.max(both.len()) as f64 / both.len() as f64;
        let rate = |buckets: &[(f64, f64)]| buckets.last().map_or(0.0, |(_, count)| count * share / seconds);
        Some(Load {
            at_ms,
            nodes_asked: both.len(),
            gets_per_second: rate(&gets),
            puts_per_second: rate(&puts),
            get_p50_ms: quantile_ms(&gets, 0.5),
            get_p99_ms: quantile_ms(&gets, 0.99),
            put_p50_ms: quantile_ms(&puts, 0.5),
            put_p99_ms: quantile_ms(&puts, 0.99),
        })
    }
}

/// Returns the buckets of a metric: upper bounds in seconds, with cumulative counts.
pub(crate) fn buckets(stats: &NodeStats, metric: &str, labels: &str) -> Vec<(f64, f64)> {
    let begin = format!("{metric}_bucket{{{labels}le=\"");
    let bound = |name: &str| name.strip_prefix(&*begin)?.strip_suffix("\"}")?.parse().ok();
    let mut all: Vec<(f64, f64)> =
        stats.values.iter().filter_map(|(name, count)| Some((bound(name)?, *count))).collect();
    all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    all
}

/// Adds the difference of two readings; after a restart of the node, its whole new reading.
fn add_difference(all: &mut Vec<(f64, f64)>, now: &[(f64, f64)], before: &[(f64, f64)]) {
    let anew = now.len() != before.len() || now.iter().zip(before).any(|((_, now), (_, before))| now < before);
    for (place, (bound, count)) in now.iter().enumerate() {
        let count = if anew { *count } else { count - before[place].1 };
        match all.get_mut(place) {
            Some((_, sum)) => *sum += count,
            None => all.push((*bound, count)),
        }
    }
}

/// Returns the quantile in milliseconds, with linear interpolation within a bucket. Above the last bound, returns
/// that bound; `None` without values.
pub(crate) fn quantile_ms(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let (_, total) = buckets.last().filter(|(_, total)| *total > 0.0)?;
    let rank = share * total;
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, count) in buckets {
        if *count >= rank && *count > below {
            let high = if bound.is_finite() { *bound } else { low };
            return Some((low + (high - low) * (rank - below) / (count - below)) * 1e3);
        }
        (low, below) = (if bound.is_finite() { *bound } else { low }, *count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, counts: [f64; 3]) -> NodeStats {
        let bounds = ["0.001", "0.01", "inf"];
        let values = bounds.iter().zip(counts).flat_map(|(bound, count)| {
            let named = |op: &str| format!("archon_node_operation_seconds_bucket{{op=\"{op}\",le=\"{bound}\"}}");
            [(named("get"), count), (named("put"), 0.0)]
        });
        NodeStats { node: name.to_owned(), values: values.collect() }
    }

    #[test]
    fn two_readings_give_rate_and_quantiles() {
        let before = LoadSample::of([node("athens", [100.0, 100.0, 100.0]), node("cyrene", [7.0, 7.0, 7.0])]);
        // One node has restarted, and one is new.
        let now =
            [node("athens", [150.0, 198.0, 200.0]), node("cyrene", [2.0, 2.0, 2.0]), node("delphi", [9.0, 9.0, 9.0])];
        let load = LoadSample::of(now).since(&before, 2.0, 5, 4).unwrap();
        assert_eq!((load.nodes_asked, load.gets_per_second, load.puts_per_second), (2, 102.0, 0.0));
        assert!((load.get_p50_ms.unwrap() - 51.0 / 52.0).abs() < 1e-9, "{load:?}");
        assert_eq!((load.get_p99_ms.map(f64::round), load.put_p50_ms), (Some(10.0), None));
        assert_eq!(LoadSample::default().since(&before, 1.0, 5, 3), None);
    }

    #[test]
    fn quantile_above_all_bounds_is_the_last_bound() {
        assert_eq!(quantile_ms(&[(0.001, 0.0), (f64::INFINITY, 4.0)], 0.5), Some(1.0));
        assert_eq!(quantile_ms(&[(0.001, 0.0), (f64::INFINITY, 0.0)], 0.5), None);
        assert_eq!(quantile_ms(&[], 0.5), None);
    }
}
