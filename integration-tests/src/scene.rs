//! Scenario of the fault suite: a cluster, clients, faults, healing, checks.

use crate::cluster::{Cluster, TIMEOUT};
use crate::history::{Workload, WorkloadOptions, WorkloadReport};
use crate::options::Options;
use crate::redis_driver::{Driver, Library};
use crate::reshape_operator::{ReshapeOperator, ReshapeResults};
use archon_client::Role;
use archon_testkit::{check, wait_for};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// Operations answered before the first fault.
const WARM_UP: u64 = 60;

/// Time-out of the operator that splits and merges.
const OPERATORS_TIMEOUT: Duration = Duration::from_secs(3);

/// A cluster under load, while faults are injected.
pub struct Scene {
    /// The cluster.
    pub cluster: Cluster,
    name: String,
    copies: usize,
    /// Present except between two loads.
    workload: Option<Workload>,
    load: WorkloadOptions,
    /// Operator that splits and merges the clients' partitions.
    reshaping: Option<ReshapeOperator>,
    runtime: Runtime,
    began: Instant,
    /// Dropped after the cluster.
    kept: Vec<Box<dyn Any>>,
}

impl Scene {
    /// Starts a cluster and clients, runs `faults`, heals everything and checks: every partition must recover all its
    /// copies and every client be served, without an operator and in bounded time, and the history of every key, with a
    /// last read and a last scan of each, must be linearizable. Returns `None` where the machine does not allow such a
    /// network, or does not have the library that the clients use.
    ///
    /// # Panics
    /// If a check fails; contradictory histories are printed. The clients' observations are checked even if the faults
    /// or the healing do not complete.
    pub fn play(
        exe: &str,
        name: &str,
        options: &Options,
        load: &WorkloadOptions,
        faults: impl FnOnce(&mut Self) + Send,
    ) -> Option<WorkloadReport> {
        if !options.network.available() || load.redis.is_some_and(|library| library.command().is_none()) {
            return None;
        }
        // On a thread of its own, because it may move into another network namespace permanently. It has the name of the test.
        let played = thread::scope(|scope| {
            let test = thread::current().name().unwrap_or(name).to_owned();
            let scene = thread::Builder::new()
                .name(test)
                .spawn_scoped(scope, || {
                    let mut scene = Self::begin(exe, name, options, load);
                    let played = catch_unwind(AssertUnwindSafe(|| {
                        faults(&mut scene);
                        scene.judge()
                    }));
                    played.unwrap_or_else(|panic| {
                        scene.judge_what_was_seen();
                        resume_unwind(panic)
                    })
                })
                .expect("a thread");
            scene.join()
        });
        Some(played.unwrap_or_else(|panic| resume_unwind(panic)))
    }

    fn begin(exe: &str, name: &str, options: &Options, load: &WorkloadOptions) -> Self {
        let cluster = Cluster::start(exe, options);
        let copies = usize::from(options.replication);
        cluster.wait_whole(copies);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime for the clients");
        let mut scene = Self {
            cluster,
            name: name.into(),
            copies,
            workload: None,
            load: load.clone(),
            reshaping: None,
            runtime,
            began: Instant::now(),
            kept: Vec::new(),
        };
        scene.begin_load(load);
        scene
    }

    fn begin_load(&mut self, load: &WorkloadOptions) {
        if let Some(table) = load.table
            && self.cluster.partitions(table).is_empty()
        {
            self.cluster.done(&["table", "create", table, "--range", "--replication", "3"]);
            self.cluster.wait_settled(table, "the table by ranges to be served", TIMEOUT, |_| true);
        }
        let endpoints = match load.via {
            Some(node) => vec![self.cluster.node_address(node).to_owned()],
            None => self.cluster.coordinator_addresses(),
        };
        assert!(load.redis.is_none_or(Library::sends_once), "{:?} repeats writes", load.redis);
        let redis = load.redis.and_then(Library::command).map(|command| {
            let listeners: Vec<&str> = self.cluster.redis_addresses().collect();
            Driver::start(command, &listeners, false, None)
        });
        let transport = self.cluster.transport(Role::Client);
        let started = self.runtime.block_on(Workload::start(endpoints, transport, redis, load));
        self.workload = Some(started.unwrap_or_else(|error| panic!("{}: no client: {error}", self.name)));
        self.load = load.clone();
        self.progress(WARM_UP);
    }

    /// Heals and checks everything so far, and starts another load on the same cluster.
    ///
    /// # Panics
    /// If a check fails.
    pub fn next_load(&mut self, load: &WorkloadOptions) -> WorkloadReport {
        let report = self.judge();
        self.begin_load(load);
        report
    }

    /// Starts an operator that splits and merges the partitions of the clients' table until the scene is checked.
    ///
    /// # Panics
    /// If the table is not by ranges, or such an operator runs already.
    pub fn reshape(&mut self) {
        assert!(self.reshaping.is_none(), "{}: somebody does so already", self.name);
        let table = self.load.table.expect("a table by ranges");
        let (admin, keys) = (self.cluster.admin(OPERATORS_TIMEOUT), self.workload().latest_keys());
        self.reshaping = Some(ReshapeOperator::begin(&self.runtime, admin, table, keys, self.load.seed));
    }

    /// Returns the results of the splits and merges so far.
    ///
    /// # Panics
    /// If no operator runs.
    pub fn reshaped(&self) -> ReshapeResults {
        self.reshaping.as_ref().expect("somebody splits and merges").so_far()
    }

    /// Waits until this many more splits and this many more merges are done.
    pub fn wait_reshaped(&self, splits: u32, merges: u32) {
        let before = self.reshaped();
        wait_for(&format!("{splits} more splits and {merges} more merges"), TIMEOUT, || {
            let now = self.reshaped();
            let done = now.splits >= before.splits + splits && now.merges >= before.merges + merges;
            check(done, || format!("{before:?}, then {now:?}"))
        });
    }

    fn workload(&self) -> &Workload {
        self.workload.as_ref().expect("a load runs whenever faults are done")
    }

    /// Prints a step, with the time since the clients began.
    pub fn say(&self, what: &str) {
        println!("{} {:7.2}s {what}", self.name, self.began.elapsed().as_secs_f64());
    }

    /// Lets the last fault last for a time.
    pub fn last(&self, duration: Duration) {
        thread::sleep(duration);
    }

    /// Returns the number of failed operations so far.
    pub fn failed(&self) -> usize {
        self.workload().failed()
    }

    /// Returns the number of answered operations so far.
    pub fn answered(&self) -> u64 {
        self.workload().answered()
    }

    /// Keeps a value until the cluster is gone, such as the disk of a member's data.
    pub fn keep(&mut self, thing: impl Send + 'static) {
        self.kept.push(Box::new(thing));
    }

    /// Writes values of `bytes` each to keys that no other client reads, until a node refuses writes; returns the
    /// refusal, or `None` if none came within `limit`.
    pub fn write_until_refused(&self, bytes: usize, limit: Duration) -> Option<String> {
        let client = self.workload().client().with_timeout(Duration::from_millis(500));
        let (value, began) = ("x".repeat(bytes), Instant::now());
        self.runtime.block_on(async {
            for number in 0_u64.. {
                match client.put(format!("ballast/{}", number % 64), value.clone()).await {
                    Err(error) if format!("{error:?}").contains("ReadOnly") => {
                        return Some(format!("{error:?}"));
                    }
                    _ if began.elapsed() > limit => return None,
                    _ => {}
                }
            }
            None
        })
    }

    /// Reads for a time as a client that knows only this node; returns the number of answered reads.
    ///
    /// # Panics
    /// If the node returns no table, or no read was answered: then the test shows nothing.
    pub fn read_through(&self, node: &str, duration: Duration) -> u64 {
        let read = self.workload().read_through(self.cluster.node_address(node), duration);
        let answered =
            self.runtime.block_on(read).unwrap_or_else(|error| panic!("{}: no client of {node}: {error}", self.name));
        assert!(answered > 0, "{}: no read of a client that knows only {node} was answered in {duration:?}", self.name);
        answered
    }

    /// Waits until `count` more operations were answered.
    pub fn progress(&self, count: u64) {
        let target = self.workload().answered() + count;
        wait_for(&format!("{count} more operations"), TIMEOUT, || {
            let answered = self.workload().answered();
            check(answered >= target, || format!("{answered} of {target} operations"))
        });
    }

    /// Waits until every client was answered once more; returns the time taken.
    pub fn everyone_is_served(&self) -> Duration {
        let since = self.workload().elapsed_ms();
        wait_for("every client to be served", TIMEOUT, || {
            let waiting = self.workload().waiting_since(since);
            check(waiting == 0, || format!("{waiting} clients wait"))
        })
        .1
    }

    /// Waits until every partition has all its copies.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn wait_whole(&self) -> Duration {
        let began = Instant::now();
        self.cluster.wait_whole(self.copies);
        if let Some(table) = self.load.table {
            self.cluster.wait_settled(table, "the table by ranges to be whole", TIMEOUT, |_| true);
        }
        began.elapsed()
    }

    /// Removes every network fault, resumes and restarts every paused or stopped process, and waits until the cluster
    /// is whole and serves. Splits and merges are paused until then.
    pub fn heal(&mut self) {
        self.cluster.links().mend_everything();
        self.cluster.resume_everything();
        self.cluster.start_everything();
        self.reshaping.iter().for_each(|reshaping| reshaping.rest(true));
        let whole = self.wait_whole();
        let served = self.everyone_is_served();
        self.reshaping.iter().for_each(|reshaping| reshaping.rest(false));
        self.say(&format!("healed: whole after {whole:?}, everyone served after {:?}", whole + served));
    }

    fn judge(&mut self) -> WorkloadReport {
        self.heal();
        if let Some(reshaping) = self.reshaping.take() {
            let reshaped = reshaping.end(&self.runtime);
            self.say(&format!("split and merged: {reshaped:?}"));
        }
        let workload = self.workload.take().expect("a load runs until it is judged");
        let report = self.runtime.block_on(workload.stop());
        let violations = self.tell(&report);
        assert!(violations == 0, "{}: {} keys are not linearizable, seed {}", self.name, violations, self.load.seed);
        let last: Vec<&String> = report.failures.iter().filter(|failure| failure.starts_with("the last")).collect();
        assert!(last.is_empty(), "{}: after everything was healed {last:#?}", self.name);
        report
    }

    /// Checks the clients' observations of a scene that ended early: a violation may be its cause.
    fn judge_what_was_seen(&mut self) {
        let Some(workload) = self.workload.take() else { return };
        let report = self.runtime.block_on(workload.abandon());
        let violations = self.tell(&report);
        println!("{}: came to a sudden end; until then {violations} keys are not linearizable", self.name);
    }

    /// Prints the observations, with every violation, and returns the number of violations.
    fn tell(&self, report: &WorkloadReport) -> usize {
        let violations = report.violations();
        println!(
            "{}: {} answered ({} by Redis listeners), {} failed, {} of {} keys with open ends, longest wait of a client {:?}, seed {}",
            self.name,
            report.answered,
            report.answered_by_redis,
            report.failures.len(),
            report.histories.values().filter(|history| history.iter().any(|record| record.is_open())).count(),
            report.histories.len(),
            report.longest_gap,
            self.load.seed
        );
        for violation in &violations {
            println!("{violation}");
        }
        violations.len()
    }
}
