//! Tests of every example as users run it: as a process, with a directory for temporary files of its own.

use archon_client::Client;
use archon_integration_tests::cluster::{TIMEOUT, Turn};
use archon_integration_tests::{Process, ProcessExt, Room, spawn};
use archon_local_cluster::{Cluster, SMALL};
use archon_testkit::{ScratchDirectory, check, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Held by every test, so that a bounded number of clusters run side by side.
fn turn() -> Turn {
    Turn::take(Room::Part)
}

/// Returns the program of an example, which cargo builds with every `cargo test` that names no single test.
///
/// # Panics
/// If it is missing, or older than one of its sources.
fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the system tells the path of this test");
    let profile = test.ancestors().nth(2).expect("tests are in target/PROFILE/deps");
    let program = profile.join("examples").join(example);
    let remedy = "build it first: cargo test --workspace --examples --tests --no-run";
    let built = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    let at = built(&program).unwrap_or_else(|error| panic!("{}: {error}; {remedy}", program.display()));
    let sources = fs::read_to_string(program.with_extension("d")).expect("cargo lists the sources of what it builds");
    for source in sources.split_whitespace().skip(1) {
        assert!(
            built(Path::new(source)).is_ok_and(|changed| changed <= at),
            "{source} is newer than {example}; {remedy}"
        );
    }
    program
}

/// A running example. Dropping it ends it and all processes of its cluster, and then removes its directory.
struct Example {
    /// Present until it has ended.
    process: Option<Process>,
    directory: ScratchDirectory,
}

impl Example {
    fn start(name: &str, variables: &[&str], arguments: &[&str]) -> Self {
        let directory = ScratchDirectory::in_memory().expect("a temporary directory");
        let (temporary, program) =
            (format!("TMPDIR={}", directory.path().display()), program(name).display().to_string());
        // `env` becomes the program it is given, so the example itself is signalled and awaited.
        let command = [&[temporary.as_str()], variables, &[&program], arguments].concat();
        let command: Vec<String> = command.into_iter().map(str::to_owned).collect();
        let process = spawn(Path::new("env"), name, &command, directory.path());
        Self { process: Some(process), directory }
    }

    /// Runs an example to its end and returns its output.
    ///
    /// # Panics
    /// If it fails, or leaves anything behind.
    fn run(name: &str, variables: &[&str], arguments: &[&str]) -> String {
        let mut example = Self::start(name, variables, arguments);
        let status = example.process().wait_exit(TIMEOUT * 3);
        let printed = example.process().log();
        println!("{printed}");
        assert!(status.success(), "{name}: {status}");
        assert_eq!((example.members(), example.leftovers()), (vec![], vec![]), "{name} left something behind");
        printed
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("it is taken only to be killed")
    }

    /// Returns the process ids of the coordinators and nodes of its cluster, and of the instances of its service.
    fn members(&self) -> Vec<u32> {
        let of_us = self.directory.path().as_os_str().as_encoded_bytes();
        let processes = fs::read_dir("/proc").expect("a list of processes").flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()));
        ids.filter(|id: &u32| {
            let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            let verbs: [&[u8]; 3] = [b"coordinator", b"node", b"serve"];
            let is_member = line.split(|byte| *byte == 0).nth(1).is_some_and(|verb| verbs.contains(&verb));
            is_member && line.windows(of_us.len()).any(|part| part == of_us)
        })
        .collect()
    }

    /// Returns the contents of its directory besides its log.
    fn leftovers(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.directory.path()).expect("its directory").flatten().map(|entry| entry.path());
        found.filter(|path| path.extension().is_none_or(|extension| extension != "log")).collect()
    }

    fn await_no_members(&self) {
        wait_for("its cluster to end", TIMEOUT, || {
            let members = self.members();
            check(members.is_empty(), || format!("{members:?} run"))
        });
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // The members end with the example; until then they would write to the directory that is being removed. A
        // failing test comes here too, so this must not fail again.
        drop(self.process.take());
        let killed = Instant::now();
        while !self.members().is_empty() && killed.elapsed() < TIMEOUT {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the first number in the line with this prefix.
fn number(printed: &str, line: &str) -> u64 {
    let found = printed.lines().find_map(|text| text.strip_prefix(line)).unwrap_or_else(|| panic!("no line {line}"));
    let word = found.split_whitespace().next().unwrap_or_default();
    word.parse().unwrap_or_else(|_| panic!("{line}{found} has no number"))
}

#[test]
fn leader_election_has_one_leader_after_stop_and_crash() {
    let _turn = turn();
    let printed = Example::run("leader_election", &[], &[]);
    assert_eq!(printed.matches(" leads in epoch ").count(), 3);
    assert!(printed.contains("two leaders at once:             never"));
    let (stop, crash) =
        (number(&printed, "without a leader after a stop: "), number(&printed, "without a leader after a crash: "));
    assert!(stop < crash, "a stop took {stop} ms, a crash {crash} ms");
}

#[test]
fn recipes_are_fenced_and_run_once() {
    let printed = Example::run("recipes", &[], &[]);
    for line in
        ["a second owner has a higher token", "it worked with its epoch", "every job was done", "it ran 1 time of 2"]
    {
        assert!(printed.contains(line), "{printed}");
    }
}

#[test]
fn quickstart_runs_on_its_own_cluster() {
    let _turn = turn();
    let printed = Example::run("quickstart", &[], &[]);
    for line in
        ["put              athens = owl", "get              athens = owl", "compare-and-set  athens = owl, olive"]
    {
        assert!(printed.contains(line), "{line} is missing");
    }
    let scanned: Vec<&str> =
        printed.lines().filter_map(|line| line.strip_prefix("scan             quickstart/")).collect();
    assert_eq!(scanned, ["athens = owl, olive", "byzantium = crescent", "cyrene = silphium", "delphi = tripod"]);
    let revision = |line: &str| {
        let found = printed.lines().find(|text| text.starts_with(line) && text.contains("revision"));
        found
            .and_then(|text| text.rsplit(' ').next()?.parse::<u64>().ok())
            .unwrap_or_else(|| panic!("no revision: {line}"))
    };
    assert_eq!(revision("put "), revision("get "));
    assert!(revision("compare-and-set  athens") > revision("put "));
    let refused =
        format!("compare-and-set  refused: athens has revision {} by now", revision("compare-and-set  athens"));
    assert!(printed.contains(&refused), "{refused} is missing");
}

#[test]
fn quickstart_uses_a_given_cluster_and_cleans_up() {
    let _turn = turn();
    Runtime::new().expect("a runtime").block_on(async {
        let cluster = Cluster::start(program("quickstart"), SMALL).await.expect("a cluster");
        let endpoints = cluster.endpoints().join(",");
        let variable = format!("ARCHON_COORDINATORS={endpoints}");
        let client = Client::builder(cluster.endpoints()).build().await.expect("a client");
        let before = client.put("mine", "kept").await.expect("a put");
        for printed in [
            Example::run("quickstart", &[&variable], &[]),
            // An argument takes precedence over the variable.
            Example::run("quickstart", &["ARCHON_COORDINATORS=127.0.0.1:1"], &[&endpoints]),
        ] {
            assert!(!printed.contains("Starting a cluster"), "it started one of its own");
            assert!(number(&printed, "put              athens = owl           revision ") > 0);
        }
        let left = client.scan("").limit(10).page().await.expect("a scan");
        let left: Vec<_> = left.entries.into_iter().map(|entry| (entry.key, entry.revision)).collect();
        assert_eq!(left, [("mine".into(), before)]);
    });
}

#[test]
fn killed_node_costs_a_gap_and_no_acknowledged_write() {
    let _turn = turn();
    let printed = Example::run("kill_a_node", &[], &[]);
    assert_eq!(printed.matches("<- byzantium is killed").count(), 1);
    assert_eq!(number(&printed, "failed operations: "), 0);
    assert_eq!(number(&printed, "acknowledged writes missing: "), 0);
    let acknowledged: u64 = printed.trim_end().rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    assert!(acknowledged > 0);
    // No failover before the killed node's lease has ended.
    assert!(number(&printed, "longest gap of a writer: ") > 1_000);
}

#[test]
fn time_series_splits_as_it_grows_and_keeps_every_reading() {
    let _turn = turn();
    let printed = Example::run("ranges", &[], &[]);
    let partitions = number(&printed, "partitions: ");
    // Six MiB; the upper half of a partition grows further, the lower one stays.
    assert!((6..=16).contains(&partitions), "{partitions} partitions");
    assert_eq!(number(&printed, "readings failed: "), 0);
    assert!(printed.contains("readings found:   6144 of 6144"));
    assert!(printed.matches("from the first key").count() >= 2, "it was drawn while it grew, and at the end");
}

#[test]
fn counter_example_counts_once_with_one_owner_each() {
    let _turn = turn();
    let printed = Example::run("counter", &[], &[]);
    let [requests, attempts] = ["requests of users: ", "attempts they made: "].map(|line| number(&printed, line));
    assert!(attempts > requests, "no request was sent again, so nothing was shown");
    assert_eq!(number(&printed, "counted: "), requests);
    assert!(printed.contains("two owners at once:            never"));
    assert!(printed.matches(" in epoch ").count() >= 2, "nobody came after the one that was killed");
}

#[test]
fn lease_rows_distribute_partitions_like_participants() {
    let _turn = turn();
    let printed = Example::run("lease_rows", &[], &[]);
    for servers in [64, 70] {
        let line = printed.lines().find(|line| line.starts_with(&format!("{servers} servers, 16 each at most: ")));
        let line = line.unwrap_or_else(|| panic!("no figures of {servers} servers"));
        let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let [_, _, renewals, rows_read] = numbers[..] else { panic!("four numbers in {line}") };
        let all_rows = f64::from(servers) * 1_024.0;
        assert!((renewals - 1_024.0 / 120.0).abs() < 0.1, "{line}");
        assert!((rows_read - all_rows / 120.0).abs() < 6.0, "{line}");
    }
    assert!(printed.contains("six of 70 die: everything is owned again after "));
    for line in ["owned by others after a death, by rows:         ", "owned by others after a death, by participants: "]
    {
        // No failover before the lease has ended.
        assert!(number(&printed, line) > 1_000);
    }
    assert!(printed.contains("two owners at once:                             never"));
}

#[test]
fn killed_or_stopped_example_leaves_no_process() {
    leaves_no_process("kill_a_node", "It runs in", 6, &[Signal::KILL, Signal::TERM, Signal::INT]);
}

/// With the three instances of its service.
#[test]
fn killed_or_stopped_service_leaves_no_process() {
    leaves_no_process("counter", " own 12 partitions", 9, &[Signal::KILL, Signal::TERM]);
}

/// Ends an example by each signal once its log contains `line` and it has so many `members`.
fn leaves_no_process(name: &str, line: &str, members: usize, signals: &[Signal]) {
    let _turn = turn();
    for &signal in signals {
        let mut example = Example::start(name, &[], &[]);
        wait_for("its processes to be at work", TIMEOUT, || {
            let log = example.process().log();
            check(log.contains(line), || log)
        });
        assert_eq!(example.members().len(), members);
        let id = Pid::from_raw(example.process().pid().cast_signed()).expect("a process id");
        kill_process(id, signal).expect("it runs");
        assert!(!example.process().wait_exit(TIMEOUT).success());
        example.await_no_members();
        // A killed process cannot clean up.
        assert_eq!(example.leftovers().is_empty(), signal != Signal::KILL, "{signal:?}: {:?}", example.leftovers());
    }
}
