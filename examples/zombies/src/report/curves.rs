//! The curves of the charts.

use super::chart::{Chart, Curve};
use super::design::pace_name;
use super::table::thousands;
use crate::Figures;
use crate::figures::HalvesResult;
use crate::pings::{Pace, recurrence};

/// Ping interval of the design's servers, in milliseconds, and heartbeat interval of members.
const PING_MS: f64 = 10.0;
const HEARTBEAT_MS: f64 = 200.0;
/// Drawn cases of limbo: answer time of the coordinator, and delay.
const DRAWN: [(f64, f64); 7] = [(1.0, 0.0), (1.5, 0.0), (1.5, 0.5), (5.0, 0.0), (5.0, 1.0), (5.0, 2.0), (20.0, 2.0)];

/// Remaining zombies, by round.
pub(super) fn halves(of: &HalvesResult) -> Chart {
    let half = f64::from(of.servers / 2);
    let curve = |name: String, left: &[f64]| {
        let points = (1..).zip(left).map(|(round, left)| (f64::from(round), *left));
        Curve { name, points: std::iter::once((0.0, half)).chain(points).collect() }
    };
    let reckoned = curve("z²/n".to_owned(), &recurrence(of.servers)[..6]);
    let played = of.ways.iter().map(|(pace, halves)| curve(pace_name(*pace), &halves.left[..6]));
    Chart {
        name: "halves",
        title: format!("Half of {} servers cut off: zombies left", thousands(of.servers.into())),
        x: "rounds of pings",
        y: "zombies",
        by_powers: true,
        curves: std::iter::once(reckoned).chain(played).collect(),
    }
}

/// Share in limbo, by interval.
pub(super) fn limbo(figures: &Figures) -> Chart {
    let drawn = figures.limbo.iter().filter(|of| DRAWN.contains(&(of.case.answer, of.case.delay)));
    let curve = |of: &crate::LimboResult| {
        let name = format!("answer {}, delay {}", of.case.answer, of.case.delay);
        let points = (1..).zip(&of.limbo.shares).map(|(interval, share)| (f64::from(interval), *share));
        Curve { name, points: std::iter::once((0.0, 0.0)).chain(points.take(60)).collect() }
    };
    Chart {
        name: "limbo",
        title: "One server dies: share of the others in limbo".to_owned(),
        x: "intervals between pings",
        y: "share",
        by_powers: false,
        curves: drawn.map(curve).collect(),
    }
}

/// Share of the cut-off members that serve, by time.
pub(super) fn cut_off(figures: &Figures) -> Chart {
    let of = &figures.halves[0];
    let in_step = of.ways.iter().filter(|(pace, _)| *pace == Pace::InStep);
    let design = |ping_ms: f64| {
        let name = format!("the design, a ping every {ping_ms} ms");
        let left = in_step.clone().flat_map(|(_, halves)| halves.left);
        let shares =
            (1..).zip(left).map(|(round, left)| (f64::from(round) * ping_ms, left / f64::from(of.servers / 2)));
        Curve { name, points: std::iter::once((0.0, 1.0)).chain(shares).collect() }
    };
    let serving = figures.cut_off.serving.iter().filter(|(ms, _)| *ms <= 1_600);
    let points = serving.map(|(ms, share)| (*ms as f64, *share)).collect();
    let carried = Curve { name: "carried heartbeats".to_owned(), points };
    Chart {
        name: "cut_off",
        title: "Half of the cluster cut off: share of it that still serves".to_owned(),
        x: "milliseconds",
        y: "share",
        by_powers: false,
        curves: vec![design(PING_MS), design(HEARTBEAT_MS), carried],
    }
}
