//! Reads of Redis clients at replicas, on clusters of real processes.

use crate::redis::{NODES, ok, options, start};
use crate::redis_client::{ClusterClient, Connection, Reply};
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::wait_for;
use std::collections::{BTreeMap, BTreeSet};

fn replicated() -> Cluster {
    start(&Options { replication: 3, ..options(NODES) })
}

/// Sends requests to a node that does not lead the partition, on a new connection, and returns the last reply. Repeats
/// that until `accepts` holds: leases lapse and leaderships move on a busy machine.
fn at_follower(cluster: &Cluster, requests: &[&[&str]], accepts: impl Fn(&Reply) -> bool) {
    wait_for(&format!("the reply to {requests:?}"), TIMEOUT, || {
        let leader = cluster.leader_of("{t}a");
        let node = NODES.iter().find(|node| **node != leader).expect("a follower");
        let mut connection = Connection::open(cluster.redis_address(node)).map_err(|error| error.to_string())?;
        let mut last = Reply::Null;
        for request in requests {
            last = connection.ask(request).map_err(|error| error.to_string())?;
        }
        if accepts(&last) { Ok(()) } else { Err(format!("{last:?} at {node}")) }
    });
}

#[test]
fn readonly_connection_reads_the_replica() {
    let cluster = replicated();
    let mut client = ClusterClient::new(cluster.redis_address("athens"));
    assert_eq!(client.ask_until_answered(&["MSET", "{t}a", "one", "{t}b", "two"]), ok());
    assert_eq!(client.ask_until_answered(&["SET", "{t}c", "three", "EX", "1000"]), ok());
    let is_moved = |reply: &Reply| reply.is_error("MOVED");
    let (readonly, get): (&[&str], &[&str]) = (&["READONLY"], &["GET", "{t}a"]);
    at_follower(&cluster, &[get], is_moved);
    let found = [Reply::bulk("one"), Reply::bulk("two"), Reply::Null, Reply::bulk("three")];
    at_follower(&cluster, &[readonly, &["MGET", "{t}a", "{t}b", "{t}absent", "{t}c"]], |reply| {
        *reply == Reply::Array(found.to_vec())
    });
    at_follower(&cluster, &[readonly, get], |reply| *reply == Reply::bulk("one"));
    at_follower(&cluster, &[readonly, &["EXISTS", "{t}a", "{t}absent", "{t}b"]], |reply| *reply == Reply::Integer(2));
    at_follower(&cluster, &[readonly, &["STRLEN", "{t}c"]], |reply| *reply == Reply::Integer(5));
    at_follower(&cluster, &[readonly, &["GETRANGE", "{t}c", "1", "2"]], |reply| *reply == Reply::bulk("hr"));
    at_follower(&cluster, &[readonly, &["TTL", "{t}c"]], |reply| matches!(reply, Reply::Integer(900..=1_000)));
    for write in
        [&["SET", "{t}a", "one"][..], &["GETEX", "{t}absent"], &["GETDEL", "{t}absent"], &["APPEND", "{t}a", ""]]
    {
        at_follower(&cluster, &[readonly, write], is_moved);
    }
    at_follower(&cluster, &[readonly, &["READWRITE"], get], is_moved);
    at_follower(&cluster, &[readonly, &["RESET"], get], is_moved);
}

#[test]
fn cluster_slots_list_leaders_first_and_replicas() {
    let cluster = replicated();
    let mut connection = Connection::open(cluster.redis_address("athens")).expect("a connection");
    wait_for("two replicas of nearly all slots", TIMEOUT, || {
        let slots = connection.ask(&["CLUSTER", "SLOTS"]).map_err(|error| error.to_string())?;
        let (mut served, mut replicated, mut roles) = (vec![0; 16_384], 0, BTreeMap::new());
        let mut leaders = BTreeSet::new();
        for entry in slots.array() {
            let [begin, end] = [0, 1].map(|at| usize::try_from(entry.array()[at].integer()).expect("a slot"));
            served[begin..=end].iter_mut().for_each(|count| *count += 1);
            let nodes = &entry.array()[2..];
            replicated += if nodes.len() == 3 { end + 1 - begin } else { 0 };
            for (at, node) in nodes.iter().enumerate() {
                let Reply::Integer(port) = node.array()[1] else { return Err(format!("{node:?}")) };
                roles.entry(port).or_insert(at == 0);
                if at == 0 {
                    leaders.insert(port);
                }
            }
        }
        let is_whole = served.iter().all(|count| *count == 1);
        // Leaders that were shown with one slot.
        match is_whole && replicated >= 16_384 - NODES.len() && leaders.iter().all(|port| roles[port]) {
            true => Ok(()),
            false => Err(format!("{replicated} slots with replicas; first shown as leaders: {roles:?}; {slots:?}")),
        }
    });
}

/// Returns the texts of a field of maps, which are lists in the older protocol.
fn field_texts(maps: &[Reply], name: &str) -> Vec<String> {
    let field = |map: &Reply| {
        let value = map.array().chunks_exact(2).find(|pair| pair[0] == Reply::bulk(name)).map(|pair| pair[1].clone());
        let Some(Reply::Bulk(value)) = value else { panic!("no {name}: {map:?}") };
        String::from_utf8(value).expect("text")
    };
    maps.iter().map(field).collect()
}

#[test]
fn cluster_nodes_and_shards_list_replicas_of_leaders() {
    let cluster = replicated();
    let mut connection = Connection::open(cluster.redis_address("athens")).expect("a connection");
    wait_for("two replicas of each leader", TIMEOUT, || {
        let nodes = connection.ask(&["CLUSTER", "NODES"]).map_err(|error| error.to_string())?;
        let Reply::Bulk(nodes) = nodes else { return Err(format!("{nodes:?}")) };
        let nodes = String::from_utf8_lossy(&nodes).into_owned();
        let words: Vec<Vec<&str>> = nodes.lines().map(|line| line.split(' ').collect()).collect();
        // A master that leads slots has a word for each range behind the state of its link.
        let leaders = words.iter().filter(|words| words[2].ends_with("master") && words.len() > 8);
        for leader in leaders {
            let follows = |words: &&Vec<&str>| words[2] == "slave" && words[3] == leader[0] && words[1] != leader[1];
            let replicas: BTreeSet<&str> = words.iter().filter(follows).map(|words| words[1]).collect();
            if replicas.len() != 2 {
                return Err(nodes.clone());
            }
        }
        let shards = connection.ask(&["CLUSTER", "SHARDS"]).map_err(|error| error.to_string())?;
        for shard in shards.array() {
            let [_, Reply::Array(slots), _, Reply::Array(members)] = shard.array() else { panic!("{shard:?}") };
            let roles = field_texts(members, "role");
            if !slots.is_empty() && roles != ["master", "replica", "replica"] {
                return Err(format!("{shards:?}"));
            }
            let known = |id: &String| words.iter().any(|words| words[0] == id);
            // A leadership may move between the two requests.
            if !field_texts(members, "id").iter().all(known) {
                return Err(format!("{nodes}\n{shards:?}"));
            }
        }
        Ok(())
    });
}
