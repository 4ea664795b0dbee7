//! Metrics and health of real processes, as scrapers and probes get them.

use crate::EXE;
use archon_integration_tests::http::{self, Answer};
use archon_integration_tests::scrape::parted;
use archon_integration_tests::{Cluster, Options, Scrape};
use archon_telemetry::{CONNECTIONS_MAX, Definition, HEADER_BYTES_MAX, Kind};
use archon_testkit::{check, wait_for};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);
const NODES: [&str; 3] = ["athens", "byzantium", "cyrene"];
const COORDINATORS: [&str; 3] = ["coordinator-1", "coordinator-2", "coordinator-3"];

fn cluster() -> Cluster {
    Cluster::start(EXE, &Options { metrics: true, ..Options::default() })
}

fn get(cluster: &Cluster, member: &str, path: &str) -> Answer {
    http::get(cluster.metrics_address(member), path).expect("the member tells its metrics")
}

fn scrape(cluster: &Cluster, member: &str) -> Scrape {
    let answer = get(cluster, member, "/metrics");
    assert_eq!(answer.status, 200, "{answer:?}");
    Scrape::read(&answer.body).unwrap_or_else(|error| panic!("{member}: {error}\n{}", answer.body))
}

/// Returns the leading coordinator.
fn leader(cluster: &Cluster) -> &'static str {
    let leads = |member: &&&str| scrape(cluster, member).get("archon_raft_is_leader") > 0.0;
    let (leader, _) = wait_for("a coordinator to lead", TIMEOUT, || {
        let leading: Vec<_> = COORDINATORS.iter().filter(leads).collect();
        if let [leader] = leading[..] { Ok(*leader) } else { Err(format!("{leading:?} lead")) }
    });
    leader
}

/// Asserts that every metric is exported with its defined kind, and that no series has an undefined name or label.
fn is_told(member: &str, scrape: &Scrape, definitions: &BTreeMap<&str, &Definition>, not_now: &[&str]) {
    for (name, definition) in definitions {
        match scrape.kinds.get(*name) {
            Some(kind) => assert_eq!(kind, definition.kind.as_str(), "{member}: {name}"),
            None => assert!(not_now.iter().any(|prefix| name.starts_with(prefix)), "{member} does not tell {name}"),
        }
    }
    for series in scrape.series.keys() {
        let (name, labels) = parted(series);
        let of_histogram =
            ["_bucket", "_count", "_sum"].iter().find_map(|end| definitions.get(name.strip_suffix(end)?));
        let histogram = of_histogram.filter(|definition| definition.kind == Kind::Histogram);
        let definition =
            histogram.or(definitions.get(name)).unwrap_or_else(|| panic!("{member}: {name} is not defined"));
        let labels: Vec<_> = labels.into_iter().filter(|(label, _)| *label != "le").collect();
        assert_eq!(labels.len(), definition.labels.len(), "{member}: {series}");
        for ((label, value), defined) in labels.iter().zip(definition.labels) {
            assert_eq!(*label, defined.name, "{member}: {series}");
            assert!(defined.values.contains(value), "{member}: {series} has a value that is not defined");
        }
    }
}

fn by_name(definitions: impl Iterator<Item = &'static Definition>) -> BTreeMap<&'static str, &'static Definition> {
    definitions.map(|definition| (definition.name, definition)).collect()
}

#[test]
fn every_metric_is_exported_once_and_matches_events() {
    // With TLS, so that there are certificate metrics; the metrics endpoint is plaintext all the same.
    let cluster = Cluster::start(EXE, &Options { metrics: true, tls: true, ..Options::default() });
    cluster.put_all("default", (0..40).map(|number| (format!("key-{number}"), "value")));
    assert_eq!(cluster.archon(&["kv", "get", "key-7"]).code, 0);

    let of_nodes = by_name(archon_kvstore_node::metric_definitions());
    let told: Vec<Scrape> = NODES.iter().map(|name| scrape(&cluster, name)).collect();
    for (name, scrape) in NODES.iter().zip(&told) {
        is_told(name, scrape, &of_nodes, &[]);
        assert_eq!(scrape.get("archon_ready"), 1.0, "{name}");
        assert_eq!((scrape.get("archon_node_registered"), scrape.get("archon_node_leased")), (1.0, 1.0), "{name}");
        assert!(scrape.get("archon_wal_sync_seconds_count") > 0.0, "{name}: {scrape:?}");
        assert!(scrape.get("archon_node_shard_turn_seconds_count") > 0.0, "{name}: {scrape:?}");
        let infinite = scrape.get("archon_wal_sync_seconds_bucket{le=\"+Inf\"}");
        assert_eq!(infinite, scrape.get("archon_wal_sync_seconds_count"), "{name}");
        let ends = scrape.get("archon_certificate_expires_timestamp_seconds");
        assert!(ends > 0.0 && ends < scrape.get("archon_certificate_authority_expires_timestamp_seconds"), "{name}");
        assert_eq!((scrape.get("archon_certificate_not_taken"), scrape.get("archon_transport_insecure")), (0.0, 0.0));
    }
    let sum = |series: &str| told.iter().map(|scrape| scrape.get(series)).sum::<f64>();
    assert_eq!(sum("archon_node_partitions_led"), 9.0);
    assert!(sum("archon_node_operation_seconds_count{op=\"put\"}") >= 40.0, "{told:?}");
    assert!(sum("archon_node_operation_seconds_count{op=\"get\"}") >= 1.0, "{told:?}");
    assert_eq!(sum("archon_node_operation_seconds_count{op=\"increment\"}"), 0.0);

    let of_coordinators = by_name(archon_coordinator::metric_definitions());
    let leader = leader(&cluster);
    for name in COORDINATORS {
        let scrape = scrape(&cluster, name);
        let of_the_leader: &[&str] = &[
            "archon_cluster_",
            "archon_raft_states_differ",
            "archon_raft_voters_away",
            "archon_raft_entries_behind_max",
        ];
        is_told(name, &scrape, &of_coordinators, if name == leader { &[] } else { of_the_leader });
        assert_eq!((scrape.get("archon_ready"), scrape.get("archon_raft_has_leader")), (1.0, 1.0), "{name}");
        assert!(scrape.get("archon_raft_term") >= 1.0 && scrape.get("archon_raft_leader_changes_total") >= 1.0);
        assert!(scrape.get("archon_raft_log_bytes") > 0.0 && scrape.get("archon_wal_syncs_total") > 0.0, "{name}");
        if name == leader {
            assert_eq!(scrape.get("archon_cluster_nodes{status=\"alive\"}"), 3.0, "{scrape:?}");
            assert_eq!(scrape.get("archon_cluster_partitions{status=\"online\"}"), 9.0, "{scrape:?}");
            assert!(scrape.get("archon_raft_commit_seconds_count") > 0.0, "{scrape:?}");
            assert!(scrape.get("archon_coordinator_turn_seconds_count") > 0.0, "{scrape:?}");
            let heartbeats = scrape.get("archon_coordinator_heartbeats_answered_total");
            assert!(heartbeats > 0.0, "{scrape:?}");
            assert!(scrape.get("archon_coordinator_heartbeat_seconds_count") > 0.0, "{scrape:?}");
        } else {
            assert!(scrape.series.keys().all(|series| !series.starts_with("archon_cluster_")), "{name} does not lead");
        }
    }
}

#[test]
fn metrics_server_refuses_bad_requests_and_serves_on() {
    let cluster = cluster();
    for member in ["athens", "coordinator-2"] {
        let address = cluster.metrics_address(member);
        let send = |request: &str| http::send(address, request).expect("it listens");
        let posted = send("POST /metrics HTTP/1.1\r\nhost: here\r\ncontent-length: 3\r\n\r\nall");
        assert!(posted.status == 405 && posted.head.contains("allow: GET"), "{member}: {posted:?}");
        let unknown = send("GET /debug/pprof HTTP/1.1\r\nhost: here\r\n\r\n");
        assert!(unknown.status == 404 && unknown.body.contains("/readyz"), "{member}: {unknown:?}");
        let huge = "x".repeat(HEADER_BYTES_MAX);
        assert_eq!(send(&format!("GET /metrics HTTP/1.1\r\nhost: here\r\nx: {huge}\r\n\r\n")).status, 431, "{member}");
        assert_eq!(send(&format!("GET /{huge} HTTP/1.1\r\nhost: here\r\n\r\n")).status / 100, 4, "{member}");
        assert_eq!(send("\u{1}\u{2}\u{3}\r\n\r\n").status, 400, "{member}");

        let idle: Vec<TcpStream> =
            (0..4 * CONNECTIONS_MAX).map(|_| TcpStream::connect(address).expect("a connection")).collect();
        assert_eq!(get(&cluster, member, "/livez").status, 200, "{member}: silent connections make way");
        drop(idle);
        assert_eq!(get(&cluster, member, "/readyz").status, 200, "{member}");
    }
    assert_eq!(cluster.archon(&["kv", "put", "after", "all"]).code, 0);

    // The message for an address in use names the flag that chooses another one, and nothing is left of the node.
    let taken = cluster.metrics_address("athens").to_owned();
    let mut arguments = cluster.node_arguments("ephesus", "127.0.0.1:0", &cluster.node_data("ephesus"));
    arguments.extend(["--metrics-listen".to_owned(), taken.clone()]);
    let ran = cluster.archon(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains(&taken) && ran.stderr.contains("choose another --metrics-listen"), "{}", ran.stderr);
}

/// Waits until `/readyz` of a member returns this status and reason.
fn becomes(cluster: &Cluster, member: &str, status: u16, word: &str) {
    wait_for(&format!("{member} to be {status}, {word:?}"), TIMEOUT, || {
        // A newly started member listens a moment later.
        let answer = http::get(cluster.metrics_address(member), "/readyz").map_err(|error| error.to_string())?;
        check(answer.status == status && answer.body.contains(word), || format!("{answer:?}"))
    });
    let alive = get(cluster, member, "/livez");
    assert_eq!((alive.status, alive.body.as_str()), (200, "ok\n"), "{member} is alive all the same");
    if status != 200 {
        assert_eq!(scrape(cluster, member).get("archon_ready"), 0.0, "{member}");
    }
}

#[test]
fn readiness_follows_quorum_and_registration() {
    let mut cluster = cluster();
    for member in NODES.iter().chain(&COORDINATORS) {
        becomes(&cluster, member, 200, "ok");
    }
    cluster.take_coordinator(1).kill();
    cluster.take_coordinator(2).kill();
    becomes(&cluster, "coordinator-1", 503, "coordinator");
    becomes(&cluster, "athens", 503, "holds no lease");
    assert_eq!(scrape(&cluster, "coordinator-1").get("archon_raft_has_leader"), 0.0);

    // A node started now cannot register, and a lone coordinator has no leader.
    cluster.kill_everything();
    cluster.start_node("athens");
    cluster.start_coordinator(0);
    wait_for("athens to listen for metrics", TIMEOUT, || {
        http::get(cluster.metrics_address("athens"), "/livez").map(drop).map_err(|error| error.to_string())
    });
    wait_for("coordinator 1 to listen for metrics", TIMEOUT, || {
        http::get(cluster.metrics_address("coordinator-1"), "/livez").map(drop).map_err(|error| error.to_string())
    });
    becomes(&cluster, "athens", 503, "not registered with a coordinator");
    becomes(&cluster, "coordinator-1", 503, "coordinator");
    assert_eq!(scrape(&cluster, "athens").get("archon_node_registered"), 0.0);

    cluster.start_everything();
    cluster.wait_online();
    for member in NODES.iter().chain(&COORDINATORS) {
        becomes(&cluster, member, 200, "ok");
    }
}
