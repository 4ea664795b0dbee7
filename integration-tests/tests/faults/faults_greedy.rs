//! Greedy clients: of scans, of unread answers, of unfinished messages, of connections, of client ids. No node fails,
//! and all other clients are answered.

use crate::EXE;
use archon_client::{Admin, Client, NodeStatus, Role};
use archon_integration_tests::{Cluster, Options, Room};
use archon_load::attack::{Attack, Attackers, Target};
use archon_testkit::{check, wait_for, wait_for_async};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Rounds of ordinary operations during an attack.
const ROUNDS: usize = 5;

struct Scene {
    cluster: Cluster,
    client: Client,
    admin: Admin,
    target: Target,
}

impl Scene {
    async fn set(replication: u8) -> Self {
        // A shard without a turn for the length of a lease stalls, be it for an attack or for another cluster.
        Self::set_with(&Options { coordinators: 1, replication, room: Room::Whole, ..Options::default() }).await
    }

    /// For attackers that mostly wait.
    async fn set_calm() -> Self {
        Self::set_with(&Options { coordinators: 1, replication: 1, room: Room::Calm, ..Options::default() }).await
    }

    async fn set_with(options: &Options) -> Self {
        let cluster = Cluster::start(EXE, options);
        let replication = options.replication;
        cluster.wait_whole(usize::from(replication));
        let client = cluster.client().build().await.expect("a client");
        let admin = cluster.admin(Duration::from_secs(10));
        let target =
            Target::find(&admin, &cluster.transport(Role::Client), "default", "greedy").await.expect("somebody leads");
        let scene = Self { cluster, client, admin, target };
        scene.is_served("before").await;
        scene
    }

    /// Writes and reads back enough keys to hit every partition with high probability.
    async fn is_served(&self, round: &str) {
        for number in 0..64 {
            let (key, value) = (format!("served-{number}"), format!("{round}-{number}"));
            self.client.put(&key, value.clone()).await.unwrap_or_else(|error| panic!("{round}: put {key}: {error}"));
            let found = self.client.get(&key).await.unwrap_or_else(|error| panic!("{round}: get {key}: {error}"));
            assert_eq!(found.map(|found| found.value), Some(value.into()), "{round}: {key}");
        }
    }

    /// Returns the sum of a counter over the running nodes.
    async fn counted(&self, name: &str) -> u64 {
        let mut sum = 0;
        for node in
            self.admin.list_nodes().await.expect("a list").iter().filter(|node| node.status == NodeStatus::Alive)
        {
            sum += self.admin.node_stats(&node.address).await.expect("the node says what it counts").get(name);
        }
        sum
    }

    /// Runs `attack` on the node, serves other clients meanwhile, and waits until `done` accepts the attackers' counts.
    async fn under(&self, attack: Attack, done: impl Fn((u64, u64, u64)) -> bool) -> Attackers {
        let attackers = Attackers::begin(attack, &self.target);
        for round in 0..ROUNDS {
            self.is_served(&format!("{} {round}", attack.name())).await;
        }
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        while !done(attackers.deeds()) {
            let seen = attackers.deeds();
            assert!(tokio::time::Instant::now() < deadline, "connections, sent, refused so far: {seen:?}");
            self.is_served(attack.name()).await;
        }
        attackers
    }

    /// Asserts that no node failed, no lease lapsed, and no shard stalled long enough to withhold a heartbeat.
    async fn nobody_failed(&self) {
        assert_eq!(self.cluster.json(&["status"]).expect("status")["nodes_alive"], 3, "nobody was failed");
        assert_eq!(self.counted("archon_node_heartbeats_withheld_total").await, 0, "heartbeats withheld");
        assert_eq!(self.counted("archon_node_registrations_total").await, 3, "every node is in its first life");
    }

    /// Asserts that the attackers' resources are freed once they have gone.
    async fn is_given_back(&self) {
        wait_for_async("the attackers' bytes to be freed", TIMEOUT, async || {
            let held = self.counted("archon_node_admitted_bytes").await;
            check(held == 0, || format!("{held} bytes are still admitted"))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_thousands_of_scans_fail_no_node() {
    let scene = Scene::set(1).await;
    let attackers = scene.under(Attack::Scans, |(_, sent, _)| sent > 16 * 4_096).await;
    attackers.end().await;
    scene.nobody_failed().await;
    scene.is_given_back().await;
    scene.is_served("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_not_reading_answers_block_no_others() {
    let scene = Scene::set_calm().await;
    let attackers = scene.under(Attack::SlowReaders, |(connections, ..)| connections >= 20).await;
    attackers.end().await;
    assert!(scene.counted("archon_node_streams_stalled_total").await >= 10, "their streams were ended");
    scene.nobody_failed().await;
    scene.is_given_back().await;
    scene.is_served("after").await;
}

fn resident_bytes(cluster: &Cluster, address: &str) -> u64 {
    let names = ["athens", "byzantium", "cyrene"];
    let name = names.into_iter().find(|name| cluster.node_address(name) == address).expect("a node");
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.node(name).pid())).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    1024 * line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_messages_time_out_and_bound_memory() {
    const MORE_BYTES_MAX: u64 = 192 * 1024 * 1024;
    let scene = Scene::set(1).await;
    let before = resident_bytes(&scene.cluster, scene.target.address());
    // Twenty hold half a message each; that many connections ended or were refused, and all attackers came again.
    let attackers = scene.under(Attack::HalfMessages, |(connections, ..)| connections >= 40).await;
    let grown = resident_bytes(&scene.cluster, scene.target.address()).saturating_sub(before);
    assert!(grown < MORE_BYTES_MAX, "{grown} bytes more for twenty streams");
    attackers.end().await;
    scene.nobody_failed().await;
    scene.is_served("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_flood_keeps_served_and_new_clients_working() {
    let scene = Scene::set(1).await;
    let attackers = scene.under(Attack::Connections, |(connections, ..)| connections >= 2_500).await;
    // The oldest silent connection is closed in favour of one that speaks.
    let newcomer =
        || scene.cluster.archon_at(scene.target.address(), &["kv", "put", "newcomer", "v", "--timeout", "20s"]);
    wait_for("a newcomer to be served during the flood", TIMEOUT, || {
        let ran = newcomer();
        check(ran.code == 0, || ran.stderr.clone())
    });
    attackers.end().await;
    scene.nobody_failed().await;
    scene.is_served("after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_id_per_request_costs_no_heartbeat_at_failover() {
    let mut scene = Scene::set(3).await;
    let attackers = scene.under(Attack::NewClients, |(_, sent, _)| sent >= 12_000).await;
    attackers.end().await;
    scene.is_given_back().await;
    assert!(scene.counted("archon_node_clients_forgotten_total").await > 0, "no more are remembered than may be");
    scene.nobody_failed().await;
    let leader = scene.cluster.leader_of("{greedy}");
    scene.cluster.take_node(&leader).kill();
    scene.is_served("while another node takes over").await;
    assert_eq!(scene.counted("archon_node_heartbeats_withheld_total").await, 0, "nobody stood still for it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_redis_clients_fail_no_node_and_bound_memory() {
    const MORE_BYTES_MAX: u64 = 192 * 1024 * 1024;
    const NODES: &[&str] = &["athens", "byzantium", "cyrene"];
    let options =
        Options { coordinators: 1, replication: 1, room: Room::Whole, redis: NODES, tls: false, ..Options::default() };
    let mut scene = Scene::set_with(&options).await;
    let transport = scene.cluster.transport(Role::Client);
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    // The table names the listener once the node has registered with the final protocol.
    while scene.target.obstacle(Attack::Redis).is_some() {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", scene.target.obstacle(Attack::Redis));
        scene.is_served("until the listener is known").await;
        scene.target = Target::find(&scene.admin, &transport, "default", "greedy").await.expect("a leader");
    }
    let before = resident_bytes(&scene.cluster, scene.target.address());
    let attackers = scene.under(Attack::Redis, |(connections, _, refused)| connections >= 200 && refused >= 100).await;
    let grown = resident_bytes(&scene.cluster, scene.target.address()).saturating_sub(before);
    assert!(grown < MORE_BYTES_MAX, "{grown} bytes more for eight clients");
    attackers.end().await;
    scene.nobody_failed().await;
    scene.is_given_back().await;
    scene.is_served("after").await;
}
