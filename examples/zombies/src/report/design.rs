//! Tables of the design.

use super::curves;
use super::table::{Table, number, percent, thousands};
use crate::Figures;
use crate::figures::{ANSWERS, DELAYS, HalvesResult, LimboResult};
use crate::pings::{Pace, recurrence};

/// Number of shown rounds.
const SHOWN: usize = 6;
/// Share of the runs that counts as almost all.
const ALMOST_ALL: f64 = 0.99;

/// Minimum swing of a share that is shown with its range.
const SWINGS: f64 = 0.12;

/// The design's own figures.
const SAID: [(u32, &[f64]); 2] =
    [(1_000, &[250.0, 63.0, 4.0, 0.16]), (100_000, &[25_000.0, 6_250.0, 390.0, 1.5, 2.0e-5])];

pub(super) fn pace_name(pace: Pace) -> String {
    match pace {
        Pace::InStep => "in step".to_owned(),
        Pace::OutOfStep { given_up_after: 0.0 } => "out of step".to_owned(),
        Pace::OutOfStep { given_up_after } => format!("out of step, given up after {given_up_after}"),
    }
}

/// Remaining zombies after each round.
pub(super) fn halves(of: &HalvesResult) -> String {
    let HalvesResult { servers, ways } = of;
    let runs = ways.first().map_or(0, |(_, halves)| halves.runs);
    let mut table = Table::new(["", "1", "2", "3", "4", "5", "6", "none in 99 % of runs after"]);
    let row = |name: &str, left: &[f64], over: String| {
        let cell = |round| left.get(round).map_or("–".to_owned(), |left| number(*left));
        std::iter::once(name.to_owned()).chain((0..SHOWN).map(cell)).chain([over]).collect::<Vec<_>>()
    };
    let said = SAID.iter().find(|(of, _)| of == servers);
    if let Some((_, left)) = said {
        table.add(row("the design says", left, String::new()));
    }
    table.add(row("z²/n", &recurrence(*servers), String::new()));
    for (pace, halves) in ways {
        let over = halves.over_in(ALMOST_ALL).map_or("more".to_owned(), |round| round.to_string());
        table.add(row(&pace_name(*pace), &halves.left, over));
    }
    let note = match said {
        Some((1_000, _)) => {
            "The design's 0.16 after four rounds contradicts its own recurrence, which gives 0.0153; 0.16 is what pings out of step\n\
             leave after three. It reckons with a missing answer that is known at once: one that is waited for costs two more rounds.\n"
        }
        _ => "",
    };
    format!(
        "Half of {} servers are cut off. Zombies left after each round of pings, means of {} runs:\n\n{table}{note}",
        thousands((*servers).into()),
        thousands(runs.into())
    )
}

/// Share in limbo, by answer time and delay.
pub(super) fn limbo(figures: &Figures) -> String {
    let mut table = Table::new(["the coordinator answers after", "at once", "delayed by 0.5", "by 1", "by 2"]);
    for (answer, row) in ANSWERS.iter().zip(figures.limbo.chunks(DELAYS.len())) {
        table.add(std::iter::once(answer.to_string()).chain(row.iter().map(cell)));
    }
    let with_loss = &figures.limbo_with_loss;
    let last = with_loss.limbo.shares.last().copied().unwrap_or(0.0);
    format!(
        "One of {} servers dies, and nothing else goes wrong. Share of the others in limbo, intervals 101 to 200, means of {} runs:\n\n\
         {table}\
         Each server in limbo infects as many as ping it: answer − delay, in intervals. Above 1 it never ends, unless it ends in the\n\
         first intervals, and the share becomes (answer − delay − 1) / (⌈answer⌉ − 1). A delay moves the threshold to delay + 1.\n\
         At 1 it does neither: with {} of pings lost and no delay, {} are in limbo after {} intervals.\n\n\
         The first 60 intervals:\n{}",
        thousands(with_loss.case.servers.into()),
        with_loss.limbo.runs,
        percent(with_loss.case.loss),
        percent(last),
        with_loss.case.intervals,
        curves::limbo(figures).lines(61)
    )
}

fn cell(of: &LimboResult) -> String {
    let limbo = &of.limbo;
    let mean = percent(limbo.in_the_long_run());
    let (low, high) = limbo.swing;
    match limbo.died_out {
        0 if high - low > SWINGS => format!("{mean} ({:.0} to {:.0})", low * 100.0, high * 100.0),
        0 => mean,
        all if all == limbo.runs => "dies out".to_owned(),
        some => format!("{mean} (dies out in {some})"),
    }
}
