use super::*;
use crate::family::Family;
use crate::metric::Metric;
use crate::metrics;
use archon_types::Definition;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

metrics! {
    #[derive(Default)]
    struct ScrapeMetrics {
        times: Metric = Definition::counter("archon_tea_asked_total", "times that somebody asked");
    }
}

#[derive(Default)]
struct FakeMember {
    asked: ScrapeMetrics,
    closed: AtomicBool,
}

impl Source for FakeMember {
    fn families(&self) -> Vec<Family> {
        self.asked.times.add(1);
        self.asked.families()
    }

    fn alive(&self) -> Result<(), String> {
        Ok(())
    }

    fn ready(&self) -> Result<(), String> {
        if self.closed.load(Ordering::Relaxed) { Err("the kettle is cold".to_owned()) } else { Ok(()) }
    }
}

async fn open() -> (MetricsServer, Arc<FakeMember>) {
    let member = Arc::new(FakeMember::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = MetricsServer::open(listener, Arc::clone(&member) as Arc<dyn Source>).unwrap();
    (server, member)
}

/// Sends bytes and returns everything received until the connection ends.
async fn said(server: &MetricsServer, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    // The server may close the connection early if it refuses the request.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

async fn get(server: &MetricsServer, path: &str) -> String {
    said(server, &format!("GET {path} HTTP/1.1\r\nhost: here\r\n\r\n")).await
}

#[tokio::test]
async fn each_path_answers_and_connections_serve_one_request() {
    let (server, member) = open().await;
    let found = get(&server, "/metrics?since=ever").await;
    assert!(found.starts_with("HTTP/1.1 200 OK\r\n") && found.contains("archon_tea_asked_total 1\n"), "{found}");
    assert_eq!(ScrapeMetrics::DEFINITIONS.len(), 1);
    assert!(found.contains("text/plain; version=0.0.4"), "{found}");
    let twice = "GET /livez HTTP/1.1\r\nhost: here\r\n\r\n".repeat(2);
    let found = said(&server, &twice).await;
    assert_eq!(found.matches("HTTP/1.1 200 OK").count(), 1, "{found}");
    assert!(get(&server, "/readyz").await.contains("200 OK"));
    member.closed.store(true, Ordering::Relaxed);
    let found = get(&server, "/readyz").await;
    assert!(found.starts_with("HTTP/1.1 503 ") && found.ends_with("\r\nthe kettle is cold\n"), "{found}");
    assert!(get(&server, "/livez").await.ends_with("ok\n"), "alive all the same");
    server.close().await;
}

#[tokio::test]
async fn open_metrics_is_served_on_request() {
    let (server, _) = open().await;
    let accept = "accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    let found = said(&server, &format!("GET /metrics HTTP/1.1\r\nhost: here\r\n{accept}\r\n\r\n")).await;
    assert!(found.contains("content-type: application/openmetrics-text") && found.ends_with("# EOF\n"), "{found}");
    server.close().await;
}

#[tokio::test]
async fn invalid_requests_get_descriptive_errors() {
    let (server, member) = open().await;
    let status = async |request: &str| said(&server, request).await.lines().next().unwrap_or_default().to_owned();
    for method in ["POST", "HEAD", "DELETE", "BREW"] {
        let found = said(&server, &format!("{method} /metrics HTTP/1.1\r\nhost: here\r\n\r\n")).await;
        assert!(found.starts_with("HTTP/1.1 405 ") && found.contains("allow: GET"), "{method}: {found}");
    }
    let found = get(&server, "/metrics/../secrets").await;
    assert!(
        found.starts_with("HTTP/1.1 404 ") && found.ends_with("there are /metrics, /livez and /readyz\n"),
        "{found}"
    );
    let long = "x".repeat(HEADER_BYTES_MAX);
    assert!(status(&format!("GET /metrics HTTP/1.1\r\nhost: here\r\nx: {long}\r\n\r\n")).await.contains(" 431 "));
    let many: String = (0..=HEADERS_MAX).map(|number| format!("x-{number}: 1\r\n")).collect();
    assert!(status(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n")).await.contains(" 431 "));
    assert!(status("\u{16}\u{3}\u{1} this is no HTTP\r\n\r\n").await.contains(" 400 "));
    assert!(!status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.contains(" 200 "));
    assert_eq!(member.asked.times.get(), 0, "nothing was read for any of them");
    server.close().await;
}

/// Otherwise, sixteen connections with one byte per second make every probe fail, and Kubernetes restarts the member.
#[tokio::test]
async fn probes_succeed_beside_connections_without_a_head() {
    let (server, _) = open().await;
    let mut dripping = Vec::new();
    for round in 0..20 {
        for _ in 0..CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            let _ = stream.write_all(b"GET /livez").await;
            dripping.push(stream);
        }
        let found = get(&server, "/livez").await;
        assert!(found.starts_with("HTTP/1.1 200 "), "{round}: {found:?}");
    }
    let mut answer = Vec::new();
    let _ = dripping[0].read_to_end(&mut answer).await;
    assert_eq!(answer, b"", "the oldest one is closed");
    server.close().await;
}

#[tokio::test]
async fn silent_connection_is_closed() {
    let (server, _) = open().await;
    let mut silent = TcpStream::connect(server.address()).await.unwrap();
    silent.write_all(b"GET /livez HTTP/1.1\r\nhost").await.unwrap();
    let mut answer = Vec::new();
    let ended = timeout(TIMEOUT * 4, silent.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "it is open still");
    assert!(!String::from_utf8_lossy(&answer).contains(" 200 "), "{answer:?}");
    server.close().await;
}

#[tokio::test]
async fn closed_server_refuses_new_and_ends_open_connections() {
    let (server, _) = open().await;
    let address = server.address();
    let mut inside = TcpStream::connect(address).await.unwrap();
    inside.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
    timeout(Duration::from_secs(4), server.close()).await.unwrap();
    let mut answer = Vec::new();
    let _ = inside.read_to_end(&mut answer).await;
    assert_eq!(answer, b"");
    assert!(TcpStream::connect(address).await.is_err());
}
