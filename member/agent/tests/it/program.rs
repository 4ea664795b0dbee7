//! A service as a child process.

use crate::support::{NAME, SOON, config};
use archon_agent::{AgentConfig, AgentError, run_program};
use archon_client::testing::{FakeCoordinator, ParticipantReport};
use archon_client::{Epoch, PartitionId};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longer than a test waits.
const LONG: Duration = Duration::from_secs(600);

/// A heartbeat, with which a program is ready.
const READY: &str = "echo '{\"heartbeat\":{\"seen\":0},\"number\":1}'";

/// Answers the offer of partition 3 in epoch 1, and records what it reads. `BEGIN` and `ACQUIRED` run at these moments.
const SERVICE: &str = r#"
BEGIN
while read -r line; do
    echo "$line" >> "$LOG"
    case "$line" in
        *'"event":"acquire"'*) echo '{"answer":"acquired","sequence":1,"partition":3,"epoch":1}'; ACQUIRED ;;
        *'"event":"release"'*) echo '{"answer":"released","sequence":2,"partition":3,"epoch":1}' ;;
        *'"event":"ended"'*) exit 0 ;;
    esac
done
"#;

struct World {
    coordinator: FakeCoordinator,
    partition: PartitionId,
    epoch: Epoch,
    stop: CancellationToken,
    running: JoinHandle<Result<(), AgentError>>,
    log: PathBuf,
    _directory: TempDir,
}

impl World {
    /// Starts a program that is ready after `begin`.
    async fn start(service_lease: Duration, begin: &str, acquired: &str) -> Self {
        Self::start_within(service_lease, SOON, &format!("{begin}\n{READY}"), acquired).await
    }

    async fn start_within(service_lease: Duration, start_limit: Duration, begin: &str, acquired: &str) -> Self {
        let coordinator = FakeCoordinator::start().await.unwrap();
        let partition = coordinator.partition("jobs", 3);
        let epoch = coordinator.grant(NAME, partition);
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let config = AgentConfig {
            timing: Some((Duration::from_millis(200), LONG, Duration::from_secs(700))),
            service_lease,
            start_limit,
            ..config(&coordinator)
        };
        let script = SERVICE.replace("BEGIN", begin).replace("ACQUIRED", acquired);
        let script = script.replace("$LOG", &log.display().to_string());
        let program = ["sh", "-c", &script].map(OsString::from);
        let stop = CancellationToken::new();
        let token = stop.clone();
        let running = tokio::spawn(async move { run_program(config, &program, token).await });
        Self { coordinator, partition, epoch, stop, running, log, _directory: directory }
    }

    async fn reported(&self, wanted: ParticipantReport) {
        self.coordinator.wait_for(SOON, |reported| reported.contains(&wanted)).await.unwrap();
    }

    fn acquired(&self) -> ParticipantReport {
        ParticipantReport::Acquired { participant: NAME.to_owned(), partition: self.partition, epoch: self.epoch }
    }

    fn released(&self) -> ParticipantReport {
        ParticipantReport::Released { participant: NAME.to_owned(), partition: self.partition, epoch: self.epoch }
    }

    /// Waits until the program has read this text.
    async fn read(&self, text: &str) {
        let poll = async || {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            if log.contains(text) { Ok(()) } else { Err(log) }
        };
        archon_testkit::wait_for_async(text, SOON, poll).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn program_acquires_and_releases_over_lines() {
    let world = World::start(LONG, "", "echo '{\"heartbeat\":{\"seen\":1},\"number\":7}'").await;
    world.reported(world.acquired()).await;
    world.read("\"number\":7").await;
    assert!(fs::read_to_string(&world.log).unwrap().starts_with("{\"event\":\"hello\",\"version\":1,"));
    world.stop.cancel();
    world.reported(world.released()).await;
    world.read("\"event\":\"ended\"").await;
    world.running.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_of_the_program_hands_over_at_once() {
    // Its permission would last for ten minutes. The process in the background belongs to its group.
    let acquired = "echo '{\"heartbeat\":{\"seen\":1},\"number\":7}'; sleep 1000 & sleep 1; exit 3";
    let world = World::start(LONG, "", acquired).await;
    world.reported(world.acquired()).await;
    world.reported(world.released()).await;
    let error = world.running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the program sh: it ended with exit status: 3"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_program_is_killed_after_its_session() {
    let world = World::start(Duration::from_millis(500), "", "exec sleep 1000").await;
    world.reported(world.released()).await;
    let error = world.running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("it was killed"), "{error}");
}

/// Returns whether a process has not ended.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    // A zombie has ended.
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_worker_is_killed_with_its_program() {
    let acquired = "sh -c 'echo $$ > $LOG.worker; exec sleep 1000'";
    let world = World::start(Duration::from_millis(500), "", acquired).await;
    world.reported(world.released()).await;
    let error = world.running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("it was killed"), "{error}");
    let worker = fs::read_to_string(world.log.with_extension("worker")).unwrap();
    let poll = async || if is_running(&worker) { Err("it runs") } else { Ok(()) };
    archon_testkit::wait_for_async("the end of the worker", SOON, poll).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worker_that_left_the_group_keeps_its_permission() {
    let begun = Instant::now();
    let lease = Duration::from_secs(2);
    // The worker keeps the output open for longer than its permission.
    let acquired = "echo '{\"heartbeat\":{\"seen\":1},\"number\":7}'; read -r line; \
                    setsid sh -c ': > $LOG.left; exec sleep 20' & \
                    while [ ! -e $LOG.left ]; do sleep 0.05; done; exit 3";
    let world = World::start(lease, "", acquired).await;
    world.reported(world.acquired()).await;
    world.reported(world.released()).await;
    assert!(begun.elapsed() >= lease, "handed over after {:?}", begun.elapsed());
    let error = world.running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("it ended with exit status: 3"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn program_has_a_process_group_of_its_own() {
    let world = World::start(LONG, "echo group $$ $(cut -d' ' -f5 /proc/$$/stat) end >> $LOG", ":").await;
    world.read(" end").await;
    let log = fs::read_to_string(&world.log).unwrap();
    let words: Vec<&str> = log.split_whitespace().skip_while(|word| *word != "group").take(3).collect();
    assert!(words[1] == words[2], "{log}");
    world.running.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn program_may_take_longer_than_its_lease_to_start() {
    // From then on it sends heartbeats that have received the offer, or not.
    let begin = "sleep 1; (while sleep 0.05; do for seen in 0 1; do \
                 echo '{\"heartbeat\":{\"seen\":'$seen'},\"number\":1}'; done; done) &";
    let world = World::start(Duration::from_millis(700), begin, ":").await;
    world.reported(world.acquired()).await;
    world.stop.cancel();
    world.reported(world.released()).await;
    world.running.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_is_never_ready_is_a_failure() {
    let limit = Duration::from_millis(300);
    let world = World::start_within(LONG, limit, "", ":").await;
    let error = world.running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("it sent no heartbeat within 300ms of its start"), "{error}");
    assert_eq!(world.coordinator.reported(), [], "it was no participant");
}

#[tokio::test(flavor = "multi_thread")]
async fn program_without_heartbeats_is_a_failure() {
    let world = World::start(Duration::from_millis(500), "", ":").await;
    world.reported(world.released()).await;
    world.read("\"event\":\"ended\"").await;
    let error = world.running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("it sent no heartbeats"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_lines_are_refused_one_by_one() {
    let bad = "echo '{\"answer\":\"acq'; echo '{\"answer\":\"dance\"}'; head -c 70000 /dev/zero | tr '\\0' x; echo; \
               echo '{\"heartbeat\":{\"seen\":9},\"number\":1}'";
    let world = World::start(LONG, bad, ":").await;
    for refusal in
        ["line 1: this is no document", "unknown variant `dance`", "line 3 has more than", "event 9 does not"]
    {
        world.read(refusal).await;
    }
    world.reported(world.acquired()).await;
    world.running.abort();
}

/// The agent succeeded, as if the service had stopped.
#[tokio::test(flavor = "multi_thread")]
async fn program_without_the_protocol_is_a_failure() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let ended = run_program(config(&coordinator), &["true".into()], CancellationToken::new()).await;
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("the program true: it ended without a heartbeat; it must exchange JSON lines"), "{error}");
}

#[tokio::test]
async fn absent_program_is_named() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let config = AgentConfig { service_lease: LONG, ..config(&coordinator) };
    let ran = run_program(config, &["/nosuch/program".into()], CancellationToken::new()).await;
    let error = ran.unwrap_err().to_string();
    assert!(error.starts_with("the program /nosuch/program: it does not start: "), "{error}");
}
