//! Benchmark of ownership checks, which a service does for each piece of work: `have_partition` and `Grant::check`,
//! beside the clock that both read. `cargo bench -p archonkv-client --bench have_partition`

use archon_client::{AcquireError, Admin, Callbacks, Epoch, Grant, Participant, PartitionId, ReleaseCause};
use archon_coordinator::{Coordinator, CoordinatorConfig, FirstStart};
use archon_session::{BootClock, Clock};
use archon_types::{ProtocolRange, Settings, TableId};
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const PARTITIONS: u32 = 1_024;
/// Checks per round; the fastest round counts, as the least disturbed.
const QUESTIONS: u32 = 1_000_000;
const ROUNDS: u32 = 9;
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Result<(), Box<dyn Error>> {
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let listen = listener.local_addr()?;
    let peers = BTreeMap::from([(1, listen.to_string())]);
    let settings = Settings { partitions: 1, ..Settings::default() };
    let config = CoordinatorConfig {
        id: 1,
        listen,
        metrics_listen: None,
        transport: archon_security::Transport::default(),
        advertise: None,
        start: Some(FirstStart::Found { peers }),
        data_dir: directory.path().to_owned(),
        speaks: ProtocolRange::SPOKEN,
        timing: archon_coordinator::QuorumTiming::default(),
        settings,
        settings_said: Default::default(),
    };
    let coordinator = Coordinator::start(listener, config).await?;
    let admin = Admin::new([listen.to_string()], TIMEOUT)?;
    let table = TableId::new(admin.create_lease_table("jobs", PARTITIONS).await?.id);
    let participant = Participant::builder([listen.to_string()]).table("jobs").name("w1").address("w1.example:80");
    let participant = participant.start(IdleService).await?;
    let began = Instant::now();
    while participant.owned().len() < PARTITIONS as usize {
        if began.elapsed() > TIMEOUT {
            return Err(format!("{} of {PARTITIONS} partitions are owned", participant.owned().len()).into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    println!("{PARTITIONS} partitions owned; ns per question, best of {ROUNDS} rounds of {QUESTIONS}\n");
    println!("{:<28}{:>10}{:>10}{:>14}", "", "1 thread", "2 threads", "of the clock");
    let grants = participant.owned();
    let grant = |number: u32| &grants[number as usize % grants.len()];
    let partition = |number: u32| PartitionId::new(table, number.wrapping_mul(619) % PARTITIONS);
    let clock = line("the clock", None, |_| BootClock.now().get() > 0);
    let owned = |number| participant.have_partition(partition(number)).is_some();
    line("have_partition", Some(clock), owned);
    line("Grant::check", Some(clock), |number| grant(number).check().is_ok());
    let foreign = PartitionId::new(TableId::new(table.get() + 1), 0);
    line("have_partition, not owned", Some(clock), |_| participant.have_partition(foreign).is_none());

    participant.stop(TIMEOUT).await;
    coordinator.shutdown().await;
    Ok(())
}

/// Runs checks with different numbers and prints their time. All must succeed. Returns the time for one thread.
fn line(name: &str, clock: Option<f64>, ask: impl Fn(u32) -> bool + Sync) -> f64 {
    let [alone, together] = [1, 2].map(|threads| {
        let rounds = (0..ROUNDS).map(|_| round(threads, &ask));
        rounds.fold(f64::INFINITY, f64::min)
    });
    let ratio = clock.map_or_else(String::new, |clock| format!("{:.2}", alone / clock));
    println!("{name:<28}{alone:>10.1}{together:>10.1}{ratio:>14}");
    alone
}

/// Returns the nanoseconds per check of the slowest of `threads` concurrent threads.
fn round(threads: usize, ask: &(impl Fn(u32) -> bool + Sync)) -> f64 {
    let begin = Barrier::new(threads);
    let work = || {
        begin.wait();
        let began = Instant::now();
        let yes = (0..QUESTIONS).filter(|number| black_box(ask(black_box(*number)))).count();
        let took = began.elapsed();
        assert_eq!(yes, QUESTIONS as usize, "a lease ended in the middle of it");
        took.as_nanos() as f64 / f64::from(QUESTIONS)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a lease ended")).fold(0.0, f64::max)
    })
}

/// A service without work.
struct IdleService;

impl Callbacks for IdleService {
    async fn acquire(&self, _: Grant) -> Result<(), AcquireError> {
        Ok(())
    }

    async fn release(&self, _: Grant, _: ReleaseCause) {}

    fn lost(&self, _: PartitionId, _: Epoch) {}
}
