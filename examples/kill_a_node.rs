//! Clients keep writing while a node is killed: a timeline of the effect, and the proof that no write is lost.
//!
//! ```sh
//! cargo run --release -p archon-examples --example kill_a_node
//! ```

use archon_client::Client;
use archon_examples::Result;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const WRITERS: usize = 16;
/// Time of writes before the kill, and after it.
const BEFORE: Duration = Duration::from_secs(1);
const AFTER: Duration = Duration::from_secs(4);
/// Time per line of the timeline.
const LINE: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    archon_examples::run(kill_a_node)
}

async fn kill_a_node() -> Result {
    let mut cluster = archon_examples::cluster().await?;
    let client = Client::builder(cluster.endpoints()).build().await?;

    let began = Instant::now();
    let (stop, stopped) = watch::channel(false);
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        writers.spawn(write(client.clone(), number, began, stopped.clone()));
    }
    sleep(BEFORE).await;
    // As with `kill -9`, the node sends no farewell. It led a third of the partitions and held a copy of all others,
    // and a write waits for every in-sync copy. So all writers wait until the node's lease has run out, when the
    // coordinators can be sure that it no longer serves. Then they name other leaders, and its copies leave the in-sync
    // sets.
    let killed = began.elapsed();
    cluster.kill_node("byzantium")?;
    sleep(AFTER).await;
    stop.send_replace(true);
    let written = writers.join_all().await;

    print_timeline(&written, killed);
    let there = keys(&client).await?;
    let acknowledged = || written.iter().flat_map(|writer| &writer.acknowledged);
    let missing = acknowledged().filter(|(key, _)| !there.contains(key.as_bytes())).count();
    let gap = written.iter().map(WriterResult::longest_gap).max().unwrap_or_default();
    println!("longest gap of a writer:      {} ms", gap.as_millis());
    println!("failed operations:            {}", written.iter().map(|writer| writer.failed).sum::<usize>());
    println!("acknowledged writes missing:  {missing} of {}", acknowledged().count());
    client.close().await;
    if missing == 0 { Ok(()) } else { Err(format!("{missing} acknowledged writes are lost").into()) }
}

/// Results of one writer.
#[derive(Default)]
struct WriterResult {
    /// Each key with the time of its answer.
    acknowledged: Vec<(String, Duration)>,
    failed: usize,
}

impl WriterResult {
    fn longest_gap(&self) -> Duration {
        let gaps = self.acknowledged.windows(2).map(|pair| pair[1].1 - pair[0].1);
        gaps.max().unwrap_or_default()
    }
}

/// Writes one key after the other.
async fn write(client: Client, number: usize, began: Instant, stopped: watch::Receiver<bool>) -> WriterResult {
    let mut written = WriterResult::default();
    let mut count = 0;
    while !*stopped.borrow() {
        let key = format!("writer-{number:02}/{count:06}");
        count += 1;
        // The dead node needs no handling here: the client finds the new leader and repeats pending operations, and
        // each write takes effect once. It gives up after 10 s, unless it is built with another time-out.
        match client.put(&key, "a value").await {
            Ok(_) => written.acknowledged.push((key, began.elapsed())),
            Err(_) => written.failed += 1,
        }
    }
    written
}

/// Returns every key in the store.
async fn keys(client: &Client) -> Result<BTreeSet<Vec<u8>>> {
    let mut keys = BTreeSet::new();
    let mut after = Vec::new();
    loop {
        let page = client.scan("writer-").after(&after).limit(10_000).page().await?;
        keys.extend(page.entries.iter().map(|entry| entry.key.to_vec()));
        match page.entries.last() {
            Some(last) if page.more => after = last.key.to_vec(),
            _ => return Ok(keys),
        }
    }
}

fn print_timeline(written: &[WriterResult], killed: Duration) {
    let line_of = |at: Duration| (at.as_millis() / LINE.as_millis()) as usize;
    let times = || written.iter().flat_map(|writer| writer.acknowledged.iter().map(|(_, at)| line_of(*at)));
    let mut lines = vec![0_usize; times().max().unwrap_or(0).max(line_of(killed)) + 1];
    times().for_each(|line| lines[line] += 1);
    let most = lines.iter().max().copied().unwrap_or(0).max(1);
    println!("writes acknowledged in each quarter of a second:");
    for (line, count) in lines.iter().enumerate() {
        let event = if line == line_of(killed) { "  <- byzantium is killed" } else { "" };
        println!("{:6.2} s {:40} {count:6}{event}", LINE.as_secs_f64() * line as f64, "#".repeat(count * 40 / most));
    }
}
