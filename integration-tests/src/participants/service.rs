//! A cluster with a service of several processes beside it.

use super::checker::{used_after_loss, violations};
use super::users::{RequestCounts, Users};
use crate::cluster::{Cluster, TIMEOUT, coordinator_name};
use crate::options::Options;
use crate::process::spawn;
use archon_client::{Admin, Client, Routes};
use archon_examples::counter::{FrontEnd, Line, Uses, read_lines};
use archon_local_cluster::Process;
use archon_testkit::{check, wait_for};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Runtime;

const TABLE: &str = "counters";
/// Numbers of users, and of counters.
const USERS: u64 = 4;
const COUNTERS: usize = 40;

/// Options of a service to start.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// Partitions of its lease table.
    pub partitions: u32,
    /// Maximum number of partitions of an instance.
    pub partitions_max: u32,
    /// Lease after the last heartbeat, in milliseconds.
    pub lease_ms: u64,
}

impl Default for ServiceOptions {
    /// With a lease that a busy machine does not miss by accident.
    fn default() -> Self {
        Self { partitions: 32, partitions_max: 32, lease_ms: 2_000 }
    }
}

/// The cluster, the instances, and the users. Dropping it ends all processes.
pub struct Service {
    // Before the cluster, in whose directory they write.
    instances: BTreeMap<String, Process>,
    /// The cluster.
    pub cluster: Cluster,
    program: PathBuf,
    options: ServiceOptions,
    /// Number of starts under each name.
    starts: BTreeMap<String, u32>,
    admin: Admin,
    client: Client,
    routes: Routes,
    users: Option<Users>,
    runtime: Runtime,
}

impl Service {
    /// Starts a cluster and instances with these names; waits until all partitions are owned, evenly, and starts the
    /// users. The programs are `env!("CARGO_BIN_EXE_…")` of `archon-under-test` and of `counter-under-test`.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn start(programs: (&str, &str), cluster: &Options, options: ServiceOptions, names: &[&str]) -> Self {
        // The example's instances take no credentials.
        let cluster = Cluster::start(programs.0, &Options { tls: false, ..cluster.clone() });
        let runtime = Runtime::new().expect("a runtime");
        let coordinators = cluster.coordinator_addresses();
        let admin = Admin::new(coordinators.clone(), Duration::from_secs(2)).expect("valid endpoints");
        let (client, routes) = runtime.block_on(async {
            admin.create_lease_table(TABLE, options.partitions).await.expect("a lease table");
            let client = Client::builder(coordinators).build().await.expect("a client");
            let routes = client.routes(TABLE).await.expect("the owners");
            (client, routes)
        });
        let (instances, starts) = Default::default();
        let program = PathBuf::from(programs.1);
        let mut service =
            Self { cluster, program, options, instances, starts, admin, client, routes, users: None, runtime };
        for name in names {
            service.start_instance(name);
        }
        service.wait_even();
        service.users = Some(Users::start(&service.runtime, &service.routes, USERS, COUNTERS));
        service.progress(50);
        service
    }

    /// Starts an instance; a used name is allowed.
    pub fn start_instance(&mut self, name: &str) {
        let starts = self.starts.entry(name.to_owned()).or_default();
        *starts += 1;
        let starts = *starts;
        if starts == 1 {
            self.cluster.links().add(name);
        }
        let (most, lease) = (self.options.partitions_max.to_string(), self.options.lease_ms.to_string());
        let (coordinators, log) = (self.cluster.coordinator_list(), self.log_file(name, starts).display().to_string());
        let arguments = ["--name", name, "--coordinators", &coordinators, "--table", TABLE, "--log", &log];
        let arguments = [&arguments[..], &["--partitions-max", &most, "--lease-ms", &lease]].concat();
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let process = spawn(&self.program, name, &arguments, self.cluster.directory());
        self.cluster.links().runs_as(name, process.pid());
        self.instances.insert(name.to_owned(), process);
    }

    /// Returns the process of an instance.
    ///
    /// # Panics
    /// If it does not run.
    pub fn instance(&self, name: &str) -> &Process {
        self.instances.get(name).expect("the instance runs")
    }

    /// Removes and returns the process of an instance, to be killed or stopped.
    ///
    /// # Panics
    /// If it does not run.
    pub fn take_instance(&mut self, name: &str) -> Process {
        self.instances.remove(name).expect("the instance runs")
    }

    /// Cuts an instance off from all coordinators, in both directions, or mends the links.
    pub fn cut_off(&mut self, name: &str, cut: bool) {
        for coordinator in 0..self.cluster.coordinator_addresses().len() {
            let coordinator = coordinator_name(coordinator);
            match cut {
                true => self.cluster.links().cut_both(name, &coordinator),
                false => self.cluster.links().mend_both(name, &coordinator),
            }
        }
    }

    /// Returns the number of partitions that each member owns and serves according to the coordinators; `None` counts
    /// those without owner.
    ///
    /// # Errors
    /// The reason why the coordinators do not answer.
    pub fn shares(&self) -> Result<BTreeMap<Option<String>, u32>, String> {
        let rows = self.runtime.block_on(self.admin.table(TABLE)).map_err(|error| error.to_string())?;
        let mut shares = BTreeMap::new();
        for row in rows {
            let owner = row.leader.filter(|_| row.status.as_str() == "online");
            *shares.entry(owner).or_default() += 1;
        }
        Ok(shares)
    }

    /// Waits for shares; returns the time taken.
    pub fn wait_shares(&self, what: &str, holds: impl Fn(&BTreeMap<Option<String>, u32>) -> bool) -> Duration {
        wait_for(what, TIMEOUT, || {
            let shares = self.shares()?;
            check(holds(&shares), || format!("{shares:?}"))
        })
        .1
    }

    /// Waits until all partitions are owned by the running instances, with counts that differ by at most one.
    pub fn wait_even(&self) -> Duration {
        let names: BTreeSet<&String> = self.instances.keys().collect();
        self.wait_shares("even shares", |shares| {
            let owners: BTreeSet<&String> = shares.keys().flatten().collect();
            let (least, most) = (shares.values().min(), shares.values().max());
            owners == names && !shares.contains_key(&None) && least.zip(most).is_some_and(|(a, b)| b - a <= 1)
        })
    }

    /// Waits until all partitions are owned, and none by this member.
    pub fn wait_without(&self, name: &str) -> Duration {
        let without =
            |shares: &BTreeMap<_, _>| !shares.contains_key(&None) && !shares.contains_key(&Some(name.to_owned()));
        self.wait_shares(&format!("all partitions to be owned by others than {name}"), without)
    }

    /// Waits for a record in the log of this instance.
    pub fn wait_noted(&self, name: &str, what: &str, noted: impl Fn(&[Line]) -> bool) -> Duration {
        let what = format!("{name} to note {what}");
        wait_for(&what, TIMEOUT, || {
            let lines = self.log(name);
            check(noted(&lines), || format!("{:?}", &lines[lines.len().saturating_sub(5)..]))
        })
        .1
    }

    /// Waits until this many more user requests were answered.
    ///
    /// # Panics
    /// If they are not, or no users run.
    pub fn progress(&self, requests: u64) -> Duration {
        let users = self.users.as_ref().expect("users are at work");
        let target = users.answered() + requests;
        wait_for("users to be answered", TIMEOUT, || {
            check(users.answered() >= target, || format!("{} of {target} requests", users.answered()))
        })
        .1
    }

    /// Returns the logs of all instances of a name, concatenated.
    ///
    /// # Panics
    /// If they cannot be read.
    pub fn log(&self, name: &str) -> Vec<Line> {
        let paths = (1..=self.starts.get(name).copied().unwrap_or(0)).map(|start| self.log_file(name, start));
        let read = |path: PathBuf| read_lines(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        paths.filter(|path| path.exists()).flat_map(read).collect()
    }

    /// Returns all uses so far.
    pub fn uses(&self) -> Uses {
        let mut uses = Uses::default();
        self.starts.keys().for_each(|name| uses.add(&self.log(name)));
        uses
    }

    /// Stops the users, compares the sums with the acknowledged requests, then checks ownership.
    ///
    /// # Panics
    /// If an acknowledged request is missing or was counted twice, if two instances owned the same partition at once,
    /// or one owned more than its maximum.
    pub fn judge(mut self) {
        let users = self.users.take().expect("users are at work");
        let (routes, client) = (self.routes.clone(), self.client.clone());
        let (counted, sums) = self.runtime.block_on(async move {
            let counted: RequestCounts = users.stop().await;
            let (mut sums, mut front_end) = (BTreeMap::new(), FrontEnd::new(routes, TIMEOUT));
            for counter in counted.acknowledged.keys() {
                let sum = front_end.read(counter).await.unwrap_or_else(|error| panic!("{error}"));
                sums.insert(counter.clone(), sum);
            }
            client.close().await;
            (counted, sums)
        });
        let (mut found, mut losses, mut most) = (violations(&self.uses()), 0, 0);
        for name in self.starts.keys() {
            let lines = self.log(name);
            found.extend(used_after_loss(&lines));
            losses += lines.iter().filter(|line| matches!(line, Line::Lost { .. })).count();
            let owned = lines.iter().filter_map(|line| match line {
                Line::Used { owned, .. } => Some(owned.len()),
                _ => None,
            });
            most = most.max(owned.max().unwrap_or(0));
        }
        let total: u64 = sums.values().sum();
        println!("{total} requests counted, the slowest in {:?}; {losses} losses", counted.longest);
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{} violations:\n{}", found.len(), found[..found.len().min(20)].join("\n"));
        assert!(most <= self.options.partitions_max as usize, "one instance owned {most} partitions at once");
        assert_eq!(sums, counted.acknowledged, "each acknowledged request is there exactly once");
    }

    fn log_file(&self, name: &str, start: u32) -> PathBuf {
        // Not `.log`: that is its standard output.
        self.cluster.directory().join(format!("{name}-{start}.owned"))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for process in self.instances.values() {
                eprintln!("--- end of the log of {}\n{}", process.name(), process.log_tail(10));
            }
        }
    }
}
