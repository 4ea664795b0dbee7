//! Conversion of nodes' reports into commands. The guard of every command is the version that the reporter saw, so an
//! outdated fact changes nothing.

use crate::command::Command;
use crate::command::edit::{Edit, LeadershipEnd, PartitionChange};
use crate::leases::{Owners, hand_over};
use crate::liveness::{Liveness, failover};
use crate::mutant::Mutant;
use crate::operator::too_large;
use crate::placement::next_leader;
use crate::placement::out_of_sync::is_lost;
use crate::ranges::splits;
use crate::state::ClusterState;
use crate::state::out_of_sync_copy::Condition;
use crate::state::recovery::FrozenReplica;
use archon_types::{
    Epoch, ErrorDetail, ErrorKind, Fact, Incarnation, Millis, NodeGoal, NodeId, Partition, PartitionStatus,
    PlacementId, ReplicaName, ReplicaState, Report, RightStage, Table, Version,
};
use std::collections::BTreeMap;

/// Returns the commands that follow from a node's report. An empty list means that the fact holds already.
///
/// A request of a leader (`CaughtUp`, `Silent`) that names the row's present version always leads to a command: a
/// refusal is a command that changes only the version, from which the leader learns of it (PROTOCOL rule 3).
///
/// # Errors
/// `StaleIncarnation`, `NotFound`, `StaleEpoch`, `StaleVersion`, `NotPartitionLeader`: the report does not fit the
/// present state. The reporter waits for its next push and reports again if the fact still holds.
pub fn on_report(
    state: &ClusterState,
    liveness: &mut Liveness,
    now: Millis,
    node: NodeId,
    incarnation: Incarnation,
    report: &Report,
) -> Result<Vec<Command>, ErrorDetail> {
    on_reports(state, liveness, now, node, incarnation, std::slice::from_ref(report)).remove(0)
}

/// Like [`on_report`], for several reports of a node: the leaderships that it releases are spread over the other nodes.
pub fn on_reports(
    state: &ClusterState,
    liveness: &mut Liveness,
    now: Millis,
    node: NodeId,
    incarnation: Incarnation,
    reports: &[Report],
) -> Vec<Result<Vec<Command>, ErrorDetail>> {
    let owners = Owners::new(state);
    let mut taken = Reports { state, liveness, now, node, incarnation, named: BTreeMap::new(), owners };
    let outcomes = reports.iter().map(|report| taken.take(report)).collect();
    taken.liveness.placement_last = taken.owners.placement_last(taken.liveness);
    outcomes
}

/// Reports of one node that are processed together.
struct Reports<'a> {
    state: &'a ClusterState,
    liveness: &'a mut Liveness,
    now: Millis,
    node: NodeId,
    incarnation: Incarnation,
    /// Number of leaderships that each node gets by these reports, which are not in the state yet.
    named: BTreeMap<NodeId, u32>,
    /// The same for leases.
    owners: Owners<'a>,
}

impl Reports<'_> {
    fn take(&mut self, report: &Report) -> Result<Vec<Command>, ErrorDetail> {
        let (state, node, incarnation) = (self.state, self.node, self.incarnation);
        state.check_sender(node, incarnation)?;
        if !state.is_active(node) {
            let message = format!("{} has not confirmed its incarnation yet", state.node_name(node));
            return Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(50));
        }
        if let Some(recovery) = &state.recovery
            && !state.is_lease(report.partition.table)
        {
            let Fact::Inspected { last } = report.fact else { return Ok(Vec::new()) };
            let standing = FrozenReplica { partition: report.partition, promised: report.epoch, last };
            let placement = report.placement;
            let told = Command::Inspected { node, incarnation, placement, standing };
            return Ok(if recovery.awaits(node, incarnation, placement) { vec![told] } else { Vec::new() });
        }
        if report.fact == Fact::Unloaded && state.condemned.contains(node, report.placement) {
            return Ok(vec![Command::Deleted { node, placement: report.placement }]);
        }
        let Some(row) = state.partitions.get(report.partition) else { return self.of_dropped(report) };
        let released = matches!(report.fact, Fact::Released | Fact::Declined);
        if released
            && let Some(former) = state.former_leaders.get(row.id, report.epoch)
            && (former.node, former.incarnation, former.placement) == (node, incarnation, report.placement)
        {
            return change(row, vec![Edit::Settle(report.epoch)]);
        }
        let Some(own) = row.placement(report.placement).filter(|own| own.node == node) else {
            if report.fact == Fact::Unloaded {
                return Ok(Vec::new());
            }
            let name = state.node_name(node);
            let message = format!("{name} has no placement {} of partition {}", report.placement, row.id);
            return Err(ErrorDetail::new(ErrorKind::NotFound, message).with_table_version(row.version));
        };
        let of_leases = matches!(report.fact, Fact::Online | Fact::Released | Fact::Declined);
        if state.is_lease(row.id.table) && !of_leases {
            let message = format!("partition {} is a lease: nothing of the kind can be true of it", row.id);
            return Err(ErrorDetail::new(ErrorKind::Refused, message));
        }
        match &report.fact {
            Fact::Unloaded if own.state == ReplicaState::Unload => change(row, vec![Edit::Forget(own.id)]),
            Fact::Unloaded => {
                let message = format!("placement {} of partition {} is {} and must be kept", own.id, row.id, own.state);
                Err(ErrorDetail::new(ErrorKind::Refused, message))
            }
            Fact::Damaged { why } if own.state == ReplicaState::Live => {
                change(row, vec![Edit::Lose(own.id, bounded(why))])
            }
            // A copy that was never in sync is deleted, and another one is loaded in its place.
            Fact::Damaged { why }
                if own.state == ReplicaState::Load
                    && !state.departed.contains_key(&own.id)
                    && row.live().next().is_some() =>
            {
                change(row, vec![Edit::Retire(own.id, format!("it is damaged: {}", bounded(why)))])
            }
            Fact::Inspected { .. } => Ok(Vec::new()), // The recovery has ended.
            Fact::LostData { leader, commit, agreed } => {
                let (placement, leader, epoch) = (own.id, *leader, report.epoch);
                change(row, vec![Edit::Dispute { placement, leader, epoch, commit: *commit, agreed: *agreed }])
            }
            Fact::Damaged { why } => match state.departed.get(&own.id) {
                Some(departed)
                    if own.state == ReplicaState::Load && (departed.condition > Condition::Gone || !departed.lost) =>
                {
                    change(row, vec![Edit::Lose(own.id, bounded(why))])
                }
                _ => Ok(Vec::new()),
            },
            // A report from before it left sync does not describe the present.
            Fact::Emptied => match state.departed.get(&own.id) {
                Some(departed)
                    if own.state == ReplicaState::Load
                        && departed.condition > Condition::Gone
                        && report.version >= departed.at =>
                {
                    change(row, vec![Edit::Emptied(own.id)])
                }
                _ => Ok(Vec::new()),
            },
            Fact::Mirroring { attempt, copy } => {
                let (attempt, placement) = (*attempt, *copy);
                let edit = Edit::Mirroring { attempt, placement, incarnation };
                splits::comes_to(row, node, (attempt, placement), RightStage::Mirroring, edit)
            }
            Fact::Formed { attempt, copy, position } => {
                let (attempt, placement, position) = (*attempt, *copy, *position);
                let edit = Edit::Formed { attempt, placement, incarnation, position };
                splits::comes_to(row, node, (attempt, placement), RightStage::Formed, edit)
            }
            Fact::Outgrown { at, by } => {
                led_by(state, row, own.id, report)?;
                of_version(state, row, report)?;
                let judged = self.liveness.automatic_splits.judge(state, self.now, row, at, *by);
                judged.map(|command| command.into_iter().collect())
            }
            Fact::Undersized(has) => {
                led_by(state, row, own.id, report)?;
                of_version(state, row, report)?;
                let judged = self.liveness.automatic_merges.judge(state, self.now, row, *has);
                judged.map(|command| command.into_iter().collect())
            }
            Fact::Absorbed { attempt } => {
                led_by(state, row, own.id, report)?;
                let named = |began: Version| began == *attempt || state.breaks(Mutant::AbsorbedStale); // rule 47
                match row.absorbs().filter(|(merge, _)| named(merge.attempt)) {
                    Some(_) => change(row, vec![Edit::Widen { attempt: *attempt }]),
                    None => Ok(Vec::new()), // It is done or abandoned: the row shows which.
                }
            }
            Fact::Unabsorbable { attempt, bytes } => {
                led_by(state, row, own.id, report)?;
                match row.absorbs().filter(|(merge, _)| merge.attempt == *attempt) {
                    Some((_, right)) => {
                        let why = too_large(&state.partition_name(right), *bytes);
                        change(row, vec![Edit::AbandonMerge(why)])
                    }
                    None => Ok(Vec::new()),
                }
            }
            Fact::Online => {
                led_by(state, row, own.id, report)?;
                if row.status == PartitionStatus::Online {
                    return Ok(Vec::new());
                }
                change(row, vec![Edit::Online(row.epoch)])
            }
            Fact::Released => {
                led_by(state, row, own.id, report)?;
                self.released(row)
            }
            Fact::Declined => {
                led_by(state, row, own.id, report)?;
                self.liveness.churn.avoid(node, row.id, self.now);
                self.released(row)
            }
            Fact::Overtaken { by } => {
                led_by(state, row, own.id, report)?;
                if *by < row.epoch || !(row.may_reach(*by) || state.breaks(Mutant::AnyEpochGranted)) {
                    let message =
                        format!("partition {} is in epoch {}; epoch {by} is not to be passed", row.id, row.epoch);
                    return Err(ErrorDetail::new(ErrorKind::Refused, message));
                }
                self.overtaken(row, *by)
            }
            Fact::CaughtUp { joiner } => {
                led_by(state, row, own.id, report)?;
                of_version(state, row, report)?;
                let fits = joins(state, self.liveness, row, *joiner);
                let edit = if fits { Edit::Promote(joiner.placement, joiner.incarnation) } else { Edit::Refuse };
                answer(state, row, vec![edit])
            }
            Fact::Silent { followers } => {
                led_by(state, row, own.id, report)?;
                of_version(state, row, report)?;
                self.liveness.isolated.note(row, node, followers, self.now);
                answer(state, row, demotions(state, row, followers))
            }
        }
    }

    /// Handles a fact about a removed partition. For a partition of a dropped table or one that was merged away, only
    /// the deletion of its copies matters; a stopped leader is as expected.
    fn of_dropped(&self, report: &Report) -> Result<Vec<Command>, ErrorDetail> {
        let state = self.state;
        let table = report.partition.table;
        let numbered = |table: &Table| table.keys.is_range() && report.partition.index < table.keys.numbers_end();
        let merged_away = state.tables.get(&table).is_some_and(numbered);
        if table > state.table_last || (state.tables.contains_key(&table) && !merged_away) {
            return Err(ErrorDetail::new(ErrorKind::NotFound, format!("there is no partition {}", report.partition)));
        }
        match report.fact {
            Fact::Unloaded | Fact::Released | Fact::Declined | Fact::Inspected { .. } => Ok(Vec::new()),
            _ => {
                let message = format!("partition {} was dropped or merged away", report.partition);
                Err(ErrorDetail::new(ErrorKind::NotFound, message))
            }
        }
    }

    /// Handles the stop of a leader. The same commit moves the leadership: to the target of a migration, or else to the
    /// Live copy that should lead next. Without one, the next control turn elects.
    fn released(&mut self, row: &Partition) -> Result<Vec<Command>, ErrorDetail> {
        let own = self.node;
        if self.state.is_offline(row.id) {
            return change(row, vec![Edit::Vacate(LeadershipEnd::Released)]);
        }
        let renewed = row.leader.filter(|_| {
            self.state.is_bumped(row.id) && self.liveness.may_lead(own) && !self.liveness.doors.spares(own)
        });
        let incarnation = self.incarnation;
        let again = renewed.map(|placement| Edit::Lead { placement, incarnation, ending: LeadershipEnd::Released });
        if let Some(again) = again.clone().filter(|_| !self.is_to_leave(row)) {
            return change(row, vec![again]);
        }
        let edits = if self.state.is_lease(row.id.table) {
            let next = self.owners.next(self.liveness, row, |other| other == own);
            next.map(|next| hand_over::take_over(row, next, LeadershipEnd::Released))
        } else {
            let successor = self.successor(row, |other| other == own);
            Some(vec![successor]).filter(|edits| !matches!(edits[..], [Edit::Vacate(_)]))
        };
        // A leadership that no other copy can take is renewed in place despite the goal.
        change(row, edits.unwrap_or_else(|| vec![again.unwrap_or(Edit::Vacate(LeadershipEnd::Released))]))
    }

    /// Returns true if an operator wants the leader away from this partition.
    fn is_to_leave(&self, row: &Partition) -> bool {
        let goal = self.state.node(self.node).map(|row| row.node.goal);
        goal.is_some_and(NodeGoal::gives_up_leaderships) || self.state.bars(row.id, self.node)
    }

    /// Handles the stop of a leader because of an epoch that was not granted. It may lead again, above that epoch.
    fn overtaken(&mut self, row: &Partition, by: Epoch) -> Result<Vec<Command>, ErrorDetail> {
        change(row, vec![Edit::Surpass(by), self.successor(row, |_| false)])
    }

    fn successor(&mut self, row: &Partition, ruled_out: impl Fn(NodeId) -> bool) -> Edit {
        let (state, liveness) = (self.state, &*self.liveness);
        let able = |other| !ruled_out(other) && state.is_active(other) && liveness.may_lead(other);
        let only = liveness.isolated.successor(row, self.now, able);
        let excluded =
            |other: NodeId| ruled_out(other) || !liveness.may_lead(other) || only.is_some_and(|only| only != other);
        match next_leader::next_leader(state, row, &mut self.named, excluded, |node| liveness.doors.spares(node)) {
            Some((placement, incarnation)) => Edit::Lead { placement, incarnation, ending: LeadershipEnd::Released },
            None => Edit::Vacate(LeadershipEnd::Released),
        }
    }
}

/// Returns the commands for a node that reports its stop: this incarnation answers nothing any longer, for any
/// partition. This releases every leadership, so its leases need not be awaited, and it is failed at once.
///
/// # Errors
/// `StaleIncarnation` if this is no longer its incarnation.
pub fn on_stopping(
    state: &ClusterState,
    liveness: &Liveness,
    node: NodeId,
    incarnation: Incarnation,
) -> Result<Vec<Command>, ErrorDetail> {
    state.check_sender(node, incarnation)?;
    Ok(vec![failover::node_failed(state, liveness, node, incarnation)])
}

/// Returns true if this loader may be added: in state Load, not lost, on an active node, in that incarnation, and not
/// about to exit: otherwise it would be dropped and added again until the node is gone, and then be awaited.
fn joins(state: &ClusterState, liveness: &Liveness, row: &Partition, joiner: ReplicaName) -> bool {
    row.placement(joiner.placement).is_some_and(|placement| {
        placement.state == ReplicaState::Load
            && !is_lost(state, placement.id)
            && liveness.may_lead(placement.node)
            && (state.breaks(Mutant::ExpandUnchecked)
                || (state.is_active(placement.node) && state.incarnation(placement.node) == Some(joiner.incarnation)))
    })
}

/// Returns the edits that drop the silent followers: all of them, or none if fewer than `min_in_sync` would be left
/// (rule 2).
fn demotions(state: &ClusterState, row: &Partition, followers: &[ReplicaName]) -> Vec<Edit> {
    let mut drop: Vec<ReplicaName> = followers
        .iter()
        .copied()
        .filter(|follower| {
            row.placement(follower.placement).is_some_and(|placement| {
                placement.state == ReplicaState::Live
                    && row.leader != Some(placement.id)
                    && (state.incarnation(placement.node) == Some(follower.incarnation)
                        || state.breaks(Mutant::DropUnchecked))
            })
        })
        .collect();
    drop.sort_unstable();
    drop.dedup();
    let too_few = row.live().count() < drop.len() + usize::from(row.min_in_sync);
    if drop.is_empty() || (too_few && !state.breaks(Mutant::DropBelowMin)) {
        return vec![Edit::Refuse];
    }
    drop.into_iter().map(|follower| Edit::Demote(follower.placement, follower.incarnation)).collect()
}

fn led_by(state: &ClusterState, row: &Partition, own: PlacementId, report: &Report) -> Result<(), ErrorDetail> {
    let stale_release = matches!(report.fact, Fact::Released | Fact::Declined) && state.breaks(Mutant::StaleRelease); // rule 12
    let asks = matches!(report.fact, Fact::CaughtUp { .. } | Fact::Silent { .. });
    if row.epoch != report.epoch && !stale_release {
        let message = format!("partition {} is in epoch {}, the report in {}", row.id, row.epoch, report.epoch);
        return Err(ErrorDetail::new(ErrorKind::StaleEpoch, message).with_table_version(row.version));
    }
    if row.leader != Some(own) && !(asks && state.breaks(Mutant::AnyoneAsks)) {
        let message = format!("placement {own} does not lead partition {}", row.id);
        return Err(ErrorDetail::new(ErrorKind::NotPartitionLeader, message).with_table_version(row.version));
    }
    Ok(())
}

fn of_version(state: &ClusterState, row: &Partition, report: &Report) -> Result<(), ErrorDetail> {
    if row.version != report.version && !state.breaks(Mutant::NoVersionCheck) {
        let message = format!("partition {} is at version {}, the report at {}", row.id, row.version, report.version);
        return Err(ErrorDetail::new(ErrorKind::StaleVersion, message)
            .with_have_need(row.version.get(), report.version.get())
            .with_table_version(row.version));
    }
    Ok(())
}

/// Returns the answer to a leader's request, which consumes the version even if it is a refusal (rule 3).
fn answer(state: &ClusterState, row: &Partition, edits: Vec<Edit>) -> Result<Vec<Command>, ErrorDetail> {
    if edits == [Edit::Refuse] && state.breaks(Mutant::RefusalKeepsVersion) {
        return Ok(Vec::new());
    }
    change(row, edits)
}

fn change(row: &Partition, edits: Vec<Edit>) -> Result<Vec<Command>, ErrorDetail> {
    Ok(vec![Command::Change(vec![PartitionChange { partition: row.id, if_version: row.version, edits }])])
}

/// Truncates text from a node: it goes into the log and the events, so its length is bounded.
fn bounded(why: &str) -> String {
    const CHARS_MAX: usize = 200;
    why.chars().take(CHARS_MAX).collect()
}
