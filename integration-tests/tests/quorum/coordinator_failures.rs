//! Coordinators die, pause and come back; clients and nodes hardly notice.

use crate::EXE;
use archon_client::Client;
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Cluster, Load, Options, ProcessExt};
use archon_load::BeatStream;
use archon_proto::convert::members::beats::Beat;
use archon_proto::convert::members::session::RegistrationResult;
use archon_proto::v1::session_client::SessionClient;
use archon_proto::v1::{ClusterRef, RegisterRequest};
use archon_testkit::{check, wait_for, wait_for_async};
use archon_types::{PROTOCOL_NEWEST, PushKey, Version};
use std::time::Duration;
use tonic::transport::Endpoint;

const TIMEOUT: Duration = Duration::from_secs(60);
/// Time-out of a heartbeat that a paused coordinator answers after it wakes.
const BEAT_LIMIT: Duration = Duration::from_secs(600);

async fn client(cluster: &Cluster) -> Client {
    cluster.client().build().await.expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_operation_fails_when_the_leading_coordinator_is_killed() {
    let mut cluster = Cluster::start(EXE, &Options::default());
    let client = client(&cluster).await;
    let load = Load::start(&client, "killed", 8);
    load.wait_more(100);
    let (leader, _) = cluster.wait_leader();
    cluster.take_coordinator(leader).kill();
    let (next, took) = cluster.wait_leader();
    assert_ne!(next, leader);
    println!("a new leader answered status after {took:?}");
    load.wait_more(100);
    cluster.start_coordinator(leader);
    cluster.wait_online();
    load.wait_more(100);
    let report = load.stop().await;
    report.assert_no_failure();
    println!("longest gap of a writer: {:?}", report.longest_gap);
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
}

/// A node that exists only as a session, so that the test sees every answer to its heartbeats.
struct Probe {
    stream: BeatStream,
    registered: RegistrationResult,
    number: u64,
}

impl Probe {
    /// Registers at a coordinator.
    async fn register(coordinator: &str) -> Result<Self, String> {
        let channel = Endpoint::from_shared(format!("http://{coordinator}")).expect("an address").connect_lazy();
        let mut session = SessionClient::new(channel);
        let request = RegisterRequest {
            cluster: Some(ClusterRef::default()),
            name: "probe".into(),
            address: free_addresses(1).remove(0),
            storage_id: vec![7; 16].into(),
            boot_id: vec![8; 16].into(),
            zone: None,
            weight: 100,
            partitions_max: None,
            protocol_min: 1,
            protocol_max: PROTOCOL_NEWEST,
            held: vec![],
            last_incarnation: 0,
            expects: 0,
            participant: None,
            told: 0,
            generation_key: Vec::new().into(),
            redis: None,
        };
        let answer = session.register(request).await.map_err(|status| status.to_string())?.into_inner();
        let registered = RegistrationResult::try_from(answer).expect("a registration");
        let stream = BeatStream::connect(coordinator, registered.cluster).await.map_err(|error| error.to_string())?;
        Ok(Self { stream, registered, number: 0 })
    }

    /// Returns the granted lease, in milliseconds.
    async fn heartbeat(&mut self) -> Result<u64, String> {
        self.number += 1;
        let beat = Beat {
            node: self.registered.node,
            incarnation: self.registered.incarnation,
            number: self.number,
            table_version: Version::ZERO,
            stopping: false,
            push_key: PushKey::new(uuid::Uuid::from_u128(7)),
            load: None,
            doors: None,
            proof: bytes::Bytes::new(),
        };
        let granted = self.stream.beat(beat, BEAT_LIMIT).await;
        granted.map(|granted| granted.lease_ms).map_err(|detail| detail.message)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn woken_leading_coordinator_grants_nothing() {
    // The probe speaks plaintext.
    let cluster = Cluster::start(EXE, &Options { tls: false, ..Options::default() });
    // On a busy machine another coordinator may lead before the probe has its lease.
    let (old, mut probe) = wait_for_async("the leader to grant the probe a lease", TIMEOUT, async || {
        let (leader, _) = cluster.wait_leader();
        let mut probe = Probe::register(&cluster.coordinator_addresses()[leader]).await?;
        let lease_ms = probe.heartbeat().await?;
        check(lease_ms > 0, || "an empty lease".to_owned())?;
        Ok::<_, String>((leader, probe))
    })
    .await;

    cluster.coordinator(old).pause();
    // This heartbeat waits in the paused process's socket until it wakes.
    let asked = tokio::spawn(async move { probe.heartbeat().await });
    let others: Vec<String> = cluster
        .coordinator_addresses()
        .into_iter()
        .enumerate()
        .filter(|(index, _)| *index != old)
        .map(|(_, address)| address)
        .collect();
    let leader_of = |coordinators: &str| {
        let ran = cluster.archon_at(coordinators, &["status", "-o", "json", "--timeout", "2s"]);
        let status: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        status["leader_id"].as_u64().ok_or_else(|| format!("no leader: {status} {}", ran.stderr))
    };
    let old_id = old as u64 + 1;
    let new_leader = || {
        let leader = leader_of(&others.join(","))?;
        check(leader != old_id, || format!("{leader} leads"))
    };
    tokio::task::block_in_place(|| wait_for("another leader", TIMEOUT, new_leader));
    assert!(!asked.is_finished(), "a paused process cannot answer");
    cluster.coordinator(old).resume();
    let granted = asked.await.expect("the probe does not panic");
    assert!(granted.is_err(), "it granted {granted:?} after it woke");
    println!("refused: {granted:?}");

    tokio::task::block_in_place(|| {
        // It follows the present leader, which may be another one by now.
        wait_for("the old leader to follow", TIMEOUT, || {
            let seen = [leader_of(&cluster.coordinator_addresses()[old])?, leader_of(&others.join(","))?];
            check(seen[0] == seen[1], || format!("{seen:?}"))
        });
        cluster.wait_online();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_killed_at_once_keeps_acknowledged_keys() {
    let mut cluster = Cluster::start(EXE, &Options::default());
    let first = client(&cluster).await;
    let load = Load::start(&first, "power", 8);
    load.wait_more(500);
    cluster.kill_everything();
    let report = {
        let stopping = load.stop();
        cluster.start_everything();
        stopping.await
    };
    cluster.wait_online();
    let again = client(&cluster).await;
    assert_eq!(report.missing(&again).await, Vec::<String>::new());
}

#[test]
fn without_quorum_every_verb_says_so_in_time() {
    let mut cluster = Cluster::start(EXE, &Options::default());
    cluster.take_coordinator(0).kill();
    cluster.take_coordinator(1).kill();
    for verb in [&["status"][..], &["node", "list"], &["rebalance", "plan"], &["table", "list"]] {
        let mut arguments = verb.to_vec();
        arguments.extend(["--timeout", "2s"]);
        let began = std::time::Instant::now();
        let ran = cluster.archon(&arguments);
        assert_eq!(ran.code, 5, "{verb:?}: {} {}", ran.stdout, ran.stderr);
        assert!(began.elapsed() < TIMEOUT, "{verb:?} took {:?}", began.elapsed());
    }
}

#[test]
fn status_without_majority_is_fast_and_asks_every_member() {
    let mut cluster = Cluster::start(EXE, &Options::default());
    cluster.wait_online();
    cluster.take_coordinator(0).kill();
    cluster.take_coordinator(1).kill();
    let began = std::time::Instant::now();
    let ran = cluster.archon(&["status", "--timeout", "10m"]);
    assert!(began.elapsed() < TIMEOUT, "it took {:?}", began.elapsed());
    assert_eq!(ran.code, 5, "{} {}", ran.stdout, ran.stderr);
    let addresses = cluster.coordinator_addresses();
    for line in [
        "no leader, 1 of 3 answer".to_owned(),
        format!("1  {}  does not answer", addresses[0]),
        format!("2  {}  does not answer", addresses[1]),
    ] {
        assert!(ran.stdout.contains(&line), "{line:?} is missing: {}", ran.stdout);
    }
    assert!(ran.stdout.lines().filter(|line| line.contains("  serves ")).count() == 3, "{}", ran.stdout);
    assert!(ran.stderr.contains("only one answers (3)"), "{}", ran.stderr);

    let ran = cluster.archon(&["status", "-o", "json", "--timeout", "10m"]);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).expect("one document");
    assert_eq!((ran.code, document["error"]["kind"].as_str()), (5, Some("no_quorum")), "{document}");
}

#[test]
fn sigterm_hands_coordinator_leadership_over() {
    let mut cluster = Cluster::start(EXE, &Options::default());
    let (leader, _) = cluster.wait_leader();
    let status = cluster.take_coordinator(leader).terminate(Duration::from_secs(60));
    assert!(status.success(), "{status}");
    let (next, took) = cluster.wait_leader();
    assert_ne!(next, leader);
    println!("answered after {took:?}");
}
