//! What systemd is told by members that it started with `Type=notify`: real processes, and a socket in systemd's place.

use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::wait::check;
use archon_integration_tests::{Ending, wait_for};
use archon_local_cluster::Process;
use std::cell::RefCell;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
const TIMEOUT: Duration = Duration::from_secs(60);

/// What one member tells.
struct Unit {
    process: Option<Process>,
    socket: UnixDatagram,
    heard: RefCell<Vec<String>>,
}

impl Unit {
    fn start(name: &str, arguments: &[&str], directory: &Path) -> Self {
        let path = directory.join(format!("{name}.notify"));
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket that does not block");
        let (data, notify) = (directory.join(name), path.to_str().expect("a path").to_owned());
        let command = [&[EXE], arguments, &["--data-dir", data.to_str().expect("a path")]].concat();
        let process = Process::start(name, &command, &[("NOTIFY_SOCKET", notify)], directory).expect("it starts");
        Self { process: Some(process), socket, heard: RefCell::default() }
    }

    /// Every line so far, in order.
    fn heard(&self) -> Vec<String> {
        let mut message = [0; 4_096];
        let mut heard = self.heard.borrow_mut();
        while let Ok(length) = self.socket.recv(&mut message) {
            heard.extend(String::from_utf8_lossy(&message[..length]).lines().map(ToOwned::to_owned));
        }
        heard.clone()
    }

    fn has(&self, line: &str) -> bool {
        self.heard().iter().any(|heard| heard.starts_with(line))
    }

    #[track_caller]
    fn wait(&self, line: &str) {
        wait_for(line, TIMEOUT, || check(self.has(line), || format!("{:?}", self.heard())));
    }

    /// SIGTERM; returns all that was heard.
    fn stop(mut self) -> Vec<String> {
        let process = self.process.take().expect("it runs");
        assert!(process.terminate(TIMEOUT).success());
        self.heard()
    }
}

/// Has it said that it stops, and for how long that may take, and nothing after that?
#[track_caller]
fn stopped_in_order(heard: &[String]) {
    let at = heard.iter().position(|line| line == "STOPPING=1").unwrap_or_else(|| panic!("{heard:?}"));
    let [_, status, extend] = &heard[at..] else { panic!("{heard:?}") };
    assert!(status.starts_with("STATUS=hands over"), "{heard:?}");
    let micros: u64 = extend.strip_prefix("EXTEND_TIMEOUT_USEC=").and_then(|n| n.parse().ok()).expect("microseconds");
    assert!((10_000_000..=60_000_000).contains(&micros), "{micros}");
}

#[test]
fn a_node_was_said_to_be_started_before_it_held_a_lease() {
    let directory = TempDir::new().expect("a directory");
    let addresses = free_addresses(2);
    let (coordinator_at, node_at) = (addresses[0].as_str(), addresses[1].as_str());
    let peers = format!("1={coordinator_at}");
    let node = ["node", "--name", "athens", "--listen", node_at, "--coordinators", coordinator_at];
    let node = Unit::start("athens", &node, directory.path());
    node.wait("STATUS=waits: node athens is not registered");
    assert!(!node.has("READY=1"), "{:?}", node.heard());
    let alone = ["--partitions", "2", "--replication", "1", "--min-nodes", "1"];
    let coordinator = ["coordinator", "--id", "1", "--listen", coordinator_at, "--peers", &peers];
    let coordinator = Unit::start("c1", &[&coordinator[..], &alone].concat(), directory.path());
    coordinator.wait("READY=1");
    coordinator.wait("STATUS=takes part in its cluster");
    node.wait("READY=1");
    node.wait("STATUS=takes part in its cluster");
    stopped_in_order(&node.stop());
    stopped_in_order(&coordinator.stop());
}

/// Each of three units on three machines would wait for the others, and systemd would end it.
#[test]
fn a_coordinator_that_waits_for_the_others_is_started_and_says_for_whom_it_waits() {
    let directory = TempDir::new().expect("a directory");
    let addresses = free_addresses(3);
    let peers = format!("1={},2={},3={}", addresses[0], addresses[1], addresses[2]);
    let coordinator = ["coordinator", "--id", "1", "--listen", &addresses[0], "--peers", &peers];
    let coordinator = Unit::start("c1", &coordinator, directory.path());
    coordinator.wait("READY=1");
    wait_for("both missing ones to be named", TIMEOUT, || {
        let heard = coordinator.heard();
        let waits = |line: &&String| line.starts_with("STATUS=waits") && line.contains(&addresses[2]);
        check(heard.iter().any(|line| waits(&line)), || format!("{heard:?}"))
    });
    stopped_in_order(&coordinator.stop());
}
