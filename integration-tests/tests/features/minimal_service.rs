//! A service beside an agent with as little code as the protocol takes. It shows the share of a package in a measured time.

use archon_integration_tests::cluster::TIMEOUT;
use archon_testkit::{check, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read as _, Result, Write as _, stdin, stdout};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// Less than the interval that `hello` names.
const HEARTBEAT_EVERY: Duration = Duration::from_millis(150);

/// Longest silence of the agent, which sends a comment every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Number of the newest received event.
type LastEvent = Arc<AtomicU64>;

/// Serves over HTTP on the socket of an agent. Stops at a line of its standard input.
pub(crate) fn serve_http(path: &str) {
    let mut events = BufReader::new(connect(path));
    let request = "GET /v1/events HTTP/1.1\r\nhost: localhost\r\narchon-session: new\r\n\r\n";
    events.get_mut().write_all(request.as_bytes()).expect("the agent reads");
    let (seen, mut answers, mut gathered) = (LastEvent::default(), None, Vec::new());
    loop {
        let mut line = String::new();
        if events.read_line(&mut line).expect("the agent writes") == 0 {
            return;
        }
        let Some(text) = line.strip_prefix("data: ") else { continue };
        let event: Value = serde_json::from_str(text).expect("an event");
        if let Some(session) = event["session"].as_str() {
            let open = || Requests::new(path, session);
            let (mut heartbeats, mut stops, seen) = (open(), open(), Arc::clone(&seen));
            answers = Some(open());
            spawn(move || {
                // Ends with the agent.
                while heartbeats.post("/v1/heartbeat", &json!({ "seen": seen.load(Ordering::Relaxed) })).is_ok() {
                    sleep(HEARTBEAT_EVERY);
                }
            });
            spawn(move || {
                let _ = stdin().read_line(&mut String::new());
                stops.post("/v1/answers", &json!({ "answer": "stop" })).expect("the agent takes the stop");
            });
        }
        gathered.extend(take(&event, &seen));
        let more = events.buffer().windows(6).any(|part| part == b"data: ");
        if let Some(answers) = answers.as_mut().filter(|_| !more && !gathered.is_empty()) {
            answers.post("/v1/answers", &Value::Array(std::mem::take(&mut gathered))).expect("the agent takes answers");
        }
    }
}

/// Serves as the program of an agent (`--exec`).
pub(crate) fn serve_lines() {
    let seen = LastEvent::default();
    let sent = Arc::clone(&seen);
    // The name of the test is on this line.
    println!();
    spawn(move || {
        for number in 0_u64.. {
            println!("{}", json!({ "heartbeat": { "seen": sent.load(Ordering::Relaxed) }, "number": number }));
            sleep(HEARTBEAT_EVERY);
        }
    });
    for line in stdin().lock().lines() {
        let event: Value = serde_json::from_str(&line.expect("the agent writes")).expect("a line");
        if let Some(answer) = take(&event, &seen) {
            let mut out = stdout().lock();
            writeln!(out, "{answer}").and_then(|()| out.flush()).expect("the agent reads");
        }
        if event["event"] == "ended" {
            return;
        }
    }
}

/// Takes an event. Returns its answer, if it needs one.
fn take(event: &Value, seen: &LastEvent) -> Option<Value> {
    seen.fetch_max(event["sequence"].as_u64()?, Ordering::Relaxed);
    let answer = match event["event"].as_str()? {
        "acquire" => "acquired",
        "release" => "released",
        _ => return None,
    };
    let (sequence, partition, epoch) = (&event["sequence"], &event["partition"], &event["epoch"]);
    Some(json!({ "answer": answer, "sequence": sequence, "partition": partition, "epoch": epoch }))
}

/// Connects to the agent, which may start at the same time.
fn connect(path: &str) -> UnixStream {
    let mut connected = None;
    wait_for("the agent's socket", TIMEOUT, || {
        connected = connect_once(path).ok();
        check(connected.is_some(), || path.to_owned())
    });
    connected.expect("a connection")
}

fn connect_once(path: &str) -> Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    Ok(stream)
}

/// Requests of a session over one connection at a time.
struct Requests {
    path: String,
    session: String,
    connection: BufReader<UnixStream>,
}

impl Requests {
    fn new(path: &str, session: &str) -> Self {
        Self { path: path.to_owned(), session: session.to_owned(), connection: BufReader::new(connect(path)) }
    }

    /// Sends a request, and waits for its answer. The agent closes idle connections, after 5 s one without any request, so
    /// the request is repeated once over a new connection.
    fn post(&mut self, path: &str, body: &Value) -> Result<()> {
        let (session, body) = (&self.session, body.to_string());
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\narchon-session: {session}");
        let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        exchange(&mut self.connection, &request).or_else(|_| {
            self.connection = BufReader::new(connect_once(&self.path)?);
            exchange(&mut self.connection, &request)
        })
    }
}

/// Sends a request, and reads its answer.
fn exchange(connection: &mut BufReader<UnixStream>, request: &str) -> Result<()> {
    connection.get_mut().write_all(request.as_bytes())?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if line == "\r\n" {
            break;
        }
        if let Some(digits) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = digits.trim().parse().expect("a length");
        }
    }
    connection.read_exact(&mut vec![0; length])
}
