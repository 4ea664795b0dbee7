//! Registers many nodes with a quorum on this machine, heartbeats from each at the configured interval over its own
//! connection, and prints missed replies, latency and the coordinators' CPU.
//!
//!     cargo run --release -p archon-bench --bin heartbeats [NODES [SECONDS]]

use anyhow::Context;
use archon_bench::{become_archon, cpu_time, own_path};
use archon_integration_tests::{Cluster, Options};
use archon_proto::v1::control_server::{Control, ControlServer};
use archon_proto::v1::session_client::SessionClient;
use archon_proto::v1::{ClusterRef, HeartbeatRequest, PushRequest, PushResponse, RegisterRequest, Sender};
use hdrhistogram::Histogram;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

const INTERVAL: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_millis(150);

fn main() -> anyhow::Result<ExitCode> {
    if let Some(code) = become_archon() {
        return Ok(code);
    }
    let mut arguments = std::env::args().skip(1);
    let nodes = arguments.next().map_or(Ok(1_000), |text| text.parse())?;
    let seconds = arguments.next().map_or(Ok(20), |text| text.parse())?;
    tokio::runtime::Runtime::new()?.block_on(run(nodes, Duration::from_secs(seconds)))?;
    Ok(ExitCode::SUCCESS)
}

async fn run(nodes: usize, length: Duration) -> anyhow::Result<()> {
    let options = Options { nodes: vec![], partitions: 4_096, nodes_min: nodes, ..Options::default() };
    let cluster = Cluster::start(&own_path()?, &options);
    let (leader, _) = cluster.wait_leader();
    let leader_address = cluster.coordinator_addresses()[leader].clone();

    let addresses = serve_control(nodes).await?;
    let mut registering = JoinSet::new();
    for (number, address) in addresses.into_iter().enumerate() {
        registering.spawn(register(leader_address.clone(), number, address));
    }
    let mut sessions = Vec::new();
    while let Some(session) = registering.join_next().await {
        sessions.push(session??);
    }
    println!(
        "{} nodes registered; heartbeats every {} ms for {} s",
        sessions.len(),
        INTERVAL.as_millis(),
        length.as_secs()
    );

    let pids: Vec<u32> = (0..options.coordinators).map(|index| cluster.coordinator(index).pid()).collect();
    let cpu_before: Vec<Duration> = pids.iter().map(|pid| cpu_time(*pid)).collect();
    let began = Instant::now();
    let mut beating = JoinSet::new();
    let count = u32::try_from(sessions.len())?;
    for (number, session) in sessions.into_iter().enumerate() {
        // Spread over the interval, as nodes that started at different times are.
        let offset = INTERVAL * u32::try_from(number)? / count;
        beating.spawn(beat(session, offset, began + length));
    }
    let mut latencies = Histogram::<u64>::new_with_bounds(1, 10_000_000, 3)?;
    let (mut sent, mut missed) = (0, 0);
    while let Some(beats) = beating.join_next().await {
        let beats = beats??;
        latencies.add(&beats.micros)?;
        sent += beats.sent;
        missed += beats.missed;
    }
    let wall = began.elapsed();
    println!("heartbeats: {sent} sent, {missed} without a lease within {} ms", DEADLINE.as_millis());
    println!(
        "reply: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
        latencies.value_at_quantile(0.5) as f64 / 1e3,
        latencies.value_at_quantile(0.99) as f64 / 1e3,
        latencies.max() as f64 / 1e3
    );
    for (index, (pid, before)) in pids.iter().zip(cpu_before).enumerate() {
        let used = cpu_time(*pid).saturating_sub(before);
        let role = if index == leader { "leads" } else { "follows" };
        println!(
            "coordinator {} ({role}): {:.0} % of one core",
            index + 1,
            100.0 * used.as_secs_f64() / wall.as_secs_f64()
        );
    }
    let status = cluster.json(&["status"]).map_err(anyhow::Error::msg)?;
    println!(
        "nodes live {}, failed {}, partitions {}",
        status["nodes_live"], status["nodes_failed"], status["partitions"]
    );
    Ok(())
}

struct Session {
    client: SessionClient<Channel>,
    cluster: Option<ClusterRef>,
    sender: Sender,
}

async fn register(leader: String, number: usize, address: String) -> anyhow::Result<Session> {
    let channel = Endpoint::from_shared(format!("http://{leader}"))?.connect().await?;
    let mut client = SessionClient::new(channel);
    let id = || bytes::Bytes::copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    let request = RegisterRequest {
        cluster: Some(ClusterRef::default()),
        name: format!("node-{number:05}"),
        address,
        storage_id: id(),
        boot_id: id(),
        zone: None,
        weight: 100,
        partitions_max: None,
        protocol_min: 1,
        protocol_max: 1,
        held: vec![],
        last_incarnation: 0,
    };
    let answer = client.register(request).await.context("register")?.into_inner();
    Ok(Session { client, cluster: answer.cluster, sender: Sender { id: answer.node, incarnation: answer.incarnation } })
}

struct Beats {
    micros: Histogram<u64>,
    sent: u64,
    missed: u64,
}

async fn beat(mut session: Session, offset: Duration, until: Instant) -> anyhow::Result<Beats> {
    let mut beats = Beats { micros: Histogram::new_with_bounds(1, 10_000_000, 3)?, sent: 0, missed: 0 };
    let mut ticks = tokio::time::interval_at((Instant::now() + offset).into(), INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < until {
        ticks.tick().await;
        beats.sent += 1;
        let mut request = Request::new(HeartbeatRequest {
            cluster: session.cluster.clone(),
            sender: Some(session.sender),
            number: beats.sent,
            table_version: u64::MAX,
            load: None,
            stopping: false,
        });
        request.set_timeout(DEADLINE);
        let began = Instant::now();
        match tokio::time::timeout(DEADLINE, session.client.heartbeat(request)).await {
            Ok(Ok(answer)) if answer.get_ref().lease_ms > 0 => {
                beats.micros.record(u64::try_from(began.elapsed().as_micros())?)?;
            }
            _ => beats.missed += 1,
        }
    }
    Ok(beats)
}

/// Serves `Control` for `nodes` nodes, each at its own loopback address, so that the coordinators' pushes are answered
/// as by real nodes. Returns the addresses.
async fn serve_control(nodes: usize) -> anyhow::Result<Vec<String>> {
    let (connections, accepted) = mpsc::channel::<std::io::Result<TcpStream>>(1_024);
    let mut addresses = Vec::new();
    let mut port = 0;
    for number in 0..nodes {
        let host = format!("127.1.{}.{}", number / 250, number % 250 + 1);
        let listener = TcpListener::bind(format!("{host}:{port}")).await.with_context(|| format!("{host}:{port}"))?;
        let address = listener.local_addr()?;
        port = address.port();
        addresses.push(address.to_string());
        let connections = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if connections.send(Ok(stream)).await.is_err() {
                    return;
                }
            }
        });
    }
    let server = Server::builder().add_service(ControlServer::new(Obedient));
    tokio::spawn(server.serve_with_incoming(ReceiverStream::new(accepted)));
    Ok(addresses)
}

/// Takes every push as obeyed.
struct Obedient;

#[tonic::async_trait]
impl Control for Obedient {
    async fn push(&self, request: Request<PushRequest>) -> Result<Response<PushResponse>, Status> {
        let version = request.into_inner().version;
        Ok(Response::new(PushResponse { version, table_version: version, results: vec![] }))
    }
}
