//! A cluster of real coordinators whose nodes are played, all of them alive and all partitions online.

use crate::Arguments;
use anyhow::Context;
use archon_bench::played_control;
use archon_bench::played_relays::PlayedRelays;
use archon_bench::played_session::PlayedSession;
use archon_integration_tests::{Cluster, Options};
use archon_proto::convert::load::Load;
use archon_proto::v1;
use archon_proto::v1::session_client::SessionClient;
use archon_proto::v1::stats_server::{Stats, StatsServer};
use archon_types::{ErrorKind, HASH_PARTITIONS_MAX};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::block_in_place;
use tonic::{Request, Response, Status};

/// How long a heartbeat may take.
const DEADLINE: Duration = Duration::from_millis(800);
/// How long it may take until all nodes are there and all partitions are online.
const SETTLE_LIMIT: Duration = Duration::from_secs(300);
/// Facts in one report.
const REPORTS_MAX: usize = 4_096;
const LOOK_AGAIN: Duration = Duration::from_millis(500);
const ADMIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Coordinators with played nodes.
pub(crate) struct Played {
    pub(crate) cluster: Cluster,
    /// The coordinator that leads.
    pub(crate) leader: usize,
    /// Heartbeats without a lease so far.
    pub(crate) missed: Arc<AtomicUsize>,
    /// How long it took until everything was online.
    pub(crate) settled: Duration,
}

impl Played {
    /// Starts all of it, and waits until all is well.
    pub(crate) async fn start(arguments: &Arguments) -> anyhow::Result<Self> {
        let nodes = arguments.nodes as usize;
        let options = Options {
            nodes: vec![],
            partitions: arguments.partitions.min(HASH_PARTITIONS_MAX),
            nodes_min: nodes,
            replication: arguments.replication,
            consoles: true,
            ..Options::default()
        };
        let cluster = arguments.tool.start(&options)?;
        let leader = block_in_place(|| cluster.wait_leader().0);
        let address = cluster.coordinator_addresses()[leader].clone();
        let began = Instant::now();
        let (told, reports) = mpsc::unbounded_channel();
        tokio::spawn(report(address.clone(), reports));
        let pushed = Arc::new(move |push: &v1::PushRequest| {
            for request in online(push) {
                let _ = told.send(request);
            }
        });
        let stats = StatsServer::new(PlayedStats { began, asked: AtomicU64::new(0), names: asked_at_once(nodes) });
        let addresses = played_control::serve(nodes, pushed, |routes| {
            routes.add_service(stats);
        })
        .await?;
        let (missed, relays) = (Arc::<AtomicUsize>::default(), Arc::new(PlayedRelays::start(0).await?));
        let interval = Duration::from_millis(arguments.heartbeat_ms);
        for (number, at) in addresses.into_iter().enumerate() {
            let (address, missed, relays) = (address.clone(), Arc::clone(&missed), Arc::clone(&relays));
            tokio::spawn(async move {
                let lived = live(address, number, at, interval, missed, relays).await;
                if let Err(error) = lived {
                    eprintln!("node {number}: {error:#}");
                }
            });
        }
        let played = Self { cluster, leader, missed, settled: Duration::ZERO };
        played.make_tables(arguments).await?;
        played.wait_online(arguments, began).await?;
        Ok(Self { settled: began.elapsed(), ..played })
    }

    /// What does not fit into one table.
    async fn make_tables(&self, arguments: &Arguments) -> anyhow::Result<()> {
        let admin = self.cluster.admin(ADMIN_TIMEOUT);
        let began = Instant::now();
        while admin.status().await.is_ok_and(|status| status.cluster_id.is_empty()) {
            anyhow::ensure!(began.elapsed() < SETTLE_LIMIT, "the nodes do not make a cluster");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        let mut left = arguments.partitions.saturating_sub(HASH_PARTITIONS_MAX);
        for number in 2.. {
            let partitions = left.min(HASH_PARTITIONS_MAX);
            if partitions == 0 {
                break;
            }
            let name = format!("table-{number}");
            admin.create_table(&name, partitions, arguments.replication).await.with_context(|| name)?;
            left -= partitions;
        }
        Ok(())
    }

    async fn wait_online(&self, arguments: &Arguments, began: Instant) -> anyhow::Result<()> {
        let admin = self.cluster.admin(ADMIN_TIMEOUT);
        loop {
            let status = admin.status().await.context("status")?;
            if status.partitions_online == arguments.partitions && status.nodes_alive == arguments.nodes {
                return Ok(());
            }
            anyhow::ensure!(
                began.elapsed() < SETTLE_LIMIT,
                "{} of {} partitions are online, {} nodes alive",
                status.partitions_online,
                arguments.partitions,
                status.nodes_alive
            );
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// What a leader reports that has taken up what it is told: the partitions that nobody knows yet to be online.
fn online(push: &v1::PushRequest) -> Vec<v1::ReportRequest> {
    let hosts = push.duties.iter().filter_map(|duty| match &duty.duty {
        Some(v1::duty::Duty::Host(host)) => Some(host),
        _ => None,
    });
    let assigned = hosts.filter_map(|host| {
        let row = host.partition.as_ref()?;
        let leads = row.leader == Some(host.placement) && row.status() == v1::PartitionStatus::Assigned;
        leads.then(|| v1::ReplicaReport {
            partition: row.id,
            placement: host.placement,
            epoch: row.epoch,
            version: row.version,
            fact: Some(v1::replica_report::Fact::Online(v1::FactOnline {})),
        })
    });
    let all: Vec<_> = assigned.collect();
    let sender = Some(v1::Sender { id: push.node, incarnation: push.incarnation });
    let request = |reports: &[_]| v1::ReportRequest {
        cluster: push.cluster.clone(),
        sender,
        reports: reports.to_vec(),
        ..Default::default()
    };
    all.chunks(REPORTS_MAX).map(request).collect()
}

/// Tells the leading coordinator what nodes report, one after the other. What does not arrive is told again by the next push.
async fn report(leader: String, mut reports: mpsc::UnboundedReceiver<v1::ReportRequest>) -> anyhow::Result<()> {
    let mut client = SessionClient::connect(format!("http://{leader}")).await?;
    while let Some(request) = reports.recv().await {
        let _ = client.report(request).await;
    }
    Ok(())
}

/// A node: heartbeats from the moment it registered, with another load each time.
async fn live(
    leader: String,
    number: usize,
    address: String,
    interval: Duration,
    missed: Arc<AtomicUsize>,
    relays: Arc<PlayedRelays>,
) -> anyhow::Result<()> {
    let mut session = PlayedSession::begin(&leader, number, address, interval, &relays).await?;
    for beat in 0_u64.. {
        let began = Instant::now();
        let granted = session.heartbeat(DEADLINE, Some(carried(number as u64, beat))).await;
        missed.fetch_add(usize::from(!granted.is_ok_and(|lease_ms| lease_ms > 0)), Ordering::Relaxed);
        match granted {
            Err(ErrorKind::StaleIncarnation) => drop(session.register().await),
            Err(ErrorKind::Unreachable) => session.connect().await,
            _ => {}
        }
        tokio::time::sleep_until((began + session.after(began)).into()).await;
    }
    Ok(())
}

/// Loads that differ from node to node, and go up and down.
fn carried(number: u64, beat: u64) -> Load {
    let wave = (number * 37 + beat * 11) % 100;
    Load {
        bytes_stored: 40_000_000_000 + number * 13_000_000 + beat * 4_096 * wave,
        operations_per_second: 900 + 10 * wave,
        ..Load::default()
    }
}

/// Tells of as many gets and puts as if they had been served evenly since it began.
struct PlayedStats {
    began: Instant,
    asked: AtomicU64,
    /// How many nodes are asked in one round.
    names: u64,
}

/// Upper bounds of the durations that are told, in seconds, with the share of operations that took no longer.
const BUCKETS: [(&str, f64); 6] =
    [("0.00005", 0.1), ("0.0002", 0.6), ("0.001", 0.9), ("0.005", 0.99), ("0.02", 1.0), ("inf", 1.0)];
/// Operations of a node in a second.
const RATE: f64 = 700.0;
/// Other values that a node tells: as many as one of this version does.
const OTHERS: usize = 250;

/// As many as the console asks: of more than sixteen every so many.
fn asked_at_once(nodes: usize) -> u64 {
    nodes.div_ceil(nodes.div_ceil(16)) as u64
}

#[tonic::async_trait]
impl Stats for PlayedStats {
    async fn read(&self, _: Request<v1::ReadStatsRequest>) -> Result<Response<v1::ReadStatsResponse>, Status> {
        let done = self.began.elapsed().as_secs_f64() * RATE;
        let of = |name: String, value: f64| v1::Stat {
            name,
            counter: true,
            help: "What it is about, in a sentence.".into(),
            value,
        };
        let buckets = ["get", "put"].into_iter().flat_map(|operation| {
            BUCKETS.map(|(bound, share)| {
                of(
                    format!("archon_node_operation_seconds_bucket{{op=\"{operation}\",le=\"{bound}\"}}"),
                    (done * share).floor(),
                )
            })
        });
        let others = (0..OTHERS).map(|number| of(format!("archon_node_something_number_{number}_total"), done));
        // All of them are behind one server; the name is what tells the readings of two of them apart.
        let node = format!("node-{}", self.asked.fetch_add(1, Ordering::Relaxed) % self.names);
        Ok(Response::new(v1::ReadStatsResponse { node, stats: buckets.chain(others).collect() }))
    }
}
