//! ZooKeeper: an ensemble of three servers.

use crate::ComparedSystem;
use crate::pipe::{Frames, Pipe};
use crate::system::{RunOutcome, System, drive, now, program, until};
use anyhow::Context;
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Process, spawn};
use archon_load::{Connector, Failure, Store, Workload};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SERVERS: usize = 3;
/// Maximum number of sessions, each pipelined, spread over the servers.
const SESSIONS_MAX: usize = 12;
const SESSION_TIMEOUT_MS: i32 = 30_000;
/// Path of the library in Debian and Ubuntu.
const JAR: &str = "/usr/share/java/zookeeper.jar";

// The numbers of ZooKeeper's protocol (ZooDefs.OpCode, KeeperException.Code).
const CREATE: i32 = 1;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const OK: i32 = 0;
const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;
const ANY_VERSION: i32 = -1;
const ALL_PERMISSIONS: i32 = 31;

/// An ensemble as clients see it, the leader first.
#[derive(Debug)]
pub(crate) struct ZooKeeper {
    servers: Vec<String>,
    next: AtomicUsize,
}

struct ZooKeeperSystem {
    target: Arc<ZooKeeper>,
    servers: Vec<Process>,
}

/// Starts the ensemble; `None` if ZooKeeper or Java is not installed.
pub(crate) fn start(directory: &Path) -> anyhow::Result<ComparedSystem> {
    let Some(java) = program("java") else { return Ok(None) };
    if !Path::new(JAR).is_file() {
        return Ok(None);
    }
    let addresses = free_addresses(3 * SERVERS);
    let (client_addresses, between_servers) = addresses.split_at(SERVERS);
    let (quorum_addresses, election_addresses) = between_servers.split_at(SERVERS);
    let ensemble: Vec<String> = quorum_addresses
        .iter()
        .zip(election_addresses)
        .enumerate()
        .map(|(i, (quorum_address, election_address))| {
            let port = election_address.rsplit(':').next().unwrap_or_default();
            format!("server.{}={quorum_address}:{port}", i + 1)
        })
        .collect();
    let log = directory.join("zookeeper-log");
    std::fs::create_dir_all(&log)?;
    let quiet = "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n\
                 log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n";
    std::fs::write(log.join("log4j.properties"), quiet)?;
    let mut servers = Vec::new();
    for (number, client_address) in client_addresses.iter().enumerate() {
        let name = format!("zookeeper-{number}");
        let data = directory.join(&name);
        std::fs::create_dir_all(&data)?;
        std::fs::write(data.join("myid"), (number + 1).to_string())?;
        let (host, port) = client_address.split_once(':').context("an address")?;
        // Debian's own configuration, except for addresses and the limit of connections per client machine.
        let settings = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={port}\nclientPortAddress={host}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n{}\n",
            data.display(),
            ensemble.join("\n")
        );
        let file = directory.join(format!("{name}.cfg"));
        std::fs::write(&file, settings)?;
        let classes = format!("{}:{JAR}", log.display());
        let main = "org.apache.zookeeper.server.quorum.QuorumPeerMain";
        let arguments = ["-cp", &classes, main, &file.display().to_string()].map(str::to_owned);
        servers.push(spawn(&java, &name, &arguments, directory));
    }
    let mut order = Vec::new();
    for address in client_addresses {
        let leads = until("ZooKeeper to answer", || now(leads(address)))?;
        order.push((!leads, address.clone()));
    }
    order.sort();
    let target = ZooKeeper { servers: order.into_iter().map(|(_, address)| address).collect(), next: 0.into() };
    let real = std::fs::canonicalize(JAR).unwrap_or_else(|_| PathBuf::from(JAR));
    let version = real.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let system = ZooKeeperSystem { target: Arc::new(target), servers };
    Ok(Some((version, vec![Box::new(system)])))
}

/// Returns true if a serving server leads.
async fn leads(address: &str) -> anyhow::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"srvr").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let mode = text.lines().find_map(|line| line.strip_prefix("Mode: ")).context("it does not serve yet")?;
    Ok(mode == "leader")
}

impl System for ZooKeeperSystem {
    fn name(&self) -> &str {
        "ZooKeeper"
    }

    fn shape(&self) -> String {
        format!(
            "at most {SESSIONS_MAX} pipelined sessions over all servers, shared; a write is answered when two of three \
             servers have synced it, a read is what the session's server has and may be old"
        )
    }

    fn pids(&self) -> Vec<u32> {
        self.servers.iter().map(Process::pid).collect()
    }

    fn connections(&self, clients: usize) -> usize {
        clients.min(SESSIONS_MAX)
    }

    fn run(&self, workload: &Workload) -> anyhow::Result<RunOutcome> {
        self.target.next.store(0, Ordering::Relaxed);
        drive(&self.target, workload)
    }
}

/// An answer: its error code and the rest.
struct Reply {
    error: i32,
    rest: Bytes,
}

/// Frames of a length and a reply header: request number, transaction, error.
struct Jute;

impl Frames for Jute {
    type Reply = Reply;

    fn next(&mut self, arrived: &mut BytesMut) -> Result<Option<Reply>, Failure> {
        let Some(length) = arrived.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length < 16 {
            return Err(Failure::new("Protocol", format!("ZooKeeper sent an answer of {length} bytes")));
        }
        if arrived.len() < 4 + length {
            return Ok(None);
        }
        arrived.advance(4);
        let mut frame = arrived.split_to(length).freeze();
        let _request = frame.get_i32();
        let _transaction = frame.get_i64();
        Ok(Some(Reply { error: frame.get_i32(), rest: frame }))
    }
}

/// A session.
pub(crate) struct ZooKeeperStore {
    pipe: Pipe<Reply>,
    number: AtomicI32,
}

impl Connector for ZooKeeper {
    type Store = ZooKeeperStore;

    async fn connect(&self) -> Result<ZooKeeperStore, Failure> {
        let server = &self.servers[self.next.fetch_add(1, Ordering::Relaxed) % self.servers.len()];
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut hello = BytesMut::new();
        hello.put_i32(0); // protocol
        hello.put_i64(0); // last transaction seen
        hello.put_i32(SESSION_TIMEOUT_MS);
        hello.put_i64(0); // a new session
        bytes(&mut hello, &[0; 16]);
        hello.put_u8(0); // not read-only
        stream.write_i32(hello.len() as i32).await?;
        stream.write_all(&hello).await?;
        let length = stream.read_i32().await?;
        let mut welcome = vec![0; usize::try_from(length).unwrap_or(0).min(1_024)];
        stream.read_exact(&mut welcome).await?;
        Ok(ZooKeeperStore { pipe: Pipe::new(stream, Jute, None), number: AtomicI32::new(1) })
    }
}

fn bytes(out: &mut BytesMut, bytes: &[u8]) {
    out.put_i32(bytes.len() as i32);
    out.extend_from_slice(bytes);
}

/// Nodes are children of the root, so a key's slash becomes a dash.
fn path(out: &mut BytesMut, key: &[u8]) {
    out.put_i32(key.len() as i32 + 1);
    out.put_u8(b'/');
    out.extend(key.iter().map(|byte| if *byte == b'/' { b'-' } else { *byte }));
}

impl ZooKeeperStore {
    async fn call(&self, kind: i32, body: impl FnOnce(&mut BytesMut)) -> Result<Reply, Failure> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let encode = |out: &mut BytesMut| {
            let begin = out.len();
            out.put_i32(0);
            out.put_i32(number);
            out.put_i32(kind);
            body(out);
            let length = (out.len() - begin - 4) as i32;
            out[begin..begin + 4].copy_from_slice(&length.to_be_bytes());
        };
        self.pipe.call(encode).await
    }

    async fn set(&self, key: &[u8], value: &Bytes) -> Result<i32, Failure> {
        let reply = self.call(SET_DATA, |out| {
            path(out, key);
            bytes(out, value);
            out.put_i32(ANY_VERSION);
        });
        Ok(reply.await?.error)
    }

    async fn create(&self, key: &[u8], value: &Bytes) -> Result<i32, Failure> {
        let reply = self.call(CREATE, |out| {
            path(out, key);
            bytes(out, value);
            out.put_i32(1);
            out.put_i32(ALL_PERMISSIONS);
            bytes(out, b"world");
            bytes(out, b"anyone");
            out.put_i32(0); // persistent
        });
        Ok(reply.await?.error)
    }
}

fn failed(error: i32) -> Failure {
    Failure::new("ZooKeeper", format!("error {error}"))
}

impl Store for ZooKeeperStore {
    async fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Failure> {
        let reply = self.call(GET_DATA, |out| {
            path(out, key);
            out.put_u8(0); // no watch
        });
        let mut reply = reply.await?;
        match reply.error {
            OK if reply.rest.len() >= 4 => {
                let length = usize::try_from(reply.rest.get_i32()).unwrap_or(0);
                let short = || Failure::new("Protocol", "ZooKeeper sent half a value");
                (length <= reply.rest.len()).then(|| Some(reply.rest.slice(..length))).ok_or_else(short)
            }
            NO_NODE => Ok(None),
            error => Err(failed(error)),
        }
    }

    async fn put(&self, key: &[u8], value: Bytes) -> Result<(), Failure> {
        let mut error = self.set(key, &value).await?;
        if error == NO_NODE {
            error = self.create(key, &value).await?;
        }
        if error == NODE_EXISTS {
            error = self.set(key, &value).await?;
        }
        if error == OK { Ok(()) } else { Err(failed(error)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_are_parsed() {
        let mut arrived = BytesMut::new();
        arrived.put_i32(20);
        arrived.put_i32(7);
        arrived.put_i64(9);
        arrived.put_i32(NO_NODE);
        assert!(Jute.next(&mut arrived).unwrap().is_none());
        arrived.put_i32(5);
        let reply = Jute.next(&mut arrived).unwrap().unwrap();
        assert_eq!((reply.error, reply.rest.len(), arrived.len()), (NO_NODE, 4, 0));
        arrived.put_i32(3);
        assert!(Jute.next(&mut arrived).is_err());
    }
}
