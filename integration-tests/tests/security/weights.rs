//! Limits of weight in grants, on real processes: at registration, for running participants, and for operators.

use crate::EXE;
use archon_client::{Error, Participant, Tls};
use archon_integration_tests::{Cluster, Options};
use archon_local_cluster::IdleService;
use archon_security::Role;
use archon_testkit::{check, wait_for};
use std::time::Duration;
use tokio::runtime::Runtime;

const TIMEOUT: Duration = Duration::from_secs(60);

fn start(cluster: &Cluster, name: &str, weight: u32) -> impl Future<Output = Result<Participant, Error>> + use<> {
    let tls = Tls::open(&cluster.credentials(Role::Participant, name)).expect("credentials");
    let builder = Participant::builder(cluster.coordinator_addresses()).table("jobs").name(name);
    builder.address(format!("{name}.example:80")).weight(weight).tls(tls).start(IdleService)
}

fn grant(cluster: &Cluster, name: &str, weight_max: &str) {
    cluster.done(&["access", "grant", "own", "--participant", name, "--table", "jobs", "--weight-max", weight_max]);
}

/// A participant with a grant chose its weight, and so its share of the partitions.
#[test]
fn grant_limits_the_weight_of_a_participant() {
    let options = Options { coordinators: 1, nodes: vec!["athens"], nodes_min: 1, tls: true, ..Options::default() };
    let (cluster, runtime) = (Cluster::start(EXE, &options), Runtime::new().expect("a runtime"));
    cluster.wait_protocol(2);
    cluster.done(&["table", "create", "jobs", "--partitions", "8", "--lease"]);
    grant(&cluster, "w1", "300");
    grant(&cluster, "w2", "100");
    let greedy = runtime.block_on(start(&cluster, "w2", 101)).expect_err("its limit is 100").to_string();
    assert!(greedy.contains("weight 101 in table jobs: the limit of its grant is 100"), "{greedy}");
    assert!(greedy.contains("--participant w2 --table jobs --weight-max 101"), "{greedy}");
    let first = runtime.block_on(start(&cluster, "w1", 300)).expect("a participant");
    let second = runtime.block_on(start(&cluster, "w2", 100)).expect("a participant");
    let wait_owned = |why: &str, wanted: [usize; 2]| {
        wait_for(why, TIMEOUT, || {
            let owned = [first.owned().len(), second.owned().len()];
            check(owned == wanted, || format!("{owned:?}"))
        });
    };
    wait_owned("shares by weight", [6, 2]);
    let listed = cluster.done(&["access", "list", "--table", "jobs", "-o", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("a document");
    let rights = listed["rights"].as_array().into_iter().flatten();
    let limits: Vec<_> = rights.filter_map(|right| right.get("weight_max")).collect();
    assert_eq!(limits, [300, 100], "{listed}");
    // A running participant counts with a lowered limit, and stays registered.
    grant(&cluster, "w1", "100");
    wait_owned("shares by the lowered limit", [4, 4]);
    let refused = cluster.archon(&["node", "set", "w2", "--weight", "400"]);
    assert_eq!(refused.code, 4, "{}", refused.stderr);
    assert!(refused.stderr.contains("the limit of its grant is 100"), "{}", refused.stderr);
    cluster.done(&["access", "grant", "own", "--participant", "w1", "--table", "jobs"]);
    wait_owned("shares without a limit", [6, 2]);
    runtime.block_on(async { tokio::join!(first.stop(TIMEOUT), second.stop(TIMEOUT)) });
}
