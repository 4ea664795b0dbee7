//! Conditions that the story waits for: registered nodes, available partitions with all copies, moves.

use crate::connect::leading;
use crate::documents::{Partition, Rebalance};
use crate::exit::Failure;
use archon_client::{Admin, NodeStatus, PartitionStatus, ReplicaState};
use archon_load::{CheckOutcome, Wait};
use archon_local_cluster::{Cluster, REQUEST_LIMIT, SMALL, TIMEOUT};
use std::time::Duration;

/// Table of the story.
pub(super) const TABLE: &str = "default";

/// Polls until the condition holds, and returns the elapsed time.
///
/// # Errors
/// After a minute: the awaited condition and the last state. An error of the poll itself ends the wait at once.
pub(super) async fn wait_for<T>(
    what: &str,
    look: impl AsyncFnMut() -> Result<CheckOutcome<T>, Failure>,
) -> Result<(T, Duration), Failure> {
    archon_load::wait_for(what, TIMEOUT, Wait::EVERY, look).await
}

/// Waits until a node has registered; returns the elapsed time.
pub(super) async fn node_registered(cluster: &mut Cluster, admin: &Admin, name: &str) -> Result<Duration, Failure> {
    let (_, took) = wait_for(&format!("{name} to register"), async || {
        cluster.check_alive()?;
        Ok(match admin.list_nodes().await {
            Ok(nodes) if nodes.iter().any(|node| node.name == name && node.status == NodeStatus::Alive) => {
                CheckOutcome::Yes(())
            }
            Ok(nodes) => CheckOutcome::NotYet(format!("{} have registered", nodes.len())),
            Err(error) => CheckOutcome::NotYet(error.to_string()),
        })
    })
    .await?;
    Ok(took)
}

/// Waits until every partition is available with all its copies.
pub(super) async fn all_whole(cluster: &mut Cluster, admin: &Admin) -> Result<(Vec<Partition>, Duration), Failure> {
    wait_for("nine partitions online with three replicas each", async || {
        cluster.check_alive()?;
        look_whole(admin).await
    })
    .await
}

/// Checks that every partition is available with all its copies.
pub(super) async fn look_whole(admin: &Admin) -> Result<CheckOutcome<Vec<Partition>>, Failure> {
    Ok(match table(admin).await {
        Ok(partitions) => {
            let online = partitions.iter().filter(|partition| partition.status == PartitionStatus::Online).count();
            let whole = |partition: &Partition| {
                partition.copies.len() == usize::from(SMALL.replication)
                    && partition.copies.iter().all(|copy| copy.state == ReplicaState::Live)
            };
            let whole = partitions.iter().filter(|partition| whole(partition)).count();
            if online == SMALL.partitions as usize && whole == online {
                CheckOutcome::Yes(partitions)
            } else {
                CheckOutcome::NotYet(format!(
                    "{online} of {} are, {whole} of them with three replicas",
                    SMALL.partitions
                ))
            }
        }
        Err(error) => CheckOutcome::NotYet(error.to_string()),
    })
}

/// Returns the table of the leading coordinator.
pub(super) async fn table(admin: &Admin) -> Result<Vec<Partition>, Failure> {
    Ok(leading(admin, REQUEST_LIMIT).await?.table(TABLE).await?)
}

/// Formats the phases of the moves on one line.
pub(super) fn phases(rebalance: &Rebalance) -> String {
    let phases = rebalance
        .moves
        .iter()
        .map(|moving| format!("partition {} is in {} at {}%", moving.partition, moving.phase, moving.percent));
    phases.collect::<Vec<_>>().join(", ")
}

/// Fails with the expectation and the actual state.
pub(super) fn ensure(holds: bool, expected: &str, found: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::failed(format!("expected {expected}, but found {}", found()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_expectation_states_what_was_expected() {
        assert!(ensure(true, "", String::new).is_ok());
        let failure = ensure(false, "7/7/7/6 replicas", || "[9, 9, 9, 0]".to_owned()).unwrap_err();
        assert_eq!(failure.message, "expected 7/7/7/6 replicas, but found [9, 9, 9, 0]");
        assert_eq!(failure.exit, crate::exit::Exit::Failed);
    }
}
