//! Tables of relayed heartbeats.

use super::curves;
use super::table::{Table, number, percent, thousands};
use crate::Figures;
use crate::pings::computed_share;

/// Ping interval of the design's servers, in milliseconds.
const PING_MS: f64 = 10.0;

/// Half of the members are cut off.
pub(super) fn cut_off(figures: &Figures) -> String {
    let found = &figures.cut_off;
    let members = thousands(figures.arguments.members().into());
    let rounds = figures.halves[0].ways.iter().filter_map(|(_, halves)| halves.over_in(0.99));
    let (least, most) = (rounds.clone().min().unwrap_or(0), rounds.max().unwrap_or(0));
    let serving = curves::cut_off(figures).lines(65);
    format!(
        "Half of {members} members are cut off, with heartbeats that others carry, {} times:\n\n\
         \x20 every lease ended                        {} to {} ms after the cut\n\
         \x20 every member was failed                  {} to {} ms after it\n\
         \x20 failed while its lease held              {}\n\
         \x20 failed or without a lease on this side   {}\n\n\
         Cut off in halves, every carried lease ends within 1,000 ms, certainly; the design's servers within {least} to {most} rounds, probably\n\
         (in 99 % of the runs). One of its rounds is 10 ms: a hundred pings a second from each server. Share that still serves, 1,600 ms:\n{serving}",
        found.runs,
        thousands(found.ended.0),
        thousands(found.ended.1),
        thousands(found.failed.0),
        thousands(found.failed.1),
        found.failed_too_soon,
        found.others_hurt,
    )
}

/// One member dies, and the coordinator is slow.
pub(super) fn slow(figures: &Figures) -> String {
    let mut table = Table::new([
        "the coordinator answers after",
        "the design: in limbo",
        "carried: without a lease",
        "the dead one failed after",
    ]);
    for (answer_ms, death) in &figures.deaths {
        let answer = *answer_ms as f64 / PING_MS;
        let played = figures.limbo.iter().find(|of| (of.case.answer, of.case.delay) == (answer, 0.0));
        let in_limbo = played.map(|of| of.limbo.in_the_long_run());
        table.add([
            format!("{} ms", thousands(*answer_ms)),
            percent(in_limbo.unwrap_or_else(|| computed_share(answer, 0.0))),
            percent(death.without_lease),
            death.failed_at.map_or("–".to_owned(), |at| format!("{} ms", thousands(at))),
        ]);
    }
    format!(
        "One member dies, and the coordinator is slow. Of the others, in the long run (the design by pings every 10 ms):\n\n{table}\
         No lease follows from another one's, so nothing spreads: what an answer that comes too late costs, it costs while it is late.\n"
    )
}

/// No coordinator answers for a while.
pub(super) fn away(figures: &Figures) -> String {
    let mut table = Table::new(["no coordinator for", "leases that ran out"]);
    for (ms, away) in &figures.away {
        table.add([format!("{ms} ms"), percent(away.lapsed)]);
    }
    format!("No coordinator answers for a while:\n\n{table}")
}

/// Load of the coordinator.
pub(super) fn bears(figures: &Figures) -> String {
    let mut table = Table::new([
        "members",
        "lost",
        "straight: messages/s",
        "cores",
        "lapses",
        "carried: messages/s",
        "cores",
        "lapses",
        "the design: calls/s",
    ]);
    for bears in &figures.bears {
        let pings = f64::from(bears.members) * 1_000.0 / PING_MS;
        // A ping and its answer are equally likely to be lost.
        let missed = pings * (1.0 - (1.0 - bears.loss).powi(2));
        let of =
            |load: crate::carried::Load| [number(load.messages), format!("{:.3}", load.cores()), number(load.lapses)];
        let cells = [thousands(bears.members.into()), percent(bears.loss)];
        let [straight, carried] = [bears.straight, bears.carried].map(of);
        table.add(cells.into_iter().chain(straight).chain(carried).chain([number(missed)]));
    }
    format!(
        "What the coordinator bears. Messages are counted as they come, a lost one is lost for good; cores are reckoned, 1 µs a heartbeat\n\
         and 10 µs a message; lapses are leases that ran out, in an hour of one member. The design's calls are those for missed pings\n\
         alone, without the limbo that spreads from each:\n\n{table}"
    )
}
