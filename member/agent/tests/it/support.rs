//! An agent with a fake coordinator, and a service that speaks HTTP by hand.

use archon_agent::protocol::{Acquire, Event, Hello, PartitionLoss, Permission, Release};
use archon_agent::{Agent, AgentConfig, AgentError};
use archon_client::testing::{FakeCoordinator, ParticipantReport};
use archon_client::{Epoch, PartitionId, Transport};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const SOON: Duration = Duration::from_secs(30);
pub(crate) const NAME: &str = "w1";

/// Returns the configuration of the participant `w1` of the table `jobs`.
pub(crate) fn config(coordinator: &FakeCoordinator) -> AgentConfig {
    AgentConfig {
        coordinators: vec![coordinator.address()],
        transport: Transport::default(),
        tables: vec!["jobs".to_owned()],
        name: NAME.to_owned(),
        address: "127.0.0.1:8080".to_owned(),
        weight: 100,
        partitions_max: None,
        zone: None,
        timing: None,
        maps: Vec::new(),
        listen: "127.0.0.1:0".parse().unwrap(),
        service_lease: SOON,
        start_limit: SOON,
        stop_limit: SOON,
    }
}

/// A running agent with its cluster.
pub(crate) struct World {
    pub(crate) coordinator: FakeCoordinator,
    pub(crate) address: String,
    pub(crate) stop: CancellationToken,
    pub(crate) running: JoinHandle<Result<(), AgentError>>,
}

impl World {
    pub(crate) async fn start(service_lease: Duration) -> Self {
        Self::start_with(service_lease, None).await
    }

    /// Starts an agent, with this timing of the participant if given.
    pub(crate) async fn start_with(service_lease: Duration, timing: Option<(Duration, Duration, Duration)>) -> Self {
        let coordinator = FakeCoordinator::start().await.unwrap();
        let config = AgentConfig { timing, service_lease, ..config(&coordinator) };
        let agent = Agent::listen(config).await.unwrap();
        let (address, stop) = (agent.address(), CancellationToken::new());
        let running = tokio::spawn(agent.run(stop.clone()));
        Self { coordinator, address, stop, running }
    }

    pub(crate) fn partition(&self, index: u32) -> PartitionId {
        self.coordinator.partition("jobs", index)
    }

    pub(crate) fn grant(&self, index: u32) -> Epoch {
        self.coordinator.grant(NAME, self.partition(index))
    }

    pub(crate) async fn reported(&self, wanted: ParticipantReport) {
        self.coordinator.wait_for(SOON, |reported| reported.contains(&wanted)).await.unwrap();
    }

    pub(crate) async fn left(&self) {
        self.reported(ParticipantReport::Left { participant: NAME.to_owned() }).await;
    }

    pub(crate) async fn released(&self, index: u32, epoch: Epoch) {
        let (participant, partition) = (NAME.to_owned(), self.partition(index));
        self.reported(ParticipantReport::Released { participant, partition, epoch }).await;
    }

    /// Connects a service, and begins a session.
    pub(crate) async fn connect(&self) -> Service {
        self.try_connect("new", 0).await.unwrap()
    }

    /// Connects a service to a session; returns the refusal otherwise.
    pub(crate) async fn try_connect(&self, session: &str, position: u64) -> Result<Service, (u16, Value)> {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let head = format!(
            "GET /v1/events HTTP/1.1\r\nhost: {}\r\narchon-session: {session}\r\nlast-event-id: {position}\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut reader = BufReader::new(stream);
        let (status, length) = head_of(&mut reader).await;
        if status != 200 {
            let mut body = vec![0; length];
            reader.read_exact(&mut body).await.unwrap();
            return Err((status, serde_json::from_slice(&body).unwrap()));
        }
        let mut service = Service { reader, address: self.address.clone(), session: String::new(), seen: position };
        let Some(Event::Hello(Hello { session, .. })) = service.next().await else { panic!("no first message") };
        service.session = session;
        Ok(service)
    }

    /// Sends a request with these headers, and returns status and body.
    pub(crate) async fn request(&self, head: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, Value) {
        request(&self.address, head, headers, body).await
    }

    /// Ends the agent at once.
    pub(crate) fn end(self) {
        self.running.abort();
    }
}

/// Reads the head of a response. Returns its status and the length of its body.
async fn head_of(reader: &mut BufReader<TcpStream>) -> (u16, usize) {
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).await.unwrap() > 0, "the connection was closed");
        let line = line.trim_end().to_lowercase();
        if let Some(rest) = line.strip_prefix("http/1.1 ") {
            status = rest[..3].parse().unwrap();
        }
        if let Some(rest) = line.strip_prefix("content-length: ") {
            length = rest.parse().unwrap();
        }
        if line.is_empty() {
            return (status, length);
        }
    }
}

pub(crate) async fn request(address: &str, head: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, Value) {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut reader = BufReader::new(stream);
    let mut text = format!("{head} HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| *name == "host") {
        text += &format!("host: {address}\r\n");
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += "\r\n";
    reader.write_all(text.as_bytes()).await.unwrap();
    // The agent may refuse a body before it has read it.
    let _ = reader.write_all(body).await;
    let (status, length) = head_of(&mut reader).await;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.unwrap();
    let text = || Value::String(String::from_utf8(body.clone()).unwrap());
    (status, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
}

/// A connected service.
pub(crate) struct Service {
    reader: BufReader<TcpStream>,
    address: String,
    pub(crate) session: String,
    pub(crate) seen: u64,
}

impl Service {
    /// Returns the next event; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        let read = async {
            loop {
                let mut line = String::new();
                if self.reader.read_line(&mut line).await.unwrap_or(0) == 0 {
                    return None;
                }
                if let Some(data) = line.strip_prefix("data: ") {
                    return Some(serde_json::from_str(data).unwrap());
                }
                if line.trim_end() == "0" {
                    return None; // The last chunk.
                }
            }
        };
        let event = tokio::time::timeout(SOON, read).await.expect("an event in time")?;
        let sequence = match &event {
            Event::Hello(_) => self.seen,
            Event::Acquire(event) => event.sequence,
            Event::Release(event) => event.sequence,
            Event::Lost(event) => event.sequence,
            Event::Ended(event) => event.sequence,
        };
        assert!(matches!(event, Event::Hello(_)) || sequence == self.seen + 1, "{event:?} after {}", self.seen);
        self.seen = sequence;
        Some(event)
    }

    pub(crate) async fn next_acquire(&mut self) -> Acquire {
        match self.next().await {
            Some(Event::Acquire(event)) => event,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn next_release(&mut self) -> Release {
        match self.next().await {
            Some(Event::Release(event)) => event,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn next_lost(&mut self) -> PartitionLoss {
        match self.next().await {
            Some(Event::Lost(event)) => event,
            other => panic!("{other:?}"),
        }
    }

    /// Receives the end of the session, and then the end of the stream. Returns the reason.
    pub(crate) async fn next_end(&mut self) -> String {
        let Some(Event::Ended(ended)) = self.next().await else { panic!("the session goes on") };
        assert_eq!(self.next().await, None);
        ended.reason
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let head = format!("POST {path}");
        request(&self.address, &head, &[("archon-session", &self.session)], body.to_string().as_bytes()).await
    }

    /// Sends an answer that must be taken.
    pub(crate) async fn answer(&self, kind: &str, sequence: u64, partition: u32, epoch: u64) {
        let body = json!({"answer": kind, "sequence": sequence, "partition": partition, "epoch": epoch});
        assert_eq!(self.post("/v1/answers", &body).await, (200, json!({})));
    }

    pub(crate) async fn heartbeat(&self) -> Permission {
        let (status, body) = self.post("/v1/heartbeat", &json!({"seen": self.seen})).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_value(body).unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        request(&self.address, &format!("GET {path}"), &[("archon-session", &self.session)], b"").await
    }

    /// Acquires the next offered partition. Returns its number and epoch.
    pub(crate) async fn acquire(&mut self) -> (u32, u64) {
        let Acquire { sequence, partition, epoch, .. } = self.next_acquire().await;
        self.answer("acquired", sequence, partition, epoch).await;
        (partition, epoch)
    }

    /// Sends heartbeats until one is answered with a permission.
    pub(crate) async fn permitted(&self) -> Permission {
        let poll = async || {
            let permission = self.heartbeat().await;
            if permission.valid_for_ms > 0 { Ok(permission) } else { Err("no permission yet") }
        };
        archon_testkit::wait_for_async("a permission", SOON, poll).await
    }
}
