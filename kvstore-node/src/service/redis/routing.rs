//! Table of Redis clients, and the nodes that carry out operations on its partitions.

use super::refusal::{Refusal, refusal};
use super::session::Session;
use super::state::RedisService;
use archon_types::{Keys, NodeId, Op, PartitionId, Table, TableContent, TableId, partition_of, slot_of};

/// Way of an operation on a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Redirection {
    /// To this node.
    None,
    /// The client asks the Redis listener at this address.
    To(String),
    /// This node forwards it to the leader, which has no such listener.
    Forward,
}

/// Table of the operations of Redis clients, and this node, as of one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Route {
    pub(super) node: NodeId,
    table: TableId,
    partitions: u32,
}

impl Route {
    /// Returns the partition of a key.
    pub(super) fn partition_of(&self, key: &[u8]) -> PartitionId {
        partition_of_key(self.table, self.partitions, key)
    }
}

/// Returns the partition of a key in a table with hash slots.
pub(super) fn partition_of_key(table: TableId, partitions: u32, key: &[u8]) -> PartitionId {
    PartitionId::new(table, partition_of(slot_of(key), partitions))
}

/// Returns the number of partitions of a table with hash slots that holds data.
fn hash_partitions(table: &Table) -> Option<u32> {
    match table.keys {
        Keys::Hash { partitions } if table.holds == TableContent::Data => Some(partitions),
        _ => None,
    }
}

impl RedisService {
    /// Returns the way of operations on a partition, as far as this node knows its leader.
    pub(super) fn redirection(&self, partition: PartitionId) -> Redirection {
        self.redirection_from(self.node(), partition)
    }

    /// Returns the same, with this as the number of this node.
    pub(super) fn redirection_from(&self, own: Option<NodeId>, partition: PartitionId) -> Redirection {
        let way = self.kv.shared.tables.read_leader(partition, |node| match &node.redis {
            _ if Some(node.id) == own => Redirection::None,
            Some(address) => Redirection::To(address.clone()),
            None => Redirection::Forward,
        });
        way.unwrap_or(Redirection::None)
    }

    fn node(&self) -> Option<NodeId> {
        self.kv.shared.life().map(|life| life.member.node)
    }

    /// Returns the route of operations that begin now; `None` while this node is not registered, or knows no such table
    /// with hash slots.
    pub(super) fn route(&self) -> Option<Route> {
        let node = self.node()?;
        let read = |table: &Table| Some((table.id, hash_partitions(table)?));
        let (table, partitions) = self.kv.shared.tables.read_table(&self.config.table, read)??;
        Some(Route { node, table, partitions })
    }

    /// Returns the table with the keys of Redis clients.
    pub(super) async fn table(&self, session: &Session, op: &Op) -> Result<Table, Refusal> {
        if self.kv.shared.life().is_none() {
            return Err(Refusal::new("LOADING the node is not registered with a coordinator"));
        }
        let table = self.kv.table(&session.caller, &self.config.table, op).await;
        table.map_err(|detail| refusal(&detail, false))
    }

    /// Returns the table and its number of partitions, if the caller has the right to this operation.
    pub(super) async fn table_for(&self, session: &Session, op: &Op) -> Result<(Table, u32), Refusal> {
        let table = self.table(session, op).await?;
        self.kv.check_right(&session.caller, table.id, op).map_err(|detail| refusal(&detail, false))?;
        let partitions = self.partitions(&table)?;
        Ok((table, partitions))
    }

    /// Returns the number of partitions of a hashed table.
    pub(super) fn partitions(&self, table: &Table) -> Result<u32, Refusal> {
        hash_partitions(table).ok_or_else(|| {
            Refusal::new(format!(
                "ERR table {} has no hash slots; give the nodes a hashed table by --redis-table",
                table.name
            ))
        })
    }
}

pub(super) fn moved(key: &[u8], address: &str) -> Refusal {
    // As Redis writes IPv6 addresses: without brackets.
    Refusal::new(format!("MOVED {} {}", slot_of(key), address.replace(['[', ']'], "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirection_names_the_slot() {
        assert_eq!(moved(b"foo", "10.0.0.7:6379"), Refusal::new("MOVED 12182 10.0.0.7:6379"));
        assert_eq!(moved(b"foo", "[::1]:6379"), Refusal::new("MOVED 12182 ::1:6379"));
    }
}
