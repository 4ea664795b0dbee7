//! The cluster in the formats of `CLUSTER SLOTS`, `SHARDS`, `NODES` and `INFO`.

use archon_resp::Reply;
use archon_types::{ClusterId, NodeId, SLOTS, slots_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Slots that one node serves, without a gap: the first and the last one. All slots are served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SlotRange {
    slots: (u16, u16),
    node: NodeId,
    /// Nodes with a replica that answers reads of `READONLY` connections.
    replicas: Vec<NodeId>,
}

/// The cluster, as clients are shown it.
///
/// A node of Redis has one role. A node of Archon leads some partitions and follows others, so it is shown as a master, and
/// once more, under another name, as a replica of each leader that it follows. A replica may lack some partitions of
/// that leader; it redirects reads of these.
pub(super) struct Topology {
    pub(super) cluster: ClusterId,
    pub(super) own: NodeId,
    /// Nodes with an address for clients, this one included.
    pub(super) nodes: BTreeMap<NodeId, Member>,
    pub(super) served: Vec<SlotRange>,
    pub(super) epoch: u64,
}

/// Node with an address for clients.
pub(super) struct Member {
    pub(super) address: String,
    pub(super) is_alive: bool,
}

impl Member {
    /// Returns its host, and its port.
    fn host_port(&self) -> (&str, i64) {
        let (host, port) = self.address.rsplit_once(':').unwrap_or((&self.address, "0"));
        (host.trim_matches(['[', ']']), port.parse().unwrap_or(0))
    }
}

/// Slots and replicas of a leader. A node that leads nothing has neither.
#[derive(Default)]
struct Shard {
    slots: Vec<(u16, u16)>,
    replicas: BTreeSet<NodeId>,
}

/// Assigns all slots to nodes, and joins neighbouring partitions with the same ones. `nodes_of` returns the node of a
/// partition, and its replicas.
pub(super) fn assigned(partitions: u32, nodes_of: impl Fn(u32) -> (NodeId, Vec<NodeId>)) -> Vec<SlotRange> {
    let mut served: Vec<SlotRange> = Vec::new();
    for index in 0..partitions {
        let ((node, replicas), (begin, end)) = (nodes_of(index), slots_of(index, partitions));
        match served.last_mut() {
            Some(last) if last.node == node && last.replicas == replicas => last.slots.1 = end,
            _ => served.push(SlotRange { slots: (begin, end), node, replicas }),
        }
    }
    served
}

/// Shows one slot of each leading node first, without replicas. Clients that keep one role per address, such as redis-py,
/// take the role in which an address comes first, and find no masters among replicas.
fn leaders_first(all: &[SlotRange]) -> Vec<SlotRange> {
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
            first.push(SlotRange { slots: (begin, begin), replicas: Vec::new(), ..served.clone() });
            rest.extend((begin < end).then(|| SlotRange { slots: (begin + 1, end), ..served.clone() }));
        }
    }
    first.extend(rest);
    first
}

impl Topology {
    /// Returns the name of a node as a master: 40 hexadecimal digits.
    pub(super) fn name(&self, node: NodeId) -> String {
        format!("{:024x}{:016x}", self.cluster.get().as_u128() >> 32, node.get())
    }

    /// Returns the name of a node as a replica of a leader: 40 hexadecimal digits, too.
    fn replica_name(&self, leader: NodeId, node: NodeId) -> String {
        format!("{:08x}{:016x}{:016x}", self.cluster.get().as_u128() >> 96, leader.get(), node.get())
    }

    /// Returns the reply to `CLUSTER SLOTS`.
    pub(super) fn slots(&self) -> Reply {
        let node = |id: NodeId, name: String| {
            let (host, port) = self.nodes.get(&id).map_or(("", 0), Member::host_port);
            Reply::Array(vec![Reply::bulk(host), Reply::Integer(port), Reply::bulk(name), Reply::Array(vec![])])
        };
        let entry = |served: &SlotRange| {
            let ((begin, end), leader) = (served.slots, served.node);
            let mut entry = vec![Reply::Integer(begin.into()), Reply::Integer(end.into())];
            entry.push(node(leader, self.name(leader)));
            entry.extend(served.replicas.iter().map(|id| node(*id, self.replica_name(leader, *id))));
            Reply::Array(entry)
        };
        Reply::Array(leaders_first(&self.served).iter().map(entry).collect())
    }

    /// Returns the shard of every node.
    fn shard_by_node(&self) -> BTreeMap<NodeId, Shard> {
        let mut by_node: BTreeMap<NodeId, Shard> = self.nodes.keys().map(|id| (*id, Shard::default())).collect();
        for served in &self.served {
            let shard = by_node.entry(served.node).or_default();
            match shard.slots.last_mut() {
                Some(last) if last.1 + 1 == served.slots.0 => last.1 = served.slots.1,
                _ => shard.slots.push(served.slots),
            }
            shard.replicas.extend(&served.replicas);
        }
        by_node
    }

    /// Returns the reply to `CLUSTER SHARDS`.
    pub(super) fn shards(&self) -> Reply {
        let text = |key: &str, value: &str| (Reply::bulk(key), Reply::bulk(value));
        let node = |id: NodeId, name: &str, role: &str| {
            let member = self.nodes.get(&id)?;
            let (host, port) = member.host_port();
            Some(Reply::Map(vec![
                text("id", name),
                (Reply::bulk("port"), Reply::Integer(port)),
                text("ip", host),
                text("endpoint", host),
                text("role", role),
                (Reply::bulk("replication-offset"), Reply::Integer(0)),
                text("health", if member.is_alive { "online" } else { "fail" }),
            ]))
        };
        let shard = |(leader, shard): (NodeId, Shard)| {
            let mut nodes = vec![node(leader, &self.name(leader), "master")?];
            let replica = |id: &NodeId| node(*id, &self.replica_name(leader, *id), "replica");
            nodes.extend(shard.replicas.iter().filter_map(replica));
            let slots = shard.slots.iter().flat_map(|(begin, end)| [*begin, *end]);
            Some(Reply::Map(vec![
                (Reply::bulk("slots"), Reply::Array(slots.map(|slot| Reply::Integer(slot.into())).collect())),
                (Reply::bulk("nodes"), Reply::Array(nodes)),
            ]))
        };
        Reply::Array(self.shard_by_node().into_iter().filter_map(shard).collect())
    }

    /// Returns the reply to `CLUSTER NODES`. Masters come first: a client that keeps one line per address takes that of the
    /// master.
    pub(super) fn nodes(&self) -> Reply {
        let (mut masters, mut replicas) = (String::new(), String::new());
        for (leader, shard) in self.shard_by_node() {
            let master = self.name(leader);
            let role = if leader == self.own { "myself,master" } else { "master" };
            let Some(line) = self.node_line(leader, &master, role, "-") else { continue };
            masters.push_str(&line);
            for (begin, end) in shard.slots {
                let _ = if begin == end { write!(masters, " {begin}") } else { write!(masters, " {begin}-{end}") };
            }
            masters.push('\n');
            for node in shard.replicas {
                let line = self.node_line(node, &self.replica_name(leader, node), "slave", &master);
                replicas.extend(line.map(|line| line + "\n"));
            }
        }
        Reply::Text(masters + &replicas)
    }

    /// Returns the line of a node in `CLUSTER NODES`, without its slots.
    fn node_line(&self, node: NodeId, name: &str, role: &str, master: &str) -> Option<String> {
        let member = self.nodes.get(&node)?;
        let ((host, port), epoch) = (member.host_port(), self.epoch);
        let (failed, link) = if member.is_alive { ("", "connected") } else { (",fail", "disconnected") };
        Some(format!("{name} {host}:{port}@{port} {role}{failed} {master} 0 0 {epoch} {link}"))
    }

    /// Returns the reply to `CLUSTER INFO`.
    pub(super) fn info(&self) -> Reply {
        let leading = self.shard_by_node().values().filter(|shard| !shard.slots.is_empty()).count();
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

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

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
        let entry = |slots, node, replicas: &[NodeId]| SlotRange { slots, node, replicas: replicas.to_vec() };
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
    /// Three living nodes and a failed one. The first node leads two ranges with different replicas, the second one leads
    /// the slots between them, and the third one leads nothing.
    fn topology() -> Topology {
        let [one, two, three, failed] = [1, 2, 3, 4].map(NodeId::new);
        let served = assigned(4, |index| match index {
            0 => (one, vec![two]),
            1 => (two, vec![one, three]),
            2 => (one, vec![three]),
            _ => (failed, vec![]),
        });
        let member = |node: NodeId| {
            let address = format!("10.0.0.{}:6379", node.get());
            (node, Member { address, is_alive: node != failed })
        };
        let nodes = [one, two, three, failed].map(member).into();
        let cluster = ClusterId::new(Uuid::from_u128(0xabcd_ef01 << 96));
        Topology { cluster, own: one, nodes, served, epoch: 7 }
    }

    const ONE: &str = "abcdef0100000000000000000000000000000001";
    const TWO: &str = "abcdef0100000000000000000000000000000002";

    #[test]
    fn cluster_nodes_list_replicas_after_masters() {
        let Reply::Text(nodes) = topology().nodes() else { panic!("no text") };
        let expected = [
            format!("{ONE} 10.0.0.1:6379@6379 myself,master - 0 0 7 connected 0-4095 8192-12287"),
            format!("{TWO} 10.0.0.2:6379@6379 master - 0 0 7 connected 4096-8191"),
            "abcdef0100000000000000000000000000000003 10.0.0.3:6379@6379 master - 0 0 7 connected".to_owned(),
            "abcdef0100000000000000000000000000000004 10.0.0.4:6379@6379 master,fail - 0 0 7 disconnected 12288-16383"
                .to_owned(),
            format!("abcdef0100000000000000010000000000000002 10.0.0.2:6379@6379 slave {ONE} 0 0 7 connected"),
            format!("abcdef0100000000000000010000000000000003 10.0.0.3:6379@6379 slave {ONE} 0 0 7 connected"),
            format!("abcdef0100000000000000020000000000000001 10.0.0.1:6379@6379 slave {TWO} 0 0 7 connected"),
            format!("abcdef0100000000000000020000000000000003 10.0.0.3:6379@6379 slave {TWO} 0 0 7 connected"),
        ];
        assert_eq!(nodes.lines().collect::<Vec<_>>(), expected);
        assert!(nodes.ends_with('\n'));
    }

    /// Returns a field of a map.
    fn field<'a>(reply: &'a Reply, name: &str) -> &'a Reply {
        let Reply::Map(fields) = reply else { panic!("no map: {reply:?}") };
        &fields.iter().find(|(key, _)| *key == Reply::bulk(name)).expect("the field").1
    }

    #[test]
    fn cluster_shards_list_replicas_of_each_leader() {
        let Reply::Array(shards) = topology().shards() else { panic!("no list") };
        let shown = shards.iter().map(|shard| {
            let Reply::Array(nodes) = field(shard, "nodes") else { panic!("no nodes") };
            let node = |node: &Reply| ["ip", "role", "health"].map(|name| field(node, name).clone());
            (field(shard, "slots").clone(), nodes.iter().map(node).collect::<Vec<_>>())
        });
        let slots = |slots: &[i64]| Reply::Array(slots.iter().map(|slot| Reply::Integer(*slot)).collect());
        let node = |ip: &str, role: &str, health: &str| [ip, role, health].map(Reply::bulk);
        let [one, two, three, failed] = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
        let online = |ip: &str, role: &str| node(ip, role, "online");
        let expected = [
            (
                slots(&[0, 4_095, 8_192, 12_287]),
                vec![online(one, "master"), online(two, "replica"), online(three, "replica")],
            ),
            (slots(&[4_096, 8_191]), vec![online(two, "master"), online(one, "replica"), online(three, "replica")]),
            (slots(&[]), vec![online(three, "master")]),
            (slots(&[12_288, 16_383]), vec![node(failed, "master", "fail")]),
        ];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
        let Reply::Array(nodes) = field(&shards[0], "nodes") else { panic!("no nodes") };
        let Reply::Map(fields) = &nodes[1] else { panic!("no map") };
        let names: Vec<Reply> = fields.iter().map(|(key, _)| key.clone()).collect();
        let order = ["id", "port", "ip", "endpoint", "role", "replication-offset", "health"];
        assert_eq!(names, order.map(Reply::bulk), "the fields of Redis in its order");
        assert_eq!(field(&nodes[1], "id"), &Reply::bulk("abcdef0100000000000000010000000000000002"));
    }

    /// Clients look up in one list what they found in another.
    #[test]
    fn cluster_slots_give_nodes_the_names_of_cluster_nodes() {
        let topology = topology();
        let (Reply::Array(slots), Reply::Text(nodes)) = (topology.slots(), topology.nodes()) else {
            panic!("no lists")
        };
        for entry in &slots {
            let Reply::Array(entry) = entry else { panic!("no entry") };
            for (at, node) in entry[2..].iter().enumerate() {
                let Reply::Array(node) = node else { panic!("no node") };
                let Reply::Bulk(name) = &node[2] else { panic!("no name") };
                let name = String::from_utf8_lossy(name);
                let line = nodes.lines().find(|line| line.starts_with(&*name)).expect("its line");
                assert_eq!(line.contains(" slave "), at > 0, "{line}");
            }
        }
    }
}
