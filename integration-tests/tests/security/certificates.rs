//! Renewal, expiry and authorities of certificates on a running cluster. Members look at their files every ten seconds, so these tests
//! wait for most of their time: the name of this file has them start early.

use crate::EXE;
use archon_client::Role;
use archon_integration_tests::{Cluster, Options, contract};
use archon_local_cluster::Issuer;
use archon_security::{ExpectedPeer, Protocol};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

fn options() -> Options {
    Options { tls: true, replication: 3, ..Options::default() }
}

/// Certificates are renewed by replacing files: no restart, and no failed operation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_certificate_is_loaded_without_restart() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..options() });
    let client = cluster.client().build().await.expect("a client");
    let (transport, address) = (cluster.transport(Role::Client), cluster.node_address("athens").to_owned());
    let shown = async || {
        let stream = transport
            .connect(&address, &ExpectedPeer::Servers, Protocol::Frames, TIMEOUT)
            .await
            .expect("the node answers");
        stream.peer_certificate().expect("it shows a certificate").to_vec()
    };
    let before = shown().await;
    cluster.issuer().renew(Role::Node, "athens", [address.as_str()]).expect("a certificate");
    let mut writes = 0;
    let renewed = async {
        while shown().await == before {
            let key = format!("key-{writes}");
            client.put(key, "value").await.expect("no write fails while a certificate is renewed");
            writes += 1;
            // Handshakes without a pause would load the machine for ten seconds.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), renewed).await.expect("the new certificate is shown within a minute");
    assert!(writes > 0, "nothing was written meanwhile");
}

/// The cluster itself reports certificates due for renewal, so that the files of many members need no daily check.
#[test]
fn status_reports_expiring_and_unloaded_certificates() {
    let cluster = Cluster::start(EXE, &options());
    let status = cluster.json(&["status"]).expect("status");
    assert_eq!((&status["transport"], &status["reasons"]), (&"tls".into(), &serde_json::json!([])), "{status}");
    let members = || {
        let ran = cluster.archon(&["cert", "members", "-o", "json"]);
        let found: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        contract::check("cert members", &found).unwrap_or_else(|why| panic!("{why}"));
        (ran.code, found["members"].as_array().cloned().unwrap_or_default())
    };
    let (code, all) = members();
    assert!(code == 0 && all.len() == 6 && all.iter().all(|one| one["ends_soon"] == false), "{all:#?}");
    let (leader, _) = cluster.wait_leader();
    let follower = (leader + 1) % 3;
    let issuer = cluster.issuer();
    let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
    let renew = |role: Role, name: &str, address: &str, holds| {
        issuer.renew_with_left(role, name, [address], holds).expect("issued")
    };
    let addresses = cluster.coordinator_addresses();
    renew(Role::Node, "athens", cluster.node_address("athens"), days(20));
    // Another member's certificate is not adopted.
    let (own, other) = (cluster.credentials(Role::Node, "byzantium"), cluster.credentials(Role::Node, "cyrene"));
    for file in ["tls.crt", "tls.key"] {
        std::fs::copy(other.join(file), own.join(file)).expect("a copy");
    }
    for index in [leader, follower] {
        let credentials = cluster.credentials(Role::Coordinator, &(index + 1).to_string());
        std::fs::write(credentials.join("tls.crt"), "no certificate").expect("written");
    }
    let told = |status: &serde_json::Value, code: &str, about: &str| {
        let all = status["reasons"].as_array().into_iter().flatten();
        all.filter(|reason| reason["code"] == code)
            .any(|reason| reason["message"].as_str().unwrap_or("").contains(about))
    };
    let coordinators = [leader, follower].map(|index| format!("coordinator {}", index + 1));
    let due = [
        ("certificate_expires", "athens"),
        ("certificate_not_taken", "byzantium"),
        ("certificate_not_taken", &coordinators[0]),
        ("certificate_not_taken", &coordinators[1]),
    ];
    cluster.wait_json("status to tell of all four", Duration::from_secs(90), &["status"], |status| {
        due.iter().all(|(code, about)| told(status, code, about))
    });
    let (code, all) = members();
    let athens = all.iter().find(|one| one["member"] == "node/athens").unwrap_or_else(|| panic!("{all:#?}"));
    assert!(code == 4 && athens["ends_soon"] == true && athens["certificate"]["identity"] == "node/athens", "{all:#?}");
    // The last day is reported with higher severity.
    renew(Role::Node, "athens", cluster.node_address("athens"), Duration::from_secs(600));
    cluster.wait_json("the last day to be told", Duration::from_secs(90), &["status"], |status| {
        told(status, "certificate_expired", "athens")
    });
    assert_eq!(cluster.archon(&["check"]).code, 11, "look now");
    // Renewed, and restored: nothing is left to report.
    let coordinators = [leader, follower].map(|index| cluster.credentials(Role::Coordinator, &(index + 1).to_string()));
    for directory in coordinators.iter().chain([&own]) {
        // Another member's files, or missing ones, are not overwritten.
        std::fs::remove_file(directory.join("tls.crt")).expect("it is there");
    }
    renew(Role::Node, "athens", cluster.node_address("athens"), days(90));
    renew(Role::Node, "byzantium", cluster.node_address("byzantium"), days(90));
    for index in [leader, follower] {
        renew(Role::Coordinator, &(index + 1).to_string(), &addresses[index], days(90));
    }
    cluster.wait_json("nothing to be left to tell", Duration::from_secs(90), &["status"], |status| {
        status["reasons"] == serde_json::json!([])
    });
}

/// During a change of the authority, or permanently, if a member was left behind.
#[test]
fn members_with_two_authorities_are_reported() {
    let cluster = Cluster::start(EXE, &options());
    let directory = cluster.directory().join("other");
    let address = cluster.node_address("byzantium").to_owned();
    let other = Issuer::new(&directory).and_then(|issuer| issuer.credentials(Role::Node, "byzantium", [&*address]));
    let other = other.expect("another authority");
    let believed = std::fs::read(other.join("ca.crt")).expect("its certificate");
    let members = (1..=3).map(|id| (Role::Coordinator, id.to_string()));
    let nodes = ["athens", "byzantium", "cyrene"].map(|name| (Role::Node, name.to_owned()));
    for (role, name) in members.chain(nodes).chain([(Role::Admin, "you".to_owned())]) {
        let file = cluster.credentials(role, &name).join("ca.crt");
        let both = [std::fs::read(&file).expect("an authority"), believed.clone()].concat();
        std::fs::write(&file, both).expect("both are believed");
    }
    assert_eq!(cluster.archon(&["check"]).code, 0, "one signs as before");
    // Every member checks the files within ten seconds; a member a step behind is refused until then, and retries.
    let own = cluster.credentials(Role::Node, "byzantium");
    for file in ["tls.crt", "tls.key"] {
        std::fs::copy(other.join(file), own.join(file)).expect("a copy");
    }
    cluster.wait_json("the other authority to be told of", Duration::from_secs(90), &["status"], |status| {
        let mut reasons = status["reasons"].as_array().into_iter().flatten();
        let told = reasons.find(|reason| reason["code"] == "authorities_differ");
        let message = told.and_then(|told| told["message"].as_str()).unwrap_or_default();
        message.contains("use certificates of 2 authorities") && message.contains("… that of byzantium;")
    });
    assert_eq!(cluster.archon(&["check"]).code, 10, "look before long");
}
