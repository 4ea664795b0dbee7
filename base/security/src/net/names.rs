//! Name resolution: a bounded cache of addresses, and one look-up per name at a time on threads of its own.

use crate::net::blocking::no_thread;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// Names in the cache. A cluster has fewer members.
const NAMES_MAX: usize = 1_024;
/// Look-ups in progress at once; each blocks a thread for as long as the resolver takes.
const THREADS_MAX: usize = 16;
/// Age up to which addresses are used without a new look-up.
const FRESH: Duration = Duration::from_secs(1);
/// Time for which a new look-up is preferred to addresses that are known already.
const PREFER_NEW: Duration = Duration::from_millis(50);

/// The addresses of a name, in the order of preference of the resolver. The ports mean nothing.
type Addresses = Arc<[SocketAddr]>;
/// The result of a look-up. Waiters share it, and an [`io::Error`] cannot be cloned.
type Outcome = Result<Addresses, (io::ErrorKind, String)>;

/// Resolves a host name, and blocks while it does.
type Resolver = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The names that this process has looked up.
pub(crate) static NAMES: LazyLock<Arc<Names>> = LazyLock::new(|| Names::new(Box::new(resolve)));

/// The resolver of the operating system.
fn resolve(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((name, 0).to_socket_addrs()?.collect())
}

/// A cache of names. A look-up goes on when its caller has given up, and its result serves the next caller. Addresses are kept until a
/// later look-up replaces them: a resolver that is slow or fails costs time once, not the connection.
pub(crate) struct Names {
    resolver: Box<Resolver>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    names: BTreeMap<Arc<str>, Name>,
    /// Look-ups that wait for a thread.
    queue: VecDeque<(Arc<str>, watch::Sender<Option<Outcome>>)>,
    threads: usize,
    /// Counts calls, to find the name that was used least recently.
    calls: u64,
}

#[derive(Default)]
struct Name {
    /// The last addresses that were found, and when.
    known: Option<(Addresses, Instant)>,
    /// The look-up in progress.
    pending: Option<watch::Receiver<Option<Outcome>>>,
    used: u64,
}

impl Names {
    pub(crate) fn new(resolver: Box<Resolver>) -> Arc<Self> {
        Arc::new(Self { resolver, inner: Mutex::default() })
    }

    /// Returns the addresses of `name`: those of a new look-up, or those known before if the look-up takes longer than a moment or fails.
    ///
    /// # Errors
    /// The look-up fails or takes longer than `within`, and no earlier one succeeded.
    pub(crate) async fn addresses(self: &Arc<Self>, name: &str, within: Duration) -> io::Result<Addresses> {
        if let Ok(address) = name.parse::<IpAddr>() {
            return Ok([SocketAddr::new(address, 0)].into());
        }
        let failed = |kind, why: &str| Err(io::Error::new(kind, format!("looking up {name}: {why}")));
        match self.begin(name) {
            (Some(known), None) => Ok(known),
            (Some(known), Some(pending)) => match timeout(PREFER_NEW, outcome_of(pending)).await {
                Ok(Ok(new)) => Ok(new),
                Ok(Err(_)) | Err(_) => Ok(known),
            },
            (None, Some(pending)) => match timeout(within, outcome_of(pending)).await {
                Ok(Ok(new)) => Ok(new),
                Ok(Err((kind, why))) => failed(kind, &why),
                Err(_) => {
                    let why = format!("looking up {name} took longer than {}", Seconds(within));
                    Err(io::Error::new(io::ErrorKind::TimedOut, why))
                }
            },
            (None, None) => failed(io::ErrorKind::WouldBlock, "too many look-ups are in progress"),
        }
    }

    /// Returns the addresses that are known, and the look-up to wait for, unless those are fresh.
    fn begin(self: &Arc<Self>, name: &str) -> (Option<Addresses>, Option<watch::Receiver<Option<Outcome>>>) {
        let mut inner = self.inner.lock();
        inner.calls += 1;
        let used = inner.calls;
        if !inner.names.contains_key(name) && !inner.make_room() {
            return (None, None);
        }
        let key: Arc<str> = name.into();
        let entry = inner.names.entry(Arc::clone(&key)).or_default();
        entry.used = used;
        let known = entry.known.clone();
        if let Some((addresses, _)) = known.as_ref().filter(|(_, found)| found.elapsed() < FRESH) {
            return (Some(Arc::clone(addresses)), None);
        }
        let known = known.map(|(addresses, _)| addresses);
        if let Some(pending) = &entry.pending {
            return (known, Some(pending.clone()));
        }
        let (sender, pending) = watch::channel(None);
        entry.pending = Some(pending.clone());
        inner.queue.push_back((key, sender));
        let begins = inner.threads < THREADS_MAX;
        inner.threads += usize::from(begins);
        drop(inner);
        if begins {
            self.start_thread();
        }
        (known, Some(pending))
    }

    /// Starts a thread that looks up the names in the queue and then ends. Without one the names fail, so that callers try again.
    fn start_thread(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let started = std::thread::Builder::new().name("archon-names".to_owned()).spawn(move || this.run());
        if started.is_err() {
            let error = no_thread("a look-up of a name");
            tracing::warn!(%error, "a look-up fails");
            let mut inner = self.inner.lock();
            inner.threads -= 1;
            if inner.threads == 0 {
                let unresolved = std::mem::take(&mut inner.queue);
                for (name, sender) in unresolved {
                    inner.end(&name, &Err((error.kind(), error.to_string())), &sender);
                }
            }
        }
    }

    fn run(&self) {
        loop {
            let (name, sender) = {
                let mut inner = self.inner.lock();
                let Some(next) = inner.queue.pop_front() else {
                    inner.threads -= 1;
                    return;
                };
                next
            };
            let outcome = match (self.resolver)(&name) {
                Ok(addresses) if addresses.is_empty() => Err((io::ErrorKind::NotFound, "it has no address".to_owned())),
                Ok(addresses) => Ok(addresses.into()),
                Err(error) => Err((error.kind(), error.to_string())),
            };
            self.inner.lock().end(&name, &outcome, &sender);
        }
    }
}

impl Inner {
    /// Removes the name that was used least recently if the cache is full. Returns whether there is room.
    fn make_room(&mut self) -> bool {
        if self.names.len() < NAMES_MAX {
            return true;
        }
        let idle = self.names.iter().filter(|(_, entry)| entry.pending.is_none());
        let Some(oldest) = idle.min_by_key(|(_, entry)| entry.used).map(|(name, _)| Arc::clone(name)) else {
            return false;
        };
        self.names.remove(&oldest);
        true
    }

    /// Records the result of a look-up and passes it to the waiters. Addresses survive a failed look-up.
    fn end(&mut self, name: &str, outcome: &Outcome, sender: &watch::Sender<Option<Outcome>>) {
        if let Some(entry) = self.names.get_mut(name) {
            entry.pending = None;
            if let Ok(addresses) = outcome {
                entry.known = Some((Arc::clone(addresses), Instant::now()));
            }
        }
        sender.send_replace(Some(outcome.clone()));
    }
}

/// Waits for the end of a look-up.
async fn outcome_of(mut pending: watch::Receiver<Option<Outcome>>) -> Outcome {
    let ended = pending.wait_for(Option::is_some).await;
    let outcome = ended.ok().and_then(|outcome| outcome.clone());
    outcome.unwrap_or_else(|| Err((io::ErrorKind::Other, "the look-up ended without a result".to_owned())))
}

/// A duration in messages: whole seconds where it is some, else milliseconds.
pub(crate) struct Seconds(pub(crate) Duration);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{} s", self.0.as_secs()),
            _ => write!(f, "{} ms", self.0.as_millis()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const SOON: Duration = Duration::from_secs(20);
    const ONE: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 0);
    const TWO: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 0);

    /// A resolver that the test drives, and the names that it was asked for.
    struct FakeResolver {
        asked: mpsc::Receiver<String>,
        answers: mpsc::Sender<io::Result<Vec<SocketAddr>>>,
    }

    impl FakeResolver {
        fn names() -> (Arc<Names>, Self) {
            let (ask, asked) = mpsc::channel();
            let (answers, answer) = mpsc::channel();
            let answer = Mutex::new(answer);
            let resolver = move |name: &str| {
                ask.send(name.to_owned()).unwrap();
                answer.lock().recv().unwrap_or_else(|_| Err(io::ErrorKind::NotConnected.into()))
            };
            (Names::new(Box::new(resolver)), Self { asked, answers })
        }
    }

    /// Makes what is known of a name too old to be used without a look-up.
    fn age(names: &Names, name: &str) {
        let mut inner = names.inner.lock();
        let (_, found) = inner.names.get_mut(name).unwrap().known.as_mut().unwrap();
        *found -= 2 * FRESH;
    }

    #[tokio::test]
    async fn slow_lookup_is_shared_and_outlives_its_callers() {
        let (names, played) = FakeResolver::names();
        let (first, second) = tokio::join!(
            names.addresses("c1.test", Duration::from_millis(10)),
            names.addresses("c1.test", Duration::from_millis(10)),
        );
        for given_up in [first, second] {
            let error = given_up.unwrap_err();
            assert_eq!(error.to_string(), "looking up c1.test took longer than 10 ms");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(names.inner.lock().threads, 1, "one thread blocks, whoever waits");
        played.answers.send(Ok(vec![ONE])).unwrap();
        assert_eq!(*names.addresses("c1.test", SOON).await.unwrap(), [ONE]);
        assert_eq!(played.asked.iter().take(1).collect::<Vec<_>>(), ["c1.test"]);
        assert!(played.asked.try_recv().is_err(), "a second look-up was begun");
    }

    #[tokio::test]
    async fn known_addresses_are_used_while_resolver_is_slow() {
        let (names, played) = FakeResolver::names();
        played.answers.send(Ok(vec![ONE])).unwrap();
        assert_eq!(*names.addresses("c1.test", SOON).await.unwrap(), [ONE]);
        age(&names, "c1.test");
        // No answer comes.
        assert_eq!(*names.addresses("c1.test", SOON).await.unwrap(), [ONE]);
        played.answers.send(Err(io::ErrorKind::ConnectionRefused.into())).unwrap();
        while names.inner.lock().threads > 0 {
            tokio::task::yield_now().await;
        }
        // The look-up failed, and the next one is slow.
        assert_eq!(*names.addresses("c1.test", SOON).await.unwrap(), [ONE]);
        played.answers.send(Ok(vec![TWO])).unwrap();
        while names.inner.lock().threads > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*names.addresses("c1.test", SOON).await.unwrap(), [TWO]);
    }

    #[tokio::test]
    async fn failed_lookup_names_the_host() {
        let (names, played) = FakeResolver::names();
        played.answers.send(Err(io::Error::new(io::ErrorKind::NotFound, "no such host"))).unwrap();
        let error = names.addresses("c1.test", SOON).await.unwrap_err();
        assert_eq!(error.to_string(), "looking up c1.test: no such host");
        played.answers.send(Ok(vec![])).unwrap();
        let error = names.addresses("c1.test", SOON).await.unwrap_err();
        assert_eq!(error.to_string(), "looking up c1.test: it has no address");
        assert_eq!(*names.addresses("127.0.0.1", SOON).await.unwrap(), [SocketAddr::from(([127, 0, 0, 1], 0))]);
    }

    #[tokio::test]
    async fn cache_and_threads_are_bounded() {
        let names = Names::new(Box::new(|name| Ok(vec![if name == "n0.test" { TWO } else { ONE }])));
        for number in 0..2 * NAMES_MAX {
            names.addresses(&format!("n{number}.test"), SOON).await.unwrap();
        }
        assert_eq!(names.inner.lock().names.len(), NAMES_MAX);
        assert_eq!(*names.addresses("n0.test", SOON).await.unwrap(), [TWO]);
        let (names, played) = FakeResolver::names();
        for number in 0..=NAMES_MAX {
            let error = names.addresses(&format!("n{number}.test"), Duration::ZERO).await.unwrap_err();
            assert_eq!(error.kind() == io::ErrorKind::WouldBlock, number == NAMES_MAX, "{number}: {error}");
        }
        assert_eq!(names.inner.lock().threads, THREADS_MAX);
        drop(played);
    }
}
