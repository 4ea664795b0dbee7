//! Queries of a cluster by the command line, and waiting for the state of a cluster.

use super::polled::Poller;
use super::{Cluster, TIMEOUT};
use crate::contract;
use archon_client::Role;
use archon_local_cluster::YOU;
use archon_testkit::wait_for;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Time-out of a command's calls, without `--timeout` among its arguments. The command line's own is too short for a busy
/// machine, on which elections take seconds.
pub const CALL_LIMIT: &str = "20s";

/// Result of a command.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// Exit code; -1 if a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Runs a command to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn of(mut command: Command) -> Self {
        let output = command.output().expect("the program under test starts");
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Returns true if a partition is served by three copies and no operation on it is in progress.
fn is_settled(row: &Value) -> bool {
    let live = |copy: &&Value| copy["state"] == "live" && copy["node_status"] == "alive";
    let copies = row["copies"].as_array().map_or(0, |copies| copies.iter().filter(live).count());
    row["status"] == "online" && row["splits_into"].is_null() && row["merges_with"].is_null() && copies == 3
}

/// Returns the incarnation of a node in a list of nodes.
fn incarnation_in(list: &Value, name: &str) -> Option<u64> {
    let node = list.as_array().into_iter().flatten().find(|node| node["node"] == name);
    node.and_then(|node| node["incarnation"].as_u64())
}

/// Returns a command about the cluster with these coordinators.
fn without_credentials(program: &Path, coordinators: &str) -> Command {
    let mut command = Command::new(program);
    command.env("ARCHON_COORDINATORS", coordinators).env("ARCHON_TIMEOUT", CALL_LIMIT);
    command
}

impl Cluster {
    /// Runs the command line against this cluster.
    pub fn archon(&self, arguments: &[&str]) -> CommandOutput {
        self.archon_at(&self.coordinator_list(), arguments)
    }

    /// Runs a verb that must succeed; returns its output.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn done(&self, arguments: &[&str]) -> String {
        let ran = self.archon(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Waits until the cluster speaks this protocol.
    ///
    /// # Panics
    /// If it does not.
    pub fn wait_protocol(&self, protocol: u32) {
        let what = format!("the cluster to speak protocol {protocol}");
        self.wait_json(&what, TIMEOUT, &["upgrade", "status"], |status| status["protocol"] == protocol);
    }

    /// Returns the partitions of a table as listed; empty while no coordinator answers.
    pub fn partitions(&self, table: &str) -> Vec<Value> {
        let listed = self.json(&["partition", "list", "--table", table]).unwrap_or_default();
        listed.as_array().cloned().unwrap_or_default()
    }

    /// Waits until every partition of a table has three copies on live nodes and is neither being split nor merged, and
    /// `holds` accepts the list; returns it.
    pub fn wait_settled(
        &self,
        table: &str,
        what: &str,
        timeout: Duration,
        holds: impl Fn(&[Value]) -> bool,
    ) -> Vec<Value> {
        let settled = |listed: &Value| {
            let rows = listed.as_array();
            rows.is_some_and(|rows| !rows.is_empty() && rows.iter().all(is_settled) && holds(rows))
        };
        let (listed, _) = self.wait_json(what, timeout, &["partition", "list", "--table", table], settled);
        listed.as_array().cloned().unwrap_or_default()
    }

    /// Runs the command line against the given endpoints.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn archon_at(&self, coordinators: &str, arguments: &[&str]) -> CommandOutput {
        let mut command = self.command(&self.exe, coordinators);
        command.args(arguments);
        CommandOutput::of(command)
    }

    /// Returns a shell command whose environment names the command line of this cluster: `ARCHON` is the program, with
    /// an administrator's credentials.
    ///
    /// # Panics
    /// If the certificate cannot be issued.
    pub fn shell(&self, script: &str) -> Command {
        let mut command = self.command(Path::new("sh"), &self.coordinator_list());
        command.args(["-c", script]).env("ARCHON", &self.exe);
        command
    }

    fn command(&self, program: &Path, coordinators: &str) -> Command {
        let mut command = without_credentials(program, coordinators);
        match &self.issuer {
            Some(issuer) => {
                command.env("ARCHON_TLS_DIR", issuer.credentials(Role::Admin, YOU, []).expect("a certificate"))
            }
            None => command.env("ARCHON_INSECURE", self.links.beyond_loopback().to_string()),
        };
        command
    }

    /// Runs the command line with credentials other than the administrator's, or none.
    ///
    /// # Panics
    /// If the program cannot be started.
    pub fn archon_as(&self, credentials: Option<&Path>, arguments: &[&str]) -> CommandOutput {
        let mut command = without_credentials(&self.exe, &self.coordinator_list());
        command.args(arguments);
        match credentials {
            Some(directory) => command.env("ARCHON_TLS_DIR", directory),
            None => command.env_remove("ARCHON_TLS_DIR"),
        };
        CommandOutput::of(command)
    }

    /// Returns a directory of credentials issued by the cluster's authority.
    ///
    /// # Panics
    /// If they cannot be issued.
    pub fn credentials(&self, role: Role, name: &str) -> PathBuf {
        let hosts: &[&str] = if role.is_server() { &["127.0.0.1:1"] } else { &[] };
        self.issuer().credentials(role, name, hosts.iter().copied()).expect("a certificate")
    }

    /// Runs a verb with `-o json` and parses its output.
    ///
    /// # Errors
    /// Its output, if it failed or printed something else.
    ///
    /// # Panics
    /// If the document violates `docs/reference/json.schema.json`.
    pub fn json(&self, arguments: &[&str]) -> Result<Value, String> {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        let ran = self.archon(&all);
        if ran.code != 0 {
            return Err(format!("{arguments:?} exited with {}: {}", ran.code, ran.stderr));
        }
        let document = serde_json::from_str(&ran.stdout)
            .map_err(|error| format!("{arguments:?} printed {:?}: {error}", ran.stdout))?;
        if let Some(verb) = contract::verb_of(arguments) {
            contract::check(verb, &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
        }
        Ok(document)
    }

    /// Waits for a leading coordinator; returns its index (from 0) and the time taken.
    pub fn wait_leader(&self) -> (usize, Duration) {
        let (status, took) =
            self.wait_json("a leading coordinator", TIMEOUT, &["status"], |status| status["leader_id"].is_u64());
        (usize::try_from(status["leader_id"].as_u64().expect("checked above")).expect("a small number") - 1, took)
    }

    /// Waits until every partition is `Online`; returns the time taken.
    pub fn wait_online(&self) -> Duration {
        let online = |status: &Value| {
            let (all, online) = (&status["partitions_total"], &status["partitions_online"]);
            all.as_u64() > Some(0) && all == online
        };
        self.wait_json("every partition to be Online", TIMEOUT, &["status"], online).1
    }

    /// Waits until `holds` accepts `partition list`.
    pub fn wait_partitions(&self, what: &str, holds: impl Fn(&[Value]) -> bool) -> Duration {
        let holds = |list: &Value| list.as_array().is_some_and(|rows| holds(rows));
        self.wait_json(what, TIMEOUT, &["partition", "list"], holds).1
    }

    /// Waits until every partition is `Online` with `copies` Live copies; returns the time taken.
    pub fn wait_whole(&self, copies: usize) -> Duration {
        let live = |row: &Value| {
            let copies = row["copies"].as_array().into_iter().flatten();
            copies.filter(|copy| copy["state"] == "live").count()
        };
        self.wait_partitions(&format!("every partition to have {copies} Live copies"), |rows| {
            rows.iter().all(|row| live(row) == copies && row["status"] == "online")
        })
    }

    /// Waits until exactly this number of copies awaits deletion; returns the status.
    pub fn wait_condemned(&self, copies: u64) -> Value {
        let deleted = |status: &Value| status["copies_condemned"] == copies;
        self.wait_json("the copies to be deleted", TIMEOUT, &["status"], deleted).0
    }

    /// Waits until no rebalance runs; returns its final status.
    pub fn wait_rebalanced(&self) -> Value {
        let ended = |status: &Value| status["running"] == false;
        self.wait_json("the rebalance to end", TIMEOUT, &["rebalance", "status"], ended).0
    }

    /// Waits until `node list` shows the node with this status.
    pub fn wait_node(&self, name: &str, status: &str) -> Duration {
        let found = |list: &Value| {
            list.as_array().into_iter().flatten().any(|node| node["node"] == name && node["status"] == status)
        };
        self.wait_json(&format!("{name} to be {status}"), TIMEOUT, &["node", "list"], found).1
    }

    /// Returns the registered incarnation of a node.
    ///
    /// # Errors
    /// The coordinators' answer, if they do not know it.
    pub fn incarnation(&self, name: &str) -> Result<u64, String> {
        let list = self.asked(&["node", "list"])?;
        incarnation_in(&list, name).ok_or_else(|| list.to_string())
    }

    /// Kills a node, restarts it and waits until it has registered again. Until then its former incarnation may still
    /// count as alive, with all copies in sync.
    ///
    /// # Panics
    /// If it does not come back.
    pub fn kill_and_return(&mut self, name: &str) {
        let life = self.wait_incarnation(name, 0);
        self.take_node(name).kill();
        self.start_node(name);
        self.wait_incarnation(name, life);
        self.wait_node(name, "alive");
    }

    /// Waits until the coordinators know a later incarnation of a node than this one; returns it.
    ///
    /// # Panics
    /// If the incarnation does not change.
    pub fn wait_incarnation(&self, name: &str, former: u64) -> u64 {
        let later = |list: &Value| incarnation_in(list, name).is_some_and(|life| life > former);
        let (list, _) = self.wait_json(&format!("{name} to be registered anew"), TIMEOUT, &["node", "list"], later);
        incarnation_in(&list, name).expect("checked above")
    }

    /// Returns the number of partitions that each node holds, by name.
    ///
    /// # Panics
    /// If the cluster does not answer.
    pub fn partitions_per_node(&self) -> BTreeMap<String, u64> {
        let list = self.json(&["node", "list"]).expect("node list");
        let nodes = list.as_array().expect("node list is an array");
        nodes
            .iter()
            .map(|node| (node["node"].as_str().unwrap_or("?").to_owned(), node["copies_held"].as_u64().unwrap_or(0)))
            .collect()
    }

    /// Waits until a node leads one of 200 keys, and returns that key. A returned node gets its share of the leaderships after a
    /// while.
    ///
    /// # Panics
    /// If it leads none.
    #[track_caller]
    pub fn key_led_by(&self, node: &str) -> String {
        let mut poller = Poller::new(self);
        wait_for(&format!("{node} to lead one of 200 keys"), TIMEOUT, || {
            for number in 0..200 {
                let key = format!("key-{number}");
                if poller.ask(&["partition", "locate", &key])?["leader"] == node {
                    return Ok(key);
                }
            }
            Err("it leads none".to_owned())
        })
        .0
    }

    /// Returns the name of the node that leads `key`.
    ///
    /// # Panics
    /// If the cluster does not answer.
    pub fn leader_of(&self, key: &str) -> String {
        let found = self.json(&["partition", "locate", key]).expect("partition locate");
        found["leader"].as_str().unwrap_or_else(|| panic!("{key} has no leader: {found}")).to_owned()
    }
}
