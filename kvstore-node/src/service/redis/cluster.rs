//! `CLUSTER` and its subcommands, `WAIT` and `WAITAOF`.

use super::execute::integer;
use super::keys::unexpected;
use super::keyspace::{self, Page, Pages};
use super::refusal::{Executed, Refusal, refusal};
use super::routing::Redirection;
use super::session::Session;
use super::state::{CALL, RedisService};
use archon_host::Origin;
use archon_resp::{Reply, unknown_subcommand, wrong_arity};
use archon_types::{
    Answer, ClusterId, KeyRange, Node, NodeId, NodeStatus, Op, PartitionId, Right, SLOTS, ScanOrder, Table, slot_of,
    slots_of,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Slots that one node serves, without a gap: the first and the last one. All slots are served.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Served {
    slots: (u16, u16),
    node: NodeId,
    /// Nodes with a replica that answers reads of `READONLY` connections.
    replicas: Vec<NodeId>,
}

/// The cluster, as clients are shown it.
struct View {
    cluster: ClusterId,
    own: NodeId,
    /// Nodes with an address for clients, this one included.
    nodes: BTreeMap<NodeId, Member>,
    served: Vec<Served>,
    epoch: u64,
}

struct Member {
    address: String,
    is_alive: bool,
}

impl Member {
    /// Returns its host, and its port.
    fn host_port(&self) -> (&str, i64) {
        let (host, port) = self.address.rsplit_once(':').unwrap_or((&self.address, "0"));
        (host.trim_matches(['[', ']']), port.parse().unwrap_or(0))
    }
}

/// Assigns all slots to nodes, and joins neighbouring partitions with the same ones. `nodes_of` returns the node of a
/// partition, and its replicas.
fn assigned(partitions: u32, nodes_of: impl Fn(u32) -> (NodeId, Vec<NodeId>)) -> Vec<Served> {
    let mut served: Vec<Served> = Vec::new();
    for index in 0..partitions {
        let ((node, replicas), (begin, end)) = (nodes_of(index), slots_of(index, partitions));
        match served.last_mut() {
            Some(last) if last.node == node && last.replicas == replicas => last.slots.1 = end,
            _ => served.push(Served { slots: (begin, end), node, replicas }),
        }
    }
    served
}

/// Shows one slot of each leading node first, without replicas. Clients that keep one role per address, such as redis-py,
/// take the role in which an address comes first, and find no masters among replicas.
fn leaders_first(all: &[Served]) -> Vec<Served> {
    if all.iter().all(|served| served.replicas.is_empty()) {
        return all.to_vec();
    }
    let (mut first, mut rest, mut known) = (Vec::new(), Vec::new(), BTreeSet::new());
    for served in all {
        let (begin, end) = served.slots;
        if !known.insert(served.node) {
            rest.push(served.clone());
        } else if served.replicas.is_empty() {
            first.push(served.clone());
        } else {
            first.push(Served { slots: (begin, begin), replicas: Vec::new(), ..served.clone() });
            rest.extend((begin < end).then(|| Served { slots: (begin + 1, end), ..served.clone() }));
        }
    }
    first.extend(rest);
    first
}

impl RedisService {
    async fn view(&self, session: &Session) -> Result<View, Refusal> {
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
        Ok(View { cluster: life.member.cluster, own, nodes, served, epoch: shared.tables.version().get() })
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

impl View {
    /// Returns the name of a node: 40 hexadecimal digits.
    fn name(&self, node: NodeId) -> String {
        format!("{:024x}{:016x}", self.cluster.get().as_u128() >> 32, node.get())
    }

    fn slots(&self) -> Reply {
        let node = |id: &NodeId| {
            let (host, port) = self.nodes.get(id).map_or(("", 0), Member::host_port);
            let name = Reply::bulk(self.name(*id));
            Reply::Array(vec![Reply::bulk(host), Reply::Integer(port), name, Reply::Array(vec![])])
        };
        let entry = |served: &Served| {
            let (begin, end) = served.slots;
            let slots = [Reply::Integer(begin.into()), Reply::Integer(end.into())];
            Reply::Array(
                slots.into_iter().chain([node(&served.node)]).chain(served.replicas.iter().map(node)).collect(),
            )
        };
        Reply::Array(leaders_first(&self.served).iter().map(entry).collect())
    }

    fn slots_by_node(&self) -> BTreeMap<NodeId, Vec<(u16, u16)>> {
        let mut by_node: BTreeMap<NodeId, Vec<(u16, u16)>> = self.nodes.keys().map(|id| (*id, Vec::new())).collect();
        for served in &self.served {
            let ranges = by_node.entry(served.node).or_default();
            match ranges.last_mut() {
                Some(last) if last.1 + 1 == served.slots.0 => last.1 = served.slots.1,
                _ => ranges.push(served.slots),
            }
        }
        by_node
    }

    fn shards(&self) -> Reply {
        let shard = |(id, slots): (NodeId, Vec<(u16, u16)>)| {
            let member = self.nodes.get(&id)?;
            let (host, port) = member.host_port();
            let slots = slots.into_iter().flat_map(|(begin, end)| [begin, end]);
            let text = |key: &str, value: &str| (Reply::bulk(key), Reply::bulk(value));
            let node = vec![
                text("id", &self.name(id)),
                (Reply::bulk("port"), Reply::Integer(port)),
                text("ip", host),
                text("endpoint", host),
                text("role", "master"),
                (Reply::bulk("replication-offset"), Reply::Integer(0)),
                text("health", if member.is_alive { "online" } else { "fail" }),
            ];
            Some(Reply::Map(vec![
                (Reply::bulk("slots"), Reply::Array(slots.map(|slot| Reply::Integer(slot.into())).collect())),
                (Reply::bulk("nodes"), Reply::Array(vec![Reply::Map(node)])),
            ]))
        };
        Reply::Array(self.slots_by_node().into_iter().filter_map(shard).collect())
    }

    fn nodes(&self) -> Reply {
        let mut text = String::new();
        for (id, slots) in self.slots_by_node() {
            let Some(member) = self.nodes.get(&id) else { continue };
            let (host, port) = member.host_port();
            let flags = match (id == self.own, member.is_alive) {
                (true, _) => "myself,master",
                (false, true) => "master",
                (false, false) => "master,fail",
            };
            let link = if member.is_alive { "connected" } else { "disconnected" };
            let _ = write!(text, "{} {host}:{port}@{port} {flags} - 0 0 {} {link}", self.name(id), self.epoch);
            for (begin, end) in slots {
                let _ = if begin == end { write!(text, " {begin}") } else { write!(text, " {begin}-{end}") };
            }
            text.push('\n');
        }
        Reply::Text(text)
    }

    fn info(&self) -> Reply {
        let leading = self.slots_by_node().values().filter(|slots| !slots.is_empty()).count();
        let facts = [
            ("cluster_state", "ok".to_owned()),
            ("cluster_slots_assigned", SLOTS.to_string()),
            ("cluster_slots_ok", SLOTS.to_string()),
            ("cluster_slots_pfail", "0".to_owned()),
            ("cluster_slots_fail", "0".to_owned()),
            ("cluster_known_nodes", self.nodes.len().to_string()),
            ("cluster_size", leading.to_string()),
            ("cluster_current_epoch", self.epoch.to_string()),
            ("cluster_my_epoch", self.epoch.to_string()),
        ];
        Reply::Text(facts.iter().map(|(key, value)| format!("{key}:{value}\r\n")).collect())
    }
}

/// Executes `CLUSTER` and its subcommands.
pub(super) async fn cluster(service: &RedisService, session: &mut Session, request: &[Bytes]) -> Executed {
    let (subcommand, arguments) = (&request[1], &request[2..]);
    let name = subcommand.to_ascii_lowercase();
    match (&name[..], arguments) {
        (b"slots", []) => Ok(service.view(session).await?.slots()),
        (b"shards", []) => Ok(service.view(session).await?.shards()),
        (b"nodes", []) => Ok(service.view(session).await?.nodes()),
        (b"info", []) => Ok(service.view(session).await?.info()),
        (b"myid", []) => {
            let view = service.view(session).await?;
            Ok(Reply::bulk(view.name(view.own)))
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
pub(super) async fn wait(service: &RedisService, session: &Session, request: &[Bytes]) -> Executed {
    check_waits(&request[1..])?;
    Ok(Reply::Integer(service.others(session).await?))
}

/// Executes `WAITAOF`.
pub(super) async fn wait_disks(service: &RedisService, session: &Session, request: &[Bytes]) -> Executed {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_with_one_leader_are_one_range() {
        let [one, other] = [NodeId::new(1), NodeId::new(2)];
        let leaders = [one, one, other, other, other, one, other, one];
        let ranges: Vec<((u16, u16), NodeId)> = assigned(8, |index| (leaders[index as usize], vec![]))
            .into_iter()
            .map(|served| (served.slots, served.node))
            .collect();
        let expected = [
            ((0, 4_095), one),
            ((4_096, 10_239), other),
            ((10_240, 12_287), one),
            ((12_288, 14_335), other),
            ((14_336, 16_383), one),
        ];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn every_leader_comes_first_without_replicas() {
        let [one, two, three] = [1, 2, 3].map(NodeId::new);
        let served = assigned(4, |index| match index {
            0 => (one, vec![two, three]),
            1 => (one, vec![two]),
            2 => (two, vec![]),
            _ => (two, vec![one]),
        });
        let shown = leaders_first(&served);
        let entry = |slots, node, replicas: &[NodeId]| Served { slots, node, replicas: replicas.to_vec() };
        let expected = [
            entry((0, 0), one, &[]),
            entry((8_192, 12_287), two, &[]),
            entry((1, 4_095), one, &[two, three]),
            entry((4_096, 8_191), one, &[two]),
            entry((12_288, 16_383), two, &[one]),
        ];
        assert_eq!(shown, expected);
        let without = assigned(4, |index| (NodeId::new(1 + u64::from(index) % 2), vec![]));
        assert_eq!(leaders_first(&without), without, "slots are in order without replicas");
    }
}
