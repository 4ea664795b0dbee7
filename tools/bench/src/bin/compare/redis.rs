//! Redis Cluster and Valkey: three masters with a replica each, every write synced before it is answered.

use crate::ComparedSystem;
use crate::pipe::{Barrier, Pipe};
use crate::redis_benchmark::RedisBenchmark;
use crate::redis_rs::RedisRs;
use crate::report;
use crate::resp::{self, DedicatedConnection, Reply, Resp};
use crate::system::{LIBRARY_CLIENTS, LIBRARY_THREADS, RunOutcome, System, drive, now, program, until, version};
use anyhow::Context;
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Process, spawn};
use archon_load::{Connector, Failure, Mix, Store, Workload};
use archon_types::slot_of;
use bytes::{Bytes, BytesMut};
use std::cell::RefCell;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use tokio::net::TcpStream;

const SLOTS: usize = 16_384;
const SERVERS: usize = 6;
/// Waits until the master and one replica have synced the writes of this connection; limit in milliseconds.
const WAITAOF: [&[u8]; 4] = [b"WAITAOF", b"1", b"1", b"10000"];

/// Connections to each master in the shape `PipelinedSynced`. A server reads nothing from a connection that waits, and a replica reports a
/// sync only when another connection asks, or after a second. So one connection gets one batch of writes per second.
const SYNCED_CONNECTIONS: usize = 32;

/// Redis, or its successor with the same protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavor {
    Redis,
    Valkey,
}

impl Flavor {
    fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
        }
    }
}

/// A Redis Cluster as clients see it.
#[derive(Debug)]
pub(crate) struct Redis {
    masters: Vec<String>,
    /// The master of each slot.
    slots: Vec<u8>,
    /// Connections of clients.
    shape: Shape,
}

impl Redis {
    /// Returns clients that share one pipelined connection to each of this number of masters, which the server at an address
    /// shows.
    ///
    /// # Errors
    /// If it does not show as many, or none for a slot.
    pub(crate) fn pipelined(address: &str, count: usize) -> anyhow::Result<Self> {
        let (masters, slots) = masters_at(address)?;
        anyhow::ensure!(masters.len() == count, "{masters:?} are not {count} masters");
        Ok(Self { masters, slots, shape: Shape::Pipelined })
    }
}

/// Connections of clients, and the syncs that a write waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    OwnConnections,
    Pipelined,
    Library,
    /// Own connections; each write is followed by `WAITAOF`.
    OwnConnectionsSynced,
    /// Pipelined; each write to the socket ends with one `WAITAOF` for all requests in it.
    PipelinedSynced,
}

impl Shape {
    fn is_shared(self) -> bool {
        matches!(self, Self::Pipelined | Self::PipelinedSynced)
    }

    fn is_synced(self) -> bool {
        matches!(self, Self::OwnConnectionsSynced | Self::PipelinedSynced)
    }
}

struct RedisSystem<C> {
    target: Arc<C>,
    servers: Rc<Vec<Process>>,
    name: &'static str,
    shape: Shape,
}

/// Starts the cluster; `None` if it is not installed.
pub(crate) fn start(flavor: Flavor, directory: &Path) -> anyhow::Result<ComparedSystem> {
    let server = program(&format!("{}-server", flavor.name()));
    // Either command line creates a cluster of either server.
    let cli = program(&format!("{}-cli", flavor.name())).or_else(|| program("redis-cli"));
    let (Some(server), Some(cli)) = (server, cli) else { return Ok(None) };
    let addresses = free_addresses(2 * SERVERS);
    let (addresses, buses) = addresses.split_at(SERVERS);
    let mut servers = Vec::new();
    for (number, (address, bus)) in addresses.iter().zip(buses).enumerate() {
        let name = format!("{}-{number}", flavor.name());
        let data = directory.join(&name);
        std::fs::create_dir_all(&data)?;
        let (data, port, bus) = (data.display().to_string(), port(address), port(bus));
        let settings = [
            ("--port", port),
            ("--bind", "127.0.0.1"),
            ("--cluster-enabled", "yes"),
            ("--cluster-port", bus),
            ("--cluster-config-file", "nodes.conf"),
            ("--appendonly", "yes"),
            ("--appendfsync", "always"),
            // Only the append-only file persists.
            ("--save", ""),
            ("--dir", &data),
        ];
        let arguments: Vec<String> =
            settings.iter().flat_map(|(key, value)| [(*key).to_owned(), (*value).to_owned()]).collect();
        servers.push(spawn(&server, &name, &arguments, directory));
    }
    for address in addresses {
        until(&format!("{} to answer", flavor.name()), || {
            now(async { Ok(DedicatedConnection::open(address).await?.call(&[b"PING"]).await?) })
        })?;
    }
    let mut create = Command::new(cli);
    create.arg("--cluster").arg("create").args(addresses).args(["--cluster-replicas", "1", "--cluster-yes"]);
    let created = create.output().context("running redis-cli")?;
    anyhow::ensure!(created.status.success(), "creating the cluster: {}", String::from_utf8_lossy(&created.stdout));
    let (masters, slots) = until(&format!("the {} cluster to be complete", flavor.name()), || whole(addresses))?;
    let servers = Rc::new(servers);
    let by_library = |name| {
        let target = Arc::new(RedisRs::new(&masters)?);
        let system = RedisSystem { target, servers: Rc::clone(&servers), name, shape: Shape::Library };
        Ok::<_, anyhow::Error>(Box::new(system) as Box<dyn System>)
    };
    let in_shape = |name, shape| {
        let target = Arc::new(Redis { masters: masters.clone(), slots: slots.clone(), shape });
        Box::new(RedisSystem { target, servers: Rc::clone(&servers), name, shape }) as Box<dyn System>
    };
    let systems = match flavor {
        Flavor::Redis => {
            let [library, own, pipelined, its_own] = report::REDIS_SHAPES;
            let mut systems =
                vec![by_library(library)?, in_shape(own, Shape::OwnConnections), in_shape(pipelined, Shape::Pipelined)];
            if let Some(program) = program("redis-benchmark") {
                let (address, servers) = (masters[0].clone(), Rc::clone(&servers));
                systems.push(Box::new(RedisBenchmark { program, address, servers, name: its_own }));
            }
            systems
        }
        Flavor::Valkey => vec![
            by_library(report::VALKEY)?,
            in_shape(report::VALKEY_PIPELINED, Shape::Pipelined),
            in_shape(report::VALKEY_SYNCED[0], Shape::OwnConnectionsSynced),
            in_shape(report::VALKEY_SYNCED[1], Shape::PipelinedSynced),
        ],
    };
    let version = version(&server, &["--version"]);
    let short = version.split(" sha=").next().unwrap_or_default().to_owned();
    Ok(Some((short, systems)))
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or_default()
}

/// Returns the masters and the owner of each slot, once every server reports health and every replica follows.
fn whole(addresses: &[String]) -> anyhow::Result<(Vec<String>, Vec<u8>)> {
    let mut replicas = 0;
    for address in addresses {
        let ask = async |what: &[&[u8]]| match DedicatedConnection::open(address).await?.call(what).await? {
            Reply::Bulk(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            other => anyhow::bail!("{other:?}"),
        };
        let cluster = now(async { ask(&[b"CLUSTER", b"INFO"]).await })?;
        anyhow::ensure!(cluster.contains("cluster_state:ok"), "{address}: {cluster}");
        let info = now(async { ask(&[b"INFO", b"replication"]).await })?;
        replicas += usize::from(info.contains("role:slave") && info.contains("master_link_status:up"));
    }
    anyhow::ensure!(replicas == SERVERS / 2, "{replicas} replicas follow");
    masters_at(&addresses[0])
}

/// Returns the masters that the server at an address shows, and the master of each slot.
fn masters_at(address: &str) -> anyhow::Result<(Vec<String>, Vec<u8>)> {
    let reply = now(async { Ok(DedicatedConnection::open(address).await?.call(&[b"CLUSTER", b"SLOTS"]).await?) })?;
    let (mut masters, mut slots) = (Vec::new(), vec![u8::MAX; SLOTS]);
    let Reply::Array(ranges) = reply else { anyhow::bail!("CLUSTER SLOTS: {reply:?}") };
    for range in ranges {
        let Reply::Array(parts) = &range else { anyhow::bail!("CLUSTER SLOTS: {range:?}") };
        let [Reply::Number(from), Reply::Number(to), Reply::Array(master), ..] = &parts[..] else {
            anyhow::bail!("CLUSTER SLOTS: {range:?}")
        };
        let [Reply::Bulk(host), Reply::Number(port), ..] = &master[..] else {
            anyhow::bail!("CLUSTER SLOTS: {master:?}")
        };
        let address = format!("{}:{port}", String::from_utf8_lossy(host));
        let known = masters.iter().position(|master| *master == address);
        let index = known.unwrap_or_else(|| {
            masters.push(address);
            masters.len() - 1
        });
        let range = usize::try_from(*from)?..=usize::try_from(*to)?;
        slots.get_mut(range).context("a slot above 16383")?.fill(u8::try_from(index)?);
    }
    anyhow::ensure!(slots.iter().all(|master| *master != u8::MAX), "some slots have no master");
    Ok((masters, slots))
}

impl<C: Connector> System for RedisSystem<C> {
    fn name(&self) -> &str {
        self.name
    }

    fn shape(&self) -> String {
        let how = match self.shape {
            Shape::OwnConnections => "each client has a connection of its own to each master",
            Shape::Pipelined => "all clients share one connection to each master, pipelined and coalesced",
            Shape::OwnConnectionsSynced => {
                "each client has a connection of its own to each master, and sends WAITAOF 1 1 with each write"
            }
            Shape::PipelinedSynced => {
                "all clients share 32 connections to each master, pipelined and coalesced, with one WAITAOF 1 1 for all \
                 writes that leave together"
            }
            Shape::Library => {
                "four clients of redis-rs on two threads, shared by all tasks, each with one pipelined connection to each master"
            }
        };
        let answered = match self.shape.is_synced() {
            true => "the master and its replica have synced it (appendfsync always, WAITAOF 1 1)",
            false => "the master has synced it (appendfsync always), before its replica has it",
        };
        format!("{how}; a write is answered when {answered}")
    }

    fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Process::pid).collect()
    }

    fn connections(&self, clients: usize) -> usize {
        match self.shape {
            Shape::OwnConnections | Shape::OwnConnectionsSynced => clients,
            Shape::Pipelined => 1,
            Shape::PipelinedSynced => clients.min(SYNCED_CONNECTIONS),
            Shape::Library => LIBRARY_CLIENTS,
        }
    }

    fn threads(&self, asked: usize) -> usize {
        if self.shape == Shape::Library { LIBRARY_THREADS } else { asked }
    }

    fn does(&self, mix: Mix) -> bool {
        match self.shape.is_synced() {
            true => matches!(mix, Mix::Put),
            false => !matches!(mix, Mix::Scan { .. }),
        }
    }

    fn has_own_keys(&self) -> bool {
        self.shape == Shape::Library
    }

    fn run(&self, workload: &Workload) -> anyhow::Result<RunOutcome> {
        drive(&self.target, workload)
    }
}

/// One client, or the shared connection.
pub(crate) struct RedisStore {
    slots: Vec<u8>,
    /// True if a write is followed by `WAITAOF` on a connection of its own.
    waits: bool,
    ways: RedisConnections,
}

enum RedisConnections {
    DedicatedConnection(Vec<RefCell<Option<DedicatedConnection>>>),
    Shared(Vec<Pipe<Reply>>),
}

impl Connector for Redis {
    type Store = RedisStore;

    async fn connect(&self) -> Result<RedisStore, Failure> {
        let ways = if self.shape.is_shared() {
            let mut pipes = Vec::new();
            for master in &self.masters {
                let stream = TcpStream::connect(master).await?;
                stream.set_nodelay(true)?;
                let barrier = self.shape.is_synced().then(|| {
                    let mut request = BytesMut::new();
                    resp::command(&mut request, &WAITAOF);
                    Barrier { request: request.freeze(), confirms: is_synced }
                });
                pipes.push(Pipe::new(stream, Resp, barrier));
            }
            RedisConnections::Shared(pipes)
        } else {
            let mut own = Vec::new();
            for master in &self.masters {
                own.push(RefCell::new(Some(DedicatedConnection::open(master).await?)));
            }
            RedisConnections::DedicatedConnection(own)
        };
        Ok(RedisStore { slots: self.slots.clone(), waits: self.shape == Shape::OwnConnectionsSynced, ways })
    }
}

/// Returns true if `WAITAOF` reports that the master and a replica have synced.
fn is_synced(reply: &Reply) -> bool {
    matches!(reply, Reply::Array(copies) if matches!(copies[..], [Reply::Number(1..), Reply::Number(1..)]))
}

impl RedisStore {
    async fn call(&self, key: &[u8], parts: &[&[u8]], waits: bool) -> Result<Reply, Failure> {
        // Archon's slots are those of Redis Cluster.
        let master = self.slots[usize::from(slot_of(key))] as usize;
        let reply = match &self.ways {
            RedisConnections::Shared(pipes) => pipes[master].call(|out| resp::command(out, parts)).await?,
            RedisConnections::DedicatedConnection(own) => {
                let taken = own[master].borrow_mut().take();
                let mut connection = taken.ok_or_else(|| Failure::new("Broken", "the connection broke before"))?;
                let reply = if waits {
                    connection.send(&[parts, &WAITAOF]).await?;
                    let reply = connection.answer().await?;
                    let synced = connection.answer().await?;
                    if !is_synced(&synced) {
                        return Err(Failure::new("Valkey", format!("WAITAOF was answered by {synced:?}")));
                    }
                    reply
                } else {
                    connection.call(parts).await?
                };
                *own[master].borrow_mut() = Some(connection);
                reply
            }
        };
        match reply {
            Reply::Error(message) => Err(Failure::new("Redis", message)),
            reply => Ok(reply),
        }
    }
}

impl Store for RedisStore {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Failure> {
        match self.call(key, &[b"GET", key], false).await? {
            Reply::Bulk(value) => Ok(Some(value)),
            Reply::Nil => Ok(None),
            other => Err(Failure::new("Redis", format!("GET was answered by {other:?}"))),
        }
    }

    async fn put(&self, key: &[u8], value: Bytes) -> Result<(), Failure> {
        match self.call(key, &[b"SET", key, &value], self.waits).await? {
            Reply::Simple(text) if text == "OK" => Ok(()),
            other => Err(Failure::new("Redis", format!("SET was answered by {other:?}"))),
        }
    }
}
