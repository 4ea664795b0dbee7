//! The coordinators (PROTOCOL rules 57 and 58): a number and a directory permanently belong to one of them, voters
//! change by joint consensus, and one change ends before another one begins.

use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use archon_types::StorageId;
use std::collections::BTreeMap;

const NAME: &str = "quorum";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    let coordinators = &state.coordinators;
    let mut directories: BTreeMap<StorageId, u64> = BTreeMap::new();
    let members = coordinators.members.iter().map(|(id, member)| (*id, member.storage));
    for (id, storage) in members.chain(coordinators.retired.iter().map(|(id, storage)| (*id, *storage))) {
        if let Some(other) = directories.insert(storage, id) {
            return violated(NAME, format!("the directory of coordinator {other} is that of coordinator {id} as well"));
        }
    }
    if let Some(id) = coordinators.members.keys().find(|id| coordinators.retired.contains_key(id)) {
        return violated(NAME, format!("coordinator {id} was removed, and is a member again"));
    }
    if !coordinators.members.is_empty() && coordinators.voters().is_empty() {
        return violated(NAME, "no coordinator votes");
    }
    Ok(())
}

pub(super) fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    if before.generation != after.generation || before.coordinators.members.is_empty() {
        return Ok(());
    }
    let (before, after) = (&before.coordinators, &after.coordinators);
    let (was, is) = (before.voters(), after.voters());
    if was != is && !before.joint && !after.joint {
        return violated(NAME, format!("the voters changed from {was:?} to {is:?} without joint consensus"));
    }
    if after.joint && !was.is_subset(&is) {
        return violated(NAME, format!("of the voters {was:?} only {is:?} count while they change"));
    }
    if let Some((id, _)) =
        before.members.iter().find(|(id, was)| after.members.get(id).is_some_and(|is| is.storage != was.storage))
    {
        return violated(NAME, format!("coordinator {id} has another directory than it had"));
    }
    if let Some(id) = before.retired.keys().find(|id| !after.retired.contains_key(id)) {
        return violated(NAME, format!("the number {id} of one that was removed is free again"));
    }
    match (&before.pending, &after.pending) {
        (Some(was), Some(is)) if was.since != is.since => {
            violated(NAME, format!("{} began while this was under way: {}", is.wish, was.wish))
        }
        _ => Ok(()),
    }
}
