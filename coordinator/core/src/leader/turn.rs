//! One turn of control: the commands to commit now, from the state and the leader's memory alone.

use crate::command::Command;
use crate::command::edit::{Edit, LeadershipEnd, PartitionChange};
use crate::leases::{self, BalanceInputs, Owners, hand_over};
use crate::liveness::Liveness;
use crate::liveness::failover::{self, Election};
use crate::placement::assign;
use crate::placement::migrate::{self, MigrationStep, hands_over};
use crate::placement::out_of_sync::may_go;
use crate::placement::repair::{self, Repairs};
use crate::placement::waits::copies_by_node;
use crate::quorum::recovery::reports::settles;
use crate::ranges::step::Step;
use crate::state::migration::{Migration, MigrationId, MoveKind};
use crate::state::node_row::NodeRow;
use crate::state::recovery::Recovery;
use crate::state::{ClusterState, STRANGER_AGE_MS};
use archon_types::{
    Millis, NodeGoal, NodeId, NodeStatus, Partition, PartitionId, Placement, PlacementId, ReplicaState, Table, TableId,
};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of rows that one turn edits; more waits for the next, which follows at once.
const EDITS_MAX: usize = 4_096;
/// Time for a hand-over before the leadership is withdrawn, in failure time-outs: 10 s by default.
const HAND_OFF_TIMEOUTS: u64 = 8;

/// Number of first owners of leases named by one command, which bounds a log entry.
const FIRST_OWNERS_MAX: usize = 512;
/// Maximum number of queued leaderships that one turn examines.
const LEADS_LOOKED_AT_MAX: usize = 1_024;
/// Maximum number of leaderships that a plan moves at once: each pauses its partition for some milliseconds, and more
/// of them prolong each pause, since all wait for the same nodes.
const HAND_OVERS_MAX: usize = 4;

/// Outcome of a turn.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Commands to commit, each under its own guard.
    pub commands: Vec<Command>,
    /// Time of the next turn if the state does not change before. A change of state calls for a turn at once.
    pub wake_at: Millis,
}

/// Decides the changes due now. It may be called at any time and any number of times: an edit is not proposed twice for
/// the same version of a row within a second, and a full pass over unfinished rows is made only when the state changed
/// or a timer is due.
pub fn turn(state: &ClusterState, liveness: &mut Liveness, now: Millis) -> Turn {
    let heartbeat_ms = state.settings.timing.heartbeat_ms;
    let mut wake_at = now.plus(heartbeat_ms);
    if !state.is_bootstrapped() {
        return Turn { commands: Vec::new(), wake_at };
    }
    liveness.sync(state, now);
    let mut commands = failover::failures(state, liveness, now);
    liveness.judge_doors(state, now);
    if let Some((applied, due)) = liveness.passed
        && applied == state.applied
        && now < due
        && commands.is_empty()
    {
        return Turn { commands, wake_at: wake_at.min(due) };
    }
    if let Some(recovery) = state.recovery.as_deref() {
        return recovering(state, recovery, liveness, now, commands);
    }
    let mut pass = Pass { state, liveness, now, due: now.plus(10 * heartbeat_ms), left: EDITS_MAX };
    pass.overdue_hand_overs();
    pass.isolated_leaders();
    pass.liveness.withdraw_unreached(state);
    pass.ordered(&mut commands);
    pass.elections(&mut commands);
    pass.leases(&mut commands);
    pass.departures(&mut commands);
    let mut copies = copies_by_node(state);
    pass.repairs(&mut commands, &mut copies);
    pass.splits(&mut commands);
    pass.merges(&mut commands);
    pass.migrations(&mut commands, &mut copies);
    pass.cleanup(&mut commands);
    pass.strangers(&mut commands);
    pass.assignments(&mut commands);
    let due = if pass.left == 0 { now } else { pass.due };
    let due = liveness.repeat_at().map_or(due, |at| due.min(at.max(now)));
    liveness.passed = Some((state.applied, due));
    wake_at = wake_at.min(due);
    Turn { commands, wake_at }
}

/// Runs a turn during a recovery: no data is decided on until the remaining nodes have reported and leases granted by
/// an earlier quorum have ended (PROTOCOL rule 62); owners of leases have nothing to report.
fn recovering(
    state: &ClusterState,
    recovery: &Recovery,
    liveness: &mut Liveness,
    now: Millis,
    mut commands: Vec<Command>,
) -> Turn {
    if state.stands_by() {
        return Turn { commands, wake_at: now.plus(state.settings.timing.heartbeat_ms) };
    }
    let over_at = liveness.earlier_leases_over_at(state);
    let mut pass = Pass { state, liveness, now, due: now.plus(state.settings.timing.heartbeat_ms), left: EDITS_MAX };
    if now < over_at {
        return Turn { commands, wake_at: pass.due.min(over_at) };
    }
    if settles(state, recovery) {
        commands.push(Command::SettleRecovery);
        return Turn { commands, wake_at: pass.due };
    }
    pass.elections(&mut commands);
    pass.leases(&mut commands);
    Turn { commands, wake_at: pass.due }
}

struct Pass<'a> {
    state: &'a ClusterState,
    liveness: &'a mut Liveness,
    now: Millis,
    due: Millis,
    left: usize,
}

impl Pass<'_> {
    /// Withdraws leaderships that a migration waits for and that are not handed over in time; the election follows when
    /// the lease has ended.
    fn overdue_hand_overs(&mut self) {
        let state = self.state;
        let mut asked = BTreeMap::new();
        let mut overdue = Vec::new();
        let moved = state.migrations.all_running().map(|migration| migration.partition);
        let leases = state.lease_tables().flat_map(|table| state.partitions.with_copies_above(table.id, 1));
        let drained = state.nodes.handing_over().map(|row| row.node.id).chain(state.controls.barred());
        let led = drained.filter(|node| state.partitions.leaders_on(*node) > 0).flat_map(|node| {
            let leads = move |row: &&Partition| row.leader_placement().is_some_and(|leader| leader.node == node);
            state.partitions.on_node(node).filter(leads).map(|row| row.id)
        });
        let ordered = state.ending().filter(|partition| state.is_lease(partition.table));
        for id in moved.chain(led).chain(leases.map(|row| row.id)).chain(ordered).collect::<BTreeSet<_>>() {
            let Some(row) = state.partitions.get(id) else { continue };
            if hands_over(state, row).is_none() {
                continue;
            }
            let since = match self.liveness.hand_overs.get(&row.id) {
                Some((epoch, since)) if *epoch == row.epoch => *since,
                _ => self.now,
            };
            asked.insert(row.id, (row.epoch, since));
            let owner = row.leader_placement().map_or(NodeId::ZERO, |leader| leader.node);
            let over_at = since.plus(HAND_OFF_TIMEOUTS.saturating_mul(state.timing_of(owner).failure_timeout_ms));
            if self.now >= over_at {
                overdue.push(row.id);
            } else {
                self.due = self.due.min(over_at);
            }
        }
        self.liveness.hand_overs = asked;
        for partition in overdue {
            self.liveness.withdraw(self.state, partition);
        }
    }

    /// Withdraws leaderships of isolated leaders where another copy would do better, so that their holders release
    /// them.
    fn isolated_leaders(&mut self) {
        let mut isolated = std::mem::take(&mut self.liveness.isolated);
        let may_lead = |node| self.liveness.may_lead(node) && !self.liveness.doors.spares(node);
        let due = isolated.take_due(self.state, self.now, may_lead);
        self.liveness.isolated = isolated;
        for partition in due {
            self.liveness.withdraw(self.state, partition);
        }
    }

    /// Carries out operators' orders: leaderships of data that must end are withdrawn, since another copy is ready;
    /// owners of leases were asked to release them. Expired maintenance ends.
    fn ordered(&mut self, commands: &mut Vec<Command>) {
        let state = self.state;
        for partition in state.ending().filter(|partition| !state.is_lease(partition.table)) {
            self.liveness.withdraw(state, partition);
        }
        let (ended, due) = self.liveness.countdowns.due(state, self.now);
        commands.extend(ended);
        self.due = due.map_or(self.due, |due| self.due.min(due));
    }

    /// Elects leaders of partitions without one or with a withdrawn leadership.
    fn elections(&mut self, commands: &mut Vec<Command>) {
        let mut extra = BTreeMap::new();
        let mut owners = Owners::new(self.state);
        let withdrawn: Vec<PartitionId> = self.liveness.withdrawn().map(|(partition, _)| partition).collect();
        let withdrawn = withdrawn.iter().filter_map(|id| self.state.partitions.get(*id));
        let leaderless = failover::electable(self.state, self.liveness, &mut owners);
        for row in withdrawn.chain(leaderless) {
            if self.left == 0 {
                break;
            }
            if self.state.recovery.is_some() && !self.state.is_lease(row.id.table) {
                continue;
            }
            if !self.liveness.may_propose(row.id, row.version, self.now) {
                continue;
            }
            match failover::elect(self.state, self.liveness, self.now, row, &mut extra, &mut owners) {
                Election::Elect(command) => self.propose(commands, row, command),
                Election::Wait(at) => self.due = self.due.min(at),
                Election::Nothing => {}
            }
        }
        self.liveness.placement_last = owners.placement_last(self.liveness);
    }

    /// Names first owners of leases, and makes the moves that keep each lease table even.
    fn leases(&mut self, commands: &mut Vec<Command>) {
        let state = self.state;
        let settles_at = self.liveness.churn.settles_at();
        self.due = self.due.min(settles_at.unwrap_or(self.due));
        let mut owners = Owners::new(state);
        for table in state.lease_tables() {
            let mut first = Vec::new();
            let taken = settles_at.is_none() && owners.takes(self.liveness, table);
            let waiting = taken.then(|| state.partitions.unassigned_in(table.id));
            for row in waiting.into_iter().flatten() {
                if self.left <= first.len() || !owners.takes(self.liveness, table) {
                    break;
                }
                if state.is_offline(row.id) || !self.liveness.may_propose(row.id, row.version, self.now) {
                    continue;
                }
                let Some(next) = owners.next(self.liveness, row, |_| false) else { continue };
                let edits = hand_over::take_over(row, next, LeadershipEnd::Lapsed);
                self.liveness.note_proposed(row.id, row.version, self.now);
                first.push(PartitionChange { partition: row.id, if_version: row.version, edits });
            }
            self.left -= first.len();
            commands.extend(first.chunks(FIRST_OWNERS_MAX).map(|chunk| Command::Change(chunk.to_vec())));
            for (partition, to) in self.uneven(table, settles_at.is_none()) {
                let Some(row) = state.partitions.get(partition) else { continue };
                if self.left == 0 || !self.liveness.may_propose(row.id, row.version, self.now) {
                    continue;
                }
                let edit = Edit::Add(owners.place(self.liveness, to));
                self.propose(commands, row, Command::Change(vec![PartitionChange::one(row.id, row.version, edit)]));
            }
            self.stale_targets(table.id, commands);
        }
        self.liveness.placement_last = owners.placement_last(self.liveness);
    }

    /// Returns the moves that make a lease table even, at intervals.
    fn uneven(&mut self, table: &Table, settled: bool) -> Vec<(PartitionId, NodeId)> {
        let seen = BalanceInputs { applied: self.state.applied, settled };
        match self.liveness.churn.may_balance(table.id, seen, self.now) {
            Ok(()) => {
                let moves = leases::lease_moves(self.state, table, settled, self.liveness);
                if moves.is_empty() {
                    self.liveness.churn.note_balanced(table.id, seen);
                }
                moves
            }
            Err(at) => {
                self.due = at.map_or(self.due, |at| self.due.min(at));
                Vec::new()
            }
        }
    }

    /// Undoes moves of leases whose target disappeared before the owner handed over.
    fn stale_targets(&mut self, table: TableId, commands: &mut Vec<Command>) {
        let state = self.state;
        for row in state.partitions.with_copies_above(table, 1) {
            let Some(owner) = row.leader else { continue };
            let gone = |copy: &&Placement| {
                copy.id != owner && !(state.is_alive(copy.node) && self.liveness.may_lead(copy.node))
            };
            let edits: Vec<Edit> = row.placements.iter().filter(gone).map(|copy| Edit::Forget(copy.id)).collect();
            if !edits.is_empty() && self.left > 0 && self.liveness.may_propose(row.id, row.version, self.now) {
                let change = PartitionChange { partition: row.id, if_version: row.version, edits };
                self.propose(commands, row, Command::Change(vec![change]));
            }
        }
    }

    /// Takes copies on exiting nodes out of sync while they still acknowledge, so that no leader ever waits for one
    /// that is gone. Never below `min_in_sync`, and only where another copy leads.
    fn departures(&mut self, commands: &mut Vec<Command>) {
        let state = self.state;
        let leaving: Vec<NodeId> = self.liveness.stopping().collect();
        for node in leaving {
            let Some(incarnation) = state.incarnation(node).filter(|_| state.is_active(node)) else { continue };
            for row in state.partitions.on_node(node).filter(|row| !state.is_lease(row.id.table)) {
                let Some(own) = row.placement_on(node).filter(|own| own.state == ReplicaState::Live) else { continue };
                let led = row.leader.is_some_and(|leader| leader != own.id);
                let others = row.live().filter(|copy| copy.id != own.id && state.is_alive(copy.node)).count();
                let spare = others >= usize::from(row.min_in_sync);
                if self.left == 0 || !led || !spare || !self.liveness.may_propose(row.id, row.version, self.now) {
                    continue;
                }
                let edit = Edit::Demote(own.id, incarnation);
                self.propose(commands, row, Command::Change(vec![PartitionChange::one(row.id, row.version, edit)]));
            }
        }
    }

    /// Replaces failed and leaving copies, before copies that only balance.
    fn repairs(&mut self, commands: &mut Vec<Command>, copies: &mut BTreeMap<NodeId, u32>) {
        let state = self.state;
        let mut repairs = Repairs::new(state, self.liveness, self.now);
        if let Some(due) = self.liveness.replace_due(state.settings.replace_after_ms, self.now) {
            self.due = self.due.min(due);
        }
        for row in repairs.candidates().into_iter().filter_map(|id| state.partitions.get(id)) {
            if self.left == 0 {
                return;
            }
            if !self.liveness.may_propose(row.id, row.version, self.now) {
                continue;
            }
            match repairs.step(row, copies) {
                repair::Step::Change(command) => self.propose(commands, row, command),
                repair::Step::Load(node, why) => {
                    let source = row.leader_placement().map(|leader| leader.node);
                    for busy in source.into_iter().chain([node]) {
                        *copies.entry(busy).or_default() += 1;
                    }
                    repairs.note(source, node, copies);
                    let command = repair::load(row, self.placement(), node, why);
                    self.propose(commands, row, command);
                }
                repair::Step::Nothing => {}
            }
        }
    }

    /// Completes or abandons splits.
    fn splits(&mut self, commands: &mut Vec<Command>) {
        let state = self.state;
        let mut splits = std::mem::take(&mut self.liveness.splits);
        splits.retain(state);
        for (row, split) in state.partitions.splitting().filter_map(|row| Some((row, row.split.as_deref()?))) {
            let step = splits.step(state, row, split, self.now, |node| self.liveness.may_lead(node));
            self.follow(commands, row, step);
        }
        self.liveness.splits = splits;
        self.liveness.automatic_splits.sync(state, self.now);
    }

    /// Abandons overdue merges. The absorbing leader requests the completion itself.
    fn merges(&mut self, commands: &mut Vec<Command>) {
        let state = self.state;
        let mut merges = std::mem::take(&mut self.liveness.merges);
        merges.retain(state);
        for (row, right) in state.partitions.merging().filter_map(|row| Some((row, row.absorbs()?.1))) {
            let step = merges.step(state, row, right, self.now);
            self.follow(commands, row, step);
        }
        self.liveness.merges = merges;
        self.liveness.automatic_merges.sync(state, self.now);
    }

    /// Takes the next step of a split or merge of this row, or notes when one may be due.
    fn follow(&mut self, commands: &mut Vec<Command>, row: &Partition, step: Step) {
        match step {
            Step::Wait(at) => self.due = self.due.min(at),
            Step::Change(command) if self.left > 0 && self.liveness.may_propose(row.id, row.version, self.now) => {
                self.propose(commands, row, command);
            }
            Step::Change(_) => {} // It follows once there is room or the proposed edit is applied.
        }
    }

    /// Returns a number for a new copy.
    fn placement(&mut self) -> PlacementId {
        let last = self.liveness.placement_last.max(self.state.placement_last.get());
        self.liveness.placement_last = last + 1;
        PlacementId::new(last + 1)
    }

    /// Takes the next step of every migration, and begins as many as the copy limit allows.
    fn migrations(&mut self, commands: &mut Vec<Command>, copies: &mut BTreeMap<NodeId, u32>) {
        let running =
            |migration: &&Migration| migration.kind == MoveKind::Leadership && migration.stage.target().is_some();
        let migrations = &self.state.migrations;
        let mut handing_over = migrations.all_running().filter(running).count();
        let most = self.state.settings.copies_per_node_max;
        // Of the waiting ones, only those not blocked by the copy limit or by others are examined: there may be tens of
        // thousands, and this is done for every change of state.
        let open = |node: NodeId| !self.state.is_alive(node) || copies.get(&node).copied().unwrap_or(0) < most;
        let mut due: BTreeSet<MigrationId> = migrations.all_running().map(|migration| migration.id).collect();
        due.extend(migrations.could_begin(open));
        let first = |id: &MigrationId| {
            migrations.get(*id).is_some_and(|waits| migrations.first_active(waits.partition) == Some(*id))
        };
        if handing_over < HAND_OVERS_MAX {
            due.extend(migrations.queued_leads().filter(first).take(LEADS_LOOKED_AT_MAX));
        }
        for migration in due.into_iter().filter_map(|id| migrations.get(id)) {
            if self.left == 0 {
                return;
            }
            let Some(row) = self.state.partitions.get(migration.partition) else { continue };
            if !self.liveness.may_propose(row.id, row.version, self.now) {
                continue;
            }
            match migrate::next(self.state, migration) {
                MigrationStep::Step(command) => self.propose(commands, row, command),
                MigrationStep::Wait(_) => {}
                // Clients cannot reach it.
                MigrationStep::Lead(_) if self.liveness.doors.spares(migration.to) => {}
                MigrationStep::Lead(command) if handing_over < HAND_OVERS_MAX => {
                    handing_over += 1;
                    self.propose(commands, row, command);
                }
                MigrationStep::Lead(_) => {}
                MigrationStep::Begin => {
                    let full = |node| copies.get(&node).copied().unwrap_or(0) >= most;
                    if full(migration.from) || full(migration.to) {
                        continue;
                    }
                    *copies.entry(migration.from).or_default() += 1;
                    *copies.entry(migration.to).or_default() += 1;
                    let command = migrate::begin(migration, row, self.placement());
                    self.propose(commands, row, command);
                }
            }
        }
    }

    /// Removes copies on lost nodes, which no node will ever delete.
    fn cleanup(&mut self, commands: &mut Vec<Command>) {
        let state = self.state;
        for row in state.partitions.unsettled() {
            if self.left == 0 {
                return;
            }
            let gone = |placement: &&Placement| {
                let lost = state.node(placement.node).is_none_or(|node| node.node.status == NodeStatus::Lost);
                lost && match placement.state {
                    ReplicaState::Unload => true,
                    // A copy that may be the last remains of a partition is kept for the operator.
                    ReplicaState::Load => may_go(state, row, placement.id).is_ok(),
                    ReplicaState::Live => false,
                }
            };
            let edits: Vec<Edit> =
                row.placements.iter().filter(gone).map(|placement| Edit::Forget(placement.id)).collect();
            if !edits.is_empty() && self.liveness.may_propose(row.id, row.version, self.now) {
                let change = PartitionChange { partition: row.id, if_version: row.version, edits };
                self.propose(commands, row, Command::Change(vec![change]));
            }
        }
    }

    /// Forgets nodes that registered, never acted and left, and participants that are gone, after a while.
    fn strangers(&mut self, commands: &mut Vec<Command>) {
        let state = self.state;
        if let Some(due) = self.liveness.replace_due(STRANGER_AGE_MS, self.now) {
            self.due = self.due.min(due);
        }
        let gone = self.liveness.failed_for(STRANGER_AGE_MS, self.now).filter(|node| {
            // Its orders would be forgotten with it, and not hold when it returns.
            let ordered = |row: &NodeRow| row.node.goal != NodeGoal::Serve || state.controls.bars_member(*node);
            let served_nothing = |row: &NodeRow| !ordered(row) && state.partitions.count_on(*node) == 0;
            state.is_stranger(*node) || state.participants.get(node).is_some_and(served_nothing)
        });
        for row in gone.filter_map(|node| state.node(node)).take(self.left) {
            commands.push(Command::RemoveNode { node: row.node.id, if_version: row.node.version });
        }
    }

    /// Makes first assignments.
    fn assignments(&mut self, commands: &mut Vec<Command>) {
        let (assigned, more) = assign::assign(self.state, self.liveness, self.now, self.left);
        commands.extend(assigned);
        if more {
            self.left = 0;
        }
    }

    fn propose(&mut self, commands: &mut Vec<Command>, row: &Partition, command: Command) {
        self.liveness.note_proposed(row.id, row.version, self.now);
        self.left -= 1;
        commands.push(command);
    }
}
