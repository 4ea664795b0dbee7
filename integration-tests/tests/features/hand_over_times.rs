//! Measures how long partitions are without an owner: of a participant by the library, and of services beside an agent,
//! alternating in one cluster (`docs/reference/measuring.md`).

mod victim;

use self::victim::{CHILD, End, Kind, OF, Victim};
use crate::EXE;
use crate::minimal_service::{serve_http, serve_lines};
use archon_client::Participant;
use archon_integration_tests::{Cluster, Options, Room, cluster::TIMEOUT};
use archon_local_cluster::IdleService;
use archon_testkit::{check, wait_for_every};
use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const PARTITIONS: usize = 8;
/// Interval of looks at the owned partitions.
const RESOLUTION: Duration = Duration::from_micros(200);
/// Measurements of each kind.
const ROUNDS: usize = 7;
/// Planned stops of each kind in the test that repeats them.
const STOPS: usize = 200;
/// Longer than the agent keeps a connection without a request.
const IDLE: Duration = Duration::from_secs(6);

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

/// A cluster with a participant that takes over from others.
struct Scene {
    survivor: Participant,
    runtime: Runtime,
    cluster: Cluster,
}

impl Scene {
    fn start() -> Self {
        let options =
            Options { nodes: vec!["athens"], nodes_min: 1, tls: false, room: Room::Whole, ..Options::default() };
        let (cluster, runtime) = (Cluster::start(EXE, &options), Runtime::new().expect("a runtime"));
        cluster.done(&["table", "create", "jobs", "--partitions", &PARTITIONS.to_string(), "--lease"]);
        let builder = Participant::builder(cluster.coordinator_addresses()).table("jobs").name("survivor").weight(1);
        let survivor = builder.address("127.0.0.1:8081").start(IdleService);
        let survivor = runtime.block_on(survivor).expect("a participant");
        Self { survivor, runtime, cluster }
    }

    fn wait_owned(&self, every: Duration, why: &str, holds: impl Fn(usize) -> bool) {
        wait_for_every(every, why, TIMEOUT, || {
            let owned = self.survivor.owned().len();
            check(holds(owned), || format!("{owned} of {PARTITIONS} are owned"))
        });
    }

    /// Starts a participant that gets the partitions, lets it serve for `pause`, and ends it. Returns the time until the other
    /// participant owns all partitions.
    fn hand_over(&self, kind: Kind, end: End, number: usize, pause: Duration) -> Duration {
        let mut victim = Victim::start(kind, &self.cluster, number);
        // A plan leaves the survivor one of them, also with these weights.
        self.wait_owned(RESOLUTION * 50, "the other participant to own them", |owned| owned <= 1);
        sleep(pause);
        let begun = Instant::now();
        victim.end(end);
        self.wait_owned(RESOLUTION, &format!("a hand-over ({end:?} of {kind:?})"), |owned| owned == PARTITIONS);
        begun.elapsed()
    }

    fn stop(self) {
        self.runtime.block_on(self.survivor.stop(TIMEOUT));
    }
}

#[test]
#[ignore = "measurement of some minutes"]
fn hand_over_times_of_library_and_agent() {
    let scene = Scene::start();
    let mut times: BTreeMap<(End, Kind), Vec<Duration>> = BTreeMap::new();
    for round in 0..ROUNDS {
        for (place, end) in [End::Kill, End::KillAll, End::Stop].into_iter().enumerate() {
            let minimal = [Kind::Http, Kind::Lines].into_iter().filter(|_| end == End::Stop);
            for kind in [Kind::Library, Kind::Python].into_iter().chain(minimal) {
                let number = round * 100 + place * 10 + kind as usize;
                times.entry((end, kind)).or_default().push(scene.hand_over(kind, end, number, Duration::ZERO));
            }
        }
    }
    scene.stop();
    print(&mut times);
}

/// Stops hit a service while it acquires, too: the pauses before them grow from nothing.
#[test]
#[ignore = "repetition of some minutes"]
fn repeated_stops_hand_over() {
    let scene = Scene::start();
    let mut times: BTreeMap<(End, Kind), Vec<Duration>> = BTreeMap::new();
    for number in 0..STOPS {
        for kind in [Kind::Python, Kind::Http] {
            let pause = Duration::from_millis((number % 20) as u64);
            let time = scene.hand_over(kind, End::Stop, number * 10 + kind as usize, pause);
            times.entry((End::Stop, kind)).or_default().push(time);
        }
    }
    scene.stop();
    print(&mut times);
}

/// The agent closes connections without a request after 5 s: the service that opened them early stops all the same.
#[test]
#[ignore = "waits for a time limit of the agent"]
fn service_with_idle_connections_stops() {
    let scene = Scene::start();
    for (number, kind) in [Kind::Http, Kind::Python].into_iter().enumerate() {
        scene.hand_over(kind, End::Stop, number, IDLE);
    }
    scene.stop();
}

fn print(times: &mut BTreeMap<(End, Kind), Vec<Duration>>) {
    for ((end, kind), times) in times {
        times.sort();
        let [median, first, last] = [times.len() / 2, 0, times.len() - 1].map(|at| times[at].as_secs_f64() * 1_000.0);
        println!("{end:?} {kind:?}: median {median:.1} ms, {first:.1} to {last:.1}");
    }
}
