//! Blocking work of a process at its limit of threads. Has its own program, because it limits the memory of the
//! process.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use archon_security::build_runtime;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::mpsc;
use tokio::runtime::Builder;

/// One stack of this size fits below the limit, a second one does not.
const STACK_BYTES: usize = 1 << 30;
const ROOM_BYTES: u64 = 256 << 20;

fn address_space_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * rustix::param::page_size() as u64
}

#[test]
fn blocking_work_waits_for_thread_at_limit() {
    let runtime = build_runtime(Builder::new_current_thread().thread_stack_size(STACK_BYTES)).unwrap();
    let before = getrlimit(Resource::As);
    let limit = Rlimit { current: Some(address_space_bytes() + ROOM_BYTES), maximum: before.maximum };
    setrlimit(Resource::As, limit).unwrap();
    runtime.block_on(async {
        let (free, wait) = mpsc::channel::<()>();
        let first = tokio::task::spawn_blocking(move || wait.recv().is_err());
        // The only thread is busy, and the system refuses another one.
        let second = tokio::task::spawn_blocking(|| 2);
        let lookup = tokio::spawn(async { tokio::net::lookup_host("localhost:1").await.map(Iterator::count) });
        tokio::task::yield_now().await;
        drop(free);
        assert!(first.await.unwrap());
        assert_eq!(second.await.unwrap(), 2);
        assert!(lookup.await.unwrap().unwrap() > 0);
    });
    setrlimit(Resource::As, before).unwrap();
}
