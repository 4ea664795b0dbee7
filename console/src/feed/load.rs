//! Throughput and latency, from what nodes count. Two readings make a measurement.

use archon_client::NodeStats;
use serde::Serialize;
use std::collections::BTreeMap;

/// Operations that are told of, as nodes name them.
const OPERATIONS: [&str; 2] = ["get", "put"];

/// What was measured between two readings.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Load {
    /// When. Unix time.
    at_ms: u64,
    /// The nodes that were asked.
    nodes_asked: usize,
    gets_per_second: f64,
    puts_per_second: f64,
    get_p50_ms: Option<f64>,
    get_p99_ms: Option<f64>,
    put_p50_ms: Option<f64>,
    put_p99_ms: Option<f64>,
}

/// How many operations took up to so long, by what nodes have counted since they began.
#[derive(Clone, Default, Debug)]
pub(crate) struct Reading {
    /// Each node's, by operation: the upper bounds in seconds, with how many were not longer.
    nodes: BTreeMap<String, [Vec<(f64, f64)>; OPERATIONS.len()]>,
}

impl Reading {
    /// The load that nodes told.
    pub(crate) fn of(stats: impl IntoIterator<Item = NodeStats>) -> Self {
        let buckets =
            |stats: &NodeStats, name: &str| buckets(stats, "archon_node_operation_seconds", &format!("op=\"{name}\","));
        let nodes = stats.into_iter().map(|stats| (stats.node.clone(), OPERATIONS.map(|name| buckets(&stats, name))));
        Self { nodes: nodes.collect() }
    }

    /// What was done since `before`, `seconds` ago, by the nodes that were asked both times; of all `nodes` there are, if those stand
    /// for the others.
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

/// The buckets of a metric: upper bounds in seconds, each with how many were not above it.
pub(crate) fn buckets(stats: &NodeStats, metric: &str, labels: &str) -> Vec<(f64, f64)> {
    let begin = format!("{metric}_bucket{{{labels}le=\"");
    let bound = |name: &str| name.strip_prefix(&*begin)?.strip_suffix("\"}")?.parse().ok();
    let mut all: Vec<(f64, f64)> =
        stats.values.iter().filter_map(|(name, count)| Some((bound(name)?, *count))).collect();
    all.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    all
}

/// Adds what came between two readings; of a node that has begun anew, all there is.
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

/// The value below which this share lies, in milliseconds: within a bucket as if what is in it were spread evenly. Above the last bound,
/// that bound. `None` of nothing.
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
    fn two_readings_make_a_rate_and_its_quantiles() {
        let before = Reading::of([node("athens", [100.0, 100.0, 100.0]), node("cyrene", [7.0, 7.0, 7.0])]);
        // One has begun anew, and one was not there before.
        let now =
            [node("athens", [150.0, 198.0, 200.0]), node("cyrene", [2.0, 2.0, 2.0]), node("delphi", [9.0, 9.0, 9.0])];
        let load = Reading::of(now).since(&before, 2.0, 5, 4).unwrap();
        assert_eq!((load.nodes_asked, load.gets_per_second, load.puts_per_second), (2, 102.0, 0.0));
        assert!((load.get_p50_ms.unwrap() - 51.0 / 52.0).abs() < 1e-9, "{load:?}");
        assert_eq!((load.get_p99_ms.map(f64::round), load.put_p50_ms), (Some(10.0), None));
        assert_eq!(Reading::default().since(&before, 1.0, 5, 3), None);
    }

    #[test]
    fn a_quantile_above_all_bounds_is_the_last_one() {
        assert_eq!(quantile_ms(&[(0.001, 0.0), (f64::INFINITY, 4.0)], 0.5), Some(1.0));
        assert_eq!(quantile_ms(&[(0.001, 0.0), (f64::INFINITY, 0.0)], 0.5), None);
        assert_eq!(quantile_ms(&[], 0.5), None);
    }
}
