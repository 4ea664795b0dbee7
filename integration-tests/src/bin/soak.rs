//! Soak test: a cluster of real processes with three copies of everything, under load, while nodes and coordinators are
//! killed, paused, stopped, cut off and slowed, tables are created and rebalances run. Every minute all faults are
//! healed and the history of every key is checked, then the run continues on the same cluster. Every other minute uses
//! a table by ranges, which an operator splits and merges continuously.
//!
//! `soak [SECONDS] [SEED]`. The seed decides which fault comes when; it is printed, so that a run can be repeated as
//! far as real processes are repeatable. Faults use network namespaces where root allows, proxies elsewhere. Exits with
//! 1 if a history contradicts itself, an acknowledged write is lost, or the cluster does not heal;
//! `ARCHON_TEST_KEEP_LOGS` names a directory for the logs.

use archon_integration_tests::cluster::coordinator_name;
use archon_integration_tests::{CLIENTS, Network, Options, ProcessExt, Scene, WorkloadOptions};
use archon_testkit::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NODES: [&str; 5] = ["athens", "byzantium", "cyrene", "delos", "ephesus"];
const COORDINATORS: usize = 3;
/// Time during which faults are injected before the cluster is healed and checked.
const ROUND: Duration = Duration::from_secs(60);

/// Maximum number of simultaneous faults: with more, nothing is left to test.
const FAULTS_MAX: usize = 12;
/// Tables created per round.
const TABLES_PER_ROUND: u64 = 2;

/// A fault with a scheduled end.
enum RunningFault {
    Node(&'static str),
    Coordinator(usize),
    PausedNode(&'static str),
    PausedCoordinator(usize),
    Cut(String, String),
    Slow(String),
}

struct Soak<'a> {
    scene: &'a mut Scene,
    dice: &'a mut Random,
    out: Vec<(Instant, RunningFault)>,
    tables: u64,
}

impl Soak<'_> {
    fn node_is_out(&self, name: &str) -> bool {
        self.out.iter().any(|(_, out)| matches!(out, RunningFault::Node(n) | RunningFault::PausedNode(n) if *n == name))
    }

    fn coordinator_is_out(&self, index: usize) -> bool {
        self.out.iter().any(
            |(_, out)| matches!(out, RunningFault::Coordinator(i) | RunningFault::PausedCoordinator(i) if *i == index),
        )
    }

    fn back(&mut self, out: RunningFault) {
        match out {
            RunningFault::Node(name) => {
                self.scene.say(&format!("start {name}"));
                self.scene.cluster.start_node(name);
            }
            RunningFault::Coordinator(index) => {
                self.scene.say(&format!("start {}", coordinator_name(index)));
                self.scene.cluster.start_coordinator(index);
            }
            RunningFault::PausedNode(name) => {
                self.scene.say(&format!("resume {name}"));
                self.scene.cluster.node(name).resume();
            }
            RunningFault::PausedCoordinator(index) => {
                self.scene.say(&format!("resume {}", coordinator_name(index)));
                self.scene.cluster.coordinator(index).resume();
            }
            RunningFault::Cut(from, to) => {
                self.scene.say(&format!("mend {from} to {to}"));
                self.scene.cluster.links().mend(&from, &to);
            }
            RunningFault::Slow(host) => {
                self.scene.say(&format!("{host} is fast again"));
                self.scene.cluster.links().slow(&host, None);
            }
        }
    }

    fn bring_back(&mut self, everybody: bool) {
        let now = Instant::now();
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.out).into_iter().partition(|(at, _)| everybody || *at <= now);
        self.out = later;
        for (_, out) in due {
            self.back(out);
        }
    }

    fn verb(&self, arguments: &[&str]) {
        let mut all = arguments.to_vec();
        all.extend(["--timeout", "3s"]);
        let ran = self.scene.cluster.archon(&all);
        let said = ran.stderr.lines().next().unwrap_or_default().to_owned();
        self.scene.say(&format!("archon {} ended with {} {said}", arguments.join(" "), ran.code));
    }

    /// Picks any member, or the clients.
    fn host(&mut self) -> String {
        let hosts: Vec<String> =
            NODES.iter().map(|name| (*name).to_owned()).chain((0..COORDINATORS).map(coordinator_name)).collect();
        if self.dice.below(10) == 0 { CLIENTS.to_owned() } else { self.dice.pick(&hosts).clone() }
    }

    fn cut(&mut self, from: &str, to: &str, until: Instant) {
        let already = self.out.iter().any(|(_, out)| matches!(out, RunningFault::Cut(f, t) if f == from && t == to));
        if from != to && !already {
            self.scene.say(&format!("cut {from} to {to}"));
            self.scene.cluster.links().cut(from, to);
            self.out.push((until, RunningFault::Cut(from.to_owned(), to.to_owned())));
        }
    }

    fn network_fault(&mut self, until: Instant) {
        let (one, other) = (self.host(), self.host());
        match self.dice.below(8) {
            0..=2 => {
                self.cut(&one, &other, until);
                self.cut(&other, &one, until);
            }
            3..=4 => self.cut(&one, &other, until),
            5 => {
                for peer in NODES {
                    self.cut(&one, peer, until);
                    self.cut(peer, &one, until);
                }
            }
            6 => {
                for index in 0..COORDINATORS {
                    self.cut(&one, &coordinator_name(index), until);
                    self.cut(&coordinator_name(index), &one, until);
                }
            }
            _ if one != CLIENTS => {
                self.scene.say(&format!("{one} is slow"));
                self.scene.cluster.links().slow(&one, Some(100_000 + self.dice.below(900_000)));
                self.out.push((until, RunningFault::Slow(one)));
            }
            _ => {}
        }
    }

    fn process_fault(&mut self, until: Instant) {
        let node = NODES[self.dice.index(NODES.len())];
        let coordinator = self.dice.index(COORDINATORS);
        let may_node = !self.node_is_out(node);
        let may_coordinator = !self.coordinator_is_out(coordinator);
        match self.dice.below(14) {
            0..=3 if may_node => {
                self.scene.say(&format!("kill {node}"));
                self.scene.cluster.take_node(node).kill();
                self.out.push((until, RunningFault::Node(node)));
            }
            4..=5 if may_node => {
                self.scene.say(&format!("pause {node}"));
                self.scene.cluster.node(node).pause();
                self.out.push((until, RunningFault::PausedNode(node)));
            }
            6..=7 if may_node => {
                self.scene.say(&format!("end {node}"));
                let status = self.scene.cluster.take_node(node).terminate(Duration::from_secs(60));
                self.scene.say(&format!("{node} ended with {status}"));
                self.out.push((until, RunningFault::Node(node)));
            }
            8..=10 if may_coordinator => {
                self.scene.say(&format!("kill {}", coordinator_name(coordinator)));
                self.scene.cluster.take_coordinator(coordinator).kill();
                self.out.push((until, RunningFault::Coordinator(coordinator)));
            }
            11 if may_coordinator => {
                self.scene.say(&format!("pause {}", coordinator_name(coordinator)));
                self.scene.cluster.coordinator(coordinator).pause();
                self.out.push((until, RunningFault::PausedCoordinator(coordinator)));
            }
            12 if may_coordinator => {
                self.scene.say(&format!("end {}", coordinator_name(coordinator)));
                let status = self.scene.cluster.take_coordinator(coordinator).terminate(Duration::from_secs(60));
                self.scene.say(&format!("{} ended with {status}", coordinator_name(coordinator)));
                self.out.push((until, RunningFault::Coordinator(coordinator)));
            }
            13 => {
                self.bring_back(true);
                self.scene.say("kill everything");
                self.scene.cluster.kill_everything();
                self.scene.cluster.start_everything();
            }
            _ => {}
        }
    }

    fn fault(&mut self) {
        let until = Instant::now() + self.dice.millis(0, 5_000);
        match self.dice.below(20) {
            0..=7 => self.process_fault(until),
            8..=14 => self.network_fault(until),
            15..=16 => self.verb(&["rebalance", "apply"]),
            17 => self.verb(&["rebalance", "cancel"]),
            18 if self.tables < TABLES_PER_ROUND => {
                self.tables += 1;
                let name = format!("table-{}", self.dice.below(1_000_000));
                self.verb(&["table", "create", &name, "--partitions", "5", "--replication", "3"]);
            }
            _ => {}
        }
    }

    fn round(&mut self, length: Duration) {
        let began = Instant::now();
        while began.elapsed() < length {
            self.bring_back(false);
            if self.out.len() < FAULTS_MAX {
                self.fault();
            }
            let pause = self.dice.millis(50, 1_200);
            self.scene.last(pause);
        }
        self.bring_back(true);
    }
}

fn number(at: usize, otherwise: u64) -> u64 {
    std::env::args().nth(at).map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|_| {
            eprintln!("{text:?} is not a number; usage: soak [SECONDS] [SEED]");
            std::process::exit(2);
        })
    })
}

fn load(seed: u64, round: u64) -> WorkloadOptions {
    let table = round.is_multiple_of(2).then_some("times");
    let (prefix, seed) = (format!("round-{round}"), seed.wrapping_add(round));
    WorkloadOptions { prefix, seed, table, pause: Duration::ZERO, ..WorkloadOptions::default() }
}

fn main() -> ExitCode {
    let random = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64 % 1_000_000);
    let (seconds, seed) = (number(1, 120), number(2, random));
    println!("soak for {seconds} s with seed {seed}; repeat with: soak {seconds} {seed}");
    let Some(exe) = std::env::current_exe().ok().map(|exe| exe.with_file_name("archon-under-test")) else {
        eprintln!("cannot find the program under test beside this one");
        return ExitCode::from(2);
    };
    let network = if Network::Namespaces.available() { Network::Namespaces } else { Network::Proxies };
    let options = Options { nodes: NODES.to_vec(), partitions: 12, replication: 3, network, ..Options::default() };
    let played = catch_unwind(AssertUnwindSafe(|| {
        Scene::play(&exe.display().to_string(), "soak", &options, &load(seed, 0), |scene| {
            let (mut dice, began) = (Random::new(seed), Instant::now());
            let whole = Duration::from_secs(seconds);
            for round in 0.. {
                let load = load(seed, round);
                if round > 0 {
                    scene.next_load(&load);
                }
                if load.table.is_some() {
                    scene.reshape();
                }
                let left = whole.saturating_sub(began.elapsed());
                Soak { scene, dice: &mut dice, out: Vec::new(), tables: 0 }.round(left.min(ROUND));
                if began.elapsed() >= whole {
                    break;
                }
            }
        })
    }));
    match played {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => {
            eprintln!("the soak failed; repeat it with: soak {seconds} {seed}");
            ExitCode::FAILURE
        }
    }
}
