//! The recipes of `docs/tutorial/recipes/` in Python and for shells, as the pages show them, on real clusters. Those in
//! Rust are tested by `examples/tests/examples.rs`.

use crate::EXE;
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options, ProcessExt};
use archon_local_cluster::Process;
use archon_testkit::{skipped, wait_for};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cluster with a console, and a directory for the files of a recipe.
struct Kitchen {
    cluster: Cluster,
    directory: PathBuf,
}

impl Kitchen {
    /// Starts a cluster; `None` if the machine has not the programs that recipes call.
    fn start() -> Option<Self> {
        for program in ["python3", "curl"] {
            if let Err(error) = Command::new(program).arg("--version").output() {
                skipped(format!("{program} does not start: {error}"));
                return None;
            }
        }
        let options = Options {
            coordinators: 1,
            nodes: vec!["athens"],
            nodes_min: 1,
            tls: false,
            consoles: true,
            ..Options::default()
        };
        let cluster = Cluster::start(EXE, &options);
        let directory = cluster.directory().join("kitchen");
        fs::create_dir(&directory).expect("a directory");
        // Recipes call the program by its name.
        symlink(EXE, directory.join("archon")).expect("a link");
        Some(Self { cluster, directory })
    }

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
    }

    fn recipe(name: &str) -> String {
        Self::root().join("examples/recipes").join(name).display().to_string()
    }

    fn console(&self) -> String {
        format!("http://{}", self.cluster.console_address(0))
    }

    fn database(&self) -> String {
        self.directory.join("store.db").display().to_string()
    }

    /// Returns the variables of a recipe.
    fn variables(&self) -> Vec<(&'static str, String)> {
        let path = std::env::var("PATH").unwrap_or_default();
        vec![
            ("PATH", format!("{}:{path}", self.directory.display())),
            ("PYTHONPATH", Self::root().join("clients/python/src").display().to_string()),
            ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
            ("ARCHON_COORDINATORS", self.cluster.coordinator_list()),
            ("ARCHON_CONSOLE", self.console()),
        ]
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.directory).env_remove("ARCHON_TLS_DIR").envs(self.variables());
        command
    }

    /// Runs a recipe to its end, and returns its exit code and its output.
    fn run(&self, words: &[&str]) -> (i32, String) {
        let output = self.command(words).output().expect("it starts");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        (output.status.code().unwrap_or(-1), text)
    }

    /// Runs a recipe that succeeds.
    #[track_caller]
    fn done(&self, words: &[&str]) -> String {
        let (code, text) = self.run(words);
        assert_eq!(code, 0, "{words:?}: {text}");
        text
    }

    /// Starts a recipe that runs until it is killed.
    fn spawn(&self, name: &str, words: &[&str]) -> Process {
        Process::start(name, words, &self.variables(), &self.directory).expect("it starts")
    }

    /// Starts an agent, and returns it with its address once it listens.
    fn agent(&self, name: &str, table: &str, service: &str) -> (Process, String) {
        let socket = self.directory.join(format!("{name}.sock"));
        let address = format!("unix:{}", socket.display());
        let coordinators = self.cluster.coordinator_list();
        let words = ["participant", "--table", table, "--name", name, "--address", service];
        let words = [&words[..], &["--listen", &address, "--coordinators", &coordinators]].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let agent = self.cluster.spawn(name, &words);
        wait_for("the agent to listen", TIMEOUT, || if socket.exists() { Ok(()) } else { Err(agent.log()) });
        (agent, address)
    }

    /// Returns the rows of a query on the recipe's database, as Python prints them.
    fn query(&self, statement: &str) -> String {
        let program = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall())";
        self.done(&["python3", "-c", program, &self.database(), statement]).trim().to_owned()
    }
}

#[test]
fn recipe_lock_refuses_a_former_owner() {
    let Some(kitchen) = Kitchen::start() else { return };
    kitchen.cluster.done(&["table", "create", "locks", "--partitions", "2", "--replication", "1"]);
    let (job, database) = (Kitchen::recipe("lock.py"), kitchen.database());
    kitchen.done(&["archon", "lock", "ledger", "--", "python3", &job, &database, "first"]);
    kitchen.done(&["archon", "lock", "ledger", "--", "python3", &job, &database, "second"]);
    let (code, text) = kitchen.run(&["env", "ARCHON_LOCK_EPOCH=1", "python3", &job, &database, "late"]);
    assert!(code == 1 && text.contains("a later owner has written"), "{text}");
    assert_eq!(kitchen.query("SELECT entry FROM ledger ORDER BY token"), "[('first',), ('second',)]");
}

#[test]
fn recipe_lock_by_curl_excludes_and_is_excluded() {
    let Some(kitchen) = Kitchen::start() else { return };
    kitchen.cluster.done(&["table", "create", "locks", "--partitions", "2", "--replication", "1"]);
    let script = Kitchen::recipe("lock.sh");
    let by_curl = kitchen.done(&[&script, "ledger", "sh", "-c", "echo $ARCHON_LOCK_EPOCH"]);
    let by_command = kitchen.done(&["archon", "lock", "ledger", "--", "sh", "-c", "echo $ARCHON_LOCK_EPOCH"]);
    let number = |text: &str| text.trim().parse::<u64>().expect(text);
    assert!(number(&by_curl) < number(&by_command), "{by_curl} then {by_command}");
    // The other way of the lock is taken meanwhile.
    let nested = format!("archon lock ledger --wait 1s -- true; echo $? > {}/nested", kitchen.directory.display());
    kitchen.done(&[&script, "ledger", "sh", "-c", &nested]);
    assert_eq!(fs::read_to_string(kitchen.directory.join("nested")).expect("a code").trim(), "122");
    let (code, _) = kitchen.run(&[&script, "ledger", "sh", "-c", "exit 7"]);
    assert_eq!(code, 7);
    // A dead holder: the script takes its lock after its lease.
    let row = r#"{"owner":"dead","holder":"dead:1","lease_ms":1000}"#;
    kitchen.cluster.done(&["kv", "put", "ledger", row, "--table", "locks"]);
    kitchen.done(&[&script, "ledger", "true"]);
    let ran = kitchen.cluster.archon(&["kv", "get", "ledger", "--table", "locks"]);
    assert_eq!(ran.code, 3, "the lock is released: {ran:?}");
}

#[test]
fn recipe_leader_is_replaced_with_a_higher_epoch() {
    let Some(kitchen) = Kitchen::start() else { return };
    kitchen.cluster.done(&["table", "create", "scheduler", "--partitions", "1", "--lease"]);
    let epoch = |process: &Process| {
        let log = process.log();
        let line = log.lines().rev().find_map(|line| line.strip_prefix("leads in epoch ")?.parse::<u64>().ok());
        line.ok_or(log)
    };
    let follower = kitchen.spawn("follower", &[&Kitchen::recipe("leader.sh")]);
    let (mut first_agent, address) = kitchen.agent("s1", "scheduler", "10.0.0.1:80");
    let script = Kitchen::recipe("leader.py");
    let mut first = kitchen.spawn("leader-1", &["python3", &script, &address]);
    let (before, _) = wait_for("a leader", TIMEOUT, || epoch(&first));
    let (_agent, address) = kitchen.agent("s2", "scheduler", "10.0.0.2:80");
    let second = kitchen.spawn("leader-2", &["python3", &script, &address]);
    first.kill();
    first_agent.kill();
    let (after, _) = wait_for("another leader", TIMEOUT, || epoch(&second));
    assert!(before < after, "{before}, then {after}");
    wait_for("the watch to name both leaders", TIMEOUT, || {
        let log = follower.log();
        let names = |leader: &str| log.lines().any(|line| line == leader);
        if names("10.0.0.1:80") && names("10.0.0.2:80") { Ok(()) } else { Err(log) }
    });
}

#[test]
fn recipe_queue_does_every_job_once() {
    let Some(kitchen) = Kitchen::start() else { return };
    kitchen.cluster.done(&["table", "create", "queue", "--partitions", "4", "--lease"]);
    kitchen.cluster.done(&["table", "create", "jobs", "--partitions", "4", "--replication", "1"]);
    let (agents, mut workers): (Vec<_>, Vec<_>) = ["w1", "w2"]
        .map(|name| {
            let (agent, address) = kitchen.agent(name, "queue", "10.0.0.7:8080");
            let words = ["python3", &Kitchen::recipe("worker.py"), &address, &kitchen.console(), &kitchen.database()];
            (agent, kitchen.spawn(&format!("worker-{name}"), &words))
        })
        .into_iter()
        .unzip();
    // The producer speaks HTTP over TCP, so it has an agent of its own, which serves nothing.
    let coordinators = kitchen.cluster.coordinator_list();
    let words = ["participant", "--table", "queue", "--name", "producer", "--address", "10.0.0.9:8080"];
    let words = [&words[..], &["--listen", "127.0.0.1:0", "--coordinators", &coordinators]].concat();
    let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
    let producer = kitchen.cluster.spawn("producer", &words);
    let (address, _) = wait_for("the producer's agent", TIMEOUT, || {
        let log = producer.log();
        let found = log.split("127.0.0.1:").skip(1).find_map(|rest| {
            let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
            port.parse::<u16>().ok().filter(|port| *port > 0 && !coordinators.contains(&port.to_string()))
        });
        found.map(|port| format!("ARCHON_AGENT=http://127.0.0.1:{port}")).ok_or(log)
    });
    for number in 0..12 {
        let (key, id) = (format!("customer-{}", number % 5), format!("job-{number:02}"));
        kitchen.done(&["env", &address, &Kitchen::recipe("enqueue.sh"), &key, &id, "text"]);
    }
    wait_for("the queue to be empty", TIMEOUT, || {
        let rows = kitchen.cluster.json(&["kv", "scan", "", "--table", "jobs"])?;
        if rows.as_array().is_some_and(Vec::is_empty) { Ok(()) } else { Err(format!("{rows}")) }
    });
    assert_eq!(kitchen.query("SELECT count(*) FROM results"), "[(12,)]");
    for worker in &mut workers {
        worker.kill();
    }
    for agent in agents {
        assert!(agent.terminate(TIMEOUT).success());
    }
}

#[test]
fn recipe_cron_runs_once() {
    let Some(kitchen) = Kitchen::start() else { return };
    kitchen.cluster.done(&["table", "create", "locks", "--partitions", "2", "--replication", "1"]);
    kitchen.cluster.done(&["table", "create", "runs", "--partitions", "2", "--replication", "1"]);
    let runs = |file: &str| fs::read_to_string(kitchen.directory.join(file)).map_or(0, |text| text.lines().count());
    // A failed run is tried again, a successful one is not.
    let script = Kitchen::recipe("cron.sh");
    let (code, text) = kitchen.run(&[&script, "nightly", "sh", "-c", "echo x >> failed; exit 7"]);
    assert_eq!(code, 7, "{text}");
    for _ in 0..3 {
        kitchen.done(&[&script, "nightly", "sh", "-c", "echo x >> succeeded"]);
    }
    assert_eq!((runs("failed"), runs("succeeded")), (1, 1));
    for _ in 0..3 {
        kitchen.done(&[&Kitchen::recipe("cron-once.sh"), "weekly", "sh", "-c", "echo x >> once"]);
    }
    assert_eq!(runs("once"), 1);
    let python = ["python3", &Kitchen::recipe("cron.py"), &kitchen.console(), "monthly/2026-11"];
    let codes = [kitchen.run(&python).0, kitchen.run(&python).0];
    assert_eq!(codes, [0, 3]);
}

/// Unused by recipes themselves: shells and Python find what they call.
#[test]
fn recipes_for_shells_can_be_executed() {
    for entry in fs::read_dir(Kitchen::root().join("examples/recipes")).expect("a folder").flatten() {
        let path = entry.path();
        if path.extension() == Some(OsStr::new("sh")) {
            let checked = Command::new("sh").arg("-n").arg(&path).output().expect("a shell");
            assert!(checked.status.success(), "{}: {checked:?}", path.display());
            use std::os::unix::fs::PermissionsExt as _;
            let mode = fs::metadata(&path).expect("a file").permissions().mode();
            assert!(mode & 0o111 != 0, "{} cannot be executed", path.display());
        }
    }
}
