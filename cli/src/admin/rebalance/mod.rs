//! `archon rebalance plan | apply | cancel`.

mod moves;
pub(crate) mod plan_file;
pub(crate) mod progress;

use self::moves::under_way;
use super::rebalance::plan_file::PlanFile;
use super::rebalance::progress::Progress;
use super::wait::{WaitEnd, WatchedProcess, wait};
use crate::args::{ApplyArgs, PlanArgs, RebalanceVerb};
#[cfg(test)]
use crate::documents::contract;
use crate::documents::{Plan, PlanOutcome, Rebalance};
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, bytes_text, count_text, moved_bytes_text};
use archon_client::Admin;
use archon_types::{ErrorDetail, ErrorKind};
use std::time::Duration;

/// Documents of the verbs.
#[cfg(test)]
pub(crate) const DOCUMENTS: contract::Documents = &[
    ("rebalance plan", contract::one::<PlanFile>),
    ("rebalance apply", contract::one::<PlanOutcome>),
    ("rebalance status", contract::one::<Rebalance>),
    ("rebalance cancel", contract::one::<archon_client::RebalanceCancellation>),
];

/// Runs a verb.
pub(crate) async fn run(verb: &RebalanceVerb, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    match verb {
        RebalanceVerb::Plan(args) => plan(args, admin, output).await,
        RebalanceVerb::Apply(args) => apply(args, admin, output).await,
        RebalanceVerb::Status(args) => moves::status(args, admin, output).await,
        RebalanceVerb::Cancel => cancel(admin, output).await,
    }
}

/// Shows a plan without applying it.
pub(crate) async fn plan(args: &PlanArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let plan = admin.plan().await?;
    if output.is_json() || args.out.is_some() {
        let file = PlanFile::new(&admin.status().await?.cluster_id, plan.clone());
        if let Some(path) = &args.out {
            file.write(path)?;
        }
        if output.is_json() {
            output.json(&file)?;
        }
    }
    if !output.is_json() {
        print_plan(&plan, running_beside(&plan, admin).await, output)?;
        if !plan.moves.is_empty() {
            let file = args.out.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default();
            output.talk(format!("next: archon rebalance apply{file} --wait"));
        }
    }
    let has_moves = args.detailed_exitcode && !plan.moves.is_empty();
    Ok(if has_moves { Exit::Found } else { Exit::Done })
}

/// Applies a plan, and waits for it if requested.
pub(crate) async fn apply(args: &ApplyArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    if args.dry_run {
        return dry_run(args, admin, output).await;
    }
    let (plan, moves) = match &args.file {
        Some(path) => {
            let plan = PlanFile::of_cluster(path, admin).await?;
            let moves = if plan.moves.is_empty() {
                0
            } else {
                admin.apply(&plan).await.map_err(|error| explain_stale(error.into(), &plan))?
            };
            (plan, moves)
        }
        None => plan_and_apply(admin, output).await?,
    };
    if plan.moves.is_empty() {
        let running = under_way(&admin.rebalance_progress(0).await?);
        if running > 0 {
            return Err(Failure::from(archon_client::Error::from(already_running(running))));
        }
        if output.is_json() {
            output.json(&applied(&plan, 0, None))?;
        } else {
            print_plan(&plan, 0, output)?;
        }
        return Ok(Exit::Done);
    }
    if !output.is_json() {
        output.talk(format!("applied: {} under way", count_text(moves as usize, "move is", "moves are")));
    }
    if !args.wait {
        if output.is_json() {
            output.json(&applied(&plan, moves, None))?;
        } else {
            output.talk("next: archon rebalance status");
        }
        return Ok(Exit::Done);
    }
    let result = match wait_for_moves(admin, output, plan.moves.len(), args.wait_timeout).await? {
        Some(result) => result,
        None => return Ok(Exit::Done),
    };
    let failed_or_cancelled = (result.summary.failed + result.summary.cancelled) as usize;
    let done = done_text(&result);
    if output.is_json() {
        output.json(&applied(&plan, moves, Some(result)))?;
    } else if failed_or_cancelled == 0 {
        output.line(done)?;
    }
    if failed_or_cancelled > 0 {
        return Err(Failure::failed(format!(
            "{} did not reach the target",
            count_text(failed_or_cancelled, "move", "moves")
        ))
        .with_remedy("`archon rebalance status` shows the reasons; then make a new plan: `archon rebalance plan`"));
    }
    Ok(Exit::Done)
}

/// Prints the moves of a plan.
async fn dry_run(args: &ApplyArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let plan = match &args.file {
        Some(path) => PlanFile::of_cluster(path, admin).await?,
        None => admin.plan().await?,
    };
    let now = admin.status().await?.table_version;
    if plan.table_version.get() != now {
        let detail = ErrorDetail::new(ErrorKind::StalePlan, "the table changed since this plan was made");
        let stale = archon_client::Error::from(detail.with_have_need(now, plan.table_version.get()));
        return Err(explain_stale(stale.into(), &plan));
    }
    if output.is_json() {
        output.json(&applied(&plan, 0, None))?;
        return Ok(Exit::Done);
    }
    print_plan(&plan, running_beside(&plan, admin).await, output)?;
    if !plan.moves.is_empty() {
        output.talk("nothing was changed; to apply it, repeat the command without --dry-run");
    }
    Ok(Exit::Done)
}

fn applied(plan: &Plan, moves_started: u32, result: Option<Rebalance>) -> PlanOutcome {
    PlanOutcome { table_version: plan.table_version.get(), moves_started, result }
}

/// Describes the outcome of a plan without cancelled or failed moves. A move superseded by a larger change of a
/// failover is no failure: the next plan shows any remaining moves.
fn done_text(result: &Rebalance) -> String {
    let superseded = result.summary.superseded;
    let done = count_text((result.summary.moves_total - superseded) as usize, "move", "moves");
    match superseded {
        0 => format!("done: {done}"),
        _ => format!(
            "done: {done}; {superseded} more became pointless because the cluster changed (archon rebalance status); \
             remaining moves: archon rebalance plan"
        ),
    }
}

/// Maximum number of plans made because the table changed between planning and applying.
const PLANS_MAX: usize = 5;

/// Plans and applies in one step. The user has not reviewed this plan, so when the table changes in between, another
/// one is as good: only a plan from a file is refused for its age.
async fn plan_and_apply(admin: &Admin, output: &Output) -> Result<(Plan, u32), Failure> {
    let mut attempt = 1;
    loop {
        let plan = admin.plan().await?;
        if plan.moves.is_empty() {
            return Ok((plan, 0));
        }
        if !output.is_json() {
            print_plan(&plan, 0, output)?;
        }
        match admin.apply(&plan).await {
            Ok(moves) => return Ok((plan, moves)),
            Err(error) if error.kind() == ErrorKind::StalePlan && attempt < PLANS_MAX => {
                output.talk("the table moved on meanwhile; planning again");
                attempt += 1;
            }
            Err(error) => return Err(explain_stale(error.into(), &plan)),
        }
    }
}

/// The moves in progress.
struct Moves<'a> {
    admin: &'a Admin,
    progress: Progress,
    /// Maximum number of moves fetched individually each time; the summary covers the others.
    most: u32,
    /// True if the outcome is to contain every move.
    whole: bool,
}

impl WatchedProcess for Moves<'_> {
    type Outcome = Rebalance;

    async fn look(&mut self) -> Result<Option<Rebalance>, Failure> {
        let rebalance = self.admin.rebalance_progress(self.most).await?;
        self.progress.show(&rebalance);
        Ok(match rebalance.running {
            true => None,
            false if self.whole => Some(self.admin.rebalance_status().await?),
            false => Some(rebalance),
        })
    }

    fn say(&self, text: &str) {
        self.progress.say(text);
    }

    fn finish(&self) {
        self.progress.finish();
    }
}

/// Waits until nothing runs. `None` means that the reader detached with Ctrl-C.
async fn wait_for_moves(
    admin: &Admin,
    output: &Output,
    moves: usize,
    limit: Option<Duration>,
) -> Result<Option<Rebalance>, Failure> {
    let progress = Progress::new(output);
    let most = if Progress::reports_each(moves) { u32::try_from(moves).unwrap_or(u32::MAX) } else { 0 };
    match wait(&mut Moves { admin, progress, most, whole: output.is_json() }, limit).await? {
        WaitEnd::Over(rebalance) => Ok(Some(rebalance)),
        WaitEnd::Detached => {
            output.talk("detached: the moves continue in the cluster");
            output.talk("  watch them:  archon rebalance status");
            output.talk("  stop them:   archon rebalance cancel");
            Ok(None)
        }
        WaitEnd::TimedOut => Err(Failure::new(Exit::TimedOut, "the moves are still running")
            .with_remedy("they continue; watch them with `archon rebalance status`")),
    }
}

/// Returns the number of moves in progress beside an empty plan: it was made while they ran, counts them as done, and
/// would be misread.
async fn running_beside(plan: &Plan, admin: &Admin) -> usize {
    match admin.rebalance_progress(0).await {
        Ok(rebalance) if plan.moves.is_empty() && rebalance.running => under_way(&rebalance),
        _ => 0,
    }
}

/// Returns the quorum's error for applying a plan while one runs; with nothing to apply, the quorum is not asked.
fn already_running(moves: usize) -> ErrorDetail {
    let moves = count_text(moves, "move of an earlier plan is", "moves of an earlier plan are");
    ErrorDetail::new(ErrorKind::AssignmentInProgress, format!("{moves} running, and there is nothing else to move"))
}

/// Stops a rebalance.
pub(crate) async fn cancel(admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let cancelled = admin.cancel().await?;
    if output.is_json() {
        output.json(&cancelled)?;
        return Ok(Exit::Done);
    }
    output.line(format!("cancelled {}", count_text(cancelled.moves_cancelled as usize, "move", "moves")))?;
    if cancelled.moves_too_late > 0 {
        let late = count_text(cancelled.moves_too_late as usize, "move", "moves");
        output.talk(format!("{late} had handed over already and will finish"));
    }
    Ok(Exit::Done)
}

/// Prints a plan, which is empty if moves are `running` beside it.
fn print_plan(plan: &Plan, running: usize, output: &Output) -> Result<(), Failure> {
    let columns = [
        Column::text("PARTITION"),
        Column::text("FROM"),
        Column::text("TO"),
        Column::number("DATA"),
        Column::text("REASON"),
    ];
    let rows: Vec<Vec<String>> = plan
        .moves
        .iter()
        .map(|step| {
            vec![
                step.partition_name(),
                step.from.clone(),
                step.to.clone(),
                moved_bytes_text(step.bytes_total),
                step.message.clone(),
            ]
        })
        .collect();
    if running > 0 {
        let moves = count_text(running, "move that is", "moves that are");
        output.line(format!(
            "nothing to move beside the {moves} under way (archon rebalance status), at table version {}",
            plan.table_version
        ))?;
    } else if rows.is_empty() {
        output.line(format!("nothing to move at table version {}", plan.table_version))?;
    } else {
        output.line(output.grid(&columns, rows))?;
        let bytes = plan.moves.iter().map(|step| step.bytes_total).fold(0, u64::saturating_add);
        output.line(format!(
            "{}, {} to copy, for table version {}",
            count_text(plan.moves.len(), "move", "moves"),
            bytes_text(bytes),
            plan.table_version
        ))?;
    }
    for unmet in &plan.unmet {
        output.line(format!("{} {}: {} ({})", output.bad("cannot"), unmet.code, unmet.message, unmet.subject))?;
    }
    Ok(())
}

/// Adds both versions and the next command to the refusal of a stale plan, for any text of the server.
fn explain_stale(failure: Failure, plan: &Plan) -> Failure {
    if failure.exit != Exit::Refused || failure.message.contains(&plan.table_version.to_string()) {
        return failure;
    }
    Failure {
        message: format!("{} (the plan is for table version {})", failure.message, plan.table_version),
        ..failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::rebalance::moves::way_out;
    use archon_client::{MovePhase, RebalanceSummary, Version};

    fn plan() -> Plan {
        Plan {
            table_version: Version::new(37),
            moves_version: Version::new(5),
            moves: vec![],
            unmet: vec![],
            unknown: Default::default(),
        }
    }

    #[test]
    fn superseded_move_is_no_failure_handed_over_one_is_final() {
        use MovePhase::{Done, HandOver, InSync, Superseded};
        let result = |phases: &[MovePhase]| {
            let many = |phase: MovePhase| phases.iter().filter(|one| **one == phase).count() as u32;
            let summary = RebalanceSummary {
                moves_total: phases.len() as u32,
                in_sync: many(InSync),
                hand_over: many(HandOver),
                done: many(Done),
                superseded: many(Superseded),
                ..Default::default()
            };
            Rebalance { summary, ..Rebalance::default() }
        };
        assert_eq!(done_text(&result(&[Done, Done])), "done: 2 moves");
        let running = |phases: &[MovePhase]| Rebalance { running: true, ..result(phases) };
        assert!(way_out(&running(&[Done, InSync])).contains("archon rebalance cancel"));
        assert!(!way_out(&running(&[Done, HandOver])).contains("cancel"));
        let text = done_text(&result(&[Done, Superseded]));
        assert!(text.starts_with("done: 1 move; 1 more became pointless"), "{text}");
    }

    #[test]
    fn refusal_names_the_version_of_the_plan() {
        let named = explain_stale(Failure::new(Exit::Refused, "StalePlan: the table moved on"), &plan());
        assert!(named.message.contains("37"));
        let other = Failure::new(Exit::Unreachable, "nobody");
        assert_eq!(explain_stale(other.clone(), &plan()), other);
    }
}
