//! A coordinator's parts, with their order of start and stop.

use crate::audit::{self, Audit, WritingTask};
use crate::config::{CoordinatorConfig, FirstStart};
use crate::end::{End, FailureChannel, watch_health};
use crate::error::CoordinatorError;
use crate::first_start::{Founding, JoinAnswer, Newcomer, WaitReason, found, join};
use crate::identity::{Identity, IdentityError};
use crate::leader::control::{Control, STEP_UP_DEADLINE};
use crate::leader::session::CurrentSession;
use crate::quorum::own_address;
use crate::quorum::protocol_keeper::{self, SharedIdentity};
use crate::quorum::quorum_monitor;
use crate::raft::{
    self, Checksums, KeptMarks, LocalVoter, Peers, ProtocolSupport, Quorum, Storage, TRANSFER_DEADLINE, boot_at,
};
use crate::readiness;
use crate::serve::serve;
use crate::service::Context;
use crate::statistics::metrics::Metrics;
use crate::statistics::stats::Stats;
use crate::withdrawn;
use archon_security::Refusals;
use archon_security::connection_limit::{COORDINATOR_CONNECTIONS_MAX, ConnectionLimit, connections_for};
use archon_telemetry::{AskReady, CLOSE_DEADLINE, MetricsServer};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Maximum time for open requests to end when the server stops.
const SERVER_DEADLINE: Duration = Duration::from_secs(2);
/// Maximum time for the log to write its queue.
const WAL_DEADLINE: Duration = Duration::from_secs(5);
/// Maximum time for Raft to end.
const RAFT_DEADLINE: Duration = Duration::from_secs(2);

/// Maximum duration of a graceful stop. The process should not be killed earlier.
pub const STOP_DEADLINE: Duration = TRANSFER_DEADLINE
    .saturating_add(STEP_UP_DEADLINE)
    .saturating_add(RAFT_DEADLINE)
    .saturating_add(WAL_DEADLINE)
    .saturating_add(SERVER_DEADLINE)
    .saturating_add(audit::DEADLINE)
    .saturating_add(CLOSE_DEADLINE);

/// A running coordinator.
pub struct Coordinator {
    id: u64,
    address: SocketAddr,
    context: Context,
    /// Cancels work: sessions, waiting requests, the start itself.
    work: CancellationToken,
    /// Cancels the server.
    serving: CancellationToken,
    failure: watch::Receiver<Option<End>>,
    starting: JoinHandle<Result<RunningCoordinator, CoordinatorError>>,
    started: watch::Receiver<Start>,
    server: JoinHandle<()>,
    /// Records requests and refusals of the server, so it ends after it.
    audit: WritingTask,
    /// Serves metrics and health, also while everything else stops.
    metrics_server: Option<MetricsServer>,
}

/// Progress of the start.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Start {
    UnderWay,
    Done,
    Failed,
}

struct RunningCoordinator {
    quorum: Quorum,
    tasks: Vec<(&'static str, JoinHandle<()>)>,
    /// Kept for its lock.
    _identity: SharedIdentity,
}

impl Coordinator {
    /// Opens the data directory, serves on `listener`, and joins or creates the quorum in the background.
    ///
    /// # Errors
    /// [`CoordinatorError`] for a refused configuration or data directory. [`Coordinator::failed`] reports later
    /// failures.
    pub async fn start(listener: TcpListener, config: CoordinatorConfig) -> Result<Self, CoordinatorError> {
        Self::start_on(listener, config, Arc::default(), Storage::open).await
    }

    /// As [`Coordinator::start`], with vote, log and snapshots opened by `open_storage` for a data directory;
    /// `refusals` may be shared with others.
    pub(crate) async fn start_on<F>(
        listener: TcpListener,
        config: CoordinatorConfig,
        refusals: Arc<Refusals>,
        open_storage: F,
    ) -> Result<Self, CoordinatorError>
    where
        F: FnOnce(&Path, &LocalVoter) -> Result<Storage, CoordinatorError> + Send + 'static,
    {
        config.check()?;
        let listen = config.listen;
        let listening = |source| CoordinatorError::Listen { address: listen, source };
        let address = listener.local_addr().map_err(listening)?;
        if let Err(error) = archon_proto::listen::bound_segments(&listener) {
            tracing::warn!(%error, "connections over loopback may stall briefly: the segment length cannot be set");
        }
        let (identity, storage, local_voter) = open(&config, open_storage).await?;
        let recorded = storage.address_of(config.id)?;
        let work = CancellationToken::new();
        let serving = CancellationToken::new();
        let metrics = Arc::<Metrics>::default();
        let (audit, kept) = Audit::new(Arc::clone(&metrics));
        let context = Context {
            id: config.id,
            quorum: Arc::new(OnceLock::new()),
            waiting: WaitReason::default(),
            leading: CurrentSession::default(),
            metrics,
            audit,
            transport: config.transport.clone(),
            connection_limit: ConnectionLimit::noting(
                connections_for(COORDINATOR_CONNECTIONS_MAX, getrlimit(Resource::Nofile).current),
                refusals,
            ),
            stop: work.child_token(),
        };
        let peers =
            Peers::new(local_voter.clone(), storage.is_empty(), config.timing.election_max(), work.child_token());
        let (failed, failure) = watch::channel(None);
        let failed = Arc::new(failed);
        let stats = Stats { context: context.clone(), data_dir: config.data_dir.clone() };
        let metrics_server = match config.metrics_listen {
            Some(address) => {
                let listening = |source| CoordinatorError::ListenForMetrics { address, source };
                let listener = TcpListener::bind(address).await.map_err(listening)?;
                Some(MetricsServer::open(listener, Arc::new(stats.clone())).map_err(listening)?)
            }
            None => None,
        };
        let server = serve(listener, stats, peers.clone(), serving.clone(), Arc::clone(&failed))?;
        let audit = kept.write(&config.data_dir, context.connection_limit.refusals());
        let (progress, started) = watch::channel(Start::UnderWay);
        let starting = {
            let (context, work) = (context.clone(), work.clone());
            tokio::spawn(async move {
                let begun =
                    begin(config, identity, (storage, recorded), local_voter, peers, context, work, failed).await;
                progress.send_replace(if begun.is_ok() { Start::Done } else { Start::Failed });
                begun
            })
        };
        tracing::info!(id = context.id, %address, "coordinator serves");
        Ok(Self {
            id: context.id,
            address,
            context,
            work,
            serving,
            failure,
            starting,
            started,
            server,
            audit,
            metrics_server,
        })
    }

    /// Returns its address; with the real port if it was bound to port 0.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns this coordinator's number.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if it leads now: a hint, outdated at once.
    pub fn is_leading(&self) -> bool {
        self.context.leading.session().is_some()
    }

    /// Returns a check for its part in the quorum, as `/readyz` does.
    pub fn ask_ready(&self) -> AskReady {
        let context = self.context.clone();
        Box::new(move || readiness::ready(&context).map_err(|why| why.to_string()))
    }

    #[cfg(test)]
    pub(crate) fn quorum(&self) -> Option<&Quorum> {
        self.context.quorum.get()
    }

    /// Waits until this coordinator cannot continue, and returns the reason. Cancel-safe.
    pub async fn failed(&self) -> CoordinatorError {
        let (mut failure, mut started) = (self.failure.clone(), self.started.clone());
        let raft = async {
            match failure.wait_for(Option::is_some).await {
                Ok(end) => end.clone(),
                Err(_) => std::future::pending().await,
            }
        };
        let start = async {
            if started.wait_for(|start| *start == Start::Failed).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            end = raft => end.map_or(CoordinatorError::Start, |end| end.error(self.id)),
            () = start => CoordinatorError::Start,
        }
    }

    /// Hands leadership over if it can, then ends everything, each part by a deadline. Returns the failure of the
    /// start, if it failed.
    pub async fn shutdown(self) -> Option<CoordinatorError> {
        if let Some(quorum) = self.context.quorum.get()
            && quorum.leading_term().is_some()
        {
            quorum.give_way().await;
        }
        self.stop().await
    }

    /// Ends everything without a transfer of leadership, like a crash from the others' point of view. For tests.
    pub async fn stop(self) -> Option<CoordinatorError> {
        self.work.cancel();
        let failure = match self.starting.await {
            Ok(Ok(running)) => {
                for (task, handle) in running.tasks {
                    if let Err(error) = handle.await {
                        tracing::error!(task, %error, "a task failed");
                    }
                }
                if tokio::time::timeout(RAFT_DEADLINE, running.quorum.shutdown()).await.is_err() {
                    tracing::warn!("raft did not end in time");
                }
                close(running.quorum).await;
                None
            }
            Ok(Err(error)) => Some(error),
            Err(error) => Some(CoordinatorError::Task { task: "start", what: error.to_string() }),
        };
        self.serving.cancel();
        let mut server = self.server;
        if tokio::time::timeout(SERVER_DEADLINE, &mut server).await.is_err() {
            tracing::warn!("open requests did not end in time");
            server.abort();
        }
        self.audit.close().await;
        if let Some(metrics_server) = self.metrics_server {
            metrics_server.close().await;
        }
        failure
    }
}

async fn close(quorum: Quorum) {
    let wal = quorum.wal().clone();
    drop(quorum);
    let closed = tokio::task::spawn_blocking(move || wal.close(WAL_DEADLINE)).await;
    match closed {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the Raft log was not closed cleanly"),
        Err(error) => tracing::error!(%error, "closing the Raft log failed"),
    }
}

/// Opens and checks the data directory, off the runtime's threads.
async fn open<F>(
    config: &CoordinatorConfig,
    open_storage: F,
) -> Result<(Identity, Storage, LocalVoter), CoordinatorError>
where
    F: FnOnce(&Path, &LocalVoter) -> Result<Storage, CoordinatorError> + Send + 'static,
{
    let failed = |error: tokio::task::JoinError| CoordinatorError::Task { task: "open", what: error.to_string() };
    let (id, dir, start, speaks) = (config.id, config.data_dir.clone(), config.start.clone(), config.speaks);
    let timing = config.timing;
    let identity = tokio::task::spawn_blocking(move || {
        let identity = Identity::open(&dir, id, start.as_ref(), speaks, Storage::has_log, Uuid::new_v4)?;
        if identity.is_started() && !Storage::has_log(&dir) {
            return Err(IdentityError::LogLost { dir });
        }
        Ok(identity)
    });
    let mut identity = identity.await.map_err(failed)??;
    // Later starts use the quorum's knowledge: after a coordinator has moved, the list of its first start is outdated.
    if !identity.is_started() {
        config.check_reached(&config.first_address())?;
    }
    let unheeded = config.start.as_ref().filter(|_| identity.is_started());
    if let Some(flag) = unheeded.and_then(|start| start.unheeded(identity.is_founder())) {
        let data_dir = config.data_dir.display();
        tracing::warn!(
            %data_dir,
            "{flag} is ignored: this data directory is a member already and uses the membership of the quorum. To \
             found or join another quorum, give an empty --data-dir"
        );
    }
    let joined = match &config.start {
        Some(FirstStart::Join { through, learner }) if !identity.is_started() => {
            let address = config.first_address();
            let newcomer = Newcomer { id, storage: identity.storage(), address, learner: *learner, speaks };
            Some(join(&config.transport, &newcomer, through).await?)
        }
        _ => None,
    };
    let dir = config.data_dir.clone();
    let opened = tokio::task::spawn_blocking(move || {
        if let Some(JoinAnswer { quorum, members }) = joined {
            identity.set_joined(quorum, members)?;
        }
        let quorum = identity.quorum().ok_or_else(|| IdentityError::New { dir: dir.clone() })?;
        let expected = Arc::new(identity.peers().keys().copied().collect());
        let spoken = ProtocolSupport::new(speaks, identity.protocol());
        let marks = KeptMarks::begin(&dir, id, identity.storage(), Uuid::new_v4());
        let local_voter = LocalVoter {
            id,
            storage: identity.storage(),
            quorum,
            expected,
            spoken,
            timing,
            marks,
            checksums: Checksums::new(id),
        };
        let storage = open_storage(&dir, &local_voter)?;
        Ok((identity, storage, local_voter))
    });
    opened.await.map_err(failed)?
}

#[allow(clippy::too_many_arguments)]
async fn begin(
    config: CoordinatorConfig,
    mut identity: Identity,
    (storage, recorded): (Storage, Option<String>),
    local_voter: LocalVoter,
    peers: Peers,
    context: Context,
    work: CancellationToken,
    failed: FailureChannel,
) -> Result<RunningCoordinator, CoordinatorError> {
    let founders = Arc::new(identity.peers().clone());
    let founding = if storage.is_empty() && identity.is_founder() {
        tokio::select! {
            () = work.cancelled() => return Err(CoordinatorError::Stopped),
            founding = found(&config.transport, &local_voter, &founders, &context.waiting) => founding?,
        }
    } else {
        Founding::Member
    };
    match &founding {
        Founding::Fresh(_) => {
            tracing::info!(id = local_voter.id, "all coordinators of the list are running: founding the quorum")
        }
        Founding::Member => tracing::info!(id = local_voter.id, "taking part in the quorum"),
    }
    let hints = if identity.is_started() { config.hints() } else { BTreeMap::new() };
    // Its current address, if it may differ from the log's.
    let own_hint =
        hints.get(&config.id).filter(|own| recorded.as_ref().is_some_and(|recorded| recorded != *own)).cloned();
    if let Some(address) = own_hint.as_ref().or(recorded.as_ref())
        && config.advertise.is_none()
        && let Err(error) = config.check_reached(address)
    {
        // It may be the leader, which calls the others: without it the address could not be corrected.
        tracing::warn!("the others do not reach this coordinator: {error}");
    }
    for address in recorded.iter().chain(&own_hint) {
        if let Some(boot) = boot_at(&config.transport, &local_voter, address).await
            && boot != peers.boot()
        {
            return Err(CoordinatorError::Copied { id: local_voter.id, address: address.clone() });
        }
    }
    let marked = tokio::task::spawn_blocking(move || identity.mark_started().map(|()| identity)).await;
    let identity = marked.map_err(|error| CoordinatorError::Task { task: "start", what: error.to_string() })??;
    let (quorum, of_raft) =
        raft::start(storage, config.transport.clone(), local_voter, (Arc::clone(&founders), hints), &peers, &work)
            .await?;
    if let Founding::Fresh(storages) = founding {
        // One voter makes the set and the log carries it to the others, so that the sets cannot differ.
        if founders.keys().next() == Some(&quorum.id()) {
            quorum.initialize(&storages).await?;
        }
    }
    if context.quorum.set(quorum.clone()).is_err() {
        tracing::error!("raft was started twice; the first one stays");
    }
    let monitor = tokio::spawn(quorum_monitor::run(
        quorum.clone(),
        (config.settings.clone(), config.settings_said),
        Arc::clone(&context.metrics),
        work.clone(),
    ));
    let control = Control {
        quorum: quorum.clone(),
        leading: context.leading.clone(),
        transport: config.transport.clone(),
        metrics: Arc::clone(&context.metrics),
        settings: config.settings,
    };
    let control = tokio::spawn(control.run(work.clone()));
    let control = watched("control", control, Arc::clone(&failed));
    let of_raft = of_raft.map(|(name, task)| (name, watched(name, task, Arc::clone(&failed))));
    let health = tokio::spawn(watch_health(quorum.clone(), work.clone(), failed));
    let (storage, speaks) = (identity.storage(), config.speaks);
    let own = |address| Newcomer { id: quorum.id(), storage, address, learner: false, speaks };
    let moved = config.advertise.filter(|own| recorded.is_some_and(|recorded| recorded != *own)).map(own);
    let moved = moved
        .map(|me| tokio::spawn(own_address::tell(quorum.clone(), config.transport.clone(), me, work.clone())))
        .or_else(|| {
            let me = own(own_hint?);
            Some(tokio::spawn(own_address::tell_if_found(quorum.clone(), config.transport.clone(), me, work.clone())))
        })
        .map(|task| ("address", task));
    let identity = Arc::new(Mutex::new(identity));
    let keeper = tokio::spawn(protocol_keeper::run(Arc::clone(&identity), quorum.clone(), work.clone()));
    let withdrawn = tokio::spawn(withdrawn::follow(quorum.clone(), config.transport, work));
    let own = [
        ("control", control),
        ("raft health", health),
        ("monitor", monitor),
        ("protocol", keeper),
        ("withdrawn", withdrawn),
    ];
    let tasks = own.into_iter().chain(moved).chain(of_raft).collect();
    Ok(RunningCoordinator { quorum, tasks, _identity: identity })
}

/// Reports the failure of an essential task, so that the process ends and a fresh one takes its place.
fn watched(task: &'static str, handle: JoinHandle<()>, failed: FailureChannel) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = handle.await {
            tracing::error!(task, %error, "a task failed");
            failed.send_replace(Some(End::Failed(format!("the task {task} failed: {error}").into())));
        }
    })
}
