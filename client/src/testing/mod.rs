//! Support for tests of services built on [`Participant`](crate::Participant): a coordinator controlled by the test.
//!
//! The feature `testing` enables it; add it to the dev-dependencies:
//!
//! ```toml
//! [dev-dependencies]
//! archonkv-client = { path = "../archon/client", features = ["testing"] }
//! ```

mod participant_report;
mod script;
mod service;

pub use participant_report::{ParticipantReport, ReportTimeout};

use self::script::Script;
use self::service::Service;
use crate::{Epoch, ErrorDetail, ErrorKind, PartitionId};
use archon_frames::testing::FakeServer;
use archon_proto::v1::session_server::SessionServer;
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tonic::service::Routes;

/// A coordinator for tests of a service. It listens on loopback, accepts every participant, and grants and withdraws
/// partitions as the test directs. The participant is the real one, with the real protocol, its own clock and its own
/// leases; only the ownership is decided by the test, so that events that are rare in a cluster can be produced at
/// any time:
///
/// | case that a service must handle | method |
/// |---|---|
/// | a partition is lost during work | [`Self::withdraw`]: immediately. [`Self::silence`]: when the lease expires. [`Self::end_life`]: all of them |
/// | it is asked to release a partition | [`Self::hand_over`] |
/// | it gets the same partition again | [`Self::grant`], in a higher epoch |
/// | answers arrive late | [`Self::delay`]: at least half of the lease is over when its grant arrives |
/// | answers arrive twice, and old ones after new ones | [`Self::repeat`] |
/// | answers to its reports are lost | [`Self::lose_answers`]: it reports everything twice |
/// | its registration is rejected | [`Self::refuse`] |
///
/// It gives the guarantees of a cluster: a partition that is granted again has a higher epoch. It does not wait for a
/// lease to expire before it grants a partition to another participant, unless the test does. Tests of two instances
/// that work at the same time therefore need real coordinators (`archon coordinator`), as do tests of tables, limits,
/// plans and orders.
///
/// ```
/// use archon_client::testing::{FakeCoordinator, ParticipantReport};
/// use archon_client::{AcquireError, Callbacks, Epoch, Grant, Participant, PartitionId, ReleaseCause};
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
///     async fn release(&self, grant: Grant, _: ReleaseCause) {
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
///     let acquired = ParticipantReport::Acquired { participant: "w1".into(), partition, epoch };
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
/// It runs on its own thread until it is dropped, so it answers even while a service blocks its runtime.
pub struct FakeCoordinator {
    server: FakeServer,
    shared: Arc<FakeState>,
}

/// State shared by the thread and the handle.
struct FakeState {
    script: Mutex<Script>,
    /// Incremented with each change of the script.
    changed: watch::Sender<u64>,
}

impl FakeState {
    /// Changes the script, and wakes all tasks that wait for a change.
    fn change<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        let result = change(&mut self.script.lock());
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
        result
    }
}

impl FakeCoordinator {
    /// Starts a coordinator without participants, on a free port of loopback. The caller must be on a tokio runtime.
    ///
    /// # Errors
    /// If it cannot listen, or cannot start a thread.
    pub async fn start() -> io::Result<Self> {
        let shared = Arc::new(FakeState { script: Mutex::default(), changed: watch::Sender::new(0) });
        let service = Service::new(Arc::clone(&shared));
        let routes = Routes::new(SessionServer::new(service.clone()));
        let streams = move |kind, reader, writer| service.clone().stream(kind, reader, writer);
        Ok(Self { server: FakeServer::start("127.0.0.1:0", routes, streams)?, shared })
    }

    /// Returns its address, for [`Participant::builder`](crate::Participant::builder).
    pub fn address(&self) -> String {
        self.server.address()
    }

    /// Returns a partition of a table. A table has any number of partitions, and is created by the first call with
    /// its name.
    pub fn partition(&self, table: &str, index: u32) -> PartitionId {
        self.shared.change(|script| script.partition(table, index))
    }

    /// Makes a participant the owner of a partition, in a higher epoch than all epochs before. The previous owner
    /// loses the partition, even if it is the same participant, which then acquires it again. A participant that is
    /// not registered yet gets the partition when it registers.
    pub fn grant(&self, participant: &str, partition: PartitionId) -> Epoch {
        self.shared.change(|script| script.grant(participant, partition))
    }

    /// Asks the owner of a partition to release it, and then grants it to `to`, if given. Returns `false` if it has
    /// no owner.
    pub fn hand_over(&self, partition: PartitionId, to: Option<&str>) -> bool {
        self.shared.change(|script| script.hand_over(partition, to))
    }

    /// Withdraws a partition from its owner, which loses it as soon as it learns of it. Returns `false` if it has no
    /// owner.
    pub fn withdraw(&self, partition: PartitionId) -> bool {
        self.shared.change(|script| script.withdraw(partition))
    }

    /// Withdraws a partition by the answers to heartbeats alone: the duties still name it. Returns `false` if it has no
    /// owner.
    pub fn withdraw_by_heartbeat(&self, partition: PartitionId) -> bool {
        self.shared.change(|script| script.withdraw_by_heartbeat(partition))
    }

    /// Ends a participant's incarnation, as a cluster does after too long without a heartbeat: the participant loses
    /// all its partitions, registers again, and owns nothing until the next grant.
    pub fn end_life(&self, participant: &str) {
        self.shared.change(|script| script.end_life(participant));
    }

    /// Leaves every request of a participant unanswered until [`Self::answer`]: its lease expires.
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

    /// Delays the answer to each heartbeat and each poll for duties of a participant by this time. A participant
    /// waits for the answer to a heartbeat for an eighth of a lease, at least 150 ms and at most 2 s; after that the
    /// heartbeat has failed.
    pub fn delay(&self, participant: &str, delay: Duration) {
        self.shared.change(|script| script.behaviour(participant).delay = delay);
    }

    /// Sends a participant its duties again: the previous ones, the current ones, and the current ones once more with
    /// a newer version.
    pub fn repeat(&self, participant: &str) {
        self.shared.change(|script| script.repeat(participant));
    }

    /// Accepts the next `count` requests with reports but leaves each unanswered, so that the participant sends it
    /// again.
    pub fn lose_answers(&self, participant: &str, count: u32) {
        self.shared.change(|script| script.behaviour(participant).answers_lost = count);
    }

    /// Rejects the registrations of a participant from now on. [`ErrorKind::Refused`] and
    /// [`ErrorKind::InvalidArgument`] are final; after most other errors, such as [`ErrorKind::NoQuorum`], it asks
    /// again.
    pub fn refuse(&self, participant: &str, kind: ErrorKind, why: &str) {
        self.shared.change(|script| script.behaviour(participant).refused = Some(ErrorDetail::new(kind, why)));
    }

    /// Returns the owner of a partition and its epoch.
    pub fn owner(&self, partition: PartitionId) -> Option<(String, Epoch)> {
        self.shared.script.lock().owner(partition)
    }

    /// Returns all reports of participants, in the order of arrival; a repeated report appears twice.
    pub fn reported(&self) -> Vec<ParticipantReport> {
        self.shared.script.lock().reported.clone()
    }

    /// Waits until the reports satisfy `wanted`.
    ///
    /// # Errors
    /// [`ReportTimeout`] with all reports, if they do not satisfy it within this time.
    pub async fn wait_for(
        &self,
        within: Duration,
        wanted: impl Fn(&[ParticipantReport]) -> bool,
    ) -> Result<(), ReportTimeout> {
        let mut changed = self.shared.changed.subscribe();
        let reached = async {
            while !wanted(&self.shared.script.lock().reported) {
                // The sender is owned by `self`.
                let _ = changed.changed().await;
            }
        };
        let reached = tokio::time::timeout(within, reached).await;
        reached.map_err(|_| ReportTimeout { within, reported: self.reported() })
    }
}

impl fmt::Debug for FakeCoordinator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("FakeCoordinator").field("server", &self.server).finish_non_exhaustive()
    }
}
