//! Registration of a node's new incarnation (PROTOCOL rules 8 and 19).

use super::dropped::forget_node;
use super::histories::{check_taken_over, is_of_other_history, of_this_generation};
use super::participant;
use super::stage::StagedRows;
use crate::command::apply::entry::Entry;
use crate::command::refusals::{invalid, next_epoch, refused};
use crate::mutant::Mutant;
use crate::quorum::upgrade;
use crate::state::events::EventKind;
use crate::state::former_leaders::FormerLeader;
use crate::state::node_row::NodeRow;
use crate::state::out_of_sync_copy::Condition;
use crate::state::recovery::Inventory;
use crate::state::response::Response;
use crate::state::{ClusterState, NODES_MAX, STRANGERS_MAX};
use archon_types::limits::{check_address, check_member_name};
use archon_types::{
    ErrorDetail, ErrorKind, Incarnation, Node, NodeGoal, NodeId, NodeStatus, Partition, Placement, PlacementId,
    Register, ReplicaState, RightStage, Version, generation_of,
};
use std::collections::BTreeSet;

pub(super) fn register(
    state: &mut ClusterState,
    entry: Entry<'_>,
    register: &Register,
) -> Result<Response, ErrorDetail> {
    let known = state.node_by_storage(register.storage).cloned();
    of_this_generation(state, register, known.as_ref())?;
    check_taken_over(state)?;
    if let Some(participant) = &register.participant {
        return participant::register(state, entry, register, participant);
    }
    check(state, register)?;
    let incarnation = Incarnation::new(entry.index);
    if let Some(known) = &known {
        let same = known.boot == register.boot && !state.breaks(Mutant::BootForgotten); // rule 19
        if known.node.status == NodeStatus::Alive && same {
            let (node, incarnation) = (known.node.id, known.node.incarnation);
            publish_redis(state, entry, known, register);
            return Ok(Response::Registered { node, incarnation });
        }
        if known.node.status == NodeStatus::Alive && known.node.address != register.address {
            return Err(started_twice(known, register, state.settings.timing.failure_timeout_ms));
        }
        if register.expects != Some(known.node.incarnation) {
            return Err(overtaken(known, register.expects));
        }
        if known.node.incarnation == incarnation {
            let message = format!("{} registers twice at once; try again", register.name);
            return Err(ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(50));
        }
    }
    // A member that registered by a change that the recovery lost, and that holds nothing, is as good as new.
    let of_before = |last: Incarnation| generation_of(last.get()) < state.generation && register.held.is_empty();
    let comes_back = register.last_incarnation.is_some_and(|last| !of_before(last));
    if known.is_none() && comes_back && state.recovery.is_none() {
        return Err(forgotten(register));
    }
    let replaced = claim(state, register, known.as_ref())?;
    if let Some(replaced) = replaced {
        if state.recovery.is_some() {
            return Err(taken_over_later(state, replaced));
        }
        keeps_last_copies(state, replaced)?;
    }
    if known.is_none() {
        make_room(state, entry.version())?;
    }

    let mut staged = StagedRows::new(state, entry);
    // During a recovery no row is trusted: the node's copies are judged at the end.
    if let Some(known) = known.as_ref().filter(|_| state.recovery.is_none()) {
        end_life(&mut staged, state, known, register)?;
    }
    if let Some(replaced) = replaced.filter(|_| !state.breaks(Mutant::WipedStaysLive)) {
        for row in state.partitions.on_node(replaced) {
            let mut row = staged.row(row.id)?;
            let live = row.placement_on(replaced).filter(|copy| copy.state == ReplicaState::Live).map(|copy| copy.id);
            let forms = row.split.as_ref().is_some_and(|split| split.copy_on(replaced).is_some());
            row.split.iter_mut().for_each(|split| split.copies.retain(|copy| copy.node != replaced));
            if let Some(live) = live {
                let why = "another data directory took over the node's name";
                staged.lose(&mut row, live, Condition::Whole, why)?;
            }
            if live.is_some() || forms {
                staged.put(row);
            }
        }
    }
    let effect = staged.into_effect();

    // All guards passed: from here on the state changes.
    effect.commit(state, entry);
    let id = number(state, known.as_ref());
    if let Some(replaced) = replaced {
        state.nodes.update(replaced, |row| {
            row.node.status = NodeStatus::Lost;
            row.node.version = entry.version();
            row.node.since = entry.at;
        });
        forget_node(state, replaced);
        entry.note(state, EventKind::NodeLost { node: replaced, by: id });
    }
    let elsewhere = is_of_other_history(state, register);
    let last = register.last_incarnation;
    let by_row = state.breaks(Mutant::OlderByRow); // rule 61
    let older = match (&state.recovery, &known) {
        (Some(_), Some(known)) if by_row => is_rolled_back(known, last),
        (Some(recovery), Some(_)) => recovery.is_older(id, last),
        _ => false,
    };
    if let Some(recovery) = &mut state.recovery {
        recovery.note_directory(id, incarnation, last, older || elsewhere);
        let copies = register.held.iter().map(|placement| (*placement, None)).collect();
        let told = match recovery.inventories.get(&id) {
            // It registers again: it learned the versions of this generation from this state.
            Some(before) if generation_of(told(register).get()) == state.generation => before.told,
            Some(before) => told(register).max(before.told),
            None => told(register),
        };
        let before = recovery.inventories.get(&id).is_some_and(|before| before.other_history);
        let other_history = before || elsewhere;
        recovery.inventories.insert(id, Inventory { incarnation, told, older, other_history, copies });
    }
    if state.breaks(Mutant::CondemnedEndsWithLife) {
        forget_node(state, id); // rule 26
    }
    Ok(begin_life(state, entry, register, known.as_ref(), id))
}

/// Records the address of a node's Redis listener if its process registers once more: the cluster did not take it when
/// the incarnation began. A process never takes it back, so a late attempt without an address changes nothing.
fn publish_redis(state: &mut ClusterState, entry: Entry<'_>, known: &NodeRow, register: &Register) {
    if register.redis.is_some() && known.node.redis != register.redis {
        state.update_member(known.node.id, entry.version(), |row| {
            row.node.redis = register.redis.clone();
            row.node.version = entry.version();
        });
    }
}

/// Returns the number of a registering member: its own if it is known, else the next one.
pub(super) fn number(state: &mut ClusterState, known: Option<&NodeRow>) -> NodeId {
    let id = known.map_or_else(|| NodeId::new(state.node_last.get() + 1), |known| known.node.id);
    state.node_last = state.node_last.max(id);
    id
}

/// Records the member with its new incarnation, as a node or participant.
pub(super) fn begin_life(
    state: &mut ClusterState,
    entry: Entry<'_>,
    register: &Register,
    known: Option<&NodeRow>,
    id: NodeId,
) -> Response {
    let (name, incarnation) = (register.name.clone(), Incarnation::new(entry.index));
    let event = match known {
        Some(_) => EventKind::NodeReturned { node: id, name, incarnation },
        None => EventKind::NodeRegistered { node: id, name, incarnation },
    };
    entry.note(state, event);
    let said = register.traits();
    let traits = known.map_or_else(|| said.clone(), |known| known.node.traits().registered(&known.said, &said));
    let node = Node {
        id,
        name: register.name.clone(),
        address: register.address.clone(),
        incarnation,
        status: NodeStatus::Alive,
        goal: known.map_or(NodeGoal::Serve, |known| known.node.goal),
        zone: traits.zone,
        weight: traits.weight,
        partitions_max: traits.partitions_max,
        version: entry.version(),
        since: entry.at,
        redis: register.redis.clone(),
    };
    let row = NodeRow {
        node,
        activated: known.and_then(|known| known.activated),
        storage: register.storage,
        boot: register.boot,
        protocol_min: register.protocol_min,
        protocol_max: register.protocol_max,
        stopped: false,
        goal_since: known.map_or(entry.at, |known| known.goal_since),
        participant: register.participant.clone(),
        certified: register.certified,
        said,
    };
    let (members, newest) = match row.participant {
        Some(_) => (&mut state.participants, &mut state.participants_version),
        None => (&mut state.nodes, &mut state.nodes_version),
    };
    members.insert(row);
    *newest = entry.version();
    Response::Registered { node: id, incarnation }
}

/// Forgets the lapsed leaderships of a fenced incarnation: it gets no answer any longer, so no notice is due.
pub(super) fn forget_lapsed(staged: &mut StagedRows<'_>, state: &ClusterState, life: (NodeId, Incarnation)) {
    for (partition, epoch) in state.former_leaders.of_holder(life.0, life.1) {
        if state.former_leaders.get(partition, epoch).is_some_and(|former| former.lapsed) {
            staged.forget_former(partition, epoch);
        }
    }
}

/// Returns the error for a registration overtaken by another one: its statements about the directory (its copies, its
/// stored incarnation) predate that. Accepting them would discard whole copies.
fn overtaken(known: &NodeRow, expects: Option<Incarnation>) -> ErrorDetail {
    let (name, have) = (&known.node.name, known.node.incarnation);
    let message = format!("the data directory of {name} was registered as incarnation {have} since; register again");
    ErrorDetail::new(ErrorKind::StaleVersion, message).with_have_need(have.get(), expects.map_or(0, Incarnation::get))
}

/// Returns the error for the directory of a removed node: its copies are unknown here, and its number is not reused.
fn forgotten(register: &Register) -> ErrorDetail {
    refused(format!(
        "the data directory of {} belongs to a node that was removed from this cluster (or that this cluster never \
         knew); \
         give it an empty --data-dir to join as a new node",
        register.name
    ))
}

/// Rejects an empty directory that takes over a failed node's name while that node holds a last in-sync copy: its
/// copies would be lost. A wrong path is more likely than a decision, so an explicit command is required.
fn keeps_last_copies(state: &ClusterState, replaced: NodeId) -> Result<(), ErrorDetail> {
    let last = |row: &&Partition| {
        let mut live = row.live();
        let only = live.next().is_some_and(|copy| copy.node == replaced) && live.next().is_none();
        // A partition that was assigned and never served has nothing to lose.
        only && !state.untouched.contains(&row.id)
    };
    let rows: Vec<&Partition> = state.partitions.on_node(replaced).filter(last).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let name = state.node_name(replaced);
    let message = format!(
        "this data directory does not belong to {name}, which is not alive and holds the last in-sync replica of {} \
         partitions ({}); start {name} with its own --data-dir, or choose another --name. If its data is gone for \
         good: `archon node lost {name} --accept-data-loss`, then start this node again",
        rows.len(),
        state.partition_names(rows.iter().map(|row| row.id)),
    );
    Err(ErrorDetail::new(ErrorKind::DataLoss, message))
}

/// Returns the error for a directory that was copied and started a second time while the first process lives. If both
/// were accepted, each would fence the other forever. Only one process can use an address, so a restart at the same
/// address is accepted at once; a restart at another address waits until the former incarnation is failed.
fn started_twice(known: &NodeRow, register: &Register, retry_ms: u64) -> ErrorDetail {
    let (name, address) = (&known.node.name, &known.node.address);
    let message = format!(
        "the data directory of {name} is in use by the live node at {address}, so {} cannot use it or a copy of it; \
         stop that node first, or give this one an empty --data-dir and its own --name",
        register.address
    );
    ErrorDetail::new(ErrorKind::NameTaken, message).with_retry_after_ms(retry_ms)
}

/// Ends every leadership of the node's former incarnation, and finds which of its copies are no longer in sync.
fn end_life(
    staged: &mut StagedRows<'_>,
    state: &ClusterState,
    known: &NodeRow,
    register: &Register,
) -> Result<(), ErrorDetail> {
    let node = known.node.id;
    let held: BTreeSet<PlacementId> = register.held.iter().copied().collect();
    let other_copy = is_other_copy(known, register.last_incarnation) || is_of_other_history(state, register);
    let other_copy = other_copy && !state.breaks(Mutant::OtherCopyStaysLive);
    for row in state.partitions.on_node(node) {
        let Some(placement) = row.placement_on(node).copied() else { continue };
        let leads = row.leader == Some(placement.id) && !state.breaks(Mutant::LeadershipSurvives); // rule 8
        let mut row = staged.row(row.id)?;
        if leads {
            FormerLeader::holding(state, &row).into_iter().for_each(|former| staged.remember(former));
            row.leader = None;
            row.epoch = next_epoch(row.epoch)?;
        }
        if judge_copy(staged, state, &mut row, placement, (&|id| held.contains(&id), other_copy))? || leads {
            staged.put(row);
        }
    }
    forget_lapsed(staged, state, (node, known.node.incarnation));
    Ok(())
}

/// Decides whether a copy stays in sync, given which copies its node `holds` whole and whether its directory is
/// `other_copy` than the last active one. Returns true if anything changed.
pub(super) fn judge_copy(
    staged: &mut StagedRows<'_>,
    state: &ClusterState,
    row: &mut Partition,
    placement: Placement,
    (holds, other_copy): (&dyn Fn(PlacementId) -> bool, bool),
) -> Result<bool, ErrorDetail> {
    let node = placement.node;
    // A copy that was assigned and never served may not have reached the disk: then there is nothing to lose, and its
    // node starts it again. Otherwise a node killed right after the first assignment would lock its partitions
    // permanently.
    let listed = holds(placement.id) || state.breaks(Mutant::UnheldStaysLive); // rule 19
    let missing = !listed && !state.untouched.contains(&row.id);
    let lost = placement.state == ReplicaState::Live && (other_copy || missing);
    let condition = match (listed, other_copy) {
        (false, _) => Condition::Gone,
        (true, true) => Condition::Older,
        (true, false) => Condition::Whole,
    };
    let spoiled = placement.state != ReplicaState::Live
        && state.departed.get(&placement.id).is_some_and(|departed| condition < departed.condition);
    let unformed = row.split.as_ref().and_then(|split| split.copy_on(node)).is_some_and(|copy| {
        let whole = copy.is_formed() && !other_copy && holds(copy.id);
        copy.stage > RightStage::Copying && !whole && !state.breaks(Mutant::FormedLost) // rule 39
    });
    let split_off = row.split.iter_mut().flat_map(|split| &mut split.copies);
    for copy in split_off.filter(|copy| unformed && copy.node == node) {
        copy.stage = RightStage::Copying;
    }
    if lost {
        let why = if other_copy {
            "the data directory is an older or another copy of the node's own"
        } else {
            "the node came back without holding it whole"
        };
        staged.lose(row, placement.id, condition, why)?;
    } else if spoiled {
        staged.spoil(row, placement.id, condition, true)?;
    }
    Ok(lost || spoiled || unformed)
}

/// Returns the table version that the node received, with a registration or after it.
fn told(register: &Register) -> Version {
    register.told.max(Version::new(register.last_incarnation.map_or(0, Incarnation::get)))
}

/// Returns the error for a takeover during a recovery: the copies of a node that has not reported are not given up.
fn taken_over_later(state: &ClusterState, replaced: NodeId) -> ErrorDetail {
    let name = state.node_name(replaced);
    let message = format!(
        "the coordinators are being recovered, and {name} has not reported its copies: start it with its own \
         --data-dir, or, if its data is gone for good, run `archon node lost {name} --accept-data-loss` and wait until \
         the recovery ends"
    );
    ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(1_000)
}

/// Returns true if the directory is not the one that the last activated incarnation wrote to: rolled back, cloned
/// before that incarnation, or from a future that this cluster does not know. An incarnation between the last activated
/// and the present one was stored but not confirmed, and has done nothing.
fn is_other_copy(known: &NodeRow, last: Option<Incarnation>) -> bool {
    is_rolled_back(known, last) || last.is_some_and(|last| last > known.node.incarnation)
}

/// Returns true if the directory predates the last activated incarnation.
fn is_rolled_back(known: &NodeRow, last: Option<Incarnation>) -> bool {
    known.activated.is_some_and(|activated| last.is_none_or(|last| last < activated))
}

/// Checks that name and address are free for this node. Returns the failed node whose name it takes over, if any.
fn claim(state: &ClusterState, register: &Register, known: Option<&NodeRow>) -> Result<Option<NodeId>, ErrorDetail> {
    let own = known.map(|known| known.node.id);
    let retry_ms = state.settings.timing.failure_timeout_ms;
    let mut replaced = None;
    if let Some(participant) = state.participants.named(&register.name).next() {
        let message = format!("the name {:?} belongs to a participant; choose another --name", participant.node.name);
        return Err(ErrorDetail::new(ErrorKind::NameTaken, message));
    }
    let alike: BTreeSet<NodeId> = state
        .nodes
        .named(&register.name)
        .chain(state.nodes.reached_at(&register.address))
        .map(|row| row.node.id)
        .filter(|id| Some(*id) != own)
        .collect();
    for other in alike.into_iter().filter_map(|id| state.node(id)).map(|row| &row.node) {
        let live = other.status == NodeStatus::Alive;
        let same_name = other.name == register.name && other.status != NodeStatus::Lost;
        // The directory of a node that lost its name to another one: its copies may be worth more than their
        // replacements.
        let former = known.is_some_and(|known| known.node.name == other.name);
        if same_name && live {
            let way_out = match former {
                true => format!(
                    "which took it over. To have this directory back: stop that node, `archon node remove {}`, then \
                     start \
                     this one again",
                    other.name
                ),
                false => "so choose another --name, or stop that node first".to_owned(),
            };
            let message = format!(
                "the name {:?} belongs to a node that is alive, with another data directory (at {}), {way_out}",
                other.name, other.address
            );
            return Err(ErrorDetail::new(ErrorKind::NameTaken, message).with_retry_after_ms(retry_ms));
        }
        if same_name && known.is_some_and(|known| !takes_back(state, known, register, other)) {
            let way_out = match former {
                true => format!(
                    "which took it over. To have this directory back: `archon node remove {}`, then start it again",
                    other.name
                ),
                false => "and only an empty data directory may take over a failed node's name".to_owned(),
            };
            let message = format!(
                "the name {:?} belongs to a failed node, and this data directory to another one, {way_out}",
                other.name
            );
            return Err(ErrorDetail::new(ErrorKind::NameTaken, message));
        }
        if live && other.address == register.address {
            let message = format!(
                "the address {} belongs to the node {:?}, which is alive; choose another --listen address, or stop \
                 that node first",
                other.address, other.name
            );
            return Err(ErrorDetail::new(ErrorKind::NameTaken, message).with_retry_after_ms(retry_ms));
        }
        if same_name {
            replaced = Some(other.id);
        }
    }
    Ok(replaced)
}

/// Returns true if a known directory may take its own name back from the failed node that has it now.
///
/// The first registration of a directory that was wiped since may arrive late and take the name from the directory that
/// replaced it, for an incarnation without a process. Such a holder never acted, so it received no push and no copy:
/// taking the name from it loses nothing. If copies of its earlier incarnation are in sync, it keeps the name.
fn takes_back(state: &ClusterState, known: &NodeRow, register: &Register, holder: &Node) -> bool {
    let acted = state.node(holder.id).is_none_or(|row| row.activated == Some(row.node.incarnation));
    let counts = |row: &Partition| row.placement_on(holder.id).is_some_and(|copy| copy.state == ReplicaState::Live);
    known.node.name == register.name && !acted && !state.partitions.on_node(holder.id).any(counts)
}

/// Keeps the number of nodes bounded: forgets the strangers that left longest ago first, then lost nodes without
/// copies.
fn make_room(state: &mut ClusterState, version: Version) -> Result<(), ErrorDetail> {
    let strangers = state.nodes.down().filter(|row| state.is_stranger(row.node.id));
    let mut strangers: Vec<(Version, NodeId)> = strangers.map(|row| (row.node.version, row.node.id)).collect();
    strangers.sort_unstable();
    let excess = (strangers.len() + 1).saturating_sub(STRANGERS_MAX);
    for (_, id) in strangers.into_iter().take(excess) {
        state.remove_node(id, version);
    }
    if state.nodes.len() < NODES_MAX {
        return Ok(());
    }
    let partitions = &state.partitions;
    let gone = |row: &&NodeRow| row.node.status == NodeStatus::Lost && partitions.count_on(row.node.id) == 0;
    let gone: Vec<NodeId> = state.nodes.down().filter(gone).map(|row| row.node.id).collect();
    for id in gone {
        state.remove_node(id, version);
    }
    if state.nodes.len() >= NODES_MAX {
        let message = format!("{} nodes are registered, which is the limit", state.nodes.len());
        return Err(ErrorDetail::new(ErrorKind::Refused, message));
    }
    Ok(())
}

pub(super) fn check(state: &ClusterState, register: &Register) -> Result<(), ErrorDetail> {
    check_member_name("node", &register.name)?;
    register.traits().check()?;
    check_address(&register.address)?;
    register.redis.iter().try_for_each(|address| check_address(address))?;
    if register.storage.is_nil() || register.boot.is_nil() {
        return Err(invalid(format!("{} registers without a storage id or boot id", register.name)));
    }
    upgrade::check_speaks(state, &register.name, register.speaks())
}
