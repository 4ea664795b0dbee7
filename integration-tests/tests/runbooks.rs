//! Runbooks are followed word for word: the commands that stand in them are run on real clusters, with what is in capitals filled in, and what
//! they promise is looked at. A command that the program does not know, refuses or does not end well makes a test fail.

use archon_client::Client;
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::ports::free_addresses;
use archon_integration_tests::wait::check;
use archon_integration_tests::{Cluster, Ending, Load, Options, Process, Release, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");
/// How long one command of a runbook may take.
const STEP: Duration = Duration::from_secs(90);

/// The commands in the blocks of `sh` below a heading, up to the next one of its level, in order.
fn commands(page: &str, heading: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks").join(page);
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

/// Fills in what stands in capitals. Addresses are given as they stand there, `A:7101`.
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

/// Stands for `ssh`: the other machines are here, and the test does there what is asked for.
const ELSEWHERE: &str = "#!/bin/sh
printf '%s\\n' \"$*\" > \"$ASKED.new\" && mv \"$ASKED.new\" \"$ASKED\"
while [ -e \"$ASKED\" ]; do sleep 0.05; done
";

/// Somebody who does what a runbook says.
struct Operator<'a> {
    cluster: &'a mut Cluster,
    /// Where `archon` is found, and data of new members goes.
    directory: PathBuf,
    places: Vec<(&'static str, String)>,
    coordinators: String,
    /// Members that were started.
    started: Vec<Process>,
    /// The versions of the program, by the names that a runbook has for them.
    releases: BTreeMap<String, Release>,
}

impl<'a> Operator<'a> {
    fn new(cluster: &'a mut Cluster, places: &[(&'static str, String)]) -> Self {
        let directory = cluster.directory().join("operator");
        fs::create_dir_all(directory.join("bin")).expect("a directory");
        symlink(EXE, directory.join("bin/archon")).expect("a link");
        let data = ("DIR", directory.join("data").display().to_string());
        let coordinators = cluster.coordinator_list();
        let places = [places, &[data]].concat();
        fs::write(directory.join("bin/ssh"), ELSEWHERE).expect("a script");
        fs::set_permissions(directory.join("bin/ssh"), Permissions::from_mode(0o755)).expect("a program");
        let releases = BTreeMap::new();
        Self { cluster, directory, places, coordinators, started: Vec::new(), releases }
    }

    /// Carries out every command of a runbook.
    fn follow(&mut self, page: &str, heading: &str) {
        let commands = commands(page, heading);
        for (place, _) in &self.places {
            assert!(
                commands.iter().any(|command| filled(command, &[(place, String::new())]) != *command),
                "{page} names no {place}"
            );
        }
        self.carry_out(commands);
    }

    /// Carries out commands in which nothing is to be filled in.
    fn follow_as_it_stands(&mut self, page: &str, heading: &str) {
        self.carry_out(commands(page, heading));
    }

    fn carry_out(&mut self, commands: Vec<String>) {
        for command in commands {
            let command = filled(&command, &self.places);
            println!("$ {command}");
            if let Some(value) = command.strip_prefix("export ARCHON_COORDINATORS=") {
                value.clone_into(&mut self.coordinators);
            } else if command.starts_with("archon coordinator ") || command.starts_with("archon node --name ") {
                self.start(&command);
            } else if let Some(name) = command.strip_prefix("systemctl stop archon-node@") {
                assert!(self.cluster.take_node(name).terminate(TIMEOUT).success(), "{name} stops in order");
            } else {
                self.run(&command);
            }
        }
    }

    /// Does on another machine what is asked for there.
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

    /// Starts a member, which goes on.
    fn start(&mut self, command: &str) {
        let name = format!("started-{}", self.started.len());
        let script = ["sh", "-c", &format!("exec {command}")];
        let environment = [("PATH", self.path())];
        let started = Process::start(&name, &script, &environment, &self.directory);
        self.started.push(started.unwrap_or_else(|error| panic!("{command}: {error}")));
    }

    /// Runs a command, which is to end well.
    fn run(&mut self, command: &str) {
        let asked = self.directory.join("asked");
        let environment = [
            ("PATH", self.path()),
            ("ARCHON_COORDINATORS", self.coordinators.clone()),
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
        // What kind of machine a test is run on is no fault of a runbook.
        let looked = command.starts_with("archon doctor ") && status.code() == Some(11);
        assert!(status.success() || looked, "`{command}` ended with {status}:\n{}", running.log_tail(20));
    }
}

/// What runbooks say is said of plaintext on this machine.
fn options() -> Options {
    Options { partitions: 8, replication: 3, tls: false, ..Options::default() }
}

const KEYS: usize = 200;

async fn fill(client: &Client) {
    for number in 0..KEYS {
        client.put(format!("k/{number}"), format!("v/{number}")).await.expect("written");
    }
}

async fn assert_all(client: &Client) {
    for number in 0..KEYS {
        let found = client.get(format!("k/{number}")).await.expect("read").map(|found| found.value.to_vec());
        assert_eq!(found, Some(format!("v/{number}").into_bytes()), "k/{number}");
    }
}

/// The nodes that hold a live copy, of every partition, once all of them are served by three: a follower that was slow for a moment counts
/// again by itself.
fn holders(cluster: &Cluster, coordinators: &str) -> Vec<String> {
    let whole = || {
        let ran = cluster.archon_at(coordinators, &["partition", "list", "-o", "json"]);
        let rows: Value = serde_json::from_str(&ran.stdout).map_err(|error| format!("{error}: {ran:?}"))?;
        let mut names = Vec::new();
        for row in rows.as_array().into_iter().flatten() {
            let copies = row["copies"].as_array().into_iter().flatten();
            let live: Vec<&Value> = copies.filter(|copy| copy["state"] == "live").collect();
            check(row["status"] == "online" && live.len() == 3, || row.to_string())?;
            names.extend(live.iter().filter_map(|copy| copy["node"].as_str()).map(str::to_owned));
        }
        names.sort();
        names.dedup();
        Ok::<_, String>(names)
    };
    wait_for("three copies of every partition", TIMEOUT, whole).0
}

/// Addresses of this machine, each under the name that a runbook has for it.
fn addresses<const N: usize>(names: [&'static str; N]) -> Vec<(&'static str, String)> {
    names.into_iter().zip(free_addresses(N)).collect()
}

/// The coordinators of the first day, as runbooks name them.
fn old_ones(cluster: &Cluster) -> Vec<(&'static str, String)> {
    ["A:7101", "B:7101", "C:7101"].into_iter().zip(cluster.coordinator_addresses()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_lost() {
    let mut cluster = Cluster::start(EXE, &options());
    cluster.wait_whole(3);
    let client = cluster.client().build().await.expect("a client");
    fill(&client).await;
    cluster.take_node("athens").kill();
    cluster.wait_node("athens", "failed");
    let places = [old_ones(&cluster), addresses(["NEW:7201"])].concat();
    let mut operator = Operator::new(&mut cluster, &places);
    operator.follow("node-lost.md", "# A node is lost");
    let coordinators = operator.coordinators.clone();
    assert_eq!(holders(operator.cluster, &coordinators), ["byzantium", "cyrene", "delos"]);
    assert_all(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_is_lost() {
    let mut cluster = Cluster::start(EXE, &options());
    cluster.wait_whole(3);
    cluster.take_coordinator(2).kill();
    let new = addresses(["NEW:7101"]).remove(0);
    // Here the name under which others reach it is its address.
    let mut places = [old_ones(&cluster), vec![("IP:7101", new.1.clone()), new]].concat();
    places.retain(|(place, _)| *place != "C:7101");
    let mut operator = Operator::new(&mut cluster, &places);
    operator.follow("README.md", "## A coordinator is lost");
    let quorum = operator.cluster.json(&["quorum", "list"]).expect("a quorum");
    let voters = quorum["coordinators"].as_array().expect("a list").iter().map(|one| one["coordinator_id"].as_u64());
    assert_eq!(voters.collect::<Vec<_>>(), [Some(1), Some(2), Some(4)], "{quorum}");
    assert_eq!((&quorum["spare_voters"], &quorum["retired_ids"][0]), (&1.into(), &3.into()), "{quorum}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_majority_is_lost() {
    let mut cluster = Cluster::start(EXE, &options());
    cluster.wait_whole(3);
    let client = cluster.client().build().await.expect("a client");
    fill(&client).await;
    for lost in [0, 2] {
        cluster.take_coordinator(lost).kill();
    }
    assert!(cluster.take_coordinator(1).terminate(TIMEOUT).success());
    let old = ("OLD", cluster.directory().join("coordinator-2").display().to_string());
    let places = [old_ones(&cluster), vec![old]].concat();
    let mut operator = Operator::new(&mut cluster, &places);
    operator.follow("majority-lost.md", "# The majority is lost");
    let quorum = operator.cluster.json(&["quorum", "list"]).expect("a quorum");
    assert_eq!((&quorum["spare_voters"], &quorum["generation"]), (&1.into(), &2.into()), "{quorum}");
    let coordinators = operator.coordinators.clone();
    assert_eq!(holders(operator.cluster, &coordinators), ["athens", "byzantium", "cyrene"]);
    assert_all(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_moves_to_other_hosts() {
    let mut cluster = Cluster::start(EXE, &options());
    cluster.wait_whole(3);
    let client = cluster.client().build().await.expect("a client");
    fill(&client).await;
    let load = Load::start(&client, "hosts", 4);
    let new = addresses(["D:7101", "E:7101", "F:7101", "D:7201", "E:7201", "F:7201"]);
    let places = [old_ones(&cluster), new].concat();
    let mut operator = Operator::new(&mut cluster, &places);
    operator.follow("other-hosts.md", "# The cluster moves to other hosts");
    // Whoever was replaced has ended by itself.
    for index in 0..3 {
        let ended = operator.cluster.take_coordinator(index).wait_exit(TIMEOUT);
        assert_eq!(ended.code(), Some(4), "coordinator {}", index + 1);
    }
    let coordinators = operator.coordinators.clone();
    assert_eq!(holders(operator.cluster, &coordinators), ["delos", "ephesus", "florence"]);
    let listed = operator.cluster.archon_at(&coordinators, &["quorum", "list", "-o", "json"]);
    let quorum: Value = serde_json::from_str(&listed.stdout).expect("JSON");
    assert_eq!(
        (&quorum["spare_voters"], &quorum["retired_ids"]),
        (&1.into(), &serde_json::json!([1, 2, 3])),
        "{quorum}"
    );
    // A client of the first day goes on, and one of today finds everything.
    let report = load.stop().await;
    report.assert_no_failure();
    assert_eq!(report.missing(&client).await, Vec::<String>::new());
    println!("longest gap of a writer: {:?} over {} operations", report.longest_gap, report.operations);
    assert_all(&client).await;
    assert_all(&Client::builder(coordinators.split(',')).build().await.expect("a client")).await;
}

#[test]
fn commands_are_taken_from_a_page_as_they_stand_there() {
    let page = "# A\n\n1. x:\n\n   ```sh\n   archon a NEW:7101 --data-dir DIR/x\n\n   b\n   ```\n\n## C\n\n```sh\nc\n```\n\n# D\n\n```sh\nd\n```\n";
    assert_eq!(commands_in(page, "# A"), ["archon a NEW:7101 --data-dir DIR/x", "b", "c"]);
    assert_eq!(commands_in(page, "## C"), ["c"]);
    let places = [("NEW:7101", "127.0.0.1:9".to_owned()), ("DIR", "/d".to_owned()), ("A:7101", "wrong".to_owned())];
    assert_eq!(
        filled("archon a NEW:7101,DA:7101 --data-dir=DIR/x DIRS", &places),
        "archon a 127.0.0.1:9,DA:7101 --data-dir=/d/x DIRS"
    );
}

/// What an upgrade runbook names.
fn releases() -> BTreeMap<String, Release> {
    [("OLD".to_owned(), Release::speaking(1)), ("NEW".to_owned(), Release::default())].into()
}

fn protocol(cluster: &Cluster) -> Value {
    cluster.json(&["upgrade", "status"]).expect("upgrade status")["protocol"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_is_upgraded() {
    let mut cluster = Cluster::start(EXE, &Options { release: Some(Release::speaking(1)), ..options() });
    cluster.wait_whole(3);
    let client = cluster.client().build().await.expect("a client");
    fill(&client).await;
    let load = Load::start(&client, "upgrade", 4);
    assert_eq!(protocol(&cluster), 1);
    let mut operator = Operator::new(&mut cluster, &[]);
    operator.releases = releases();
    operator.follow_as_it_stands("upgrade.md", "## Member by member");
    assert_eq!(protocol(operator.cluster), 2);
    let report = load.stop().await;
    report.assert_no_failure();
    println!("longest gap of a writer: {:?} over {} operations", report.longest_gap, report.operations);
    assert_all(&client).await;
    operator.follow_as_it_stands("upgrade.md", "## To try the new version first");
    assert_eq!(operator.cluster.json(&["upgrade", "status"]).expect("upgrade status")["held"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_goes_back_to_the_version_before() {
    let old = Options { release: Some(Release::speaking(1)), ..options() };
    let mut cluster = Cluster::start(EXE, &old);
    cluster.wait_whole(3);
    let client = cluster.client().build().await.expect("a client");
    fill(&client).await;
    // All but one node run the new version.
    for index in 0..3 {
        assert!(cluster.take_coordinator(index).terminate(TIMEOUT).success());
        cluster.install(&format!("coordinator-{}", index + 1), &Release::default());
        cluster.start_coordinator(index);
        cluster.wait_leader();
    }
    for node in ["athens", "byzantium"] {
        assert!(cluster.take_node(node).terminate(TIMEOUT).success());
        cluster.install(node, &Release::default());
        cluster.start_node(node);
        cluster.wait_whole(3);
    }
    let mut operator = Operator::new(&mut cluster, &[]);
    operator.releases = releases();
    operator.follow_as_it_stands("upgrade.md", "## Back to the version before");
    let status = operator.cluster.json(&["upgrade", "status"]).expect("upgrade status");
    assert_eq!((&status["protocol"], &status["protocol_newest"]), (&1.into(), &1.into()), "{status}");
    assert_all(&client).await;
}
