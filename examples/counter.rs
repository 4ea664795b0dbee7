//! A small service that keeps counters in the store and counts each request of a user once, however often it is sent:
//! to one instance of the service or another, before or after a node has died.
//!
//! ```sh
//! cargo run --release -p archon-examples --example counter
//! ```

use archon_client::{Admin, Client, Error, Revision};
use archon_examples::Result;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

const COUNTERS: [&str; 3] = ["pages", "downloads", "votes"];
const USERS: u64 = 6;
const REQUESTS: u64 = 60;
/// How long a user waits for an answer before sending the request again. The store needs longer to get over a dead
/// node.
const PATIENCE: Duration = Duration::from_millis(300);

/// A counter as it is stored: with the number of each user's last request. They stand in one value, so they change
/// together or not at all.
#[derive(Default, Serialize, Deserialize)]
struct Counter {
    count: u64,
    last: BTreeMap<u64, u64>,
}

/// An instance of the service. It remembers nothing, so any number of them can serve the same counters.
#[derive(Clone)]
struct Service(Client);

impl Service {
    /// Counts a request, if it has not been counted yet. A user numbers requests upwards and sends the next one after
    /// the answer to the one before. Returns the number.
    async fn count(self, counter: &str, user: u64, request: u64) -> Result<u64> {
        // An increment takes effect once, however often the client library repeats it. But the library cannot know that
        // two calls are one request of a user: so this counts attempts.
        self.0.increment(format!("attempts/{counter}"), 1).await?;
        let key = format!("counter/{counter}");
        loop {
            let (mut stored, revision) = match self.0.get(&key).await? {
                Some(found) => (serde_json::from_slice(&found.value)?, found.revision),
                None => (Counter::default(), Revision::ZERO),
            };
            if stored.last.get(&user).is_some_and(|last| *last >= request) {
                return Ok(request);
            }
            stored.count += 1;
            stored.last.insert(user, request);
            match self.0.compare_and_set(&key, revision, serde_json::to_vec(&stored)?).await {
                Ok(_) => return Ok(request),
                // Another request was faster, or nobody can tell whether this one was taken: what is stored says it.
                Err(Error::ConditionFailed { .. }) => {}
                Err(error) if error.outcome_unknown() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A user, who sends each request again, to the other instance, until it is answered. Returns how many attempts that
/// took.
async fn user(number: u64, instances: [Service; 2], answered: mpsc::Sender<()>) -> Result<u64> {
    let mut attempts = JoinSet::new();
    let mut count = 0;
    for request in 1..=REQUESTS {
        let counter = COUNTERS[(number + request) as usize % COUNTERS.len()];
        let mut done = false;
        while !done {
            attempts.spawn(instances[count as usize % 2].clone().count(counter, number, request));
            count += 1;
            // An attempt that takes too long is not called back: it goes on, and may be counted after the next one.
            while !done && let Ok(Some(answer)) = timeout(PATIENCE, attempts.join_next()).await {
                done = answer?.is_ok_and(|answered| answered == request);
            }
        }
        answered.send(()).await?;
    }
    attempts.join_all().await;
    Ok(count)
}

fn main() -> ExitCode {
    archon_examples::run(counter)
}

async fn counter() -> Result {
    let mut cluster = archon_examples::cluster().await?;
    let build = async || Client::builder(cluster.endpoints()).build().await.map(Service);
    let instances = [build().await?, build().await?];
    let (answered, mut answers) = mpsc::channel(1);
    let mut users = JoinSet::new();
    for number in 1..=USERS {
        users.spawn(user(number, instances.clone(), answered.clone()));
    }
    drop(answered);

    // In the middle of it, the node that leads one of the counters is killed.
    for _ in 0..USERS * REQUESTS / 2 {
        answers.recv().await.ok_or("the users have given up")?;
    }
    let admin = Admin::new(cluster.endpoints(), Duration::from_secs(5))?;
    let leader = admin.locate("default", "counter/votes").await?.partition.leader.ok_or("nobody leads the votes")?;
    cluster.kill_node(&leader)?;
    println!("{leader}, which leads the counter of votes, is killed after half of the requests.");
    while answers.recv().await.is_some() {}
    let attempts: u64 = users.join_all().await.into_iter().sum::<Result<u64>>()?;

    let (mut counted, mut incremented) = (0, 0);
    for counter in COUNTERS {
        let found = instances[0].0.get(format!("counter/{counter}")).await?.ok_or("a counter is gone")?;
        counted += serde_json::from_slice::<Counter>(&found.value)?.count;
        incremented += instances[0].0.increment(format!("attempts/{counter}"), 0).await?.value;
    }
    println!("requests of users:             {}", USERS * REQUESTS);
    println!("attempts they made:            {attempts}");
    println!("counted by increment:          {incremented}");
    println!("counted by request number:     {counted}");
    if counted == USERS * REQUESTS { Ok(()) } else { Err("a request was lost, or counted twice".into()) }
}
