//! Overload: too large, too many connections, too few descriptors, an unread log, clients that hang up. Connected
//! clients are served throughout, and afterwards everything is as before.

use crate::EXE;
use archon_client::{Client, ErrorKind, Op, Role};
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Cluster, Options};
use archon_proto::v1::kv_client::KvClient;
use archon_proto::v1::{self, ClusterRef, PutRequest};
use archon_security::ExpectedPeer;
use archon_testkit::{check, wait_for};
use archon_types::limits::{BATCH_BYTES_MAX, MESSAGE_BYTES_MAX, VALUE_BYTES_MAX};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;
use tonic::transport::Endpoint;

const TIMEOUT: Duration = Duration::from_secs(60);

async fn client(cluster: &Cluster) -> Client {
    cluster.client().build().await.expect("a client")
}

/// Writes and reads back enough keys to hit every partition with high probability.
async fn is_served(client: &Client, round: &str) {
    for number in 0..64 {
        let (key, value) = (format!("served-{number}"), format!("{round}-{number}"));
        client.put(&key, value.clone()).await.unwrap_or_else(|error| panic!("{round}: put {key}: {error}"));
        let found = client.get(&key).await.unwrap_or_else(|error| panic!("{round}: get {key}: {error}"));
        assert_eq!(found.map(|found| found.value), Some(value.into()), "{round}: {key}");
    }
}

fn cluster_ref(cluster: &Cluster) -> ClusterRef {
    let status = cluster.json(&["status"]).expect("status");
    let id: uuid::Uuid = status["cluster_id"].as_str().and_then(|id| id.parse().ok()).expect("a cluster id");
    ClusterRef { cluster_id: id.as_bytes().to_vec().into() }
}

fn put_request(cluster: &Cluster, key: &str, value_bytes: usize) -> PutRequest {
    let (key, value) = (key.as_bytes().to_vec().into(), vec![7; value_bytes].into());
    PutRequest { cluster: Some(cluster_ref(cluster)), table: String::new(), key, value, id: None, expiry: None }
}

fn node_of(cluster: &Cluster, key: &str) -> KvClient<tonic::transport::Channel> {
    let address = cluster.node_address(&cluster.leader_of(key)).to_owned();
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let transport = cluster.transport(Role::Client);
    KvClient::new(transport.channel(&endpoint, &address, ExpectedPeer::Servers, Duration::from_secs(5)))
}

/// 41: excessive sizes are refused by the client, and by the node if a client does not check; with the limit in the
/// message, and without effect on others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_requests_are_refused_by_client_and_node() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, ..Options::default() });
    let client = client(&cluster).await;
    let refused = client.put("k", vec![7; VALUE_BYTES_MAX + 1]).await.expect_err("a value over the limit");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    assert!(refused.to_string().contains(&VALUE_BYTES_MAX.to_string()), "{refused}");
    let largest = client.put("k", vec![7; VALUE_BYTES_MAX]).await;
    assert!(largest.is_ok(), "the limit itself is allowed: {largest:?}");

    let mut node = node_of(&cluster, "k");
    let status = node.put(put_request(&cluster, "k", VALUE_BYTES_MAX + 1)).await.expect_err("a value over the limit");
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
    assert!(status.message().contains(&VALUE_BYTES_MAX.to_string()), "{status}");
    let status =
        node.put(put_request(&cluster, "k", MESSAGE_BYTES_MAX + 1)).await.expect_err("a message over the limit");
    assert_eq!(status.code(), tonic::Code::OutOfRange, "{status}");
    assert!(status.message().contains(&MESSAGE_BYTES_MAX.to_string()), "{status}");

    // Values that are each allowed, and more of them than one message may hold.
    let count = BATCH_BYTES_MAX / VALUE_BYTES_MAX + 1;
    let put = |number| Op::Put { key: format!("batch-{number}").into(), value: vec![7; VALUE_BYTES_MAX].into() };
    let refused = client.batch((0..count).map(put).collect()).await.expect_err("a batch over the limit");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    assert!(refused.to_string().contains(&BATCH_BYTES_MAX.to_string()), "{refused}");
    let put = |number: usize| v1::Op {
        tag: number as u64,
        op: Some(v1::op::Op::Put(v1::OpPut { key: "k".into(), value: vec![8; VALUE_BYTES_MAX].into() })),
        ..Default::default()
    };
    let (cluster_ref, ops) = (Some(cluster_ref(&cluster)), (0..count).map(put).collect());
    let batch = v1::BatchRequest { cluster: cluster_ref, table: String::new(), ops };
    let status = node.batch(batch).await.expect_err("a batch over the limit");
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
    assert!(status.message().contains(&BATCH_BYTES_MAX.to_string()), "{status}");
    let found = client.get("k").await.expect("a get").expect("it is there");
    assert!(found.value.len() == VALUE_BYTES_MAX && found.value.iter().all(|byte| *byte == 7), "as it was");
    is_served(&client, "after what was too large").await;
}

/// 45: a client that hangs up during a write leaves a complete write or none; the copies agree and later clients are
/// served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_hanging_up_leaves_whole_writes_or_none() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, replication: 3, ..Options::default() });
    cluster.wait_whole(3);
    let client = client(&cluster).await;
    is_served(&client, "before").await;
    const LENGTH: usize = 64 * 1024;
    for round in 0..40 {
        let writes = (0..8).map(|number| {
            let (client, key) = (client.clone(), format!("cancelled-{number}"));
            tokio::spawn(async move { client.put(key, vec![u8::try_from(round).unwrap_or(0); LENGTH]).await })
        });
        let writes: Vec<_> = writes.collect();
        // The first completes, so that the others are anywhere in flight, and then dropped there.
        let mut writes = writes.into_iter();
        let first = writes.next().expect("eight").await.expect("no panic");
        assert!(first.is_ok(), "{first:?}");
        writes.for_each(|write| write.abort());
    }
    let mut last = Vec::new();
    for number in 0..8 {
        let key = format!("cancelled-{number}");
        if let Some(found) = client.get(&key).await.expect("a get") {
            let whole = found.value.len() == LENGTH && found.value.iter().all(|byte| *byte == found.value[0]);
            assert!(whole, "{key} holds {} bytes, of more than one write", found.value.len());
        }
        // Earlier messages are still in flight, and precede this one: a stream and a log keep their order.
        let revision = client.put(&key, "last").await.expect("a put");
        last.push((key, revision));
    }
    for (key, revision) in last {
        let found = client.get(&key).await.expect("a get").expect("it was written");
        assert_eq!(
            (&found.value[..], found.revision),
            (&b"last"[..], revision),
            "nothing that was cancelled comes later"
        );
    }
    is_served(&client, "after").await;
}

fn pid_of(cluster: &Cluster, node: &str) -> Pid {
    Pid::from_raw(cluster.node(node).pid().cast_signed()).expect("a process id")
}

fn descriptors(pid: Pid) -> usize {
    fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).map_or(0, Iterator::count)
}

/// 46: a node without free file descriptors accepts no new connections, serves the existing ones, and accepts again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_descriptors_serves_and_accepts_later() {
    let cluster = Cluster::start(EXE, &Options { coordinators: 1, replication: 3, ..Options::default() });
    cluster.wait_whole(3);
    let client = client(&cluster).await;
    is_served(&client, "before").await;
    let pid = pid_of(&cluster, "athens");
    let had = descriptors(pid);
    let few = Rlimit { current: Some(had as u64 + 16), maximum: most_descriptors(pid) };
    prlimit(Some(pid), Resource::Nofile, few).expect("root or the owner may lower it");
    // Fewer than the listener's queue holds, where connecting would block as well.
    let connections: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(cluster.node_address("athens")).expect("the system accepts for the node"))
        .collect();
    wait_for("the node to have no descriptor left", TIMEOUT, || {
        let now = descriptors(pid);
        check(now >= had + 16, || format!("{now} descriptors, {had} before"))
    });
    is_served(&client, "without descriptors").await;
    assert_eq!(cluster.json(&["status"]).expect("status")["nodes_alive"], 3, "nobody was failed for it");
    drop(connections);
    wait_for("the node to close what went away", TIMEOUT, || {
        let now = descriptors(pid);
        check(now <= had + 8, || format!("{now} descriptors, {had} before"))
    });
    let newcomer = self::client(&cluster).await;
    is_served(&newcomer, "after").await;
}

/// Returns the hard limit, which stays as it is.
fn most_descriptors(pid: Pid) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).expect("its limits");
    let line = text.lines().find(|line| line.starts_with("Max open files")).expect("a line for open files");
    line.split_whitespace().nth(4).and_then(|word| word.parse().ok())
}

/// A process of the program under test whose standard error is a pipe; killed with its owner.
struct MutedProcess(Child);

impl MutedProcess {
    fn spawn(arguments: &[String]) -> Self {
        let mut command = Command::new(EXE);
        command.args(arguments).env("ARCHON_LOG", "trace").env_remove("ARCHON_COORDINATORS");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self(command.spawn().expect("the program under test starts"))
    }

    fn log(&mut self) -> &mut ChildStderr {
        self.0.stderr.as_mut().expect("it is a pipe")
    }

    fn unread(&mut self) -> u64 {
        rustix::io::ioctl_fionread(self.log()).expect("a pipe knows what is unread")
    }
}

impl Drop for MutedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// 47: standard error is a full pipe without reader: the node serves, keeps its lease, and logs again when the pipe is
/// read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_log_does_not_stop_the_node() {
    const PIPE_BYTES: u64 = 64 * 1024;
    let cluster = Cluster::start(EXE, &Options { nodes: Vec::new(), nodes_min: 1, ..Options::default() });
    let data = cluster.directory().join("muted");
    let mut muted = MutedProcess::spawn(&cluster.node_arguments("athens", &free_addresses(1).remove(0), &data));
    cluster.wait_online();
    let client = client(&cluster).await;
    let mut rounds = 0;
    // A line that does not fit waits whole, so a pipe is full a little below its size.
    while muted.unread() < PIPE_BYTES - 4_096 {
        rounds += 1;
        assert!(rounds < 1_000, "the pipe does not fill: {} bytes", muted.unread());
        is_served(&client, "while the pipe fills").await;
    }
    for _ in 0..20 {
        is_served(&client, "while nobody reads").await;
    }
    assert!(muted.unread() >= PIPE_BYTES - 4_096, "nobody has read");
    assert_eq!(cluster.json(&["status"]).expect("status")["nodes_alive"], 1);
    let (mut seen, mut part, mut told) = (Vec::new(), vec![0; 64 * 1024], false);
    loop {
        let read = muted.log().read(&mut part).expect("its log");
        assert!(read > 0, "it ended; the last it said: {}", String::from_utf8_lossy(&seen));
        // Drops checked text, except for a match that may span two parts.
        seen.drain(..seen.len().saturating_sub(9));
        seen.extend_from_slice(&part[..read]);
        if seen.windows(9).any(|word| word == b"stopping;") {
            break;
        }
        // Its last line must arrive, whatever was dropped before: stop once the pipe was drained.
        if !told && muted.unread() == 0 {
            let pid = Pid::from_raw(muted.0.id().cast_signed()).expect("a process id");
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
            told = true;
        }
    }
}

fn resident_kibibytes(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// An empty SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Writes what it can: the other side may hang up at any byte.
fn throw(stream: &mut TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
}

/// Sends HEADERS that open, and RST_STREAM for, one stream after the other, as in CVE-2023-44487.
fn rapid_resets(stream: &mut TcpStream) {
    throw(stream, PREFACE);
    throw(stream, SETTINGS);
    for number in 0..500_u32 {
        let id = (2 * number + 1).to_be_bytes();
        // :method POST, :scheme http, :path / from HPACK's static table; END_HEADERS.
        throw(stream, &[&[0, 0, 3, 1, 4], &id[..], &[0x83, 0x86, 0x84]].concat());
        throw(stream, &[&[0, 0, 4, 3, 0], &id[..], &[0, 0, 0, 8]].concat());
    }
}

/// 67: garbage, streams reset as fast as they are opened, and half-open handshakes, by the hundred and at every port:
/// connected clients are served, and memory does not grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_garbage_and_resets_disturb_no_client() {
    const MORE_KIBIBYTES_MAX: u64 = 64 * 1024;
    let cluster = Cluster::start(EXE, &Options::default());
    let client = client(&cluster).await;
    is_served(&client, "before").await;
    let members = [
        (cluster.node_address("athens").to_owned(), pid_of(&cluster, "athens")),
        (
            cluster.coordinator_addresses().remove(0),
            Pid::from_raw(cluster.coordinator(0).pid().cast_signed()).expect("a process id"),
        ),
    ];
    for (address, pid) in &members {
        let before = resident_kibibytes(*pid);
        let mut open = Vec::new();
        for number in 0..300_u32 {
            let mut stream = TcpStream::connect(address).expect("it accepts");
            match number % 3 {
                0 => throw(&mut stream, &number.to_le_bytes().repeat(1_024)),
                1 => rapid_resets(&mut stream),
                _ => throw(&mut stream, &PREFACE[..9]),
            }
            if number % 2 == 0 {
                let _ = stream.shutdown(Shutdown::Write);
            }
            open.push(stream);
        }
        is_served(&client, "during the flood").await;
        let newcomer = cluster.archon_at(address, &["kv", "put", "newcomer", "v", "--timeout", "20s"]);
        assert_eq!(newcomer.code, 0, "who comes to {address} anew is served too: {}", newcomer.stderr);
        let grown = resident_kibibytes(*pid).saturating_sub(before);
        assert!(grown < MORE_KIBIBYTES_MAX, "{address} took {grown} KiB more for 300 connections");
    }
    assert_eq!(cluster.json(&["status"]).expect("status")["nodes_alive"], 3, "nobody was failed for it");
    is_served(&client, "after").await;
}
