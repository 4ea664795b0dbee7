//! One partition and several participants are an election: the owner of the partition leads, and never two at once.
//!
//! ```sh
//! cargo run --release -p archon-examples --example leader_election
//! ```
//!
//! The candidates are in one program here, so that one clock covers them all. Yours are processes on machines of their
//! own, each with a `Participant` of the same table.

use archon_client::{AcquireError, Admin, Callbacks, Epoch, Grant, Participant, PartitionId, ReleaseCause};
use archon_examples::Result;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Time-out of an election.
const TIMEOUT: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    archon_examples::run(leader_election)
}

async fn leader_election() -> Result {
    let cluster = archon_examples::cluster().await?;
    let admin = Admin::new(cluster.endpoints(), Duration::from_secs(10))?;
    admin.create_lease_table("scheduler", 1).await?;

    let log = Arc::new(Log { began: Instant::now(), terms: Mutex::default() });
    let mut candidates = Vec::new();
    for name in ["ada", "grace", "mary"] {
        let candidate = Candidate { name, log: Arc::clone(&log) };
        let participant = Participant::builder(cluster.endpoints()).table("scheduler").name(name);
        // The address of this service; its clients find it with `Client::routes`.
        candidates.push((name, participant.address(format!("{name}.example:80")).start(candidate).await?));
    }
    let first = log.leader(&[]).await?;

    // A planned stop: it releases its partition first, which is granted to the next leader in the same commit.
    println!("{:7.3} s  {first} is stopped", log.seconds());
    let place = candidates.iter().position(|(name, _)| *name == first).ok_or("no leader")?;
    let released = candidates.remove(place).1.stop(Duration::from_secs(5)).await;
    let second = log.leader(&[first]).await?;

    // A crash without a farewell. The next candidate leads once the lease has certainly ended.
    println!("{:7.3} s  {second} dies", log.seconds());
    let place = candidates.iter().position(|(name, _)| *name == second).ok_or("no leader")?;
    drop(candidates.remove(place));
    log.leader(&[first, second]).await?;

    for (_, candidate) in candidates {
        candidate.stop(Duration::from_secs(5)).await;
    }
    let terms = log.terms();
    let gap = |before: usize| terms[before + 1].from.saturating_sub(terms[before].until).as_millis();
    println!("without a leader after a stop:   {} ms", gap(0));
    println!("without a leader after a crash:  {} ms", gap(1));
    let alone = terms.windows(2).all(|pair| pair[0].until <= pair[1].from && pair[0].epoch < pair[1].epoch);
    println!("two leaders at once:             {}", if alone { "never" } else { "seen" });
    if released && alone { Ok(()) } else { Err("two led at once, or a planned stop released nothing".into()) }
}

/// A candidate for leadership.
struct Candidate {
    name: &'static str,
    log: Arc<Log>,
}

impl Callbacks for Candidate {
    async fn acquire(&self, grant: Grant) -> std::result::Result<(), AcquireError> {
        // The epoch is a fencing token: pass it to every storage that you write to, which then refuses lower ones.
        self.log.begins(self.name, grant.epoch());
        Ok(())
    }

    async fn release(&self, _: Grant, _: ReleaseCause) {
        self.log.ends(self.name);
    }

    fn lost(&self, _: PartitionId, _: Epoch) {
        self.log.ends(self.name);
    }
}

/// Leaders, each with begin and end.
struct Log {
    began: Instant,
    terms: Mutex<Vec<Term>>,
}

#[derive(Clone)]
struct Term {
    name: &'static str,
    epoch: Epoch,
    from: Duration,
    until: Duration,
}

impl Log {
    fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn begins(&self, name: &'static str, epoch: Epoch) {
        println!("{:7.3} s  {name} leads in epoch {epoch}", self.seconds());
        let from = self.began.elapsed();
        self.terms.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(Term {
            name,
            epoch,
            from,
            until: Duration::MAX,
        });
    }

    fn ends(&self, name: &'static str) {
        println!("{:7.3} s  {name} leads no more", self.seconds());
        let until = self.began.elapsed();
        let mut terms = self.terms.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(term) = terms.iter_mut().rev().find(|term| term.name == name) {
            term.until = until;
        }
    }

    fn terms(&self) -> Vec<Term> {
        self.terms.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Returns the leader, once it is none of these.
    async fn leader(&self, others: &[&str]) -> Result<&'static str> {
        let elected = async {
            loop {
                match self.terms().last() {
                    Some(term) if term.until == Duration::MAX && !others.contains(&term.name) => return term.name,
                    _ => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        timeout(TIMEOUT, elected).await.map_err(|_| "nobody was elected in time".into())
    }
}
