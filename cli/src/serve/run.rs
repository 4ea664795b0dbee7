//! Runs a coordinator or a node until a signal ends it.

use super::files;
use super::log::{self, Log};
use super::service_manager::{ReadyCondition, ServiceManager};
use super::settings::{CoordinatorSettings, node_config};
use super::worker::on_worker;
use crate::args::{Connection, LogArgs, ParticipantArgs};
use crate::connect;
use crate::exit::{Exit, Failure};
use crate::stalls;
use archon_agent::{Agent, AgentConfig, AgentError};
use archon_console::{Console, ConsoleConfig};
use archon_coordinator::{CoordinatorConfig, CoordinatorError, FirstStart, IdentityError};
use archon_kvstore_node::engine::EngineError;
use archon_kvstore_node::{IdentityError as NodeIdentityError, NodeConfig, NodeError, SessionError};
use archon_local_cluster::end_with_parent;
use archon_security::{Refusals, build_runtime};
use archon_types::Failover;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Makes all files of this process private, including those of libraries.
fn keep_private() {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
}

/// `archon coordinator`, with the words of its command line.
pub(crate) fn coordinator(log: &LogArgs, words: &[OsString]) -> Result<Exit, Failure> {
    keep_private();
    let log = log::start(log, "archon-coordinator")?;
    end_with_parent()?;
    files::raise_limit();
    let resolve = || CoordinatorSettings::resolve(words);
    let deadline = |_: &_| archon_coordinator::STOP_DEADLINE + archon_console::STOP_DEADLINE;
    serve(&log, resolve, deadline, |settings, stop, service_manager| {
        check_timers(&settings)?;
        for warning in settings.warnings() {
            tracing::warn!("{warning}");
        }
        // The coordinator's audit file records callers that the console refuses.
        let refusals = Arc::<Refusals>::default();
        let console =
            settings.http_listen.map(|listen| console(listen, &settings, Arc::clone(&refusals))).transpose()?;
        let config = coordinator_config(settings);
        Ok(async move {
            // A quorum forms when all its coordinators run: reporting readiness only then would delay starting the others.
            let serving = |ready| service_manager.follow(ready, ReadyCondition::Serving, &stop);
            let outcome =
                archon_coordinator::run(config, refusals, stop.clone(), serving).await.map_err(coordinator_failure);
            if let Some(console) = console {
                console.close().await;
            }
            outcome
        })
    })
}

/// Refuses to found a cluster with fast failover on a machine whose stalls would end such leases. A cluster that runs
/// already has proven itself, and explicit time-outs are accepted.
fn check_timers(settings: &CoordinatorSettings) -> Result<(), Failure> {
    if settings.failover != Some(Failover::Fast) || !is_new(&settings.data_dir) {
        return Ok(());
    }
    match stalls::too_long(settings.cluster.timing, stalls::longest(stalls::WATCHED)) {
        None => Ok(()),
        Some(why) => Err(Failure::usage(
            format!("leases would expire on this machine: {why}"),
            "use --failover standard, or give this machine CPUs without other load",
        )),
    }
}

/// Reports whether a directory is absent or holds nothing but what a new file system has at its root.
fn is_new(directory: &Path) -> bool {
    let is_own = |entry: std::io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() == "lost+found");
    std::fs::read_dir(directory).map_or(true, |mut entries| entries.all(is_own))
}

/// `archon node` without a verb, with the words of its command line.
pub(crate) fn node(log: &LogArgs, words: &[OsString]) -> Result<Exit, Failure> {
    keep_private();
    let log = log::start(log, "archon-node")?;
    end_with_parent()?;
    files::raise_limit();
    let resolve = || node_config(words);
    serve(&log, resolve, NodeConfig::stop_deadline, |config, stop, service_manager| {
        Ok(async move {
            let listening = |ready| service_manager.follow(ready, ReadyCondition::TakingPart, &stop);
            archon_kvstore_node::run(config, stop.clone(), listening).await.map_err(node_failure)
        })
    })
}

/// `archon participant`
pub(crate) fn participant(args: &ParticipantArgs, connection: &Connection) -> Result<Exit, Failure> {
    keep_private();
    let log = log::start(&args.log, "archon-participant")?;
    end_with_parent()?;
    let resolve = || agent_config(args, connection);
    let deadline = |config: &AgentConfig| config.stop_limit + archon_agent::FAREWELL;
    let program = args.exec.clone();
    serve(&log, resolve, deadline, |config, stop, service_manager| {
        Ok(on_worker(async move {
            if !program.is_empty() {
                // A program has minutes to start, longer than a service manager waits.
                service_manager.follow(|| Ok(()), ReadyCondition::Serving, &stop);
                return archon_agent::run_program(config, &program, stop).await.map_err(agent_failure);
            }
            let agent = Agent::listen(config).await.map_err(agent_failure)?;
            tracing::info!(address = agent.address(), "the agent waits for its service");
            // The service may be started by a unit that waits for this one.
            service_manager.follow(agent.readiness(), ReadyCondition::Serving, &stop);
            agent.run(stop).await.map_err(agent_failure)
        }))
    })
}

fn agent_config(args: &ParticipantArgs, connection: &Connection) -> Result<AgentConfig, Failure> {
    let transport = connect::transport(connection)?;
    Ok(AgentConfig {
        coordinators: connect::endpoints(connection, &transport)?,
        transport,
        tables: args.tables.clone(),
        name: args.name.clone(),
        address: args.address.clone(),
        weight: args.weight,
        partitions_max: args.partitions_max,
        zone: args.zone.clone(),
        timing: None,
        maps: args.map_files()?,
        listen: args.listen.clone(),
        service_lease: args.service_lease,
        start_limit: archon_agent::START_LIMIT,
        stop_limit: args.stop_within,
    })
}

fn agent_failure(error: AgentError) -> Failure {
    match error {
        AgentError::NotLoopback(_) | AgentError::NoHost { .. } => Failure::new(Exit::Usage, error.to_string()),
        AgentError::Socket { .. } | AgentError::Program { .. } => Failure::failed(error.to_string()),
        AgentError::Listen { ref source, .. } => {
            let remedy = listen_remedy("--listen", source);
            Failure::failed(error.to_string()).with_remedy(remedy)
        }
        AgentError::Refused(error) => error.into(),
    }
}

/// Creates the console beside a coordinator, which queries that coordinator first.
fn console(listen: SocketAddr, settings: &CoordinatorSettings, refusals: Arc<Refusals>) -> Result<Console, Failure> {
    let coordinators = vec![own_address(settings)];
    let config = ConsoleConfig { listen, coordinators, transport: settings.transport.clone(), refusals };
    Console::open(config).map_err(|error| {
        Failure::failed(format!("the console cannot be served on {listen}: {error}"))
            .with_remedy(listen_remedy("--http-listen", &error))
    })
}

/// Returns the address where the console reaches the coordinator beside it, which names the others.
fn own_address(settings: &CoordinatorSettings) -> String {
    let founded = match &settings.start {
        Some(FirstStart::Found { peers }) => peers.get(&settings.id),
        _ => None,
    };
    match settings.advertise.as_ref().or(founded) {
        Some(address) => address.clone(),
        None if settings.listen.ip().is_unspecified() => format!("localhost:{}", settings.listen.port()),
        None => settings.listen.to_string(),
    }
}

fn coordinator_config(settings: CoordinatorSettings) -> CoordinatorConfig {
    CoordinatorConfig {
        id: settings.id,
        listen: settings.listen,
        metrics_listen: settings.metrics_listen,
        transport: settings.transport,
        advertise: settings.advertise,
        start: settings.start,
        data_dir: settings.data_dir,
        speaks: settings.speaks,
        timing: settings.timing,
        settings: settings.cluster,
        settings_said: settings.cluster_said,
    }
}

fn coordinator_failure(error: CoordinatorError) -> Failure {
    let exit = match &error {
        CoordinatorError::Config(_)
        | CoordinatorError::TooFar(_)
        | CoordinatorError::Identity(IdentityError::New { .. }) => Exit::Usage,
        CoordinatorError::Identity(IdentityError::Io { .. }) => Exit::Failed,
        CoordinatorError::Identity(_)
        | CoordinatorError::WipedVoter { .. }
        | CoordinatorError::Refused { .. }
        | CoordinatorError::Removed { .. }
        | CoordinatorError::Outlived { .. }
        | CoordinatorError::OlderCopy { .. }
        | CoordinatorError::WrongState { .. }
        | CoordinatorError::Copied { .. } => Exit::Refused,
        _ => Exit::Failed,
    };
    let failure = Failure::new(exit, error.to_string());
    match error {
        CoordinatorError::Listen { source, .. } => failure.with_remedy(listen_remedy("--listen", &source)),
        CoordinatorError::ListenForMetrics { source, .. } => {
            failure.with_remedy(listen_remedy("--metrics-listen", &source))
        }
        _ => failure,
    }
}

fn node_failure(error: NodeError) -> Failure {
    let exit = match &error {
        NodeError::Config(_) => Exit::Usage,
        // A failed or full disk may work at the next start.
        NodeError::Identity(NodeIdentityError::Io { .. }) => Exit::Failed,
        NodeError::Session(error) if is_of_the_disk(error) => Exit::Failed,
        // Directory of another cluster, engine or version, or a name that is taken: a restart does not help.
        NodeError::Identity(_)
        | NodeError::Session(_)
        | NodeError::Engine(
            EngineError::OtherEngine { .. }
            | EngineError::UnknownEngine { .. }
            | EngineError::OlderFormat { .. }
            | EngineError::NewerFormat { .. }
            | EngineError::NotDurable { .. },
        ) => Exit::Refused,
        _ => Exit::Failed,
    };
    let failure = Failure::new(exit, error.to_string());
    match error {
        NodeError::Listen { source, .. } => failure.with_remedy(listen_remedy("--listen", &source)),
        NodeError::ListenForMetrics { source, .. } => failure.with_remedy(listen_remedy("--metrics-listen", &source)),
        NodeError::ListenForRedis { source, .. } => failure.with_remedy(listen_remedy("--redis-listen", &source)),
        _ => failure,
    }
}

/// Returns true if the node's session ended because its registration could not be written.
const fn is_of_the_disk(error: &SessionError) -> bool {
    matches!(error, SessionError::NotStored { why: NodeIdentityError::Io { .. }, .. })
}

/// Returns the remedy for an address on which the system does not let this process listen.
fn listen_remedy(flag: &str, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            format!("choose a {flag} port of 1024 or above, or allow this program lower ones (CAP_NET_BIND_SERVICE)")
        }
        ErrorKind::AddrNotAvailable => format!("choose a {flag} address of this machine"),
        _ => other_address(flag),
    }
}

/// Returns the remedy for an address that cannot be listened on.
pub(crate) fn other_address(flag: &str) -> String {
    format!("choose another {flag} address, or stop the process that uses this one")
}

/// Time after the first signal in which further ones count as the same: `timeout`, a terminal and service managers
/// signal a process and its group, microseconds apart.
const SAME_SIGNAL: Duration = Duration::from_secs(1);

/// Meaning of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StopSignal {
    /// Stop gracefully.
    Stop,
    /// Repetition of the first one.
    Again,
    /// End at once.
    End,
}

/// Time of the first signal.
#[derive(Default)]
struct StopSignals(Option<Instant>);

impl StopSignals {
    fn take(&mut self, at: Instant) -> StopSignal {
        match self.0 {
            None => {
                self.0 = Some(at);
                StopSignal::Stop
            }
            Some(first) if at.saturating_duration_since(first) < SAME_SIGNAL => StopSignal::Again,
            Some(_) => StopSignal::End,
        }
    }
}

/// Time for which work left on a blocking thread may keep the process alive after its graceful stop.
const LEFT_BEHIND_DEADLINE: Duration = Duration::from_secs(2);

/// Interval between attempts to resolve the settings while something that they need is unavailable.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the log repeats the reason for a delayed start.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Resolves the settings of a member. A failure that may pass is logged and retried, since service managers treat the
/// exit code of a wrong configuration as final. Returns nothing once `stop` is cancelled.
async fn settle<S>(
    resolve: impl Fn() -> Result<S, Failure>,
    stop: &CancellationToken,
    service_manager: &ServiceManager,
) -> Result<Option<S>, Failure> {
    let mut reported = None::<tokio::time::Instant>;
    loop {
        let failure = match resolve() {
            Err(failure) if failure.may_pass => failure,
            settled => return settled.map(Some),
        };
        if reported.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) {
            tracing::warn!("the start waits until this passes: {}", failure.message);
            reported = Some(tokio::time::Instant::now());
        }
        service_manager.waits(&failure.message);
        tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
        }
    }
}

/// Runs `work` with the settings and a token that the first SIGTERM or SIGINT cancels; a graceful stop then takes at
/// most `deadline`. Another signal, a second or more later, ends the process at once.
fn serve<S, W, F>(
    log: &Log,
    resolve: impl Fn() -> Result<S, Failure>,
    deadline: impl FnOnce(&S) -> Duration,
    work: W,
) -> Result<Exit, Failure>
where
    W: FnOnce(S, CancellationToken, Arc<ServiceManager>) -> Result<F, Failure>,
    F: Future<Output = Result<(), Failure>>,
{
    let runtime = build_runtime(tokio::runtime::Builder::new_multi_thread().thread_name("archon"))
        .map_err(|error| Failure::failed(format!("starting the runtime: {error}")))?;
    let (stop, service_manager) = (CancellationToken::new(), ServiceManager::of_this_process());
    // A start that waits has nothing to stop.
    let stop_deadline = Arc::new(Mutex::new(Duration::ZERO));
    let stopping = {
        let (stop, service_manager) = (stop.clone(), Arc::clone(&service_manager));
        let stop_deadline = Arc::clone(&stop_deadline);
        move || {
            stop.cancel();
            service_manager.stopping(*stop_deadline.lock() + LEFT_BEHIND_DEADLINE);
        }
    };
    let settled = runtime.block_on(async {
        let watcher = tokio::spawn(watch_signals(stopping, log.last_words())?);
        // From here on it can be stopped by a signal.
        Ok::<_, Failure>((watcher, settle(resolve, &stop, &service_manager).await?))
    });
    let outcome = settled.and_then(|(watcher, settings)| {
        let Some(settings) = settings else { return Ok(()) };
        *stop_deadline.lock() = deadline(&settings);
        service_manager.starting();
        // Outside of the runtime, because parts of the work create their own.
        let work = work(settings, stop, service_manager)?;
        let outcome = runtime.block_on(work);
        watcher.abort();
        outcome
    });
    runtime.shutdown_timeout(LEFT_BEHIND_DEADLINE);
    outcome.map(|()| Exit::Done)
}

/// Installs the handlers before the work begins, so that no signal is lost in between.
fn watch_signals(
    stop: impl Fn() + Send + 'static,
    last_words: impl Fn() + Send + 'static,
) -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    let install = |kind| signal(kind).map_err(|error| Failure::failed(format!("installing a signal handler: {error}")));
    let mut terminate = install(SignalKind::terminate())?;
    let mut interrupt = install(SignalKind::interrupt())?;
    Ok(async move {
        let mut signals = StopSignals::default();
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            match signals.take(Instant::now()) {
                StopSignal::Stop => {
                    tracing::info!(
                        signal = name,
                        "stopping; another signal, a second or more later, ends the process at once"
                    );
                    stop();
                }
                StopSignal::Again => tracing::debug!(signal = name, "the same signal again"),
                StopSignal::End => {
                    tracing::warn!(signal = name, "another signal; ending at once");
                    last_words();
                    // Shell convention: 128 plus the number of the signal.
                    std::process::exit(if name == "SIGTERM" { 143 } else { 130 });
                }
            }
        }
    })
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
