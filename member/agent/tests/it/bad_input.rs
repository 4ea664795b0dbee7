//! Requests that a service, another program or a web page should not send.

use crate::support::{World, request};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PATIENT: (Duration, Duration, Duration) =
    (Duration::from_millis(200), Duration::from_secs(30), Duration::from_secs(45));

fn kind(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1["error"]["kind"].as_str().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_refused_and_harm_no_partition() {
    let world = World::start_with(Duration::from_secs(30), Some(PATIENT)).await;
    let mut service = world.connect().await;
    let epoch = world.grant(3).get();
    service.acquire().await;
    world.grant(4);
    service.next_acquire().await;
    let session = service.session.clone();
    let headers = [("archon-session", session.as_str())];
    let large = vec![b' '; 65 * 1024];
    for (head, body, wanted, why) in [
        ("POST /v1/answers", &b"{\"answer\":\"acq"[..], (400, "invalid"), "EOF while parsing"),
        ("POST /v1/answers", b"{\"answer\":\"dance\"}", (400, "invalid"), "unknown variant `dance`"),
        ("POST /v1/answers", b" [{\"answer\":\"stop\"},", (400, "invalid"), "EOF while parsing"),
        ("POST /v1/answers", b"\xff\xfe", (400, "invalid"), "no document of this request"),
        ("POST /v1/answers", b"{\"answer\":\"load\",\"bytes_stored\":-1}", (400, "invalid"), "-1"),
        ("POST /v1/answers", &large, (413, "too_large"), "65536 bytes"),
        ("POST /v1/heartbeat", b"{\"seen\":99}", (400, "invalid"), "event 99 does not exist; the newest one is 2"),
        ("POST /v1/heartbeat", b"{\"seen\":-1}", (400, "invalid"), "-1"),
        ("POST /v1/events", b"", (405, "method"), "the method GET only"),
        ("GET /v1/owned/three", b"", (400, "invalid"), "\"three\" is not the number"),
        ("GET /v1/owned/3?tabel=jobs", b"", (400, "invalid"), "it may be table=NAME"),
        ("GET /v1/nothing", b"", (404, "not_found"), "/v1/nothing"),
        ("GET /", b"", (404, "not_found"), "docs/reference/agent.md"),
    ] {
        let answer = world.request(head, &headers, body).await;
        assert_eq!(kind(&answer), wanted, "{head}: {}", answer.1);
        assert!(answer.1["error"]["message"].as_str().unwrap().contains(why), "{head}: {}", answer.1);
    }
    let wrong = json!({"answer": "acquired", "sequence": 2, "partition": 4, "epoch": 99});
    let answer = service.post("/v1/answers", &wrong).await;
    assert_eq!(kind(&answer), (409, "stale"), "{}", answer.1);
    let missing = world.request("POST /v1/heartbeat", &[], b"{\"seen\":0}").await;
    assert!(missing.1["error"]["message"].as_str().unwrap().contains("archon-session"), "{}", missing.1);

    service.permitted().await;
    let owned = service.get("/v1/owned/3").await.1;
    assert!(owned["owned"] == true && owned["epoch"] == epoch, "{owned}");
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_head_is_cut_off() {
    let world = World::start_with(Duration::from_secs(30), Some(PATIENT)).await;
    let mut stream = TcpStream::connect(&world.address).await.unwrap();
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nx: ").await.unwrap();
    let junk = vec![b'x'; 64 * 1024];
    // Up to 64 MiB, of which the agent keeps 64 KiB.
    for _ in 0..1_024 {
        if stream.write_all(&junk).await.is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(world.request("GET /v1/status", &[], b"").await.0, 200);
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn web_pages_cannot_drive_the_agent() {
    let world = World::start_with(Duration::from_secs(30), Some(PATIENT)).await;
    let new = ("archon-session", "new");
    for headers in [
        &[new, ("origin", "https://elsewhere.example")][..],
        &[new, ("sec-fetch-site", "cross-site")],
        &[new, ("host", "rebound.example:7700")],
    ] {
        let answer = request(&world.address, "GET /v1/events", headers, b"").await;
        assert_eq!(kind(&answer), (403, "forbidden"), "{headers:?}: {}", answer.1);
    }
    // A page can load this address as an image.
    assert_eq!(kind(&world.request("GET /v1/events", &[], b"").await), (400, "invalid"));
    assert_eq!(world.request("GET /v1/status", &[], b"").await.1["state"], "waiting", "no session has begun");
    world.end();
}

/// Callers of the machine share the connections with the service, and must not keep them.
#[tokio::test(flavor = "multi_thread")]
async fn callers_keep_no_connections() {
    let world = World::start_with(Duration::from_secs(30), Some(PATIENT)).await;
    let mut callers = Vec::new();
    for path in ["/v1/status", "/v1/where/key?table=nothing", "/v1/nothing"].repeat(40) {
        let mut stream = TcpStream::connect(&world.address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", world.address);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
        // The callers do not close them.
        callers.push(stream);
    }
    let mut service = world.connect().await;
    world.grant(3);
    service.acquire().await;
    service.permitted().await;
    world.end();
}
