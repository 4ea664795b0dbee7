//! A service that distributes its partitions by rows of a store, each renewed by compare-and-set, compared with the same
//! service as Archon's participant. First with 1,024 partitions in virtual time: the load on the store. Then both for
//! real, on one cluster: one server of each dies.
//!
//! ```sh
//! cargo run --release -p archon-examples --example lease_rows
//! ```
//!
//! The rows are in `src/lease_rows/`, on the key-value store; any store with compare-and-set would do.

use archon_client::{AcquireError, Admin, Client, Participant};
use archon_examples::Result;
use archon_examples::lease_rows::*;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const SERVERS: [&str; 3] = ["ada", "grace", "mary"];
const PARTITIONS: u32 = 12;
/// For rows and participants alike.
const TIMING: Timing = Timing { renew_every: 200, lease: 1_000, take_over: 1_250, list_every: 200 };
/// Time without faults before a server dies.
const CALM: Duration = Duration::from_secs(2);
/// Time-out of every wait.
const TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    archon_examples::run(lease_rows)
}

async fn lease_rows() -> Result {
    in_virtual_time()?;
    let cluster = archon_examples::cluster().await?;
    let by_rows = by_rows(&Client::builder(cluster.endpoints()).build().await?).await?;
    let by_participants = by_participants(cluster.endpoints()).await?;
    println!("owned by others after a death, by rows:         {by_rows} ms");
    println!("owned by others after a death, by participants: {by_participants} ms");
    println!("two owners at once:                             never");
    Ok(())
}

/// 1,024 partitions on 64 required servers, with six spare ones.
fn in_virtual_time() -> Result {
    const HOUR: u64 = 3_600_000;
    println!("1,024 partitions, renewed every 2 min, given up after 3, taken over after 4; hours in virtual time:");
    for servers in [64, 70] {
        let most = max_count(1_024, 64);
        let mut world = World::new(1, Timing::MINUTES, Conditions::FAIR, 1_024, servers, most);
        world.run_for(HOUR);
        world.take_counts();
        world.run_for(2 * HOUR);
        let counts = world.take_counts();
        let a_second = |count: u64| count as f64 / 7_200.0;
        let (renewals, read) = (a_second(counts.renewals), a_second(counts.rows_read));
        println!("{servers} servers, {most} each at most: {renewals:.2} renewals and {read:.1} rows read per second");
        if servers > 64 {
            (0..6).for_each(|server| world.fault_after(0, server, Fault::Kill));
            world.run_for(1);
            let took = world.run_until(HOUR, |world| world.owned().iter().sum::<usize>() == 1_024);
            let took = took.ok_or("64 servers are not enough")?;
            println!("six of {servers} die: everything is owned again after {:.1} min", took as f64 / 60_000.0);
        }
        if !world.two_owners().is_empty() {
            return Err(format!("two servers owned the same: {:?}", world.two_owners()).into());
        }
    }
    println!();
    Ok(())
}

/// Returns the time from a death until others owned everything, in milliseconds.
async fn by_rows(client: &Client) -> Result<u64> {
    let rows = KvRows::new(client.clone(), "leases/");
    rows.create(PARTITIONS).await?;
    let log = Arc::new(Log::default());
    let mut servers = BTreeMap::new();
    for name in SERVERS {
        // Room for all on two of them.
        let partitions_max = max_count(PARTITIONS as usize, SERVERS.len() - 1);
        let config = Config { name: name.to_owned(), timing: TIMING, partitions_max, load_max: None };
        let service = Jobs { name, log: Arc::clone(&log) };
        servers.insert(name, LeaseRows::start(config, Duration::from_millis(500), rows.clone(), service)?);
    }
    log.all_owned(None).await?;
    let (read, written) = rows.counts();
    sleep(CALM).await;
    let (read, written) = (rows.counts().0 - read, rows.counts().1 - written);
    let a_second = |count: u64| count / CALM.as_secs();
    println!("{PARTITIONS} partitions on three servers, told every {} ms, for real:", TIMING.renew_every);
    println!("rows in the store:     {} writes and {} rows read per second", a_second(written), a_second(read));
    log.death_of(servers).await
}

async fn by_participants(endpoints: Vec<String>) -> Result<u64> {
    let admin = Admin::new(endpoints.clone(), Duration::from_secs(10))?;
    admin.create_lease_table("jobs", PARTITIONS).await?;
    let log = Arc::new(Log::default());
    let mut servers = BTreeMap::new();
    for name in SERVERS {
        let participant = Participant::builder(endpoints.clone()).table("jobs").name(name);
        let participant = participant.address(format!("{name}.example:80"));
        let millis = Duration::from_millis;
        let participant =
            participant.timing(millis(TIMING.renew_every), millis(TIMING.lease), millis(TIMING.take_over));
        let service = Jobs { name, log: Arc::clone(&log) };
        servers.insert(name, participant.start(ByParticipant(service)).await?);
    }
    log.all_owned(None).await?;
    let heartbeats =
        |servers: &BTreeMap<_, Participant>| -> u64 { servers.values().map(|server| server.stats().heartbeats).sum() };
    let before = heartbeats(&servers);
    sleep(CALM).await;
    let heartbeats = (heartbeats(&servers) - before) / CALM.as_secs();
    println!("Archon's participants: {heartbeats} heartbeats per second, however many partitions there are\n");
    log.death_of(servers).await
}

/// The same service for both: it records its partitions.
struct Jobs {
    name: &'static str,
    log: Arc<Log>,
}

impl Service for Jobs {
    async fn acquire(&self, held: Ownership) -> std::result::Result<(), AcquireError> {
        self.log.begins(self.name, held);
        Ok(())
    }

    async fn release(&self, held: Ownership) {
        self.log.ends(held.lease().partition);
    }

    fn lost(&self, lease: Lease) {
        self.log.ends(lease.partition);
    }
}

/// Record of ownership, shared by all servers of this program.
#[derive(Default)]
struct Log {
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    owners: BTreeMap<u32, (&'static str, Ownership)>,
    /// The highest token of each partition.
    tokens: BTreeMap<u32, u64>,
    /// Violations.
    wrong: Vec<String>,
}

impl Log {
    fn begins(&self, name: &'static str, held: Ownership) {
        let mut notes = self.notes();
        let Lease { partition, token } = held.lease();
        let before = notes.owners.insert(partition, (name, held));
        // A dead server reports no loss of its partitions. Its lease shows it.
        if let Some((other, _)) = before.filter(|(_, before)| before.check()) {
            notes.wrong.push(format!("{other} and {name} own {partition}"));
        }
        if let Some(before) = notes.tokens.insert(partition, token).filter(|before| *before >= token) {
            notes.wrong.push(format!("{partition} has token {token} after {before}"));
        }
    }

    fn ends(&self, partition: u32) {
        self.notes().owners.remove(&partition);
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every partition has an owner other than this one.
    async fn all_owned(&self, not_by: Option<&str>) -> Result {
        let owned = async {
            let owned_by_another =
                |notes: &Notes| notes.owners.values().filter(|(name, _)| not_by != Some(*name)).count();
            while owned_by_another(&self.notes()) < PARTITIONS as usize {
                sleep(Duration::from_millis(5)).await;
            }
        };
        Ok(timeout(TIMEOUT, owned).await.map_err(|_| "the partitions do not find owners")?)
    }

    /// Kills one of the servers. Returns the time until others owned everything, in milliseconds, and stops the others.
    async fn death_of<T>(&self, mut servers: BTreeMap<&'static str, T>) -> Result<u64> {
        let victim = self.notes().owners.values().map(|(name, _)| *name).next().ok_or("nobody owns anything")?;
        let died = Instant::now();
        drop(servers.remove(victim));
        self.all_owned(Some(victim)).await?;
        let took = died.elapsed().as_millis() as u64;
        let wrong = std::mem::take(&mut self.notes().wrong);
        if wrong.is_empty() { Ok(took) } else { Err(format!("two owned the same: {wrong:?}").into()) }
    }
}
