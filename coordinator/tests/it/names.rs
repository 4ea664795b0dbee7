//! Durability of every name that a coordinator relies on: its system calls are traced from its first start on.

use archon_coordinator::{Coordinator, CoordinatorConfig, FirstStart};
use archon_testkit::skipped;
use archon_types::{ProtocolRange, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const TRACED_DIRECTORY: &str = "ARCHON_TRACED_DIRECTORY";

/// The traced process; not a test of its own.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by another test under a tracer"]
async fn traced() {
    let Ok(directory) = std::env::var(TRACED_DIRECTORY) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listen = listener.local_addr().unwrap();
    let config = CoordinatorConfig {
        id: 1,
        listen,
        metrics_listen: None,
        transport: archon_security::Transport::default(),
        advertise: None,
        start: Some(FirstStart::Found { peers: [(1, listen.to_string())].into() }),
        data_dir: directory.into(),
        speaks: ProtocolRange::SPOKEN,
        timing: archon_coordinator::QuorumTiming::default(),
        settings: Settings::default(),
        settings_said: Default::default(),
    };
    let coordinator = Coordinator::start(listener, config).await.unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while !coordinator.is_leading() {
        assert!(Instant::now() < until, "it does not lead");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    coordinator.stop().await;
}

/// Returns the complete calls of all threads: a tracer prints the beginning and the end of overlapping calls apart.
fn calls(trace: &str) -> Vec<String> {
    let mut begun: BTreeMap<&str, String> = BTreeMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        if let Some(beginning) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, beginning.to_owned());
        } else if let Some((_, end)) = call.strip_prefix("<... ").and_then(|call| call.split_once(" resumed>")) {
            calls.push(begun.remove(thread).unwrap_or_default() + end);
        } else {
            calls.push(call.to_owned());
        }
    }
    calls
}

/// Returns the text between the `number`th pair of quotes.
fn quoted(call: &str, number: usize) -> PathBuf {
    call.split('"').nth(2 * number + 1).unwrap_or_default().into()
}

/// Returns the path of the descriptor that is a call's first argument.
fn of_descriptor(call: &str) -> PathBuf {
    let path = call.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    path.map_or_else(PathBuf::new, |(path, _)| path.into())
}

/// Names below a directory that a power failure may lose.
#[derive(Default)]
struct Names {
    known: BTreeSet<PathBuf>,
    unsynced: BTreeSet<PathBuf>,
    relied_on: usize,
}

impl Names {
    fn made(&mut self, path: PathBuf) {
        if self.known.insert(path.clone()) {
            self.unsynced.insert(path);
        }
    }

    fn rely_on(&mut self, path: &Path, call: &str) {
        self.relied_on += 1;
        for above in path.ancestors() {
            assert!(!self.unsynced.contains(above), "{} is not durable at {call}", above.display());
        }
    }

    fn follow(&mut self, call: &str, data: &Path) {
        let (name, ended_well) = (call.split('(').next().unwrap_or_default(), !call.contains(") = -1"));
        match name {
            _ if !ended_well => {}
            "mkdir" | "mkdirat" => self.made(quoted(call, 0)),
            "openat" if call.contains("O_CREAT") => self.made(quoted(call, 0)),
            "rename" | "renameat" | "renameat2" => {
                let (from, to) = (quoted(call, 0), quoted(call, 1));
                self.known.remove(&from);
                self.unsynced.remove(&from);
                self.known.insert(to.clone());
                self.unsynced.insert(to);
            }
            "fsync" => {
                let synced = of_descriptor(call);
                self.unsynced.retain(|name| name.parent() != Some(&synced));
            }
            // A vote or an entry, which is acknowledged after that.
            "pwritev2" | "fdatasync" => {
                let file = of_descriptor(call);
                if file.extension().is_some_and(|end| end == "seg") {
                    self.rely_on(&file, call);
                    self.rely_on(&data.join("identity.json"), call);
                    self.rely_on(&data.join("snapshots"), call);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn names_are_durable_before_they_are_relied_on() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (trace, data) = (root.path().join("trace"), root.path().join("above/and/data"));
    let status = Command::new("strace")
        .args(["-f", "-y", "-s", "512", "-e"])
        .arg("trace=mkdir,mkdirat,openat,rename,renameat,renameat2,fsync,fdatasync,pwritev2")
        .arg("-o")
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "names::traced", "--ignored", "--nocapture"])
        .env(TRACED_DIRECTORY, &data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let text = std::fs::read_to_string(&trace).unwrap_or_default();
    if text.is_empty() {
        skipped("this machine does not let a test trace a process");
        return;
    }
    assert!(status.is_ok_and(|status| status.success()), "the coordinator did not come up under the tracer");
    let mut names = Names::default();
    for call in calls(&text).iter().filter(|call| call.contains(&*root.path().to_string_lossy())) {
        names.follow(call, &data);
    }
    assert!(names.relied_on >= 6, "{} durable writes of the log: {text}", names.relied_on);
    for made in ["above", "above/and", "above/and/data", "above/and/data/raft-log", "above/and/data/snapshots"] {
        let mode = std::os::unix::fs::PermissionsExt::mode(&root.path().join(made).metadata().unwrap().permissions());
        assert!(names.known.contains(&root.path().join(made)) && mode & 0o777 == 0o700, "{made}: {mode:o}");
    }
}
