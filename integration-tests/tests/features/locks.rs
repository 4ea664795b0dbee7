//! `archon lock` on real processes: contenders, dead and paused holders, a lost leader, a lost cluster, wrong input.

use crate::EXE;
use archon_client::Role;
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options, ProcessExt, Room};
use archon_local_cluster::Process;
use archon_testkit::wait_for;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Functions for the commands under locks: a store that refuses lower tokens than it has seen.
const STORE: &str = r#"
store() {
    highest=$(cat "$D/highest" 2>/dev/null || echo 0)
    if [ "$ARCHON_LOCK_EPOCH" -lt "$highest" ]; then
        echo "refused $ARCHON_LOCK_EPOCH" >> "$D/store"
    else
        echo "$ARCHON_LOCK_EPOCH" > "$D/highest"
        echo "took $ARCHON_LOCK_EPOCH" >> "$D/store"
    fi
}
await() { while [ ! -e "$D/$1" ]; do sleep 0.05; done; }
"#;

/// A cluster with a table of locks.
struct World {
    cluster: Cluster,
    directory: PathBuf,
}

impl World {
    fn start(replication: &str, options: &Options) -> Self {
        let cluster = Cluster::start(EXE, options);
        cluster.done(&["table", "create", "locks", "--partitions", "2", "--replication", replication]);
        let directory = cluster.directory().join("locked");
        fs::create_dir(&directory).expect("a directory");
        Self { cluster, directory }
    }

    /// Starts `archon lock` with these options and a script, as a client.
    fn lock(&self, process: &str, options: &[&str], script: &str) -> Process {
        let script = format!("D='{}'\n{STORE}\n{script}", self.directory.display());
        self.lock_program(process, options, &["sh", "-c", &script])
    }

    fn lock_program(&self, process: &str, options: &[&str], program: &[&str]) -> Process {
        let coordinators = self.cluster.coordinator_list();
        let own = self.cluster.credentials_arguments(Role::Client, "worker");
        let arguments = [&["lock", "job", "--coordinators", &coordinators][..], options].concat();
        let mut arguments: Vec<String> = arguments.into_iter().map(str::to_owned).chain(own).collect();
        arguments.extend(["--"].iter().chain(program).map(|word| (*word).to_owned()));
        self.cluster.spawn(process, &arguments)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Waits for a file with content, and returns it.
    fn written(&self, name: &str) -> String {
        let read = || match fs::read_to_string(self.path(name)) {
            Ok(text) if text.ends_with('\n') => Ok(text.trim().to_owned()),
            found => Err(format!("{found:?}")),
        };
        wait_for(name, TIMEOUT, read).0
    }

    /// Returns the revision of the lock's row; zero without one.
    fn revision(&self) -> Result<u64, String> {
        let ran = self.cluster.archon(&["kv", "get", "job", "--table", "locks", "-o", "json"]);
        match ran.code {
            0 | 3 => {
                let document: serde_json::Value =
                    serde_json::from_str(&ran.stdout).map_err(|error| error.to_string())?;
                Ok(document["revision"].as_u64().unwrap_or(0))
            }
            _ => Err(format!("{ran:?}")),
        }
    }

    fn released(&self) {
        wait_for("the lock to be released", TIMEOUT, || match self.revision() {
            Ok(0) => Ok(()),
            found => Err(format!("{found:?}")),
        });
    }
}

fn small() -> Options {
    Options { coordinators: 1, nodes: vec!["athens"], nodes_min: 1, ..Options::default() }
}

fn code(process: &mut Process) -> i32 {
    let status: ExitStatus = process.wait_exit(TIMEOUT);
    status.code().unwrap_or_else(|| panic!("{} ended by {status}: {}", process.name(), process.log()))
}

/// Returns whether a process runs; one that waits for its parent does not.
fn runs(pid: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    let state = status.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    state.flatten().is_some_and(|state| state != 'Z' && state != 'X')
}

/// Seconds since the start of the machine.
fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").expect("Linux");
    text.split(' ').next().and_then(|seconds| seconds.parse().ok()).expect("seconds")
}

#[test]
fn contenders_run_one_after_the_other_with_rising_tokens() {
    let world = World::start("1", &small());
    let script = r#"
mkdir "$D/alone" || echo "two at once" >> "$D/journal"
echo "$ARCHON_LOCK_NAME $ARCHON_LOCK_TABLE $ARCHON_LOCK_EPOCH" >> "$D/journal"
[ "$ARCHON_LOCK_REMAINING_MS" -gt 0 ] || echo "no time" >> "$D/journal"
rmdir "$D/alone"
"#;
    let mut contenders: Vec<Process> =
        (0..5).map(|number| world.lock(&format!("contender-{number}"), &[], script)).collect();
    for contender in &mut contenders {
        assert_eq!(code(contender), 0, "{}", contender.log());
    }
    let journal = fs::read_to_string(world.path("journal")).expect("a journal");
    let tokens: Vec<u64> = journal
        .lines()
        .map(|line| line.strip_prefix("job locks ").and_then(|token| token.parse().ok()).expect(line))
        .collect();
    assert!(tokens.len() == 5 && tokens.windows(2).all(|pair| pair[0] < pair[1]), "{journal}");
    world.released();
}

#[test]
fn killed_holder_is_replaced_and_its_command_is_dead() {
    let world = World::start("1", &small());
    let script = r#"echo $$ > "$D/pid"; echo "$ARCHON_LOCK_EPOCH" > "$D/first"; await never"#;
    let mut holder = world.lock("holder", &["--lease", "10s"], script);
    let first: u64 = world.written("first").parse().expect("a token");
    let pid = world.written("pid");
    let mut next = world.lock("next", &["--no-wait"], "true");
    assert_eq!(code(&mut next), 122, "the holder renews its lock: {}", next.log());
    assert!(next.log().contains("is held by") && next.log().contains("--wait"), "{}", next.log());
    let mut waiting = world.lock("waiting", &["--wait", "60s"], r#"echo "$ARCHON_LOCK_EPOCH" > "$D/second""#);
    holder.kill();
    wait_for("the command of the dead holder to end", TIMEOUT, || if runs(&pid) { Err("it runs") } else { Ok(()) });
    assert_eq!(code(&mut waiting), 0, "{}", waiting.log());
    let second: u64 = world.written("second").parse().expect("a token");
    assert!(first < second, "{first}, then {second}");
    // A holder that died is found by contenders that do not wait for live ones, too.
    let mut holder = world.lock("dies", &["--lease", "1s"], r#"echo x > "$D/third"; await never"#);
    world.written("third");
    holder.kill();
    let mut last = world.lock("last", &["--no-wait"], "exit 7");
    assert_eq!(code(&mut last), 7, "{}", last.log());
}

/// The command goes on while `archon lock` is paused, and learns of nothing: only the token protects the store.
#[test]
fn paused_holder_is_fenced_and_ends_its_command() {
    let world = World::start("1", &small());
    let script = r#"echo "$ARCHON_LOCK_EPOCH" > "$D/first"; store; await go; store; echo x > "$D/late"; await never"#;
    let mut holder = world.lock("holder", &["--lease", "4s"], script);
    let first = world.written("first");
    holder.pause();
    let mut next = world.lock("next", &["--wait", "60s"], r#"store; echo "$ARCHON_LOCK_EPOCH" > "$D/second""#);
    assert_eq!(code(&mut next), 0, "{}", next.log());
    let second = world.written("second");
    fs::write(world.path("go"), "").expect("a file");
    world.written("late");
    let store = fs::read_to_string(world.path("store")).expect("a store");
    assert_eq!(store, format!("took {first}\ntook {second}\nrefused {first}\n"));
    holder.resume();
    assert_eq!(code(&mut holder), 123, "{}", holder.log());
    assert!(holder.log().contains("was lost, and the command was ended"), "{}", holder.log());
}

#[test]
fn lock_outlives_the_leader_of_its_row() {
    let options = Options { coordinators: 1, replication: 3, partitions: 3, ..Options::default() };
    let mut world = World::start("3", &options);
    world.cluster.wait_settled("locks", "locks with three copies", TIMEOUT, |_| true);
    let mut holder = world.lock("holder", &["--lease", "20s"], r#"echo x > "$D/first"; await go; store"#);
    world.written("first");
    let located = world.cluster.json(&["partition", "locate", "job", "--table", "locks"]).expect("a partition");
    let leader = located["leader"].as_str().expect("a leader").to_owned();
    let before = world.revision().expect("a row");
    world.cluster.take_node(&leader).kill();
    wait_for("the lock to be renewed at the next leader", TIMEOUT, || match world.revision() {
        Ok(revision) if revision > before => Ok(()),
        found => Err(format!("{found:?}, and was {before}")),
    });
    fs::write(world.path("go"), "").expect("a file");
    assert_eq!(code(&mut holder), 0, "{}", holder.log());
    assert!(world.written("store").starts_with("took "));
    world.released();
}

/// A stubborn command notes the time until it is killed.
#[test]
fn command_ends_before_the_lease_without_a_cluster() {
    let mut world = World::start("1", &Options { room: Room::Whole, ..small() });
    let script = r#"
trap 'echo x > "$D/asked"' TERM
while true; do cut -d' ' -f1 /proc/uptime > "$D/tick.new"; mv "$D/tick.new" "$D/tick"; sleep 0.02; done
"#;
    let mut holder = world.lock("holder", &["--lease", "10s"], script);
    world.written("tick");
    world.cluster.take_node("athens").kill();
    // No renewal is sent after this moment and succeeds.
    let lost = uptime();
    assert_eq!(code(&mut holder), 123, "{}", holder.log());
    assert!(world.path("asked").exists(), "SIGTERM comes first");
    let last: f64 = world.written("tick").parse().expect("seconds");
    assert!(last < lost + 10.0, "it ran {} s after the last possible renewal", last - lost);
    assert!(holder.log().contains("could not be renewed"), "{}", holder.log());
}

/// The output of command and holder is a full pipe without a reader that reads.
#[test]
fn unread_output_does_not_prolong_the_command() {
    let mut world = World::start("1", &small());
    let script = r#"trap '' TERM; echo $$ > "$D/pid"; while true; do head -c 4096 /dev/zero; done"#;
    let script = format!("D='{}'\n{script}", world.directory.display());
    let own = world.cluster.credentials_arguments(Role::Client, "worker");
    let mut command = Command::new(EXE);
    command.args(["lock", "job", "--lease", "4s", "--coordinators", &world.cluster.coordinator_list()]);
    command.args(own).args(["--", "sh", "-c", &script]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    command.stdout(writer.try_clone().expect("a pipe")).stderr(writer);
    let mut holder = command.spawn().expect("it starts");
    drop(command);
    let pid = world.written("pid");
    world.cluster.take_node("athens").kill();
    wait_for("the command to end", TIMEOUT, || if runs(&pid) { Err("it runs") } else { Ok(()) });
    drop(reader);
    holder.wait().expect("it ends");
}

#[test]
fn dropped_table_ends_the_command() {
    let world = World::start("1", &small());
    let mut holder = world.lock("holder", &["--lease", "10s"], r#"echo x > "$D/first"; await never"#);
    world.written("first");
    world.cluster.done(&["table", "drop", "locks", "--yes"]);
    assert_eq!(code(&mut holder), 123, "{}", holder.log());
    assert!(holder.log().contains("its row was deleted"), "it does not wait for the lease: {}", holder.log());
}

#[test]
fn deleted_row_ends_the_command() {
    let world = World::start("1", &small());
    let mut holder = world.lock("holder", &["--lease", "10s"], r#"echo x > "$D/first"; await never"#);
    world.written("first");
    world.cluster.done(&["kv", "del", "job", "--table", "locks"]);
    assert_eq!(code(&mut holder), 123, "{}", holder.log());
    assert!(holder.log().contains("its row was deleted"), "{}", holder.log());
}

#[test]
fn exit_codes_and_signals_are_those_of_the_command() {
    let world = World::start("1", &small());
    let mut fails = world.lock("fails", &[], "exit 7");
    assert_eq!(code(&mut fails), 7, "{}", fails.log());
    let mut killed = world.lock("killed", &[], "kill -9 $$");
    assert_eq!(code(&mut killed), 137, "{}", killed.log());
    let mut missing = world.lock_program("missing", &[], &["no-such-program"]);
    assert_eq!(code(&mut missing), 127, "{}", missing.log());
    assert!(missing.log().contains("no-such-program"), "{}", missing.log());
    let mut directory = world.lock_program("directory", &[], &["/tmp"]);
    assert_eq!(code(&mut directory), 126, "{}", directory.log());
    let mut trapped = world.lock("trapped", &[], r#"trap 'exit 9' TERM; echo x > "$D/ready"; await never"#);
    world.written("ready");
    trapped.ask_to_end();
    assert_eq!(code(&mut trapped), 9, "{}", trapped.log());
    world.released();
    // A process in the background ends with its group.
    let mut leaves = world.lock("leaves", &[], r#"sleep 600 & echo $! > "$D/background""#);
    assert_eq!(code(&mut leaves), 0, "{}", leaves.log());
    let background = world.written("background");
    wait_for("the background process to end", TIMEOUT, || if runs(&background) { Err("it runs") } else { Ok(()) });
}

#[test]
fn unusable_locks_are_refused_with_a_remedy() {
    let world = World::start("1", &small());
    let mut absent = world.lock("absent", &["--table", "nosuch"], "true");
    assert_eq!(code(&mut absent), 3, "{}", absent.log());
    assert!(absent.log().contains("archon table create nosuch"), "{}", absent.log());
    world.cluster.done(&["kv", "put", "job", "a value", "--table", "locks"]);
    let mut other = world.lock("other", &[], "true");
    assert_eq!(code(&mut other), 4, "{}", other.log());
    assert!(other.log().contains("no lock"), "{}", other.log());
    world.cluster.done(&["table", "create", "jobs", "--partitions", "2", "--lease"]);
    let mut lease = world.lock("lease", &["--table", "jobs"], "true");
    assert_eq!(code(&mut lease), 2, "{}", lease.log());
    world.cluster.done(&["kv", "del", "job", "--table", "locks"]);
    let mut holder = world.lock("holder", &[], r#"echo x > "$D/first"; await never"#);
    world.written("first");
    let mut late = world.lock("late", &["--wait", "2s"], "true");
    assert_eq!(code(&mut late), 122, "{}", late.log());
    holder.ask_to_end();
    assert_eq!(code(&mut holder), 143, "{}", holder.log());
}
