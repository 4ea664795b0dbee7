//! `CLUSTER` and its subcommands, `WAIT` and `WAITAOF`.

use super::conversions::{integer, unexpected};
use super::keyspace::{self, Page, Pages};
use super::refusal::{CommandResult, Refusal, refusal};
use super::routing::Redirection;
use super::session::Session;
use super::state::{CALL, RedisService};
use super::topology::{Member, Topology, assigned};
use archon_host::Origin;
use archon_resp::{Reply, unknown_subcommand, wrong_arity};
use archon_types::{Answer, KeyRange, Node, NodeId, NodeStatus, Op, PartitionId, Right, ScanOrder, Table, slot_of};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

impl RedisService {
    /// Returns the cluster as this node shows it.
    async fn topology(&self, session: &Session) -> Result<Topology, Refusal> {
        let shared = &self.kv.shared;
        let table = self.table_to_show(session).await?;
        let partitions = self.partitions(&table)?;
        let Some(life) = shared.life() else { return Err(Refusal::new("LOADING the node is not registered")) };
        let own = life.member.node;
        let mut nodes: BTreeMap<NodeId, Member> = BTreeMap::new();
        for Node { id, redis, status, .. } in shared.tables.nodes() {
            if let Some(address) = redis {
                nodes.insert(id, Member { address, is_alive: status == NodeStatus::Alive });
            }
        }
        nodes.insert(own, Member { address: self.advertised.to_string(), is_alive: true });
        // This node forwards to leaders without a listener, and answers for partitions without a known leader: clients
        // reconnect again and again to a cluster that does not serve all slots.
        let leaders: BTreeMap<u32, NodeId> = shared.tables.leaders(table.id).into_iter().collect();
        let followers: BTreeMap<u32, Vec<NodeId>> = shared.tables.followers(table.id).into_iter().collect();
        let is_alive = |node: &NodeId| nodes.get(node).is_some_and(|member| member.is_alive);
        let nodes_of = |index: u32| match leaders.get(&index).filter(|node| nodes.contains_key(*node)) {
            Some(leader) => {
                let replicas = followers.get(&index).into_iter().flatten().copied().filter(is_alive);
                (*leader, replicas.collect::<BTreeSet<_>>().into_iter().collect())
            }
            None => (own, Vec::new()),
        };
        let served = assigned(partitions, nodes_of);
        Ok(Topology { cluster: life.member.cluster, own, nodes, served, epoch: shared.tables.version().get() })
    }

    /// Returns the table, for a caller that may know where its keys are.
    async fn table_to_show(&self, session: &Session) -> Result<Table, Refusal> {
        let (shared, caller) = (&self.kv.shared, &session.caller);
        let table = self.table(session, &Op::Get { key: Bytes::new() }).await?;
        let checked = caller
            .check_routes(&table.name, CALL)
            .and_then(|()| shared.access.of(caller, CALL).check(&shared.tables, table.id, Right::Read));
        checked.map_err(|detail| refusal(&detail, false))?;
        Ok(table)
    }
}

/// Executes `CLUSTER` and its subcommands.
pub(super) async fn cluster(service: &RedisService, session: &mut Session, request: &[Bytes]) -> CommandResult {
    let (subcommand, arguments) = (&request[1], &request[2..]);
    let name = subcommand.to_ascii_lowercase();
    match (&name[..], arguments) {
        (b"slots", []) => Ok(service.topology(session).await?.slots()),
        (b"shards", []) => Ok(service.topology(session).await?.shards()),
        (b"nodes", []) => Ok(service.topology(session).await?.nodes()),
        (b"info", []) => Ok(service.topology(session).await?.info()),
        (b"myid", []) => {
            let topology = service.topology(session).await?;
            Ok(Reply::bulk(topology.name(topology.own)))
        }
        (b"keyslot", [key]) => Ok(Reply::Integer(slot_of(key).into())),
        (b"countkeysinslot", [slot]) => keyspace::keys_in_slot(&mut service.pages(session).await?, slot, None).await,
        (b"getkeysinslot", [slot, count]) => {
            keyspace::keys_in_slot(&mut service.pages(session).await?, slot, Some(count)).await
        }
        (
            b"slots" | b"shards" | b"nodes" | b"info" | b"myid" | b"keyslot" | b"countkeysinslot" | b"getkeysinslot",
            _,
        ) => Err(wrong_arity(&format!("cluster|{}", String::from_utf8_lossy(&name))).into()),
        _ => Err(unknown_subcommand("cluster", subcommand).into()),
    }
}

/// Keys of this node, for one command: those of the partitions that `CLUSTER SLOTS` shows as its own.
pub(super) struct NodePages<'a> {
    service: &'a RedisService,
    session: &'a mut Session,
    table: Table,
    partitions: u32,
}

impl RedisService {
    /// Returns the keys of this node, for a caller that may read the table.
    pub(super) async fn pages<'a>(&'a self, session: &'a mut Session) -> Result<NodePages<'a>, Refusal> {
        let op = Op::Scan { keys: KeyRange::ALL, order: ScanOrder::Ascending, limit: 1 };
        let (table, partitions) = self.table_for(session, &op).await?;
        Ok(NodePages { service: self, session, table, partitions })
    }
}

impl NodePages<'_> {
    /// Executes `DBSIZE`: the number of keys in the partitions that this node leads, as last counted.
    pub(super) fn size(&self) -> Reply {
        let shared = &self.service.kv.shared;
        let placements = match shared.life() {
            Some(life) => shared.tables.led_placements(self.table.id, life.member.node),
            None => Vec::new(),
        };
        Reply::Integer(i64::try_from(shared.load.keys_of(&placements)).unwrap_or(i64::MAX))
    }
}

impl Pages for NodePages<'_> {
    fn partitions(&self) -> u32 {
        self.partitions
    }

    fn serves(&self, partition: u32) -> bool {
        let partition = PartitionId::new(self.table.id, partition);
        !matches!(self.service.redirection(partition), Redirection::To(_))
    }

    async fn page(&mut self, partition: u32, keys: KeyRange, order: ScanOrder, limit: u32) -> Result<Page, Refusal> {
        let partition = PartitionId::new(self.table.id, partition);
        let op = Op::Scan { keys, order, limit };
        op.check().map_err(|detail| refusal(&detail, false))?;
        // The share of the page before is given back: only keys of it are kept.
        self.session.permit = None;
        let origin = Origin::AnyNodeClient;
        let reply = self.service.kv.operate_as(&self.session.caller, partition, op, None, origin).await;
        self.session.permit = reply.permit;
        match reply.outcome {
            Ok(Answer::Page { entries, more, range }) => {
                let next = match entries.last() {
                    Some(last) => Some(KeyRange::ALL.after(&last.key).begin),
                    // It met expired values only.
                    None => range.end,
                };
                Ok(Page { entries, next: next.filter(|_| more) })
            }
            Ok(other) => Err(unexpected(&other)),
            Err(detail) => Err(refusal(&detail, false)),
        }
    }
}

/// Executes `WAIT`. Every write was acknowledged only once all replicas that were in sync then had it on their disks,
/// so there is nothing to wait for.
pub(super) async fn wait(service: &RedisService, session: &Session, request: &[Bytes]) -> CommandResult {
    check_waits(&request[1..])?;
    Ok(Reply::Integer(service.others(session).await?))
}

/// Executes `WAITAOF`.
pub(super) async fn wait_disks(service: &RedisService, session: &Session, request: &[Bytes]) -> CommandResult {
    if integer(&request[1])? > 1 {
        return Err(Refusal::new("ERR value is out of range, value must between 0 and 1"));
    }
    check_waits(&request[1..])?;
    Ok(Reply::Array(vec![Reply::Integer(1), Reply::Integer(service.others(session).await?)]))
}

/// Checks numbers of replicas and a time-out.
fn check_waits(arguments: &[Bytes]) -> Result<(), Refusal> {
    for argument in arguments {
        if integer(argument)? < 0 {
            return Err(Refusal::new("ERR timeout is negative"));
        }
    }
    Ok(())
}

impl RedisService {
    /// Returns the number of other in-sync replicas of the partition last written on this connection, as far as this
    /// node knows; of the partition with the fewest if there was no write. A node that does not lead the partition may count a
    /// replica that was removed from them since.
    async fn others(&self, session: &Session) -> Result<i64, Refusal> {
        let table = self.table_to_show(session).await?;
        let live = self.kv.shared.tables.live_replicas(table.id, session.written);
        Ok(i64::try_from(live.saturating_sub(1)).unwrap_or(i64::MAX))
    }
}
