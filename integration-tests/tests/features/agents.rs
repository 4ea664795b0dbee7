//! Services in Python own partitions through agents: the package against a scripted agent, and the example of three
//! processes with agents and a real cluster, one of which is killed or paused.

use crate::EXE;
use archon_client::Role;
use archon_integration_tests::scrape::Scrape;
use archon_integration_tests::{Cluster, Options, ProcessExt as _, Room, cluster::TIMEOUT, http};
use archon_testkit::{check, skipped, wait_for};
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Variables of a user's shell that the programs would take for options.
const VARIABLES: [&str; 4] = ["ARCHON_COORDINATORS", "ARCHON_TLS_DIR", "ARCHON_NAME", "ARCHON_LISTEN"];

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns a program at the root of the repository, without a user's settings.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.current_dir(root()).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Runs Python at the root of the repository; `None` if this machine has none.
fn python(arguments: &[&str]) -> Option<Output> {
    match program("python3").args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) => {
            skipped(format!("python3 does not start: {error}"));
            None
        }
    }
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn python_package_passes_its_own_tests() {
    let Some(output) = python(&["-m", "unittest", "discover", "-s", "clients/python/tests"]) else { return };
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn killed_python_service_counts_every_request_once() {
    counts_once_beside("kill-service", "The service of ");
}

/// The service lives on, and notices that its permission ends.
#[test]
fn killed_agent_ends_the_permission_of_its_service() {
    counts_once_beside("kill-agent", "The agent of ");
}

#[test]
fn paused_service_is_replaced_and_joins_again() {
    counts_once_beside("pause-service", "is paused after half of the requests");
}

/// No event arrives at the woken service: only its clock ends the permission.
#[test]
fn service_paused_with_its_agent_acts_no_more() {
    counts_once_beside("pause-both", "The service with the agent of ");
}

fn counts_once_beside(fault: &str, expected: &str) {
    counts_once("python", fault, expected);
}

/// Runs the example of three processes in a language, with a fault. The caller has checked that its program exists.
pub(crate) fn counts_once(service: &str, fault: &str, expected: &str) {
    let options = Options {
        coordinators: 1,
        nodes: vec!["athens"],
        nodes_min: 1,
        tls: false,
        room: Room::Whole,
        ..Options::default()
    };
    let cluster = Cluster::start(EXE, &options);
    let coordinators = cluster.coordinator_list();
    let run = ["examples/python/run.py", "--archon", EXE, "--coordinators", &coordinators, "--fault", fault];
    let run = [&run[..], &["--service", service]].concat();
    let Some(output) = python(&run) else { return };
    let printed = text(&output);
    println!("{printed}");
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains(expected), "{printed}");
    assert!(printed.contains("requests: 600, attempts: ") && printed.contains("counted: 600"), "{printed}");
    // The journal has no fence, so these are not zero if two processes act for a partition at a time.
    assert!(printed.contains("after a later epoch: 0, epochs of two processes: 0"), "{printed}");
}

/// Waits for both partitions of `jobs`, and prints who owns a key.
const OWN_BOTH: &str = r#"
import sys, time
sys.path.insert(0, "clients/python/src")
from archon_participant import Participant
with Participant("jobs", sys.argv[1]) as participant:
    limit = time.monotonic() + 60.0
    while len(participant.owned()) < 2 and time.monotonic() < limit:
        time.sleep(0.02)
    print(len(participant.owned()), participant.grant(0).check() > 0, participant.where("a").owner.participant)
"#;

#[test]
fn agent_with_certificate_serves_a_socket() {
    let options = Options { coordinators: 1, nodes: vec!["athens"], nodes_min: 1, tls: true, ..Options::default() };
    let cluster = Cluster::start(EXE, &options);
    cluster.done(&["table", "create", "jobs", "--partitions", "2", "--lease"]);
    cluster.done(&["access", "grant", "own", "--participant", "w1", "--table", "jobs"]);
    let socket = format!("unix:{}", cluster.directory().join("w1.sock").display());
    let (own, coordinators) = (cluster.credentials_arguments(Role::Participant, "w1"), cluster.coordinator_list());
    let arguments = ["participant", "--table", "jobs", "--name", "w1", "--address", "127.0.0.1:8080"];
    let arguments = [&arguments[..], &["--listen", &socket, "--coordinators", &coordinators]].concat();
    let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).chain(own).collect();
    let agent = cluster.spawn("w1", &arguments);
    let Some(output) = python(&["-c", OWN_BOTH, &socket]) else { return };
    assert!(output.status.success() && text(&output).contains("2 True w1"), "{}\n{}", text(&output), agent.log());
    assert!(agent.terminate(TIMEOUT).success());
    assert!(!cluster.directory().join("w1.sock").exists());
}

#[test]
fn agent_process_serves_metrics_and_health() {
    let options = Options { coordinators: 1, nodes: vec!["athens"], nodes_min: 1, ..Options::default() };
    let cluster = Cluster::start(EXE, &options);
    cluster.done(&["table", "create", "jobs", "--partitions", "2", "--lease"]);
    let coordinators = cluster.coordinator_list();
    let arguments = ["participant", "--table", "jobs", "--name", "w1", "--address", "127.0.0.1:8080"];
    let options = ["--listen", "127.0.0.1:0", "--service-lease", "1h", "--coordinators", &coordinators];
    let arguments: Vec<String> = [&arguments[..], &options].concat().into_iter().map(str::to_owned).collect();
    let agent = cluster.spawn("w1", &arguments);
    let (address, _) = wait_for("the address of the agent", TIMEOUT, || {
        let log = agent.log();
        let port = log.split("address=\"127.0.0.1:").nth(1).and_then(|rest| rest.split('"').next());
        port.map(|port| format!("127.0.0.1:{port}")).ok_or(log)
    });
    let get = |path: &str| http::get(&address, path).expect("the agent answers");
    assert_eq!((get("/livez").status, get("/readyz").status), (200, 503));
    let mut service = TcpStream::connect(&address).expect("the agent listens");
    let connect = format!("GET /v1/events HTTP/1.1\r\nhost: {address}\r\narchon-session: new\r\n\r\n");
    service.write_all(connect.as_bytes()).expect("a request");
    wait_for("a registered participant with offers", TIMEOUT, || {
        let (ready, found) = (get("/readyz"), Scrape::read(&get("/metrics").body).expect("metrics"));
        let values = ["archon_participant_registrations_total", "archon_agent_events_unconfirmed"];
        let counts = values.map(|name| found.get(name));
        let wanted = ready.status == 200 && counts[0] >= 1.0 && counts[1] >= 2.0;
        check(wanted && found.get("archon_agent_service_connected") == 1.0, || format!("{} {found:?}", ready.body))
    });
    assert!(agent.terminate(TIMEOUT).success());
}
