//! Reads at any in-sync copy.

use crate::error::{Error, Outcome};
use crate::kv::{Client, Value, copied};
use crate::measure::{OperationKind, OutcomeKind};
use crate::net::retry::Backoff;
use crate::state::ClientState;
use archon_proto::convert::error::detail_of;
use archon_proto::v1::{self, kv_client::KvClient};
use archon_security::ExpectedPeer;
use archon_types::limits::check_key;
use archon_types::{
    ErrorDetail, ErrorKind, NodeStatus, PartitionId, PartitionTable, ReplicaState, Revision, StoredValue,
};
use bytes::Bytes;
use rand::seq::SliceRandom;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// Time-out per copy; then the next one is asked.
const ATTEMPT: Duration = Duration::from_secs(1);

/// A key's value at some copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaleValue {
    /// The value, if the key exists.
    pub value: Option<Value>,
    /// Revision of the read: it sees exactly the writes to the key's partition with revisions up to this one. Their
    /// age is not bounded.
    pub as_of: Revision,
    /// Address of the node with the copy.
    pub address: String,
}

impl Client {
    /// Reads a key at any in-sync copy, preferably not the leader: the committed state at some position, which may be
    /// old. It needs no leader and no lease, so it works where [`Client::get`] does not; it is not linearizable, and
    /// a later read may return an older state. A write with revision `r` is visible if `as_of >= r`.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::DeadlineExceeded`] if no copy answered in time, with the last error.
    pub async fn get_stale(&self, key: impl AsRef<[u8]>) -> Result<StaleValue, Error> {
        let key = copied(key);
        check_key(&key)?;
        let deadline = Instant::now() + self.timeout();
        let mut last = None;
        let (shared, ..) = self.parts();
        let operation = shared.measures.operation(OperationKind::GetStale);
        let result = match timeout_at(deadline, self.ask_copies(key, &mut last)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::DeadlineExceeded {
                timeout_ms: u64::try_from(self.timeout().as_millis()).unwrap_or(u64::MAX),
                outcome: Outcome::Read,
                last: last.map(Box::new),
            }),
        };
        operation.ended(OutcomeKind::of(&result));
        result
    }

    async fn ask_copies(&self, key: Bytes, last: &mut Option<ErrorDetail>) -> Result<StaleValue, Error> {
        let (shared, ..) = self.parts();
        let mut backoff = Backoff::default();
        loop {
            if shared.stop.is_cancelled() {
                return Err(Error::Closed);
            }
            let (table, copies) = self.copies(&shared, &key);
            for (address, expected) in copies {
                let request =
                    v1::GetStaleRequest { cluster: shared.cluster_ref(), table: table.clone(), key: key.clone() };
                match ask(&shared, &address, expected, request).await {
                    Ok(found) => return Ok(found),
                    Err(detail) if may_pass(detail.kind) => {
                        shared.measures.retried(detail.kind);
                        *last = Some(detail);
                    }
                    Err(detail) => return Err(detail.into()),
                }
            }
            last.get_or_insert_with(|| ErrorDetail::new(ErrorKind::Unavailable, "the key has no in-sync replica"));
            self.want_refresh();
            sleep(backoff.pause(true, None)).await;
        }
    }

    /// Returns the table's name and the nodes with copies of the key's partition: in random order, the leader last.
    fn copies(&self, shared: &ClientState, key: &[u8]) -> (String, Vec<(String, ExpectedPeer)>) {
        let table = self.held();
        let name = table.table().name.clone();
        match &shared.via {
            Some(via) => (name, vec![(via.current().to_owned(), ExpectedPeer::Servers)]),
            None => (name, live_copies(&table, table.partition_of(key))),
        }
    }
}

fn live_copies(table: &PartitionTable, partition: PartitionId) -> Vec<(String, ExpectedPeer)> {
    let Some(row) = table.partition(partition.index) else { return Vec::new() };
    let live = row.placements.iter().filter(|placed| placed.state == ReplicaState::Live);
    let mut copies: Vec<_> = live.filter_map(|placed| Some((placed.id, table.node(placed.node)?))).collect();
    copies.shuffle(&mut rand::rng());
    // A failed node may still answer.
    copies.sort_by_key(|(id, node)| (node.status != NodeStatus::Alive, Some(*id) == row.leader));
    copies.into_iter().map(|(_, node)| (node.address.clone(), ExpectedPeer::Node(node.name.clone()))).collect()
}

async fn ask(
    shared: &ClientState,
    address: &str,
    expected: ExpectedPeer,
    request: v1::GetStaleRequest,
) -> Result<StaleValue, ErrorDetail> {
    let mut node = KvClient::new(shared.links.channel(address, expected)?);
    let mut answer = match timeout(ATTEMPT, node.get_stale(request)).await {
        Ok(Ok(answer)) => answer.into_inner(),
        Ok(Err(status)) => {
            let mut detail = detail_of(&status);
            detail.message = format!("the node at {address}: {}", detail.message);
            return Err(detail);
        }
        Err(_) => {
            let message = format!("the node at {address} did not answer within {} ms", ATTEMPT.as_millis());
            return Err(ErrorDetail::new(ErrorKind::Unreachable, message));
        }
    };
    let found: Option<StoredValue> = answer.value.take().unwrap_or_default().into();
    let value = found.map(Value::from);
    Ok(StaleValue { value, as_of: Revision::new(answer.as_of_revision), address: address.to_owned() })
}

/// Returns whether another copy or a later attempt may help.
const fn may_pass(kind: ErrorKind) -> bool {
    kind.is_retryable() || matches!(kind, ErrorKind::WrongNode | ErrorKind::DeadlineExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{
        Epoch, KeyRange, Keys, Node, NodeId, Partition, PartitionStatus, Placement, PlacementId, Table, TableContent,
        TableDelta, TableId, Version,
    };

    #[test]
    fn followers_are_read_first_and_loading_copies_never() {
        let place = |id: u64, state| Placement { id: PlacementId::new(id), node: NodeId::new(id), state };
        let node = |id: u64, status| Node { status, ..Node::new(NodeId::new(id), "athens", format!("n{id}:1")) };
        let id = PartitionId::new(TableId::new(1), 0);
        let (live, load) = (ReplicaState::Live, ReplicaState::Load);
        let row = Partition {
            id,
            epoch: Epoch::new(1),
            version: Version::new(1),
            leader: Some(PlacementId::new(1)),
            placements: vec![place(1, live), place(2, live), place(3, load), place(4, live), place(5, live)],
            status: PartitionStatus::Online,
            min_in_sync: 2,
            range: KeyRange::ALL,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        };
        let alive = NodeStatus::Alive;
        let nodes = [(1, alive), (2, alive), (3, alive), (4, NodeStatus::Failed), (5, alive)];
        let delta = TableDelta {
            table: Table {
                id: TableId::new(1),
                name: "default".into(),
                keys: Keys::Hash { partitions: 1 },
                replication: 4,
                holds: TableContent::Data,
                version: Version::new(1),
            },
            since: Version::ZERO,
            version: Version::new(1),
            partitions: vec![row],
            nodes: nodes.map(|(id, status)| node(id, status)).to_vec(),
            removed: None,
        };
        let table = PartitionTable::from_whole(delta).expect("it is whole");
        for _ in 0..20 {
            let mut copies = live_copies(&table, id);
            copies[..2].sort();
            let copies: Vec<String> = copies.into_iter().map(|(address, _)| address).collect();
            assert_eq!(copies, ["n2:1", "n5:1", "n1:1", "n4:1"], "who counts as failed comes last");
        }
    }
}
