//! Access control of the console of real coordinators, by TLS.

use crate::EXE;
use crate::console::{CHANGES, TIMEOUT, options, request};
use archon_integration_tests::http as plain;
use archon_integration_tests::{Cluster, Options};
use archon_local_cluster::Issuer;
use archon_security::{ExpectedPeer, Protocol, Role, Tls, Transport};
use archon_testkit::{check, wait_for};
use std::future::poll_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::codegen::{Service, http};
use tonic::transport::Endpoint;

/// Sends a request by TLS with these credentials.
async fn ask_as(transport: &Transport, address: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    let connected = transport.connect(address, &ExpectedPeer::Coordinators, Protocol::Grpc, TIMEOUT).await;
    let mut stream = connected.expect("a connection");
    stream.write_all(request(address, method, path, CHANGES, body).as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer)
}

#[test]
fn console_with_tls_enforces_roles() {
    let cluster = Cluster::start(EXE, &Options { tls: true, ..options() });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let at = cluster.console_address(1);
    let asks = |role: Role, name: &str, method: &str, path: &str, body: &str| {
        let directory = cluster.credentials(role, name);
        let transport = Transport::Tls(Tls::open(&directory).expect("credentials"));
        runtime.block_on(ask_as(&transport, at, method, path, body))
    };
    let (row, cordon, status) = ("/api/v1/rows/default/k", "/api/v1/nodes/athens/cordon", "/api/v1/status");
    for (role, looks, changes, writes) in [
        (Role::Operator, 200, 403, 403),
        (Role::Client, 403, 403, 200),
        (Role::Admin, 200, 200, 200),
        (Role::Node, 403, 403, 403),
        (Role::Participant, 403, 403, 403),
    ] {
        for (method, path, body, expected) in [
            ("GET", status, "", looks),
            ("GET", "/api/v1/feed", "", looks),
            ("POST", cordon, "{}", changes),
            ("PUT", row, "v", writes),
        ] {
            if expected == 200 && path.ends_with("feed") {
                // The feed never ends.
                continue;
            }
            let (found, said) = asks(role, "somebody", method, path, body);
            assert!(found == expected, "{role} {method} {path}: {said}");
            assert!(found != 403 || said.contains(&format!("{role}/somebody may not run archon ")), "{said}");
        }
    }
    // The audit file of the console's coordinator names refused callers.
    let audit = cluster.directory().join("coordinator-2/audit.jsonl");
    for (who, call) in [("operator/somebody", "Admin/SetNode"), ("participant/somebody", "Admin/Status")] {
        let kept = || {
            let lines = std::fs::read_to_string(&audit).map_err(|error| error.to_string())?;
            let told = |line: &str| line.contains(r#""what":"refusal""#) && line.contains(who) && line.contains(call);
            check(lines.lines().any(told), || lines.clone())
        };
        wait_for("a refusal of the console in the audit file", TIMEOUT, kept);
    }
    // Events name the caller, and the coordinator of the console. On a busy machine coordinator 2 may have led: it calls no
    // other coordinator then.
    let cause = r#""admin":"admin/somebody","from":"127.0.0.1","via":"coordinator/2""#;
    wait_for("an event by a console that does not lead", TIMEOUT, || {
        let events = cluster.archon(&["events", "-o", "json"]).stdout;
        if events.contains(cause) {
            return Ok(());
        }
        let moved = cluster.archon(&["quorum", "transfer-leader", "1"]);
        for order in ["uncordon", "cordon"] {
            asks(Role::Admin, "somebody", "POST", &format!("/api/v1/nodes/athens/{order}"), "{}");
        }
        Err(format!("{moved:?}: {events}"))
    });
    // A caller without a certificate of this cluster, and a caller in plaintext.
    let directory = tempfile::tempdir().expect("a directory");
    let foreign = Issuer::new(directory.path()).and_then(|issuer| issuer.credentials(Role::Admin, "you", []));
    let foreign = Transport::Tls(Tls::open(&foreign.expect("another authority")).expect("credentials"));
    let refused = runtime.block_on(foreign.connect(at, &ExpectedPeer::Coordinators, Protocol::Grpc, TIMEOUT));
    assert!(refused.unwrap_err().to_string().contains("another cluster"), "a foreign authority");
    assert_eq!(plain::get(at, status).map(|answer| answer.status).unwrap_or(0), 400);
}

/// To nodes the console is a coordinator, which asks on behalf of its callers.
#[test]
fn console_with_tls_enforces_row_rights() {
    let cluster = Cluster::start(EXE, &Options { tls: true, clients_may: false, ..options() });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (at, row) = (cluster.console_address(1), "/api/v1/rows/default/k");
    let asks = |role: Role, name: &str, method: &str, path: &str, body: &str| {
        let transport = Transport::Tls(Tls::open(&cluster.credentials(role, name)).expect("credentials"));
        runtime.block_on(ask_as(&transport, at, method, path, body))
    };
    assert_eq!(asks(Role::Client, "shop", "GET", row, "").0, 403);
    let meant = r#"{"right": "read", "client": "shop", "table": "default"}"#;
    for (role, body, expected) in [
        (Role::Client, meant, 403),
        (Role::Operator, meant, 403),
        (Role::Admin, r#"{"right": "read", "table": "default"}"#, 400),
        (Role::Admin, r#"{"right": "own", "client": "shop", "all_tables": true}"#, 400),
        (Role::Admin, meant, 200),
    ] {
        let (found, said) = asks(role, "shop", "POST", "/api/v1/access/grant", body);
        assert_eq!(found, expected, "{role} {body}: {said}");
    }
    for (name, method, expected) in
        [("shop", "GET", 404), ("shop", "PUT", 403), ("shop", "DELETE", 403), ("other", "GET", 403)]
    {
        let (found, said) = asks(Role::Client, name, method, row, "v");
        assert_eq!(found, expected, "{name} {method}: {said}");
        assert!(found != 403 || said.contains("archon access grant"), "{said}");
    }
    let (found, said) = asks(Role::Operator, "op", "GET", "/api/v1/access?client=shop&table=default", "");
    assert!(found == 200 && said.contains(r#""may":"read""#), "{said}");
    let (found, said) = asks(Role::Admin, "alice", "POST", "/api/v1/access/revoke", meant);
    assert!(found == 200 && said.contains(r#""changed":true"#), "{said}");
    assert_eq!(asks(Role::Client, "shop", "GET", row, "").0, 403);
}

/// Regression: a refusal that came before the body was read looked to an HTTP/2 client like a broken stream.
#[test]
fn http2_refusal_before_body_keeps_the_stream() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, tls: true, ..options() });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let at = cluster.console_address(0);
    let transport = Transport::Tls(Tls::open(&cluster.credentials(Role::Admin, "alice")).expect("credentials"));
    let endpoint = Endpoint::from_shared(format!("https://{at}")).expect("an address");
    let body = "x".repeat(1024 * 1024);
    runtime.block_on(async {
        let mut channel = transport.channel(&endpoint, at, ExpectedPeer::Coordinators, TIMEOUT);
        for (header, kind, expected) in [("x-other", "application/json", 403), ("x-archon-console", "text/plain", 415)]
        {
            for _ in 0..10 {
                let request = http::Request::post(format!("https://{at}/api/v1/nodes/athens/cordon"));
                let request = request.header(header, "1").header("content-type", kind);
                let request = request.body(tonic::body::Body::new(body.clone())).expect("a request");
                poll_fn(|context| channel.poll_ready(context)).await.expect("a connection");
                let answer = channel.call(request).await.expect("an answer");
                assert_eq!(answer.status(), expected);
            }
        }
    });
}

/// A member's certificate cannot act for an administrator.
#[test]
fn only_coordinators_act_for_other_callers() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, tls: true, ..options() });
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (leader, _) = cluster.wait_leader();
    let address = cluster.coordinator_addresses()[leader].clone();
    let cordon = |role: Role, name: &str| {
        let directory = cluster.credentials(role, name);
        let transport = Transport::Tls(Tls::open(&directory).expect("credentials"));
        let admin = archon_client::Admin::with_transport(vec![address.clone()], TIMEOUT, transport).expect("a handle");
        let alice = archon_security::Caller::NOBODY.on_behalf_of("admin/alice 10.0.0.7").expect("an identity");
        let _entered = runtime.enter();
        runtime.block_on(admin.on_behalf_of(&alice).set_node("athens", archon_client::NodeGoal::Cordon))
    };
    for (role, name) in [(Role::Node, "athens"), (Role::Client, "app"), (Role::Operator, "op"), (Role::Admin, "bob")] {
        let refused = cordon(role, name).expect_err("nobody else speaks for others").to_string();
        assert!(refused.contains(&format!("{role}/{name} may not call on behalf of others")), "{refused}");
    }
    cordon(Role::Coordinator, "1").expect("a coordinator does, for an administrator");
    let nodes = cluster.archon(&["node", "list"]).stdout;
    assert!(nodes.contains("Cordon"), "{nodes}");
    let events = cluster.archon(&["events"]).stdout;
    assert!(events.contains("admin/alice"), "{events}");
}
