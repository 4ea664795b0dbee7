//! A proxy in front of every member, which identifies callers and applies the faults of each link.

use super::CLIENTS;
use super::callers::{Callers, Processes};
use super::pump::{Link, carry, passable, reset};
use crate::ports::free_addresses;
use archon_local_cluster::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The proxies of one cluster, on a thread of their own; stopped when dropped.
#[derive(Debug)]
pub struct Proxies {
    runtime: Option<Runtime>,
    shared: Arc<ProxyState>,
}

#[derive(Debug)]
struct ProxyState {
    callers: Callers,
    state: Mutex<State>,
    /// Blocked pairs of caller and member.
    shut: watch::Sender<BTreeSet<(String, String)>>,
}

#[derive(Debug, Default)]
struct State {
    hosts: Vec<String>,
    processes: Processes,
    /// By sender and receiver.
    links: BTreeMap<(String, String), watch::Sender<Link>>,
}

impl ProxyState {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn watch(&self, from: &str, to: &str) -> watch::Receiver<Link> {
        let mut state = self.state();
        let link = state.links.entry((from.to_owned(), to.to_owned()));
        link.or_insert_with(|| watch::channel(Link::default()).0).subscribe()
    }
}

impl Proxies {
    /// Starts the thread of the proxies.
    ///
    /// # Panics
    /// If no thread can be started.
    pub(super) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("proxies")
            .enable_all()
            .build()
            .expect("a runtime for the proxies");
        let shared =
            Arc::new(ProxyState { callers: Callers::new(), state: Mutex::default(), shut: watch::Sender::default() });
        shared.state().hosts.push(CLIENTS.to_owned());
        Self { runtime: Some(runtime), shared }
    }

    /// Adds a proxy in front of a new member.
    ///
    /// # Panics
    /// If no port is free.
    pub(super) fn add(&mut self, host: &str) -> Place {
        self.shared.state().hosts.push(host.to_owned());
        let listen = free_addresses(1).remove(0);
        let runtime = self.runtime.as_ref().expect("it is there until this is dropped");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port on loopback");
        let reached_at = listener.local_addr().expect("a bound listener has an address").to_string();
        let (shared, member, behind) = (self.shared.clone(), host.to_owned(), listen.clone());
        runtime.spawn(async move {
            loop {
                let Ok((caller, _)) = listener.accept().await else { continue };
                tokio::spawn(connect(shared.clone(), caller, member.clone(), behind.clone()));
            }
        });
        Place { listen, reached_at }
    }

    pub(super) fn runs_as(&self, host: &str, pid: u32) {
        let mut state = self.shared.state();
        state.processes.retain(|_, name| name != host);
        state.processes.insert(pid, host.to_owned());
    }

    pub(super) fn change(&self, from: &str, to: &str, change: impl FnOnce(&mut Link)) {
        let hosts = self.shared.state().hosts.clone();
        for host in [from, to] {
            assert!(hosts.iter().any(|known| known == host), "there is no host {host}");
        }
        drop(self.shared.watch(from, to));
        if let Some(link) = self.shared.state().links.get(&(from.to_owned(), to.to_owned())) {
            link.send_modify(change);
        }
    }

    pub(super) fn shut(&self, from: &str, to: &str, shut: bool) {
        let hosts = self.shared.state().hosts.clone();
        for host in [from, to] {
            assert!(hosts.iter().any(|known| known == host), "there is no host {host}");
        }
        let link = (from.to_owned(), to.to_owned());
        self.shared.shut.send_modify(|all| {
            let _ = if shut { all.insert(link) } else { all.remove(&link) };
        });
    }

    pub(super) fn slow(&self, host: &str, bytes_per_second: Option<u64>) {
        let hosts = self.shared.state().hosts.clone();
        for other in hosts.iter().filter(|other| *other != host) {
            self.change(host, other, |link| link.bytes_per_second = bytes_per_second);
            self.change(other, host, |link| link.bytes_per_second = bytes_per_second);
        }
    }

    pub(super) fn mend_everything(&self) {
        for link in self.shared.state().links.values() {
            link.send_modify(|link| *link = Link { resets: link.resets, ..Link::default() });
        }
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn connect(shared: Arc<ProxyState>, caller: TcpStream, member: String, behind: String) {
    let (Ok(from), Ok(here)) = (caller.peer_addr(), caller.local_addr()) else { return };
    let processes = shared.state().processes.clone();
    let found = shared.callers.find(from, here, processes).await;
    let name = found.unwrap_or_else(|| CLIENTS.to_owned());
    let (mut shut, mut shuts) = (shared.shut.subscribe(), shared.shut.subscribe());
    let link = (name.clone(), member.clone());
    // The sender lives as long as its users.
    let _ = shut.wait_for(|all| !all.contains(&link)).await;
    let (mut there, mut back) = (shared.watch(&name, &member), shared.watch(&member, &name));
    let (broken_there, broken_back) = (reset(there.clone()), reset(back.clone()));
    let connection = async {
        passable(&mut there).await;
        passable(&mut back).await;
        // If the member is down the connection is refused, and the caller sees its connection end.
        let Ok(called) = TcpStream::connect(&behind).await else { return };
        let _ = (caller.set_nodelay(true), called.set_nodelay(true));
        let (caller_reads, caller_writes) = caller.into_split();
        let (called_reads, called_writes) = called.into_split();
        tokio::join!(carry(caller_reads, called_writes, there), carry(called_reads, caller_writes, back));
    };
    tokio::select! {
        () = connection => {}
        () = broken_there => {}
        () = broken_back => {}
        _ = shuts.wait_for(|all| all.contains(&link)) => {}
    }
}
