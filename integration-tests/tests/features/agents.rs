//! Services in Python own partitions through agents: the package against a scripted agent, and the example of three
//! processes with agents and a real cluster, one of which is killed.

use crate::EXE;
use archon_integration_tests::{Cluster, Options};
use archon_testkit::skipped;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Variables of a user's shell that the programs would take for options.
const VARIABLES: [&str; 4] = ["ARCHON_COORDINATORS", "ARCHON_TLS_DIR", "ARCHON_NAME", "ARCHON_LISTEN"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs Python at the root of the repository; `None` if this machine has none.
fn python(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new("python3");
    for name in VARIABLES {
        command.env_remove(name);
    }
    match command.args(arguments).current_dir(root()).env("PYTHONDONTWRITEBYTECODE", "1").output() {
        Ok(output) => Some(output),
        Err(error) => {
            skipped(format!("python3 does not start: {error}"));
            None
        }
    }
}

fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn python_package_passes_its_own_tests() {
    let Some(output) = python(&["-m", "unittest", "discover", "-s", "clients/python/tests"]) else { return };
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn killed_python_service_counts_every_request_once() {
    counts_once_while_one_is_killed("service");
}

/// The service lives on, and notices that its permission ends.
#[test]
fn killed_agent_ends_the_permission_of_its_service() {
    counts_once_while_one_is_killed("agent");
}

fn counts_once_while_one_is_killed(killed: &str) {
    let options = Options { nodes: vec!["athens"], nodes_min: 1, tls: false, ..Options::default() };
    let cluster = Cluster::start(EXE, &options);
    let coordinators = cluster.coordinator_list();
    let run = ["examples/python/run.py", "--archon", EXE, "--coordinators", &coordinators, "--kill", killed];
    let Some(output) = python(&run) else { return };
    let printed = text(&output);
    println!("{printed}");
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("is killed after half of the requests"), "{printed}");
    assert!(printed.contains("requests: 600, attempts: ") && printed.contains("counted: 600"), "{printed}");
}
