//! Recipes with fencing, on a cluster of their own: a lock, a leader, a work queue by partition, a job that runs once.
//! The pages of `docs/tutorial/recipes/` show them.
//!
//! ```sh
//! cargo run --release -p archon-examples --example recipes
//! ```

use archon_client::{
    AcquireError, Admin, Callbacks, Client, Epoch, Error, Grant, LockOptions, Participant, PartitionId, PutOptions,
    ReleaseCause,
};
use archon_examples::Result;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Time limit of each recipe.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    archon_examples::run(recipes)
}

async fn recipes() -> Result {
    let cluster = archon_examples::cluster().await?;
    let admin = Admin::new(cluster.endpoints(), Duration::from_secs(10))?;
    admin.create_lease_table("scheduler", 1).await?;
    admin.create_lease_table("queue", 4).await?;
    let client = Client::builder(cluster.endpoints()).build().await?;

    timeout(LIMIT, lock(&client)).await??;
    timeout(LIMIT, lock(&client)).await??;
    println!("lock: a second owner has a higher token, and the first one is refused");
    if fenced_put(&client, "ledger", 1, "late").await? {
        return Err("the store took a token of a former owner".into());
    }

    timeout(LIMIT, lead(cluster.endpoints(), &client)).await??;
    println!("leader: it worked with its epoch");

    for job in 0..5 {
        client.put(format!("jobs/{:05}/job-{job}", job % 4), "text").await?;
    }
    timeout(LIMIT, work(cluster.endpoints(), &client)).await??;
    println!("queue: every job was done");

    let runs = [run_once(&client, "nightly/2026-11-29").await?, run_once(&client, "nightly/2026-11-29").await?];
    println!("cron: it ran {} time of {}", runs.iter().filter(|ran| **ran).count(), runs.len());
    if runs == [true, false] { Ok(()) } else { Err("a job ran twice, or not at all".into()) }
}

// ANCHOR: fence
/// Writes a value that carries a token, unless the store has seen a higher one.
async fn fenced_put(store: &Client, key: &str, token: u64, value: &str) -> Result<bool> {
    loop {
        let found = store.get(key).await?;
        let text = found.as_ref().map(|found| String::from_utf8_lossy(&found.value).into_owned()).unwrap_or_default();
        let highest: u64 = text.split(' ').next().and_then(|token| token.parse().ok()).unwrap_or(0);
        if token < highest {
            return Ok(false); // A later owner has written: stop.
        }
        let options = match found {
            Some(found) => PutOptions::default().if_revision(found.revision),
            None => PutOptions::default().if_absent(),
        };
        match store.put_with(key, format!("{token} {value}"), options).await {
            Ok(_) => return Ok(true),
            Err(Error::ConditionFailed { .. }) => {} // Another writer came first: read again.
            Err(error) => return Err(error.into()),
        }
    }
}
// ANCHOR_END: fence

// ANCHOR: lock
async fn lock(client: &Client) -> Result {
    let options = LockOptions::default().wait(Duration::from_secs(30)).holder("ledger-writer");
    let lock = client.lock("locks/ledger", options).await?;
    let token = lock.check()?.get(); // Right before each use.
    if !fenced_put(client, "ledger", token, "entry").await? {
        return Err("another owner has written since".into());
    }
    lock.release().await?;
    Ok(())
}
// ANCHOR_END: lock

// ANCHOR: owner
/// Publishes the newest grant; `Grant::check` confirms that it holds.
struct Owner(watch::Sender<Option<Grant>>);

impl Callbacks for Owner {
    async fn acquire(&self, grant: Grant) -> std::result::Result<(), AcquireError> {
        self.0.send_replace(Some(grant));
        Ok(())
    }
    async fn release(&self, _: Grant, _: ReleaseCause) {
        self.0.send_replace(None);
    }
    fn lost(&self, _: PartitionId, _: Epoch) {
        self.0.send_replace(None);
    }
}
// ANCHOR_END: owner

// ANCHOR: leader
async fn lead(coordinators: Vec<String>, store: &Client) -> Result {
    let (sender, mut leads) = watch::channel(None);
    let participant = Participant::builder(coordinators).table("scheduler").name("s1").address("10.0.0.7:8080");
    let participant = participant.start(Owner(sender)).await?;
    loop {
        let grant = leads.wait_for(Option::is_some).await?.clone();
        // The grant may end between any two lines: check it right before each use, and let the store check the epoch.
        let Some(Ok(epoch)) = grant.map(|grant| grant.check()) else {
            sleep(Duration::from_millis(10)).await;
            continue;
        };
        if fenced_put(store, "schedule", epoch.get(), "tick").await? {
            break; // A service would go on.
        }
    }
    participant.stop(Duration::from_secs(5)).await;
    Ok(())
}
// ANCHOR_END: leader

/// Does nothing in callbacks: the work asks for its grants.
struct Worker;

impl Callbacks for Worker {
    async fn acquire(&self, _: Grant) -> std::result::Result<(), AcquireError> {
        Ok(())
    }
    async fn release(&self, _: Grant, _: ReleaseCause) {}
    fn lost(&self, _: PartitionId, _: Epoch) {}
}

// ANCHOR: queue
/// Does the jobs of the partitions that it owns: rows `jobs/PARTITION/ID`.
async fn work(coordinators: Vec<String>, rows: &Client) -> Result {
    let participant = Participant::builder(coordinators).table("queue").name("w1").address("10.0.0.7:8080");
    let participant = participant.start(Worker).await?;
    while !rows.scan("jobs/").limit(1).page().await?.entries.is_empty() {
        for grant in participant.owned() {
            let prefix = format!("jobs/{:05}/", grant.partition().index);
            for job in rows.scan(&prefix).limit(100).page().await?.entries {
                let Ok(epoch) = grant.check() else { break };
                let result = format!("results/{}", String::from_utf8_lossy(&job.key));
                // The result first: if the worker dies in between, the next one does the job again, with the same result.
                if fenced_put(rows, &result, epoch.get(), "done").await? {
                    rows.delete(&job.key).await?;
                }
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
    participant.stop(Duration::from_secs(5)).await;
    Ok(())
}
// ANCHOR_END: queue

// ANCHOR: cron
/// Returns whether this process is the one to run a job. The mark goes away after two days.
async fn run_once(client: &Client, run: &str) -> Result<bool> {
    let mark = PutOptions::default().if_absent().ttl(Duration::from_secs(2 * 24 * 3_600));
    match client.put_with(format!("runs/{run}"), "host-1", mark).await {
        Ok(_) => Ok(true),
        Err(Error::ConditionFailed { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
// ANCHOR_END: cron
