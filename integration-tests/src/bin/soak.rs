//! A soak: a cluster of real processes under load while nodes and coordinators are killed, paused, ended and started
//! again, tables are created and rebalances run. At the end everything is healed and every acknowledged key is read back.
//!
//! `soak [SECONDS] [SEED]`. The seed decides which fault comes when; it is printed, so that a run can be repeated as far
//! as real processes can be. Ends with 1 if an acknowledged write is missing or a read contradicted it.

use archon_client::Client;
use archon_integration_tests::{Cluster, Dice, Load, Options, Process};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NODES: [&str; 5] = ["athens", "byzantium", "cyrene", "delos", "ephesus"];
const COORDINATORS: usize = 3;

/// A process that is down or paused, and when it comes back.
enum Out {
    Node(&'static str),
    Coordinator(usize),
    PausedNode(&'static str),
    PausedCoordinator(usize),
}

struct Soak {
    cluster: Cluster,
    dice: Dice,
    out: Vec<(Instant, Out)>,
    began: Instant,
    tables: u64,
}

impl Soak {
    fn say(&self, what: &str) {
        println!("{:8.2}s {what}", self.began.elapsed().as_secs_f64());
    }

    fn node_is_out(&self, name: &str) -> bool {
        self.out.iter().any(|(_, out)| matches!(out, Out::Node(n) | Out::PausedNode(n) if *n == name))
    }

    fn coordinators_out(&self) -> usize {
        self.out.iter().filter(|(_, out)| matches!(out, Out::Coordinator(_) | Out::PausedCoordinator(_))).count()
    }

    fn coordinator_is_out(&self, index: usize) -> bool {
        self.out.iter().any(|(_, out)| matches!(out, Out::Coordinator(i) | Out::PausedCoordinator(i) if *i == index))
    }

    fn back(&mut self, out: Out) {
        match out {
            Out::Node(name) => {
                self.say(&format!("start {name}"));
                self.cluster.start_node(name);
            }
            Out::Coordinator(index) => {
                self.say(&format!("start coordinator {}", index + 1));
                self.cluster.start_coordinator(index);
            }
            Out::PausedNode(name) => {
                self.say(&format!("resume {name}"));
                self.cluster.node(name).resume();
            }
            Out::PausedCoordinator(index) => {
                self.say(&format!("resume coordinator {}", index + 1));
                self.cluster.coordinator(index).resume();
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
        let ran = self.cluster.archon(&all);
        let said = ran.stderr.lines().next().unwrap_or_default().to_owned();
        self.say(&format!("archon {} ended with {} {said}", arguments.join(" "), ran.code));
    }

    fn fault(&mut self) {
        let node = NODES[self.dice.index(NODES.len())];
        let coordinator = self.dice.index(COORDINATORS);
        let until = Instant::now() + self.dice.millis(0, 4_000);
        let may_node = !self.node_is_out(node);
        let may_coordinator = !self.coordinator_is_out(coordinator) && self.coordinators_out() == 0;
        match self.dice.roll(20) {
            0..=3 if may_node => {
                self.say(&format!("kill {node}"));
                self.cluster.take_node(node).kill();
                self.out.push((until, Out::Node(node)));
            }
            4..=5 if may_node => {
                self.say(&format!("pause {node}"));
                self.cluster.node(node).pause();
                self.out.push((until, Out::PausedNode(node)));
            }
            6..=7 if may_node => {
                self.say(&format!("end {node}"));
                let status = self.cluster.take_node(node).terminate(Duration::from_secs(60));
                self.say(&format!("{node} ended with {status}"));
                self.out.push((until, Out::Node(node)));
            }
            8..=10 if may_coordinator => {
                self.say(&format!("kill coordinator {}", coordinator + 1));
                self.cluster.take_coordinator(coordinator).kill();
                self.out.push((until, Out::Coordinator(coordinator)));
            }
            11 if may_coordinator => {
                self.say(&format!("pause coordinator {}", coordinator + 1));
                self.cluster.coordinator(coordinator).pause();
                self.out.push((until, Out::PausedCoordinator(coordinator)));
            }
            12 if may_coordinator => {
                self.say(&format!("end coordinator {}", coordinator + 1));
                let ended: Process = self.cluster.take_coordinator(coordinator);
                let status = ended.terminate(Duration::from_secs(60));
                self.say(&format!("coordinator {} ended with {status}", coordinator + 1));
                self.out.push((until, Out::Coordinator(coordinator)));
            }
            13 => {
                self.bring_back(true);
                self.say("kill everything");
                self.cluster.kill_everything();
                self.cluster.start_everything();
            }
            14..=16 => self.verb(&["rebalance", "apply"]),
            17 => self.verb(&["rebalance", "cancel"]),
            18 => {
                self.tables += 1;
                let name = format!("table-{}", self.tables);
                self.verb(&["table", "create", &name, "--partitions", "7", "--replication", "1"]);
            }
            _ => {}
        }
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

fn count_by_kind(failures: &[String]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for failure in failures {
        let kind = failure.split_once(": ").map_or(failure.as_str(), |(_, why)| why);
        *counts.entry(kind.chars().filter(|c| !c.is_ascii_digit()).take(100).collect()).or_insert(0) += 1;
    }
    counts
}

fn main() -> ExitCode {
    let random = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_millis() as u64 % 1_000_000);
    let (seconds, seed) = (number(1, 120), number(2, random));
    println!("soak for {seconds} s with seed {seed}; repeat with: soak {seconds} {seed}");
    let Some(exe) = std::env::current_exe().ok().map(|exe| exe.with_file_name("archon-under-test")) else {
        eprintln!("cannot find the program under test beside this one");
        return ExitCode::from(2);
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("cannot start a runtime: {error}");
            return ExitCode::from(2);
        }
    };
    let options = Options { nodes: NODES[..3].to_vec(), ..Options::default() };
    let mut cluster = Cluster::start(&exe.display().to_string(), &options);
    for name in &NODES[3..] {
        cluster.start_node(name);
        cluster.wait_node(name, "Live");
    }
    let client =
        runtime.block_on(Client::builder(cluster.coordinator_addresses()).timeout(Duration::from_secs(20)).build());
    let client = match client {
        Ok(client) => client,
        Err(error) => {
            eprintln!("no client: {error}");
            return ExitCode::FAILURE;
        }
    };
    let load = runtime.block_on(async { Load::start(&client, "soak", 16) });
    let mut soak = Soak { cluster, dice: Dice::new(seed), out: Vec::new(), began: Instant::now(), tables: 0 };
    while soak.began.elapsed() < Duration::from_secs(seconds) {
        soak.bring_back(false);
        soak.fault();
        let pause = soak.dice.millis(50, 900);
        std::thread::sleep(pause);
    }
    soak.bring_back(true);
    soak.say("healed");
    let online = soak.cluster.wait_online();
    soak.say(&format!("everything is Online after {online:?}"));
    soak.cluster.wait_rebalanced();
    let report = runtime.block_on(load.stop());
    println!(
        "{} operations, {} failed, longest gap {:?}",
        report.operations,
        report.failures.len(),
        report.longest_gap
    );
    for (kind, count) in count_by_kind(&report.failures) {
        println!("{count:6} {kind}");
    }
    let mut wrong: Vec<String> =
        report.failures.iter().filter(|failure| failure.contains("found Ok(")).cloned().collect();
    wrong.extend(runtime.block_on(report.missing(&client)));
    println!("{} acknowledged keys read back, {} wrong", report.acknowledged.len(), wrong.len());
    if wrong.is_empty() {
        return ExitCode::SUCCESS;
    }
    for line in wrong.iter().take(50) {
        println!("{line}");
    }
    let kept = std::env::temp_dir().join(format!("archon-soak-{seed}"));
    let copied = std::process::Command::new("cp").arg("-r").arg(soak.cluster.directory()).arg(&kept).status();
    println!("directory kept in {} ({copied:?}); seed {seed}", kept.display());
    ExitCode::FAILURE
}
