//! Measures how long partitions are without an owner: of a participant by the library, and of services beside an agent,
//! alternating in one cluster (`docs/reference/measuring.md`).

use crate::EXE;
use crate::agents::program;
use crate::minimal_service::{serve_http, serve_lines};
use archon_client::Participant;
use archon_integration_tests::{Cluster, Options, Room, cluster::TIMEOUT};
use archon_local_cluster::{IdleService, Process};
use archon_testkit::{check, wait_for_every};
use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const PARTITIONS: usize = 8;
/// Interval of looks at the owned partitions.
const RESOLUTION: Duration = Duration::from_micros(200);
/// Measurements of each kind.
const ROUNDS: usize = 7;
/// Kind of a child process, and the coordinators of the library or the socket of the agent.
const CHILD: &str = "ARCHON_TEST_HAND_OVER_CHILD";
const OF: &str = "ARCHON_TEST_HAND_OVER_OF";

/// A service in Python that stops at a line of its standard input.
const SERVICE: &str = r#"
import sys
sys.path.insert(0, "clients/python/src")
from archon_participant import Participant
participant = Participant("jobs", sys.argv[1], acquire=lambda grant: None, release=lambda grant, reason: None)
participant.start()
sys.stdin.readline()
participant.stop()
"#;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Library,
    /// The package for Python beside an agent.
    Python,
    /// A minimal service over HTTP beside an agent.
    Http,
    /// A minimal service as the program of an agent.
    Lines,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    /// SIGKILL of the service.
    Kill,
    /// SIGKILL of the service and its agent, as if their machine had failed; of the library as `Kill`.
    KillAll,
    Stop,
}

/// A participant in other processes, which die with this object.
struct Victim {
    service: Option<Child>,
    agent: Option<Process>,
}

impl Victim {
    fn start(kind: Kind, cluster: &Cluster, round: usize) -> Self {
        let coordinators = cluster.coordinator_list();
        let socket = format!("unix:{}", cluster.directory().join(format!("victim-{round}.sock")).display());
        let exe = std::env::current_exe().expect("a path").display().to_string();
        let child = ["--exact", "--ignored", "--nocapture", "hand_over_times::child"];
        let command = match kind {
            Kind::Library => Some(Self::child(&exe, child, kind, &coordinators)),
            Kind::Http => Some(Self::child(&exe, child, kind, socket.trim_start_matches("unix:"))),
            Kind::Python => {
                let mut command = program("python3");
                command.args(["-c", SERVICE, &socket]);
                Some(command)
            }
            Kind::Lines => None,
        };
        let agent = (kind != Kind::Library).then(|| {
            let mut arguments = vec!["participant", "--table", "jobs", "--name", "victim", "--weight", "10000"];
            arguments.extend(["--address", "127.0.0.1:8080", "--coordinators", &coordinators]);
            let named = format!("{CHILD}={kind:?}");
            match command {
                Some(_) => arguments.extend(["--listen", &socket]),
                None => arguments.extend(["--exec", "env", &named, &exe].into_iter().chain(child)),
            }
            let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
            cluster.spawn(&format!("victim-{round}"), &arguments)
        });
        let service = command.map(|mut command| {
            command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the service starts")
        });
        Self { service, agent }
    }

    fn child(exe: &str, arguments: [&str; 4], kind: Kind, of: &str) -> Command {
        let mut command = Command::new(exe);
        command.args(arguments).env(CHILD, format!("{kind:?}")).env(OF, of);
        command
    }

    fn end(&mut self, end: End) {
        match (end, &mut self.service, &mut self.agent) {
            (End::Stop, Some(service), _) => {
                service.stdin.as_mut().expect("a pipe").write_all(b"stop\n").expect("it runs");
            }
            (End::Stop, None, agent) => agent.as_ref().expect("an agent").ask_to_end(),
            (End::Kill | End::KillAll, service, agent) => {
                if let Some(mut agent) = agent.take_if(|_| end == End::KillAll) {
                    agent.kill();
                }
                service.as_mut().expect("a service").kill().expect("it runs");
            }
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if let Some(service) = &mut self.service {
            let _ = service.kill();
            let _ = service.wait();
        }
    }
}

#[test]
#[ignore = "process of the measurement below"]
fn child() {
    let (Ok(kind), of) = (std::env::var(CHILD), std::env::var(OF).unwrap_or_default()) else { return };
    match kind.as_str() {
        "Http" => serve_http(&of),
        "Lines" => serve_lines(),
        _ => serve_by_library(&of),
    }
}

fn serve_by_library(coordinators: &str) {
    let runtime = Runtime::new().expect("a runtime");
    let builder = Participant::builder(coordinators.split(',').map(str::to_owned).collect::<Vec<_>>());
    let builder = builder.table("jobs").name("victim").address("127.0.0.1:8080").weight(10_000);
    let participant = runtime.block_on(builder.start(IdleService)).expect("a participant");
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    runtime.block_on(participant.stop(TIMEOUT));
}

#[test]
#[ignore = "measurement of some minutes"]
fn hand_over_times_of_library_and_agent() {
    let options = Options { nodes: vec!["athens"], nodes_min: 1, tls: false, room: Room::Whole, ..Options::default() };
    let (cluster, runtime) = (Cluster::start(EXE, &options), Runtime::new().expect("a runtime"));
    cluster.done(&["table", "create", "jobs", "--partitions", &PARTITIONS.to_string(), "--lease"]);
    let builder = Participant::builder(cluster.coordinator_addresses()).table("jobs").name("survivor").weight(1);
    let survivor = builder.address("127.0.0.1:8081").start(IdleService);
    let survivor = runtime.block_on(survivor).expect("a participant");
    let wait_owned = |every: Duration, why: &str, holds: &dyn Fn(usize) -> bool| {
        wait_for_every(every, why, TIMEOUT * 2, || {
            check(holds(survivor.owned().len()), || format!("{}", survivor.owned().len()))
        })
    };
    let mut times: BTreeMap<(End, Kind), Vec<Duration>> = BTreeMap::new();
    for round in 0..ROUNDS {
        for (place, end) in [End::Kill, End::KillAll, End::Stop].into_iter().enumerate() {
            let minimal = [Kind::Http, Kind::Lines].into_iter().filter(|_| end == End::Stop);
            for kind in [Kind::Library, Kind::Python].into_iter().chain(minimal) {
                let mut victim = Victim::start(kind, &cluster, round * 100 + place * 10 + kind as usize);
                // A plan leaves the survivor one of them, also with these weights.
                wait_owned(RESOLUTION * 50, "the other participant to own them", &|owned| owned <= 1);
                let begun = Instant::now();
                victim.end(end);
                wait_owned(RESOLUTION, "a hand-over", &|owned| owned == PARTITIONS);
                times.entry((end, kind)).or_default().push(begun.elapsed());
            }
        }
    }
    for ((end, kind), times) in &mut times {
        times.sort();
        let [median, first, last] = [times.len() / 2, 0, times.len() - 1].map(|at| times[at].as_secs_f64() * 1_000.0);
        println!("{end:?} {kind:?}: median {median:.1} ms, {first:.1} to {last:.1}");
    }
}
