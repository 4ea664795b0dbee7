//! Polls of a cluster. A command line for each would load the machine on which the cluster runs, so the client
//! library of this process asks, by the same connections for all polls of a wait; the command line confirms the awaited
//! answer.

use super::Cluster;
use crate::contract;
use archon_client::{Admin, Error};
use archon_testkit::{check, wait_for_every};
use archon_types::DEFAULT_TABLE;
use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;
use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::{self, Runtime};

/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(50);
/// Time-out of one poll.
const POLL_LIMIT: Duration = Duration::from_secs(5);

impl Cluster {
    /// Waits until `holds` accepts the document of a verb that only reads; returns the document and the time taken. The
    /// polls are those of [`asked`](Self::asked); `holds` also has to accept the document of the command line.
    ///
    /// # Panics
    /// If that takes longer than `limit`.
    #[track_caller]
    pub fn wait_json(
        &self,
        what: &str,
        limit: Duration,
        arguments: &[&str],
        holds: impl Fn(&Value) -> bool,
    ) -> (Value, Duration) {
        let awaited = |document: Value| {
            check(holds(&document), || document.to_string())?;
            Ok::<_, String>(document)
        };
        let mut poller = Poller::new(self);
        wait_for_every(PAUSE, what, limit, || {
            awaited(poller.ask(arguments)?).map_err(|state| format!("library: {state}"))?;
            awaited(self.json(arguments)?).map_err(|state| format!("command line: {state}"))
        })
    }

    /// Asserts that `holds` accepts each document of a verb that only reads for a time, polled as by
    /// [`asked`](Self::asked). A poll without an answer does not count.
    ///
    /// # Panics
    /// If it refuses one, or if no poll is answered.
    #[track_caller]
    pub fn holds_for(&self, what: &str, time: Duration, arguments: &[&str], holds: impl Fn(&Value) -> bool) {
        let (begun, mut last) = (Instant::now(), Err("no poll".to_owned()));
        let mut poller = Poller::new(self);
        while begun.elapsed() < time {
            match poller.ask(arguments) {
                Ok(document) => {
                    assert!(holds(&document), "{what}: {document}");
                    last = Ok(());
                }
                Err(error) if last.is_err() => last = Err(error),
                Err(_) => {}
            }
            thread::sleep(PAUSE);
        }
        last.unwrap_or_else(|error| panic!("{what}: no poll was answered: {error}"));
    }

    /// Returns the document of a verb that only reads, as `-o json` prints it, without running the command line. Like the
    /// command line it asks the leading coordinator for partitions; `quorum list` is the leader's answer alone.
    ///
    /// # Errors
    /// The cluster's.
    ///
    /// # Panics
    /// If `docs/reference/json.schema.json` does not allow the document, or for a verb that is not listed here.
    pub fn asked(&self, arguments: &[&str]) -> Result<Value, String> {
        Poller::new(self).ask(arguments)
    }

    /// Writes rows to a table, by the client library.
    ///
    /// # Panics
    /// If one is not acknowledged.
    #[track_caller]
    pub fn put_all<V: Into<Bytes> + Send>(
        &self,
        table: &str,
        rows: impl IntoIterator<Item = (String, V), IntoIter: Send>,
    ) {
        let (builder, rows) = (self.client().table(table), rows.into_iter());
        let runtime = OwnRuntime::new();
        let written: Result<(), String> = runtime.run(async {
            let client = builder.build().await.map_err(|error| format!("no client: {error}"))?;
            for (key, value) in rows {
                client.put(key.clone(), value).await.map_err(|error| format!("{table}, {key}: {error}"))?;
            }
            Ok(())
        });
        written.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Connections to a cluster, and the last document that they brought.
pub(super) struct Poller {
    runtime: OwnRuntime,
    admin: Admin,
    /// The coordinator that led when it was asked last: its address, and a handle that asks it.
    leading: Option<(String, Admin)>,
    /// The last document that its schema allows: most polls bring the same again.
    allowed: Option<Value>,
}

impl Poller {
    pub(super) fn new(cluster: &Cluster) -> Self {
        Self { runtime: OwnRuntime::new(), admin: cluster.admin(POLL_LIMIT), leading: None, allowed: None }
    }

    /// Returns the document of a verb: see [`Cluster::asked`].
    pub(super) fn ask(&mut self, arguments: &[&str]) -> Result<Value, String> {
        let asked = self.runtime.run(ask(&self.admin, &mut self.leading, arguments));
        let document = asked.map_err(|error| format!("{arguments:?}: {error}"))?;
        if let Some(verb) = contract::verb_of(arguments)
            && self.allowed.as_ref() != Some(&document)
        {
            contract::check(verb, &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
            self.allowed = Some(document.clone());
        }
        Ok(document)
    }
}

/// An async runtime for callers that may run on one themselves: it works on a thread of its own, which is in the caller's
/// network namespace.
struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    fn new() -> Self {
        Self(Some(runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")))
    }

    /// Runs a future to its end.
    fn run<T: Send>(&self, work: impl Future<Output = T> + Send) -> T {
        let runtime = self.0.as_ref().expect("present until it is dropped");
        let run = || runtime.block_on(work);
        thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        // Other ways to drop a runtime are not allowed on a runtime.
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

async fn ask(admin: &Admin, known: &mut Option<(String, Admin)>, arguments: &[&str]) -> Result<Value, Error> {
    match arguments {
        ["status"] => admin.status().await.map(document),
        ["node", "list"] => admin.list_nodes().await.map(document),
        ["partition", "list"] => leading(admin, known).await?.table(DEFAULT_TABLE).await.map(document),
        ["partition", "list", "--table", table] => leading(admin, known).await?.table(table).await.map(document),
        ["partition", "locate", key] => leading(admin, known).await?.locate(DEFAULT_TABLE, key).await.map(document),
        ["partition", "describe", number, "--table", table] => {
            let number = number.parse().expect("the number of a partition");
            leading(admin, known).await?.describe_partition(table, number).await.map(document)
        }
        ["rebalance", "status"] => admin.rebalance_status().await.map(document),
        ["upgrade", "status"] => admin.upgrade().await.map(document),
        ["quorum", "list"] => admin.quorum_of_leader().await.map(document),
        other => panic!("{other:?} has no poll"),
    }
}

/// Returns a handle that asks the leading coordinator: others may lag behind. `known` is the one of an earlier poll.
async fn leading(admin: &Admin, known: &mut Option<(String, Admin)>) -> Result<Admin, Error> {
    let status = admin.status().await?;
    let leader = status.coordinators.into_iter().find(|coordinator| Some(coordinator.id) == status.leader_id);
    let Some(leader) = leader else { return Ok(admin.clone()) };
    match known {
        Some((address, handle)) if *address == leader.address => Ok(handle.clone()),
        _ => {
            let handle = admin.at_endpoint(leader.address.clone(), POLL_LIMIT)?;
            *known = Some((leader.address, handle.clone()));
            Ok(handle)
        }
    }
}

fn document(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).expect("answers can be written as JSON")
}
