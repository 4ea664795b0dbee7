//! Client libraries of other projects, which `.ci/run` installs, on clusters of real processes: values, pipelines, scans, TLS,
//! and leaders that are killed or restarted.

use crate::EXE;
use crate::redis::{NODES, knows_listeners, options};
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::process::Ending;
use archon_integration_tests::{Cluster, Options};
use archon_security::Role;
use archon_testkit::wait_for;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// Most requests that may fail while a leader dies: a client does not repeat a request with an unknown outcome.
const FAILED_MAX: u64 = 10;

/// A library with its script.
#[derive(Clone, Copy)]
enum Library {
    RedisPy,
    IoRedis,
}

/// Returns the directory of the libraries.
fn installed() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("redis-clients")
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

impl Library {
    /// Returns the command that starts its script; `None` if this machine does not have the library.
    fn command(self) -> Option<Command> {
        let scripts = root().join("integration-tests/redis-clients");
        let (program, script) = match self {
            Self::RedisPy => (installed().join("venv/bin/python"), scripts.join("redis_py.py")),
            Self::IoRedis => ("node".into(), scripts.join("ioredis.js")),
        };
        // Written once all of them are there. The test is left out without them, also where other tests may not be skipped: they
        // come from other registries than the crates.
        let versions = installed().join("versions");
        if !versions.exists() {
            println!("left out: {} is not there; .ci/run installs the libraries", versions.display());
            return None;
        }
        let mut command = Command::new(program);
        command.arg(script).env("NODE_PATH", installed().join("node_modules")).env("PYTHONDONTWRITEBYTECODE", "1");
        Some(command)
    }
}

/// A running script, which is killed when this is dropped.
struct Client {
    process: Child,
    commands: ChildStdin,
    answers: Receiver<String>,
}

impl Client {
    /// Starts a script at the listener of a node; with TLS, with a client's certificate.
    fn start(mut command: Command, cluster: &Cluster, tls: bool) -> Self {
        command.arg(cluster.redis_address(NODES[0]));
        if tls {
            let own = cluster.credentials(Role::Client, "shop");
            command.args(["ca.crt", "tls.crt", "tls.key"].map(|file| own.join(file)));
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the script starts");
        let commands = process.stdin.take().expect("its input");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let (lines, answers) = channel();
        // It ends with the script.
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
        Self { process, commands, answers }
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.commands, "{command}").expect("the script runs");
        self.answers.recv_timeout(TIMEOUT).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Checks that the load went on, and lost nothing.
    fn end(&mut self, what: &str) {
        let answer = self.ask("end");
        let numbers: Vec<u64> = answer.split(' ').filter_map(|word| word.parse().ok()).take(3).collect();
        let [done, failed, lost] = numbers[..] else { panic!("{what}: {answer}") };
        assert!(done > 0 && failed <= FAILED_MAX && lost == 0, "{what}: {answer}");
        println!("{what}: {answer}");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn goes_on_through_faults(library: Library) {
    let Some(command) = library.command() else { return };
    let three = Options { partitions: 9, replication: 3, ..options(NODES) };
    let mut cluster = Cluster::start_whole(EXE, &three);
    knows_listeners(&cluster, NODES);
    let mut client = Client::start(command, &cluster, false);
    assert_eq!(client.ask("basics"), "ok");
    assert_eq!(client.ask("begin"), "ok");
    let victim = cluster.leader_of("count 1");
    cluster.take_node(&victim).kill();
    wait_for("another leader", TIMEOUT, || match cluster.leader_of("count 1") {
        leader if leader == victim => Err(leader),
        leader => Ok(leader),
    });
    cluster.start_node(&victim);
    cluster.wait_node(&victim, "alive");
    cluster.wait_whole(3);
    client.end("a leader was killed");
    // Each restart hands over the leaderships of a node, so every slot moves.
    assert_eq!(client.ask("begin"), "ok");
    for node in NODES {
        assert!(cluster.take_node(node).terminate(TIMEOUT).success());
        cluster.start_node(node);
        cluster.wait_node(node, "alive");
        cluster.wait_whole(3);
    }
    client.end("all nodes were restarted");
    assert_eq!(client.ask("basics"), "ok");
}

fn speaks_tls(library: Library) {
    let Some(command) = library.command() else { return };
    let cluster = Cluster::start_whole(EXE, &Options { partitions: 9, redis: NODES, tls: true, ..Options::default() });
    let mut client = Client::start(command, &cluster, true);
    assert_eq!(client.ask("basics"), "ok");
}

#[test]
fn redis_py_goes_on_through_faults() {
    goes_on_through_faults(Library::RedisPy);
}

#[test]
fn redis_py_speaks_tls() {
    speaks_tls(Library::RedisPy);
}

#[test]
fn ioredis_goes_on_through_faults() {
    goes_on_through_faults(Library::IoRedis);
}

#[test]
fn ioredis_speaks_tls() {
    speaks_tls(Library::IoRedis);
}
