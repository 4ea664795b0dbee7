//! Connection places and body room of a console under load by other callers.

use archon_client::Transport;
use archon_console::{Console, ConsoleConfig};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// A console whose cluster does not answer: nothing listens on port 1 of loopback.
fn console() -> Console {
    let config = ConsoleConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        coordinators: vec!["127.0.0.1:1".to_owned()],
        transport: Transport::default(),
        refusals: Arc::default(),
    };
    Console::open(config).unwrap()
}

fn send(console: &Console, head: &str, body: &str) -> TcpStream {
    let address = console.address();
    let mut connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let request = format!("{head}\r\nhost: {address}\r\norigin: http://{address}\r\nx-archon-console: 1\r\n\r\n{body}");
    connection.write_all(request.as_bytes()).unwrap();
    connection
}

/// Returns the first bytes of an answer; empty if the connection is closed.
fn answer(connection: &mut TcpStream) -> String {
    let mut answer = [0; 512];
    let read = connection.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

#[test]
fn silent_connections_do_not_block_callers() {
    let console = console();
    let mut silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(console.address()).unwrap()).collect();
    let found = answer(&mut send(&console, "GET /api/v1/openapi.json HTTP/1.1", ""));
    assert!(found.starts_with("HTTP/1.1 200 "), "{found:?}");
    assert_eq!(answer(&mut silent[0]), "", "the oldest silent connection is closed");
}

/// Otherwise eight bodies that declare 8 MiB and never arrive take all room, and a short one waits behind them.
#[test]
fn short_body_does_not_wait_for_long_ones() {
    let console = console();
    let create = |length: usize| {
        format!("POST /api/v1/tables HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {length}")
    };
    let mut dripping: Vec<TcpStream> = (0..24).map(|_| send(&console, &create(8 * 1024 * 1024), "{")).collect();
    // Rejected for its content, without a call to the cluster.
    let body = r#"{"name":"t","kind":"lease"}"#;
    let found = answer(&mut send(&console, &create(body.len()), body));
    assert!(found.starts_with("HTTP/1.1 400 "), "{found:?}");
    for connection in &mut dripping {
        connection.set_nonblocking(true).unwrap();
        assert!(connection.read(&mut [0]).is_err(), "a long body was given up before the short one was read");
    }
}

#[test]
fn one_caller_leaves_feeds_for_others() {
    let console = console();
    let open = |_| {
        let mut feed: TcpStream = send(&console, "GET /api/v1/feed HTTP/1.1", "");
        let status = answer(&mut feed);
        (feed, status)
    };
    // Each is answered before the next one comes, so that no connection is closed for another.
    let (_feeds, statuses): (Vec<TcpStream>, Vec<String>) = (0..33).map(open).unzip();
    assert_eq!(statuses.iter().filter(|status| status.starts_with("HTTP/1.1 200 ")).count(), 32, "{statuses:?}");
    let refusal = statuses.iter().find(|status| status.starts_with("HTTP/1.1 429 ")).expect("a refusal");
    assert!(refusal.contains("127.0.0.1 has 32 open feeds"), "{refusal}");
}
