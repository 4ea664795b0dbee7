//! Target of an attack.

use super::kind::Attack;
use crate::failure::Failure;
use archon_client::{Admin, Transport};
use archon_security::ExpectedPeer;
use archon_types::{ClusterId, NodeId, PartitionId, TableId};

/// Target of an attack: one node, and a partition that it led when it was looked up.
#[derive(Clone, Debug)]
pub struct Target {
    pub(crate) cluster: ClusterId,
    pub(crate) node: NodeId,
    /// Expected identity of the node.
    pub(crate) expected: ExpectedPeer,
    pub(crate) address: String,
    /// Address of its Redis listener, if it has one.
    pub(crate) redis_address: Option<String>,
    pub(crate) transport: Transport,
    pub(crate) partition: PartitionId,
    /// Prefix of keys in the partition.
    pub(crate) tag: String,
}

impl Target {
    /// Finds the node that leads the partition of `tag` in a table, to be reached by `transport`.
    ///
    /// # Errors
    /// If no node answers, or there is no such table or no leader.
    pub async fn find(admin: &Admin, transport: &Transport, table: &str, tag: &str) -> Result<Self, Failure> {
        let failed = |what: String| Failure::new("Attack", what);
        let asked = |error: archon_client::Error| failed(error.to_string());
        let status = admin.status().await.map_err(asked)?;
        let cluster = status.cluster_id.parse().map_err(|_| failed("the cluster has no id yet".to_owned()))?;
        let tables = admin.list_tables().await.map_err(asked)?;
        let id = tables.iter().find(|found| found.name == table).map(|found| TableId::new(found.id));
        let id = id.ok_or_else(|| failed(format!("there is no table {table}")))?;
        let tag = format!("{{{tag}}}");
        let located = admin.locate(table, &tag).await.map_err(asked)?;
        let (Some(leader), Some(address)) = (located.partition.leader, located.leader_address) else {
            return Err(failed(format!("partition {} of table {table} has no leader", located.partition.id)));
        };
        let nodes = admin.list_nodes().await.map_err(asked)?;
        let node = nodes.iter().find(|node| node.name == leader).map(|node| NodeId::new(node.id));
        Ok(Self {
            cluster: ClusterId::new(cluster),
            node: node.ok_or_else(|| failed(format!("there is no node {leader}")))?,
            expected: ExpectedPeer::Node(leader),
            address,
            redis_address: located.leader_redis_address,
            transport: transport.clone(),
            partition: PartitionId::new(id, located.partition.id),
            tag,
        })
    }

    /// Returns the node's address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns why an attack on this target is not possible.
    pub fn obstacle(&self, attack: Attack) -> Option<&'static str> {
        match attack {
            Attack::Redis if self.transport.tls().is_some() => Some("the attack redis needs a cluster without TLS"),
            Attack::Redis if self.redis_address.is_none() => Some("the node has no Redis listener (--redis-listen)"),
            _ => None,
        }
    }
}
