//! Console of a cluster without a leader.

use archon_client::Transport;
use archon_console::{Console, ConsoleConfig};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time-out of calls that may wait for a leader.
const LEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts to answer within it.
const ROUNDS: usize = 5;

#[test]
fn reads_fail_fast_without_a_leader() {
    // Port 1 of loopback: nothing listens there.
    let config = ConsoleConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        coordinators: vec!["127.0.0.1:1".to_owned()],
        transport: Transport::default(),
        refusals: Arc::default(),
    };
    let console = Console::open(config).unwrap();
    let mut took = Vec::new();
    // A busy machine may be slow often, not always.
    while took.iter().all(|took| *took >= LEADER_TIMEOUT) {
        assert!(took.len() < ROUNDS, "{took:?}");
        took.push(read_everything(&console));
    }
}

/// Reads several documents at once, all of which the console refuses; returns the time taken.
fn read_everything(console: &Console) -> Duration {
    let began = Instant::now();
    let asked: Vec<TcpStream> = ["status", "nodes", "tables", "events", "settings", "rebalance"]
        .into_iter()
        .map(|what| {
            let mut connection = TcpStream::connect(console.address()).unwrap();
            let request =
                format!("GET /api/v1/{what} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", console.address());
            connection.write_all(request.as_bytes()).unwrap();
            connection
        })
        .collect();
    for mut connection in asked {
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains(r#""kind":"unreachable""#), "{answer}");
    }
    began.elapsed()
}
