//! Full, failing and slow disks, and silent threads, by means of the machine: a small file system, and `strace`.

use crate::cluster::Cluster;
use archon_testkit::{check, wait_for};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A small file system in memory, unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of this size; `None` if the machine does not allow it.
    ///
    /// # Panics
    /// If the directory cannot be created.
    pub fn mount(at: &Path, megabytes: u32) -> Option<Self> {
        fs::create_dir_all(at).expect("a directory");
        let size = format!("size={megabytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(at).status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy unmount: the node still has it open.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// System calls that make data durable: direct writes of the log, and syncs of everything else and of a log on a file
/// system without direct writes. Both are needed, since a test does not choose where it runs.
pub const DURABLE_CALLS: &str = "pwritev2,fdatasync";

/// Injection that makes [`DURABLE_CALLS`] report success without effect. A direct write reports one block at a time,
/// until its caller has written all.
pub const NOTHING_DURABLE: [&str; 2] = ["pwritev2:retval=4096", "fdatasync:retval=0"];

/// Injection that blocks a thread's outgoing traffic: sends fail with EAGAIN, as on a full socket buffer, and the
/// thread waits for space.
pub const SAYS_NOTHING: [&str; 3] = ["sendto:error=EAGAIN", "sendmsg:error=EAGAIN", "writev:error=EAGAIN"];

/// `strace` on threads of a process, stopped when dropped.
#[derive(Debug)]
pub struct Injection(Child);

impl Injection {
    /// Starts injecting into all threads of a process, in the syntax of `strace -e inject=`; `None` if the machine does
    /// not allow it.
    pub fn start(pid: u32, injects: &[&str]) -> Option<Self> {
        Self::attach(&["-f".to_owned(), "-p".to_owned(), pid.to_string()], injects, &format!("/proc/{pid}/status"))
    }

    /// As [`start`](Self::start), limited to threads with this name prefix.
    pub fn start_on_threads(pid: u32, name: &str, injects: &[&str]) -> Option<Self> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().map(|task| task.path());
        let named = |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name));
        let threads: Vec<PathBuf> = tasks.filter(named).collect();
        let numbers = threads.iter().filter_map(|task| task.file_name()?.to_str());
        let whom: Vec<String> = numbers.flat_map(|number| ["-p".to_owned(), number.to_owned()]).collect();
        let last = threads.last()?.join("status");
        Self::attach(&whom, injects, last.to_str()?)
    }

    fn attach(whom: &[String], injects: &[&str], status: &str) -> Option<Self> {
        let calls: Vec<_> = injects.iter().filter_map(|inject| inject.split(':').next()).collect();
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-o", "/dev/null", "-e", &format!("trace={}", calls.join(","))]);
        for inject in injects {
            strace.args(["-e", &format!("inject={inject}")]);
        }
        let child = strace.args(whom).stdin(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let mut injection = Self(child);
        let (attached, _) = wait_for("strace to attach", Duration::from_secs(60), || {
            if let Some(status) = injection.0.try_wait().ok().flatten() {
                // `strace` exits with success when the traced process has ended: the fault may strike at once.
                return Ok(status.success());
            }
            let text = fs::read_to_string(status).map_err(|error| error.to_string())?;
            let tracer = text.lines().find(|line| line.starts_with("TracerPid:")).unwrap_or_default();
            check(tracer.split_whitespace().nth(1).is_some_and(|pid| pid != "0"), || tracer.to_owned()).map(|()| true)
        });
        attached.then_some(injection)
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        // SIGINT makes it detach, so that the traced process continues.
        let _ = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// Returns the number of log trims of a node: each means that its engine holds a replica's rows durably.
///
/// # Panics
/// If the node does not answer.
pub async fn log_trims(cluster: &Cluster, node: &str) -> u64 {
    let admin = cluster.admin(Duration::from_secs(10));
    let stats = admin.node_stats(cluster.node_address(node)).await.expect("the node reports its counters");
    stats.get("archon_node_log_trims_total")
}

/// Fills the file system of a directory to the last byte; returns the file that fills it.
///
/// # Panics
/// If it cannot be filled.
pub fn fill(directory: &Path) -> PathBuf {
    let ballast = directory.join("ballast");
    let status = Command::new("dd")
        .arg("if=/dev/zero")
        .arg(format!("of={}", ballast.display()))
        .arg("bs=64k")
        .stderr(Stdio::null())
        .status();
    assert!(!status.expect("dd runs").success(), "it was never full");
    ballast
}
