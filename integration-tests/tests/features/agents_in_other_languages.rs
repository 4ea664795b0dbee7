//! Services in TypeScript, Java and Go own partitions through agents: the package for Node, its example, and the programs of
//! the tutorial.

use super::agents::{counts_once, program, root, text};
use crate::EXE;
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::{Cluster, Options, ProcessExt, cluster::TIMEOUT};
use archon_testkit::wait_for;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;

/// Returns whether this machine has a compiler or runtime. Without it the test is left out, also where other tests may not
/// be: `.ci/run` installs these programs if it reaches a registry, and does not fail otherwise.
fn has(name: &str) -> bool {
    let found = program(name).arg("--version").output();
    if let Err(error) = &found {
        println!("left out: {name} does not start: {error}");
    }
    found.is_ok()
}

#[test]
fn typescript_package_passes_its_own_tests() {
    if has("node") {
        let output = program("node").args(["--test", "clients/typescript/test/participant.test.js"]).output();
        let output = output.expect("node starts");
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn killed_typescript_service_counts_every_request_once() {
    counts_once_in_typescript("kill-service", "The service of ");
}

#[test]
fn killed_agent_ends_the_permission_of_typescript() {
    counts_once_in_typescript("kill-agent", "The agent of ");
}

#[test]
fn typescript_service_paused_with_its_agent_acts_no_more() {
    counts_once_in_typescript("pause-both", "The service with the agent of ");
}

fn counts_once_in_typescript(fault: &str, expected: &str) {
    if has("node") {
        counts_once("typescript", fault, expected);
    }
}

/// A program of the tutorial that runs, with the lines that it has printed.
struct RunningProgram {
    child: Child,
    printed: Arc<Mutex<Vec<String>>>,
}

impl RunningProgram {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().expect("the program starts");
        let output = child.stdout.take().expect("an output");
        let printed = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&printed);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                lines.lock().expect("the lines").push(line);
            }
        });
        Self { child, printed }
    }

    fn wait_for_line(&self, part: &str) {
        let printed = || {
            let lines = self.printed.lock().expect("the lines");
            if lines.iter().any(|line| line.contains(part)) { Ok(()) } else { Err(lines.join("\n")) }
        };
        wait_for(&format!("a line with {part:?}"), TIMEOUT, printed);
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the longest program of a page of the tutorial into a file.
fn extract(page: &str, language: &str, file: &Path) {
    let text = fs::read_to_string(root().join(page)).expect("a page");
    let begin = format!("```{language}\n");
    let programs = text.split(&begin).skip(1).filter_map(|rest| rest.split_once("```"));
    let program = programs.map(|(program, _)| program).max_by_key(|program| program.len()).expect("a program");
    // Programs at the root of the repository name the packages from there.
    let packages = format!("{}/clients/", root().display());
    fs::write(file, program.replace("./clients/", &packages)).expect("a file");
}

/// Runs a program of the tutorial beside a real agent: it owns both partitions, works, and releases them at SIGTERM.
fn program_owns_and_releases(start: impl FnOnce(&str) -> RunningProgram) {
    let options = Options { coordinators: 1, nodes: vec!["athens"], nodes_min: 1, tls: false, ..Options::default() };
    let cluster = Cluster::start(EXE, &options);
    cluster.done(&["table", "create", "jobs", "--partitions", "2", "--lease"]);
    let listen = free_addresses(1).remove(0);
    let coordinators = cluster.coordinator_list();
    let arguments = ["participant", "--table", "jobs", "--name", "w1", "--address", "127.0.0.1:8080"];
    let arguments = [&arguments[..], &["--listen", &listen, "--coordinators", &coordinators]].concat();
    let agent = cluster.spawn("w1", &arguments.into_iter().map(str::to_owned).collect::<Vec<_>>());
    let mut running = start(&listen);
    running.wait_for_line("worked for 2 partitions");
    let id = rustix::process::Pid::from_child(&running.child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it runs");
    for partition in 0..2 {
        running.wait_for_line(&format!("partition {partition} is released"));
    }
    let ended = || running.child.try_wait().expect("a child").ok_or("it runs");
    wait_for("the end of the program", TIMEOUT, ended);
    assert!(agent.terminate(TIMEOUT).success());
}

#[test]
fn typescript_program_of_the_tutorial_owns_partitions() {
    if !has("node") {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let source = directory.path().join("jobs.mjs");
    extract("docs/tutorial/typescript.md", "js", &source);
    program_owns_and_releases(|agent| RunningProgram::start(program("node").arg(&source).arg(agent)));
}

#[test]
fn java_program_of_the_tutorial_owns_partitions() {
    if !has("java") || !has("javac") {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let source = directory.path().join("Jobs.java");
    extract("docs/tutorial/java.md", "java", &source);
    let compiled = program("javac").args(["-Werror", "-Xlint:all", "-d"]).arg(directory.path()).arg(&source).output();
    let compiled = compiled.expect("javac starts");
    assert!(compiled.status.success(), "{}", text(&compiled));
    program_owns_and_releases(|agent| {
        RunningProgram::start(program("java").arg("-cp").arg(directory.path()).args(["Jobs", agent]))
    });
}

#[test]
fn go_program_of_the_tutorial_owns_partitions() {
    // Go has no option `--version`, but starts.
    if !has("go") {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    extract("docs/tutorial/go.md", "go", &directory.path().join("jobs.go"));
    let mut build = program("go");
    build.args(["build", "-o", "jobs", "jobs.go"]).current_dir(directory.path());
    let built = build.env("GO111MODULE", "off").env("GOFLAGS", "").output().expect("go starts");
    assert!(built.status.success(), "{}", text(&built));
    program_owns_and_releases(|agent| RunningProgram::start(Command::new(directory.path().join("jobs")).arg(agent)));
}
