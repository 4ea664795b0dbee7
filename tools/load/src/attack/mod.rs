//! Greedy clients, as any client that can connect may be one: shows their cost for others.
//!
//! They follow the protocol, but request far more than they could use, read no answers, or never finish a message. They
//! repeat every refused request.

mod raw;
mod redis;
mod tactics;

use crate::failure::Failure;
use archon_client::{Admin, Transport};
use archon_security::Expected;
use archon_types::{ClusterId, NodeId, PartitionId, TableId};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Kind of greedy clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// Four streams repeatedly send messages of 4,096 scans each.
    Scans,
    /// Ten streams read large values and write large ones, read no answers and send keepalives.
    SlowReaders,
    /// Twenty streams send all but the end of a message, and then a byte at times.
    HalfMessages,
    /// Connections are opened as fast as they are accepted, and stay silent.
    Connections,
    /// Four streams write, each operation under a new client id.
    NewClients,
    /// Eight clients of the Redis listener send half requests, wrong lengths, a million arguments, nested lists, endless
    /// lines and commands without arguments, or read no replies. They need a listener without TLS.
    Redis,
}

impl Attack {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Scans, Self::SlowReaders, Self::HalfMessages, Self::Connections, Self::NewClients, Self::Redis];

    /// Returns its name for users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scans => "scans",
            Self::SlowReaders => "slow-readers",
            Self::HalfMessages => "half-messages",
            Self::Connections => "connections",
            Self::NewClients => "new-clients",
            Self::Redis => "redis",
        }
    }
}

impl FromStr for Attack {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|attack| attack.name() == text);
        found.ok_or_else(|| format!("{text:?} is not an attack; use {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Target of an attack: one node, and a partition that it led when it was looked up.
#[derive(Clone, Debug)]
pub struct Target {
    pub(crate) cluster: ClusterId,
    pub(crate) node: NodeId,
    /// Expected identity of the node.
    pub(crate) expected: Expected,
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
            expected: Expected::Node(leader),
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

/// Counts of greedy clients.
#[derive(Debug, Default)]
pub struct Deeds {
    /// Connections made.
    pub connections: AtomicU64,
    /// Operations sent.
    pub sent: AtomicU64,
    /// Operations, messages or connections that were refused or ended.
    pub refused: AtomicU64,
}

/// A running attack, which ends when this is dropped.
#[derive(Debug)]
pub struct Attackers {
    deeds: Arc<Deeds>,
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Attackers {
    /// Starts the attack; must be called on a runtime.
    pub fn begin(attack: Attack, target: &Target) -> Self {
        let (deeds, tasks, end) = (Arc::<Deeds>::default(), TaskTracker::new(), CancellationToken::new());
        for number in 0..tactics::attackers(attack) {
            let (target, deeds, end) = (target.clone(), Arc::clone(&deeds), end.clone());
            tasks.spawn(async move { end.run_until_cancelled(tactics::attack(attack, number, &target, &deeds)).await });
        }
        Self { deeds, tasks, end }
    }

    /// Returns the connections made, operations sent, and refusals so far.
    pub fn deeds(&self) -> (u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.deeds.connections), of(&self.deeds.sent), of(&self.deeds.refused))
    }

    /// Ends it, and returns once every connection is closed.
    pub async fn end(self) {
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_names_round_trip_and_unknown_ones_list_all() {
        for attack in Attack::ALL {
            assert_eq!(attack.name().parse(), Ok(attack));
        }
        assert!("floods".parse::<Attack>().unwrap_err().contains("slow-readers"));
    }
}
