//! Chapter: a node is killed while clients write, and returns.

use super::looks::{all_whole, table, wait_for};
use super::narrator::Narrator;
use super::workload::{Traffic, TrafficObservations};
use crate::documents::Partition;
use crate::exit::Failure;
use archon_client::{Admin, Client, PartitionStatus};
use archon_load::CheckOutcome;
use archon_local_cluster::{Cluster, FIRST_NODES, SMALL};
use std::time::Instant;

/// Outcome of a node's death and return.
pub(super) struct LostNode {
    /// Time until other nodes led all partitions.
    pub(super) failed_ms: u64,
    /// Time from its start until every partition had all its copies.
    pub(super) returned_ms: u64,
    /// Observations of clients meanwhile.
    pub(super) seen: TrafficObservations,
}

/// Kills a node while clients write and read, and restarts it.
pub(super) async fn node_dies(
    cluster: &mut Cluster,
    admin: &Admin,
    client: &Client,
    say: &Narrator,
) -> Result<LostNode, Failure> {
    let name = FIRST_NODES[1];
    say.step(
        &format!("{} is killed (kill -9)", capital(name)),
        "Clients write and read on. Its partitions are led by other nodes, which hold every acknowledged write.",
    );
    let traffic = Traffic::start(client, "kill");
    let told = node_dies_and_returns(cluster, admin, name, say).await;
    // Stopped in any case, so that its tasks are awaited.
    let seen = traffic.stop().await?;
    let (failed_ms, returned_ms) = told?;
    seen.check()?;
    say.checked(format!(
        "meanwhile {} reads and writes went on: none failed, the longest wait of a client was {} ms",
        seen.ops,
        seen.slowest.as_millis()
    ));
    Ok(LostNode { failed_ms, returned_ms, seen })
}

async fn node_dies_and_returns(
    cluster: &mut Cluster,
    admin: &Admin,
    name: &str,
    say: &Narrator,
) -> Result<(u64, u64), Failure> {
    let pid = cluster.kill_node(name)?;
    let killed = Instant::now();
    wait_for("the other nodes to lead all nine partitions", async || {
        cluster.check_alive()?;
        Ok(match table(admin).await {
            Ok(rows) => {
                let led =
                    |row: &&Partition| row.status == PartitionStatus::Online && row.leader.as_deref() != Some(name);
                let count = rows.iter().filter(led).count();
                if count == SMALL.partitions as usize {
                    CheckOutcome::Yes(())
                } else {
                    CheckOutcome::NotYet(format!("{count} are"))
                }
            }
            Err(failure) => CheckOutcome::NotYet(failure.message),
        })
    })
    .await?;
    let failed_ms = killed.elapsed().as_millis() as u64;
    say.checked(format!("process {pid} killed; {failed_ms} ms later the other two nodes led all nine partitions"));
    let returned = Instant::now();
    cluster.start_node(name)?;
    all_whole(cluster, admin).await?;
    let returned_ms = returned.elapsed().as_millis() as u64;
    say.checked(format!(
        "{name} came back, caught up, and every partition has three replicas again after {returned_ms} ms"
    ));
    Ok((failed_ms, returned_ms))
}

fn capital(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
