//! A runbook operator: takes the commands of a page literally, fills in the capitalised placeholders, and runs them.

pub(crate) mod programs;

use archon_integration_tests::cluster::{CALL_LIMIT, TIMEOUT};
use archon_integration_tests::{Cluster, Process, ProcessExt, Release};
use archon_testkit::wait_for;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// Time-out of one runbook command.
const STEP: Duration = Duration::from_secs(90);

/// Returns the commands in the `sh` blocks below a heading, up to the next one of its level, in order.
fn commands(page: &str, heading: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate/runbooks").join(page);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    commands_in(&text, heading)
}

fn commands_in(text: &str, heading: &str) -> Vec<String> {
    let level = heading.split(' ').next().expect("a heading").len();
    let is_heading =
        |line: &str| line.starts_with('#') && line.bytes().take_while(|byte| *byte == b'#').count() <= level;
    let mut lines = text.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "there is no heading {heading:?}");
    let (mut found, mut within) = (Vec::new(), false);
    for line in lines {
        match line.trim() {
            "```sh" => within = true,
            "```" => within = false,
            command if within && !command.is_empty() => found.push(command.to_owned()),
            _ if !within && is_heading(line) => break,
            _ => {}
        }
    }
    assert!(!found.is_empty(), "there are no commands below {heading:?}");
    found
}

/// Fills in the capitalised placeholders. Addresses are written as `A:7101`.
fn filled(command: &str, places: &[(&str, String)]) -> String {
    let part = |c: char| c.is_ascii_alphanumeric() || c == ':' || c == '_';
    let mut out = String::new();
    let mut rest = command;
    while !rest.is_empty() {
        let length = rest.find(|c: char| !part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        out.push_str(places.iter().find(|(place, _)| *place == word).map_or(word, |(_, with)| with));
        let next = after.chars().next();
        out.extend(next);
        rest = &after[next.map_or(0, char::len_utf8)..];
    }
    out
}

/// Replacement for `ssh`: the test runs the requested action on this machine.
const ELSEWHERE: &str = "#!/bin/sh
printf '%s\\n' \"$*\" > \"$ASKED.new\" && mv \"$ASKED.new\" \"$ASKED\"
while [ -e \"$ASKED\" ]; do sleep 0.05; done
";

/// Callback for `stop` and `start`.
type Programs<'a> = Box<dyn FnMut(&str) + Send + 'a>;

/// An operator that follows a runbook.
pub(crate) struct Operator<'a> {
    /// The initial cluster.
    pub(crate) cluster: &'a mut Cluster,
    /// Directory of `archon`, and of data of new members.
    directory: PathBuf,
    places: Vec<(&'static str, String)>,
    /// Coordinators named by commands.
    pub(crate) coordinators: String,
    /// Stops and starts the programs that use the tables, as a service manager would.
    programs: Option<Programs<'a>>,
    /// Started members.
    started: Vec<Process>,
    /// Program versions, by their names in a runbook.
    pub(crate) releases: BTreeMap<String, Release>,
}

impl<'a> Operator<'a> {
    pub(crate) fn new(exe: &str, cluster: &'a mut Cluster, places: &[(&'static str, String)]) -> Self {
        let directory = cluster.directory().join("operator");
        fs::create_dir_all(directory.join("bin")).expect("a directory");
        symlink(exe, directory.join("bin/archon")).expect("a link");
        let data = ("DIR", directory.join("data").display().to_string());
        let coordinators = cluster.coordinator_list();
        let places = [places, &[data]].concat();
        fs::write(directory.join("bin/ssh"), ELSEWHERE).expect("a script");
        fs::set_permissions(directory.join("bin/ssh"), Permissions::from_mode(0o755)).expect("a program");
        let (programs, started, releases) = (None, Vec::new(), BTreeMap::new());
        Self { cluster, directory, places, coordinators, programs, started, releases }
    }

    /// Sets the callback that stops and starts programs.
    pub(crate) fn with_programs(mut self, programs: impl FnMut(&str) + Send + 'a) -> Self {
        self.programs = Some(Box::new(programs));
        self
    }

    /// Runs every command below these headings of a runbook.
    pub(crate) fn follow(&mut self, page: &str, headings: &[&str]) {
        let commands: Vec<String> = headings.iter().flat_map(|heading| commands(page, heading)).collect();
        for (place, _) in self.places.iter().filter(|(place, _)| *place != "DIR") {
            assert!(
                commands.iter().any(|command| filled(command, &[(place, String::new())]) != *command),
                "{page} names no {place}"
            );
        }
        for command in commands {
            let command = filled(&command, &self.places);
            println!("$ {command}");
            if let Some(value) = command.strip_prefix("export ARCHON_COORDINATORS=") {
                value.clone_into(&mut self.coordinators);
            } else if command.starts_with("archon coordinator ") || command.starts_with("archon node --name ") {
                self.start(&command);
            } else if let Some(name) = command.strip_prefix("systemctl stop archon-node@") {
                assert!(self.cluster.take_node(name).terminate(TIMEOUT).success(), "{name} stops in order");
            } else if let Some(order) =
                command.strip_suffix(" PROGRAMS").and_then(|rest| rest.strip_prefix("systemctl "))
            {
                self.order_programs(order);
            } else {
                self.run(&command);
            }
        }
    }

    /// Orders the programs to `stop` or `start`.
    pub(crate) fn order_programs(&mut self, order: &str) {
        self.programs.as_mut().expect("there are programs")(order);
    }

    /// Performs an action requested on another machine.
    fn do_elsewhere(&mut self, request: &str) {
        println!("  {request}");
        let words: Vec<&str> = request.split(' ').collect();
        let ("A" | "B" | "C" | "athens" | "byzantium" | "cyrene") = words[0] else { panic!("a machine: {request}") };
        let coordinator = ["A", "B", "C"].iter().position(|host| *host == words[0]);
        match (coordinator, &words[1..]) {
            (_, ["apt-get", "install", "-y", .., package]) => {
                let version = package.strip_prefix("archon=").unwrap_or_else(|| panic!("a package: {request}"));
                let release = self.releases.get(version).unwrap_or_else(|| panic!("a version: {request}"));
                let member =
                    coordinator.map_or_else(|| words[0].to_owned(), |index| format!("coordinator-{}", index + 1));
                self.cluster.install(&member, release);
            }
            (Some(index), ["systemctl", "stop", "archon-coordinator"]) => {
                assert!(self.cluster.take_coordinator(index).terminate(TIMEOUT).success(), "{request}");
            }
            (None, ["systemctl", "stop", unit]) => {
                assert_eq!(unit.strip_prefix("archon-node@"), Some(words[0]), "{request}");
                assert!(self.cluster.take_node(words[0]).terminate(TIMEOUT).success(), "{request}");
            }
            (Some(index), ["systemctl", "restart", "archon-coordinator"]) => {
                assert!(self.cluster.take_coordinator(index).terminate(TIMEOUT).success(), "{request}");
                self.cluster.start_coordinator(index);
            }
            (None, ["systemctl", "restart", unit]) => {
                assert_eq!(unit.strip_prefix("archon-node@"), Some(words[0]), "{request}");
                assert!(self.cluster.take_node(words[0]).terminate(TIMEOUT).success(), "{request}");
                self.cluster.start_node(words[0]);
            }
            _ => panic!("nobody said what that is: {request}"),
        }
    }

    fn path(&self) -> String {
        let path = std::env::var("PATH").unwrap_or_default();
        format!("{}:{path}", self.directory.join("bin").display())
    }

    /// Starts a member, which keeps running.
    fn start(&mut self, command: &str) {
        let name = format!("started-{}", self.started.len());
        let script = ["sh", "-c", &format!("exec {command}")];
        let environment = [("PATH", self.path())];
        let started = Process::start(&name, &script, &environment, &self.directory);
        self.started.push(started.unwrap_or_else(|error| panic!("{command}: {error}")));
    }

    /// Runs a command that must succeed. One that looks for a line of `archon status` is repeated, as a person does: a leader
    /// that was elected a moment ago has no reports of nodes yet.
    fn run(&mut self, command: &str) {
        let (looks, began) = (command.starts_with("archon status | grep "), Instant::now());
        loop {
            let (status, printed) = self.attempt(command);
            // The kind of machine that runs a test is no fault of a runbook.
            let is_other_machine = command.starts_with("archon doctor ") && status.code() == Some(11);
            if status.success() || is_other_machine {
                return;
            }
            assert!(looks && began.elapsed() < STEP, "`{command}` ended with {status}:\n{printed}");
            println!("looks again:\n{}", self.cluster.archon(&["status"]).stdout);
        }
    }

    /// Runs a command to its end, and returns what it printed last.
    fn attempt(&mut self, command: &str) -> (ExitStatus, String) {
        let asked = self.directory.join("asked");
        let environment = [
            ("PATH", self.path()),
            ("ARCHON_COORDINATORS", self.coordinators.clone()),
            ("ARCHON_TIMEOUT", CALL_LIMIT.to_owned()),
            ("ASKED", asked.display().to_string()),
        ];
        let started = Process::start("commands", &["sh", "-c", command], &environment, &self.directory);
        let mut running = started.unwrap_or_else(|error| panic!("{command}: {error}"));
        let (status, _) = wait_for(&format!("`{command}` to end"), STEP, || {
            if let Ok(request) = fs::read_to_string(&asked) {
                self.do_elsewhere(request.trim());
                fs::remove_file(&asked).expect("it was there");
            }
            for member in &mut self.started {
                let ended = member.exited();
                assert!(ended.is_none(), "{} ended: {}", member.name(), member.log_tail(20));
            }
            running.exited().ok_or_else(|| running.log_tail(20))
        });
        (status, running.log_tail(20))
    }
}

#[test]
fn commands_are_extracted_from_a_page_verbatim() {
    let page = "# A\n\n1. x:\n\n   ```sh\n   archon a NEW:7101 --data-dir DIR/x\n\n   b\n   ```\n\n## C\n\n```sh\nc\n```\n\n# D\n\n```sh\nd\n```\n";
    assert_eq!(commands_in(page, "# A"), ["archon a NEW:7101 --data-dir DIR/x", "b", "c"]);
    assert_eq!(commands_in(page, "## C"), ["c"]);
    let places = [("NEW:7101", "127.0.0.1:9".to_owned()), ("DIR", "/d".to_owned()), ("A:7101", "wrong".to_owned())];
    assert_eq!(
        filled("archon a NEW:7101,DA:7101 --data-dir=DIR/x DIRS", &places),
        "archon a 127.0.0.1:9,DA:7101 --data-dir=/d/x DIRS"
    );
}
