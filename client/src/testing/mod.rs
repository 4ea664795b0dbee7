//! For tests of services that are built on [`Participant`](crate::Participant): a coordinator that does what a test tells it.
//!
//! The feature `testing` brings it, which belongs among the dev-dependencies:
//!
//! ```toml
//! [dev-dependencies]
//! archon-client = { path = "../archon/client", features = ["testing"] }
//! ```

mod reported;
mod script;
mod service;

pub use reported::{NotReported, Reported};

use self::script::Script;
use self::service::Service;
use crate::{Epoch, ErrorDetail, ErrorKind, PartitionId};
use archon_frames::{Incoming, PARTIAL_BYTES_MAX, PartialBudget, sort};
use archon_proto::v1::session_server::SessionServer;
use archon_security::Transport;
use archon_security::connection_limit::ConnectionLimit;
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tonic::transport::Server;

/// Connections at once, half of them from one address.
const CONNECTIONS_MAX: usize = 1_024;

/// A coordinator for tests of a service: it listens on loopback, takes every participant, and gives and takes partitions as a test
/// tells it to. The participant is the real one, over the real wire, with its own clock and leases; only who owns what is decided
/// by the test, so that what is rare in a cluster can be had at will:
///
/// | what a service must stand | how |
/// |---|---|
/// | a partition is lost in the middle of work | [`Self::withdraw`]: at once. [`Self::silence`]: when the lease runs out. [`Self::end_life`]: all of them |
/// | it is asked to give one up | [`Self::hand_over`] |
/// | it gets the same one again | [`Self::grant`], in a higher epoch |
/// | news come late | [`Self::delay`]: the lease is half over when its grant arrives, or more |
/// | news come twice, and old ones after new ones | [`Self::repeat`] |
/// | nobody hears what it reports | [`Self::lose_answers`]: it tells everything twice |
/// | it is refused | [`Self::refuse`] |
///
/// It keeps the promises of a cluster: a partition that is granted again has a higher epoch. It does not wait for a lease before
/// it grants a partition to another participant, unless the test does, so tests of what two instances do at the same time belong
/// before real coordinators (`archon coordinator`), as do tests of tables, limits, plans and orders.
///
/// ```
/// use archon_client::testing::{FakeCoordinator, Reported};
/// use archon_client::{AcquireError, Callbacks, Epoch, Grant, Participant, PartitionId, Why};
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// /// What is under test: it must forget what it has of a partition when that is lost.
/// #[derive(Clone, Default)]
/// struct Carts(Arc<Mutex<Vec<PartitionId>>>);
///
/// impl Callbacks for Carts {
///     async fn acquire(&self, grant: Grant) -> Result<(), AcquireError> {
///         self.0.lock().unwrap().push(grant.partition());
///         Ok(())
///     }
///     async fn release(&self, grant: Grant, _: Why) {
///         self.0.lock().unwrap().retain(|partition| *partition != grant.partition());
///     }
///     fn lost(&self, partition: PartitionId, _: Epoch) {
///         self.0.lock().unwrap().retain(|other| *other != partition);
///     }
/// }
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let coordinator = FakeCoordinator::start().await?;
///     let carts = Carts::default();
///     let builder = Participant::builder([coordinator.address()]).table("carts").name("w1").address("127.0.0.1:8080");
///     let participant = builder.start(carts.clone()).await?;
///
///     let partition = coordinator.partition("carts", 3);
///     let epoch = coordinator.grant("w1", partition);
///     let acquired = Reported::Acquired { participant: "w1".into(), partition, epoch };
///     coordinator.wait_for(Duration::from_secs(5), |reported| reported.contains(&acquired)).await?;
///     assert_eq!(*carts.0.lock().unwrap(), [partition]);
///
///     coordinator.withdraw(partition);
///     while !carts.0.lock().unwrap().is_empty() {
///         tokio::time::sleep(Duration::from_millis(5)).await; // `lost` was not called yet.
///     }
///     assert!(participant.have_partition(partition).is_none());
///     Ok(())
/// }
/// ```
///
/// It runs on a thread of its own until it is dropped, so a service that blocks its runtime does not keep it from answering.
pub struct FakeCoordinator {
    address: SocketAddr,
    shared: Arc<Shared>,
    _end: DropGuard,
}

/// What the thread and the handle share.
struct Shared {
    script: Mutex<Script>,
    /// Rises with each change of the script.
    changed: watch::Sender<u64>,
}

impl Shared {
    /// Changes the script, and wakes whoever waits for a change.
    fn change<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        let result = change(&mut self.script.lock());
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
        result
    }
}

impl FakeCoordinator {
    /// Starts one that knows nobody, on a free port of loopback. To be called on a runtime of tokio.
    ///
    /// # Errors
    /// If it cannot listen, or have a thread.
    pub async fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared { script: Mutex::default(), changed: watch::Sender::new(0) });
        let end = CancellationToken::new();
        let (bound, address) = oneshot::channel();
        let (serving, ended) = (Arc::clone(&shared), end.clone());
        let thread = std::thread::Builder::new().name("fake-coordinator".to_owned());
        thread.spawn(move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => {
                runtime.block_on(serve(serving, ended, bound));
                runtime.shutdown_background();
            }
            Err(error) => drop(bound.send(Err(error))),
        })?;
        let address = address.await.map_err(io::Error::other)??;
        Ok(Self { address, shared, _end: end.drop_guard() })
    }

    /// Where it listens, for [`Participant::builder`](crate::Participant::builder).
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// A partition of a table, which has as many as one likes. The table need not be known before.
    pub fn partition(&self, table: &str, index: u32) -> PartitionId {
        self.shared.change(|script| script.partition(table, index))
    }

    /// Makes a participant the owner of a partition, in a higher epoch than it was ever owned in before. Another owner loses it;
    /// so does this one, to have it anew. A participant that is not registered yet has it once it is.
    pub fn grant(&self, participant: &str, partition: PartitionId) -> Epoch {
        self.shared.change(|script| script.grant(participant, partition))
    }

    /// Asks the owner of a partition to release it; then `to` is granted it, or nobody. Gives `false` if nobody owns it.
    pub fn hand_over(&self, partition: PartitionId, to: Option<&str>) -> bool {
        self.shared.change(|script| script.hand_over(partition, to))
    }

    /// Takes a partition from its owner, which loses it as soon as it hears of that. Gives `false` if nobody owns it.
    pub fn withdraw(&self, partition: PartitionId) -> bool {
        self.shared.change(|script| script.withdraw(partition))
    }

    /// Ends a participant's life, as a cluster does that has not heard of it for too long: whatever it owns is lost, it registers
    /// anew, and owns nothing until it is granted something.
    pub fn end_life(&self, participant: &str) {
        self.shared.change(|script| script.end_life(participant));
    }

    /// Leaves everything unanswered that a participant asks, until [`Self::answer`]: its lease runs out.
    pub fn silence(&self, participant: &str) {
        self.shared.change(|script| script.behaviour(participant).silent = true);
    }

    /// Ends [`Self::silence`], [`Self::delay`] and [`Self::refuse`].
    pub fn answer(&self, participant: &str) {
        self.shared.change(|script| {
            let behaviour = script.behaviour(participant);
            (behaviour.silent, behaviour.delay, behaviour.refused) = (false, Duration::ZERO, None);
        });
    }

    /// Answers each heartbeat and each poll for duties of a participant later by this much. A heartbeat is waited for an eighth of
    /// a lease, at least 150 ms and at most 2 s: what comes later is a heartbeat that failed.
    pub fn delay(&self, participant: &str, delay: Duration) {
        self.shared.change(|script| script.behaviour(participant).delay = delay);
    }

    /// Tells a participant its duties again: those of before, those that it obeys, and these once more as if they were newer.
    pub fn repeat(&self, participant: &str) {
        self.shared.change(|script| script.repeat(participant));
    }

    /// Takes the next `count` requests that report something, and leaves each unanswered, so that it is sent again.
    pub fn lose_answers(&self, participant: &str, count: u32) {
        self.shared.change(|script| script.behaviour(participant).answers_lost = count);
    }

    /// Refuses the registrations of a participant from now on. [`ErrorKind::Refused`] and [`ErrorKind::InvalidArgument`] are for
    /// good; after most others, such as [`ErrorKind::NoQuorum`], it asks again.
    pub fn refuse(&self, participant: &str, kind: ErrorKind, why: &str) {
        self.shared.change(|script| script.behaviour(participant).refused = Some(ErrorDetail::new(kind, why)));
    }

    /// Who owns a partition, and in which epoch.
    pub fn owner(&self, partition: PartitionId) -> Option<(String, Epoch)> {
        self.shared.script.lock().owner(partition)
    }

    /// All that participants have told, in the order in which it came; what was told twice stands there twice.
    pub fn reported(&self) -> Vec<Reported> {
        self.shared.script.lock().reported.clone()
    }

    /// Waits until what was reported is as wanted.
    ///
    /// # Errors
    /// [`NotReported`] with all that was, if it is not within this time.
    pub async fn wait_for(&self, within: Duration, wanted: impl Fn(&[Reported]) -> bool) -> Result<(), NotReported> {
        let mut changed = self.shared.changed.subscribe();
        let reached = async {
            while !wanted(&self.shared.script.lock().reported) {
                // The sender is ours.
                let _ = changed.changed().await;
            }
        };
        let reached = tokio::time::timeout(within, reached).await;
        reached.map_err(|_| NotReported { within, reported: self.reported() })
    }
}

/// Serves until it is told to end, and says first where.
async fn serve(shared: Arc<Shared>, end: CancellationToken, bound: oneshot::Sender<io::Result<SocketAddr>>) {
    let listener = match TcpListener::bind(("127.0.0.1", 0)).await {
        Ok(listener) => listener,
        Err(error) => return drop(bound.send(Err(error))),
    };
    let _ = bound.send(listener.local_addr());
    let service = Service::new(shared);
    let server = Server::builder().add_service(SessionServer::new(service.clone()));
    let (grpc, incoming) = mpsc::channel(CONNECTIONS_MAX);
    let incoming = futures::stream::unfold(incoming, |mut incoming| async move {
        incoming.recv().await.map(|connection| (connection, incoming))
    });
    let tasks = TaskTracker::new();
    let failed = |error: &io::Error| tracing::warn!(%error, "a connection could not be taken");
    let streams = move |_, kind, reader, writer| service.clone().stream(kind, reader, writer);
    let connections = Incoming::new(listener, ConnectionLimit::new(CONNECTIONS_MAX), Transport::default());
    let budget = PartialBudget::new(PARTIAL_BYTES_MAX);
    tokio::select! {
        () = sort(connections, grpc, budget, tasks, end.clone(), failed, streams) => {}
        served = server.serve_with_incoming(incoming) => {
            if let Err(error) = served {
                tracing::error!(%error, "the fake coordinator failed");
            }
        }
        () = end.cancelled() => {}
    }
}

impl fmt::Debug for FakeCoordinator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FakeCoordinator").field("address", &self.address).finish_non_exhaustive()
    }
}
