//! Coordinators whose disks are full, or fail. The faults come from outside, by a small file system and by `strace`; a
//! machine that allows neither skips these tests with a message.

use crate::EXE;
use archon_client::Client;
use archon_integration_tests::disk::{DURABLE_CALLS, Injection, SmallDisk, fill};
use archon_integration_tests::options::LONG_LEASES;
use archon_integration_tests::{Cluster, Load, Options, ProcessExt};
use archon_proto::convert::error::detail_of;
use archon_proto::v1::RegisterRequest;
use archon_proto::v1::session_client::SessionClient;
use archon_testkit::{check, skipped, wait_for};
use archon_types::ErrorKind;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

const SIGABRT: i32 = 6;
const SOON: Duration = Duration::from_secs(60);
/// The log's prepared space, and a little more.
const DISK_MEGABYTES: u32 = 64;

async fn client(cluster: &Cluster) -> Client {
    cluster.client().build().await.expect("a client")
}

fn data(cluster: &Cluster, index: usize) -> PathBuf {
    cluster.directory().join(format!("coordinator-{}", index + 1))
}

/// Restarts a coordinator with all its data on a small disk of its own; `None` if the machine does not allow it.
fn with_small_disk(cluster: &mut Cluster, index: usize) -> Option<SmallDisk> {
    let (data, aside) = (data(cluster, index), cluster.directory().join("aside"));
    cluster.take_coordinator(index).kill();
    copy(&data, &aside);
    let disk = SmallDisk::mount(&data, DISK_MEGABYTES)?;
    copy(&aside, &data);
    fs::remove_dir_all(&aside).expect("removed");
    cluster.start_coordinator(index);
    cluster.wait_online();
    Some(disk)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    let status = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status();
    assert!(status.expect("cp runs").success(), "{} is not copied", from.display());
}

/// A caller whose registrations are refused, and take half a megabyte of log each; in plaintext.
struct NoisyCaller(SessionClient<Channel>);

impl NoisyCaller {
    fn new(address: &str) -> Self {
        Self(SessionClient::new(Endpoint::from_shared(format!("http://{address}")).expect("an address").connect_lazy()))
    }

    async fn say(&mut self) -> ErrorKind {
        let id = || uuid::Uuid::new_v4().as_bytes().to_vec().into();
        let mut request = tonic::Request::new(RegisterRequest {
            name: "talker".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            storage_id: id(),
            boot_id: id(),
            weight: 100,
            protocol_min: 99,
            protocol_max: 99,
            held: (0..65_536).map(|number| u64::MAX - number).collect(),
            ..RegisterRequest::default()
        });
        request.set_timeout(Duration::from_secs(10));
        let refused = self.0.register(request).await.expect_err("nobody speaks this protocol");
        detail_of(&refused).kind
    }

    /// Sends until the coordinators return an error other than the unsupported protocol.
    async fn until_refused(&mut self) -> ErrorKind {
        for _ in 0..200 {
            match self.say().await {
                ErrorKind::ProtocolMismatch | ErrorKind::Overloaded => {}
                other => return other,
            }
        }
        panic!("100 MiB found room on a full disk");
    }
}

fn codes(cluster: &Cluster) -> Result<Vec<String>, String> {
    let status = cluster.json(&["status", "--timeout", "2s"])?;
    let reasons = status["reasons"].as_array().cloned().unwrap_or_default();
    Ok(reasons.iter().map(|reason| format!("{}: {}", reason["code"], reason["message"]).replace('"', "")).collect())
}

fn create(cluster: &Cluster, name: &str) -> (i32, String) {
    let ran = cluster.archon(&["table", "create", name, "--partitions", "3", "--replication", "1", "--timeout", "5s"]);
    (ran.code, ran.stderr)
}

fn no_node_failed(cluster: &Cluster) {
    let events = cluster.json(&["events"]).expect("events").to_string();
    assert!(!events.contains("node_failed"), "{events}");
}

/// 12: it refuses what it cannot store and gives the reason; nodes keep their leases, keys are read and written; it
/// restarts on that disk, and continues by itself once there is space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lone_coordinator_with_full_disk_keeps_cluster_serving() {
    let options = Options {
        coordinators: 1,
        nodes: vec!["athens", "byzantium"],
        partitions: 8,
        nodes_min: 2,
        tls: false,
        timing: Some(LONG_LEASES),
        ..Options::default()
    };
    let mut cluster = Cluster::start(EXE, &options);
    let Some(_disk) = with_small_disk(&mut cluster, 0) else {
        skipped("this machine does not let a test mount a file system");
        return;
    };
    let address = cluster.coordinator_list();
    let client = client(&cluster).await;
    let load = Load::start(&client, "full", 4);
    load.wait_more(100);
    let ballast = fill(&data(&cluster, 0));
    let refused = NoisyCaller::new(&address).until_refused().await;
    assert_eq!(refused, ErrorKind::ReadOnly, "{}", cluster.coordinator(0).log_tail(40));
    let (code, said) = create(&cluster, "refused");
    assert!(code == 4 && said.contains("ReadOnly") && said.contains("raft-log"), "{code}: {said}");
    let reasons = codes(&cluster).expect("a status");
    assert!(reasons.iter().any(|reason| reason.starts_with("read_only: ")), "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.starts_with("disk_full: coordinator 1 at ")), "{reasons:?}");
    let time = Duration::from_millis(LONG_LEASES.failure_timeout_ms * 6 / 5);
    cluster.holds_for("both nodes to keep their leases", time, &["node", "list"], |nodes| {
        nodes.as_array().is_some_and(|nodes| nodes.iter().all(|node| node["status"] == "alive"))
    });
    load.wait_more(100);
    assert!(cluster.coordinator(0).runs(), "{}", cluster.coordinator(0).log_tail(40));
    let told = cluster.coordinator(0).log().matches("the coordinators refuse changes").count();
    assert_eq!(told, 1, "{}", cluster.coordinator(0).log_tail(40));

    // It starts on it, too.
    cluster.take_coordinator(0).kill();
    cluster.start_coordinator(0);
    cluster.wait_online();
    wait_for("it to say again what it lacks", SOON, || {
        let reasons = codes(&cluster)?;
        check(reasons.iter().any(|reason| reason.starts_with("read_only: ")), || format!("{reasons:?}"))
    });
    load.wait_more(1_000);

    fs::remove_file(ballast).expect("removed");
    wait_for("a table to be created", SOON, || {
        let (code, said) = create(&cluster, "accepted");
        check(code == 0, || format!("{code}: {said}"))
    });
    cluster.wait_online();
    assert_eq!(codes(&cluster).expect("a status"), Vec::<String>::new());
    let report = load.stop().await;
    report.assert_no_failure();
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    no_node_failed(&cluster);
}

/// 12: the leading one steps down and remains a following voter; the cluster continues normally.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leading_coordinator_with_full_disk_steps_down() {
    let mut cluster = Cluster::start(EXE, &Options { tls: false, timing: Some(LONG_LEASES), ..Options::default() });
    let (first, _) = cluster.wait_leader();
    let Some(_disk) = with_small_disk(&mut cluster, first) else {
        skipped("this machine does not let a test mount a file system");
        return;
    };
    // Another one took over during the restart.
    wait_for("it to lead again", 2 * SOON, || {
        let moved = cluster.archon(&["quorum", "transfer-leader", &(first + 1).to_string()]);
        let (leader, _) = cluster.wait_leader();
        check(leader == first, || format!("coordinator {} leads: {moved:?}", leader + 1))
    });
    let client = client(&cluster).await;
    let load = Load::start(&client, "full", 4);
    load.wait_more(100);
    let ballast = fill(&data(&cluster, first));
    let addresses = cluster.coordinator_addresses();
    let talk = |leader: usize| {
        let (mut talker, runtime) = (NoisyCaller::new(&addresses[leader]), tokio::runtime::Handle::current());
        tokio::task::block_in_place(|| runtime.block_on(talker.say()))
    };
    wait_for("another one to lead", 2 * SOON, || {
        let (leader, _) = cluster.wait_leader();
        let said = talk(leader);
        check(leader != first, || format!("it is told {said}"))
    });
    // Many times its capacity.
    let mut taken = 0;
    wait_for("changes to be taken", 10 * SOON, || {
        let (leader, _) = cluster.wait_leader();
        let said = [(); 10].map(|()| talk(leader));
        taken += said.iter().filter(|said| **said == ErrorKind::ProtocolMismatch).count();
        check(taken > 50 && leader != first, || format!("{taken} were; last {said:?} by {leader}"))
    });
    let (code, said) = create(&cluster, "during");
    assert_eq!(code, 0, "{said}");
    // It may be so far behind by then that a snapshot waits for space as well.
    let named = ["disk_full", "snapshot_waits"].map(|code| format!("{code}: coordinator {} at ", first + 1));
    wait_for("nothing else to be wrong with the coordinators", SOON, || {
        let mut reasons = codes(&cluster)?;
        reasons.retain(|reason| !reason.starts_with("taking_over"));
        let of_it = |reason: &String| named.iter().any(|named| reason.starts_with(named));
        let full = reasons.iter().any(|reason| reason.starts_with(&named[0]));
        check(full && reasons.iter().all(of_it), || format!("{reasons:?}"))
    });
    load.wait_more(1_000);
    assert!(cluster.coordinator(first).runs(), "{}", cluster.coordinator(first).log_tail(40));
    fs::remove_file(ballast).expect("removed");
    cluster.wait_json("it to have caught up", SOON, &["status"], |status| {
        let one = &status["coordinators"][first];
        one["entries_behind"] == 0 && one["lack"].is_null()
    });
    let report = load.stop().await;
    report.assert_no_failure();
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    no_node_failed(&cluster);
}

/// 11: a durable write of a voter fails, or the sync of its log directory: it stops without acknowledging anything, the
/// others continue, and after a restart its state is unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_with_failing_disk_ends_and_returns() {
    let mut cluster = Cluster::start(EXE, &Options { tls: false, timing: Some(LONG_LEASES), ..Options::default() });
    let client = client(&cluster).await;
    let load = Load::start(&client, "eio", 4);
    load.wait_more(100);
    for calls in [DURABLE_CALLS, "fsync"] {
        let (leader, _) = cluster.wait_leader();
        let inject = format!("{calls}:error=EIO:when=1+");
        let Some(injection) = Injection::start(cluster.coordinator(leader).pid(), &[&inject]) else {
            skipped("this machine does not let a test trace a process");
            return;
        };
        let mut process = cluster.take_coordinator(leader);
        // Enough to start another segment, whose name has to be made durable. On a busy machine another one may lead by
        // now: then this one gets it as a follower.
        let mut talkers: Vec<NoisyCaller> =
            cluster.coordinator_addresses().iter().map(|at| NoisyCaller::new(at)).collect();
        for _ in 0..200 {
            for talker in &mut talkers {
                if process.exited().is_none() {
                    talker.say().await;
                }
            }
        }
        let status = process.wait_exit(SOON);
        assert_eq!(status.signal(), Some(SIGABRT), "{calls}, {status}: {}", process.log_tail(20));
        let log = process.log_tail(20);
        assert!(log.contains("ending the process") && log.contains("Input/output error"), "{calls}: {log}");
        drop(injection);
        load.wait_more(100);
        let (next, _) = cluster.wait_leader();
        assert_ne!(next, leader);
        cluster.start_coordinator(leader);
        cluster.wait_json("it to have caught up", SOON, &["status"], |status| {
            status["coordinators"][leader]["entries_behind"] == 0
        });
    }
    let report = load.stop().await;
    report.assert_no_failure();
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    no_node_failed(&cluster);
}
