//! Refusals by TLS: callers get the reason at once, and learn nothing else; and an administrator cannot lock himself
//! out by accident.

use crate::EXE;
use archon_client::{Role, Tls, Transport};
use archon_integration_tests::cluster::CommandOutput;
use archon_integration_tests::{Cluster, Options, ProcessExt as _, http};
use archon_local_cluster::Issuer;
use archon_security::{ExpectedPeer, Protocol};
use archon_testkit::{check, wait_for};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const TIMEOUT: Duration = Duration::from_secs(60);

fn start(coordinators: usize) -> Cluster {
    let options = Options { coordinators, tls: true, consoles: true, clients_may: false, ..Options::default() };
    let cluster = Cluster::start(EXE, &options);
    cluster.wait_protocol(2);
    cluster
}

/// Sends a request to a console with these credentials; returns the whole answer until the connection ends, and whether
/// that came in time.
async fn ask(credentials: &Path, address: &str, method: &str, path: &str, within: Duration) -> (String, bool) {
    let transport = Transport::Tls(Tls::open(credentials).expect("credentials"));
    let connected = transport.connect(address, &ExpectedPeer::Coordinators, Protocol::Grpc, TIMEOUT).await;
    let mut stream = connected.expect("a connection");
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nx-archon-console: 1\r\ncontent-length: \
         0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("sent");
    stream.flush().await.expect("sent");
    let mut answer = Vec::new();
    let read = tokio::time::timeout(within, stream.read_to_end(&mut answer)).await;
    (String::from_utf8_lossy(&answer).into_owned(), read.is_ok())
}

/// Regression: they were asked to retry, or the outcome of a write was reported as unknown, after the whole time-out.
#[test]
fn refused_credentials_fail_without_retries() {
    let mut cluster = start(3);
    let directory = tempfile::tempdir().expect("a directory");
    let foreign = Issuer::new(directory.path()).and_then(|issuer| issuer.credentials(Role::Admin, "you", []));
    let foreign = foreign.expect("another authority");
    let node = cluster.credentials(Role::Node, "athens");
    let stolen = cluster.credentials(Role::Admin, "mallory");
    cluster.done(&["access", "withdraw", "admin/mallory"]);
    let at_once = |credentials: &Path, arguments: &[&str], part: &str| {
        let begun = Instant::now();
        let ran = cluster.archon_as(Some(credentials), &[arguments, &["--timeout", "10m"]].concat());
        let took = begun.elapsed();
        assert!(ran.code == 4 && ran.stderr.contains(part), "{arguments:?}: {ran:?}");
        assert!(took < TIMEOUT, "{arguments:?} took {took:?}: {ran:?}");
    };
    at_once(&node, &["kv", "put", "a", "1"], "node/athens asks for keys, which clients do");
    for (credentials, part) in
        [(&foreign, "is it of another cluster?"), (&stolen, "refuses this process's certificate: it was withdrawn")]
    {
        for arguments in
            [&["kv", "put", "a", "1"][..], &["kv", "get", "a"], &["status"], &["node", "drain", "athens"], &["check"]]
        {
            at_once(credentials, arguments, part);
        }
    }
    // It does not matter that one of the coordinators is down.
    let (leader, _) = cluster.wait_leader();
    assert!(cluster.take_coordinator((leader + 1) % 3).terminate(TIMEOUT).success());
    let begun = Instant::now();
    let ran = cluster.archon_as(Some(&stolen), &["node", "drain", "athens", "--timeout", "10m"]);
    assert!(ran.code == 4 && ran.stderr.contains("it was withdrawn"), "{ran:?}");
    assert!(begun.elapsed() < TIMEOUT, "{:?}", begun.elapsed());
}

#[test]
fn table_names_do_not_leak_to_unauthorized_clients() {
    let cluster = start(3);
    cluster.done(&["table", "create", "orders", "--partitions", "3", "--replication", "1"]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let shop = cluster.credentials(Role::Client, "shop");
    let at = cluster.console_address(1);
    let asks = |method: &str, path: &str| runtime.block_on(ask(&shop, at, method, path, TIMEOUT)).0;
    // Present and missing tables get the same answer.
    for (method, path) in
        [("GET", "/nosuch/x"), ("PUT", "/nosuch/x"), ("DELETE", "/nosuch/x"), ("GET", "/nosuch?prefix=a")]
    {
        let missing = asks(method, &format!("/api/v1/rows{path}"));
        let there = asks(method, &format!("/api/v1/rows{}", path.replace("nosuch", "orders")));
        let [missing, there] =
            [missing, there].map(|said| said.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()));
        let (missing, there) = (missing.expect("an answer"), there.expect("an answer"));
        assert!(missing.contains("client/shop may not") && !missing.contains("default"), "{method} {path}: {missing}");
        assert_eq!(missing.replace("nosuch", "orders"), there, "{method} {path}");
    }
    let run = |table: &str| cluster.archon_as(Some(&shop), &["kv", "get", "--table", table, "x"]);
    let (missing, there) = (run("nosuch"), run("orders"));
    for ran in [&missing, &there] {
        assert!(ran.code == 4 && ran.stderr.contains("client/shop may not read table"), "{ran:?}");
    }
    // A client that may read every table learns that there is none.
    cluster.done(&["access", "grant", "write", "--client", "shop", "--all-tables"]);
    assert_eq!(run("nosuch").code, 3);
    let said = asks("GET", "/api/v1/rows/nosuch/x");
    assert!(said.starts_with("HTTP/1.1 404"), "{said}");
    // A plaintext client gets the refusal in HTTP.
    let plain = http::get(at, "/api/v1/status").expect("a console");
    assert!(plain.status == 400 && plain.body.contains("this console requires TLS"), "{plain:?}");
}

/// Regression: an admin withdrew his own certificate without a warning, got an unknown outcome, and was locked out.
#[test]
fn withdrawing_own_admin_certificate_needs_force() {
    let cluster = start(1);
    let alice = cluster.credentials(Role::Admin, "alice");
    let as_alice = |arguments: &[&str]| cluster.archon_as(Some(&alice), arguments);
    let refused =
        |ran: &CommandOutput, part: &str| assert!(ran.code == 4 && ran.stderr.contains(part), "{part}: {ran:?}");
    refused(&as_alice(&["access", "withdraw", "admin/alice"]), "admin/alice is who asks");
    assert_eq!(as_alice(&["status"]).code, 0, "nothing was withdrawn");
    // The new one withdraws the old one.
    let old = cluster.directory().join("old");
    fs::create_dir(&old).expect("a directory");
    for file in ["ca.crt", "tls.crt", "tls.key"] {
        fs::copy(alice.join(file), old.join(file)).expect("a copy");
    }
    // They begin in different seconds.
    wait_for("a certificate that begins later", TIMEOUT, || {
        cluster.issuer().renew(Role::Admin, "alice", []).map_err(|error| error.to_string())?;
        let begins = |of: &Path| Tls::open(of).map(|tls| tls.credentials().certificate.not_before);
        check(begins(&alice).ok() > begins(&old).ok(), || "the same second".to_owned())
    });
    let keep = alice.display().to_string();
    let withdraw = ["access", "withdraw", "admin/alice", "--keep", &keep];
    refused(&cluster.archon_as(Some(&old), &withdraw), "admin/alice is who asks");
    let done = as_alice(&withdraw);
    assert!(done.code == 0 && done.stdout.contains("are revoked"), "{done:?}");
    refused(&cluster.archon_as(Some(&old), &["status"]), "it was withdrawn");
    assert_eq!(as_alice(&["status"]).code, 0, "the new one counts");
    // With --force it is done, and the output names the remaining steps.
    let done = as_alice(&["access", "withdraw", "admin/alice", "--force"]);
    assert!(done.code == 0 && done.stdout.contains("certificates of admin/alice"), "{done:?}");
    assert!(done.stderr.contains("admin of another name"), "{done:?}");
    refused(&as_alice(&["status"]), "it was withdrawn");
    // A withdrawn certificate cannot be kept.
    refused(&cluster.archon(&withdraw), "is revoked itself");
    let readmit = "`archon access readmit admin/alice`";
    refused(&cluster.archon(&withdraw), readmit);
    cluster.done(&["access", "readmit", "admin/alice"]);
    cluster.done(&withdraw);
    assert_eq!(as_alice(&["status"]).code, 0, "it was kept");
}

/// Regression: a feed, a watch or a load continued for as long as its connection.
#[test]
fn expired_certificate_ends_open_connections() {
    let cluster = start(1);
    let soon = cluster.credentials(Role::Operator, "soon");
    cluster.issuer().renew_with_left(Role::Operator, "soon", [], Duration::from_secs(5)).expect("issued");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (said, ended) = runtime.block_on(ask(&soon, cluster.console_address(0), "GET", "/api/v1/feed", TIMEOUT));
    assert!(said.contains("event: hello") && ended, "it is fed on: {}", said.len());
}

/// Regression: the doctor advised stopping a healthy member because its credentials on the disk were wrong.
#[test]
fn doctor_does_not_fault_running_member_for_bad_files() {
    let cluster = start(1);
    let own = cluster.credentials(Role::Node, "athens");
    let listen = cluster.node_address("athens");
    let file = cluster.directory().join("athens.toml");
    let settings = format!(
        "name = 'athens'\nlisten = '{listen}'\ncoordinators = ['{}']\ntls_dir = '{}'\n",
        cluster.coordinator_addresses().join("', '"),
        own.display()
    );
    fs::write(&file, settings).expect("written");
    fs::copy(cluster.credentials(Role::Node, "delos").join("tls.key"), own.join("tls.key")).expect("a copy");
    let ran = cluster.archon_as(None, &["doctor", "-o", "json", "--config", &file.display().to_string()]);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let findings = document["findings"].as_array().expect("a list");
    let errors: Vec<&Value> = findings.iter().filter(|finding| finding["verdict"] == "error").collect();
    assert!(errors.len() == 1 && errors[0]["code"] == "certificate", "{document:#}");
    assert!(errors[0]["remedy"].as_str().is_some_and(|remedy| remedy.contains("archon cert check")), "{document:#}");
    let port = findings.iter().find(|finding| finding["code"] == "port").expect("the port");
    assert_eq!(port["verdict"], "not_checked", "{document:#}");
}
