//! Ownership of lease-table partitions by a service: [`Participant`].

mod builder;
mod callback_runner;
mod callbacks;
mod config;
mod grant;
mod heartbeats;
mod held_reports;
mod load;
mod relays;
mod session;
mod state;
mod stats;

pub use builder::ParticipantBuilder;
pub use callbacks::{AcquireError, Callbacks};
pub use grant::{Grant, PartitionLost};
pub use load::ServiceLoad;
pub use stats::ParticipantStats;

use self::callback_runner::CallbackRunner;
use self::config::Config;
use self::session::Session;
use self::state::{ParticipantState, Phase};
use crate::error::{Error, Outcome};
use archon_types::{ErrorDetail, ErrorKind, PartitionId};
use std::fmt;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::DropGuard;

/// Maximum time for a coordinator to learn of a stop, before the participant reports its releases.
const HEARD_WITHIN: Duration = Duration::from_secs(1);
/// Time for leaving and the last callbacks after a stop's deadline.
const FAREWELL: Duration = Duration::from_secs(2);

/// A service's membership in a cluster: it owns partitions of lease tables, each in an epoch and while a lease covers
/// it.
///
/// ```no_run
/// use archon_client::{AcquireError, Callbacks, Epoch, Grant, Participant, PartitionId, ReleaseCause};
/// use std::time::Duration;
///
/// struct Jobs;
///
/// impl Callbacks for Jobs {
///     async fn acquire(&self, grant: Grant) -> Result<(), AcquireError> {
///         println!("{} is ours in epoch {}", grant.partition(), grant.epoch());
///         Ok(())
///     }
///     async fn release(&self, grant: Grant, _: ReleaseCause) {
///         println!("{} goes elsewhere: everything is flushed", grant.partition());
///     }
///     fn lost(&self, partition: PartitionId, _: Epoch) {
///         println!("{partition} is somebody else's: nothing of it is touched");
///     }
/// }
///
/// # async fn example() -> Result<(), archon_client::Error> {
/// let participant = Participant::builder(["127.0.0.1:7001", "127.0.0.1:7002"])
///     .table("jobs")
///     .name("w7")
///     .address("10.0.0.7:8080")
///     .partitions_max(16)
///     .timing(Duration::from_secs(8), Duration::from_secs(30), Duration::from_secs(45))
///     .start(Jobs)
///     .await?;
/// for grant in participant.owned() {
///     if let Ok(epoch) = grant.check() {
///         println!("whatever is written for {} carries epoch {epoch}", grant.partition());
///     }
/// }
/// participant.stop(Duration::from_secs(10)).await;
/// # Ok(())
/// # }
/// ```
///
/// Dropping it without [`Participant::stop`] ends it at once: all partitions are lost, and others take them over
/// after its lease has expired.
pub struct Participant {
    shared: Arc<ParticipantState>,
    thread: Option<JoinHandle<()>>,
    callbacks: task::JoinHandle<()>,
    _guard: DropGuard,
}

impl Participant {
    /// Starts building a participant of the cluster with these coordinators.
    pub fn builder<E: Into<String>>(coordinators: impl IntoIterator<Item = E>) -> ParticipantBuilder {
        ParticipantBuilder::new(coordinators.into_iter().map(Into::into).collect())
    }

    async fn start<C: Callbacks>(config: Config, callbacks: C) -> Result<Self, Error> {
        let deadline = Instant::now() + config.timeout;
        let timeout_ms = u64::try_from(config.timeout.as_millis()).unwrap_or(u64::MAX);
        let (effects, taken) = mpsc::unbounded_channel();
        let shared = Arc::new(ParticipantState::new(config, effects));
        let guard = shared.end.clone().drop_guard();
        let runtime = archon_security::build_runtime(&mut tokio::runtime::Builder::new_current_thread());
        let runtime = runtime.map_err(|error| no_thread(&error))?;
        let session = Session::new(Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("participant".to_owned());
        let thread = thread.spawn(move || runtime.block_on(session.run())).map_err(|error| no_thread(&error))?;
        let callbacks = tokio::spawn(CallbackRunner::new(Arc::clone(&shared), callbacks).run(taken));
        let mut phases = shared.phase.subscribe();
        let begun = phases.wait_for(|phase| !matches!(phase, Phase::Registering(_)));
        let begun = timeout_at(deadline, begun).await.map(|phase| phase.map(|phase| phase.clone()));
        match begun {
            Ok(Ok(Phase::Ended(Some(detail)))) => return Err(detail.into()),
            Ok(_) => {}
            Err(_) => {
                let last = match &*shared.phase.borrow() {
                    Phase::Registering(last) => last.clone().map(Box::new),
                    Phase::Registered | Phase::Ended(_) => None,
                };
                return Err(Error::DeadlineExceeded { timeout_ms, outcome: Outcome::Unknown, last });
            }
        }
        Ok(Self { shared, thread: Some(thread), callbacks, _guard: guard })
    }

    /// Returns a grant if the partition accepts new work now. Neither waits nor locks, and must be called for each
    /// piece of work.
    pub fn have_partition(&self, partition: PartitionId) -> Option<Grant> {
        self.shared.have(partition).map(|acquired| Grant::new(acquired, Arc::clone(&self.shared)))
    }

    /// Returns all grants that accept new work now, by partition.
    pub fn owned(&self) -> Vec<Grant> {
        let grant = |acquired| Grant::new(acquired, Arc::clone(&self.shared));
        self.shared.owned().into_iter().map(grant).collect()
    }

    /// Gives up a partition: it accepts no new work at once, the service releases it, and then the cluster gives it
    /// to another participant if there is one. Waits until that is done. Returns whether it was owned or going to be.
    pub async fn drop_partition(&self, partition: PartitionId) -> bool {
        let had = self.shared.decide(|decides, now| decides.drop(partition, now));
        if had {
            self.shared.until(|decides| decides.is_told(partition)).await;
        }
        had
    }

    /// Sets the load that heartbeats report and `archon node list` shows.
    pub fn publish_load(&self, load: ServiceLoad) {
        self.shared.load.store(Arc::new(load));
    }

    /// Returns the counters.
    pub fn stats(&self) -> ParticipantStats {
        self.shared.counters.read()
    }

    /// Waits until the participant ends by itself, and returns the reason: a permanent refusal by the cluster, for
    /// example because another participant took its name. All its partitions are lost then.
    pub async fn failed(&self) -> Error {
        let mut phases = self.shared.phase.subscribe();
        loop {
            if let Phase::Ended(Some(detail)) = &*phases.borrow_and_update() {
                return detail.clone().into();
            }
            if phases.changed().await.is_err() {
                return Error::Closed; // Cannot happen: `self` holds the sender.
            }
        }
    }

    /// Stops: accepts nothing, makes the service release everything, reports it, and leaves, after the delay of a loss
    /// if there was one ([`ParticipantBuilder::loss_delay`]). Partitions that are not released by the deadline are
    /// lost, and others wait for the lease. Returns whether everything was released;
    /// always false after [`Participant::failed`].
    pub async fn stop(mut self, within: Duration) -> bool {
        let shared = Arc::clone(&self.shared);
        let deadline = Instant::now() + within;
        // The service releases its partitions while the coordinators learn of the stop, and the reports follow together.
        shared.stopping.cancel();
        shared.decide(|decides, now| decides.stop(now));
        let heard = deadline.min(Instant::now() + HEARD_WITHIN);
        let _ = timeout_at(heard, shared.stopping_heard.cancelled()).await;
        shared.end_wait_for_stop();
        shared.gather_releases().await;
        let over = async {
            tokio::select! {
                biased;
                // After a permanent refusal everything is lost, so there is nothing to release.
                () = shared.over() => false,
                () = shared.released() => true,
            }
        };
        let released = timeout_at(deadline, over).await.unwrap_or(false);
        shared.end.cancel();
        let farewell = Instant::now() + FAREWELL;
        let over = timeout_at(farewell, shared.over()).await.is_ok();
        if let Some(thread) = self.thread.take().filter(|_| over) {
            // The thread has nothing left to do.
            let _ = task::spawn_blocking(move || thread.join()).await;
        }
        if timeout_at(farewell, &mut self.callbacks).await.is_err() {
            tracing::warn!("a callback of a participant is still running after its end; it is detached");
        }
        released
    }
}

impl fmt::Debug for Participant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Participant").field("name", &self.shared.config.name).finish_non_exhaustive()
    }
}

fn no_thread(error: &std::io::Error) -> Error {
    let message = format!("cannot start a thread: {error}; raise the limit on threads");
    ErrorDetail::new(ErrorKind::Overloaded, message).into()
}
