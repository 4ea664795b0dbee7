//! The leader's loop: while this coordinator leads, it reads the state, decides, and proposes. The decisions are pure
//! code in `core`.

use crate::beats;
use crate::clock::{boot_now, wall_now};
use crate::leader::announcements;
use crate::leader::event_log::EventLog;
use crate::leader::session::{CurrentSession, Session};
use crate::leader::watchdog;
use crate::push;
use crate::quorum::found_elsewhere;
use crate::quorum::quorum_changes;
use crate::quorum::state_checks;
use crate::quorum::upgrades;
use crate::raft::{Proposal, Quorum, Standby};
use crate::statistics::metrics::Metrics;
use archon_coordinator_core::term::{PAUSE_MAX_MS, Stall};
use archon_coordinator_core::{Actor, Command, FormerAnswer, FormerFacts, Takeover, TakeoverStep, Term};
use archon_security::Transport;
use archon_types::{ClusterId, ErrorKind, NodeStatus, Settings};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Interval of leadership checks without a signal.
const LOOK_INTERVAL: Duration = Duration::from_millis(25);
/// Pause between two turns while nothing can be committed.
const READ_ONLY_PAUSE: Duration = Duration::from_millis(PAUSE_MAX_MS);
/// Maximum wait of a new leader for its first quorum round.
pub(crate) const STEP_UP_DEADLINE: Duration = Duration::from_secs(2);
/// Interval in which a new leader checks for the permission to grant leases.
const GRANT_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Wait for the permission to grant leases after which its reason is logged and shown.
const GRANT_WAIT_SHOWN: Duration = Duration::from_secs(3);
/// Pause between two rounds of questions to the former coordinators.
const FORMER_PAUSE: Duration = Duration::from_millis(500);
/// Deadline of a turn's proposal; shorter than the time after which the loop counts as stalled.
const PROPOSE_DEADLINE: Duration = Duration::from_millis(700);
/// Maximum number of commands in one log entry.
const COMMANDS_MAX: usize = 512;
/// Interval in which records of departed nodes and removed replicas are dropped.
const FORGET_INTERVAL_MS: u64 = 5_000;

/// Dependencies of the supervisor.
#[derive(Clone)]
pub(crate) struct Control {
    /// Raft.
    pub(crate) quorum: Quorum,
    /// Publishes the session to services.
    pub(crate) leading: CurrentSession,
    /// Transport to nodes.
    pub(crate) transport: Transport,
    /// Counters.
    pub(crate) metrics: Arc<Metrics>,
    /// Settings of a cluster that is bootstrapped here.
    pub(crate) settings: Settings,
}

/// Reason for the end of a session.
enum End {
    /// Another coordinator leads, or none.
    SteppedDown,
    /// This process did not run for a while.
    Stalled,
    /// A task of the session failed; the next session restarts all of them.
    Broken,
}

impl Control {
    /// Runs session after session until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut leadership = self.quorum.leadership();
        let mut memory = None;
        while !stop.is_cancelled() {
            if let Some(term) = self.quorum.leading_term() {
                self.lead(term, &mut memory, &stop).await;
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = leadership.changed() => {}
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
    }

    /// Runs one session: steps up, takes turns until leadership ends, steps down. `memory` is the volatile view of the
    /// last session.
    async fn lead(&self, term: u64, memory: &mut Option<Arc<Mutex<Term>>>, stop: &CancellationToken) {
        // Only a confirmed round proves leadership; it also brings the state up to date.
        match self.quorum.confirm(STEP_UP_DEADLINE).await {
            Ok(confirmed) if confirmed == term => {}
            Ok(_) | Err(_) => return,
        }
        let taken_over = self.takes_over(term, stop).await;
        self.quorum.set_standby(None);
        let may_lead = taken_over && self.until_it_may_grant(term, stop).await;
        self.quorum.set_standby(None);
        if !may_lead {
            return;
        }
        memory.take_if(|memory| memory.lock().number() != term);
        if memory.is_some() && !self.commits_barrier(term).await {
            return;
        }
        let now = boot_now();
        if let Some(memory) = memory {
            let mut memory = memory.lock();
            self.quorum.replicated().read(|state| memory.resume(state, now));
        }
        let memory = memory.get_or_insert_with(|| Arc::new(Mutex::new(Term::new(term, now))));
        let (beats, waiting) = beats::queue();
        let session = Session::new(self.quorum.clone(), Arc::clone(memory), stop.child_token(), beats, now);
        if !self.bootstrap(&session).await {
            return;
        }
        self.metrics.sessions.add(1);
        tracing::info!(term, "leading");
        let mut tasks = JoinSet::new();
        tasks.spawn(push::run(Arc::clone(&session), Arc::clone(&self.metrics), self.transport.clone()));
        tasks.spawn(watchdog::run(Arc::clone(&session), Arc::clone(&self.metrics)));
        tasks.spawn(quorum_changes::run(Arc::clone(&session)));
        tasks.spawn(found_elsewhere::run(Arc::clone(&session)));
        tasks.spawn(announcements::run(Arc::clone(&session), self.transport.clone()));
        tasks.spawn(upgrades::run(Arc::clone(&session)));
        tasks.spawn(state_checks::run(Arc::clone(&session)));
        tasks.spawn(beats::run(Arc::clone(&session), Arc::clone(&self.metrics), waiting));
        self.leading.set(Some(Arc::clone(&session)));
        let end = tokio::select! {
            end = self.turns(&session) => end,
            Some(ended) = tasks.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "a task of the session failed");
                }
                End::Broken
            }
        };
        self.leading.set(None);
        self.quorum.set_standby(None);
        session.stop().cancel();
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a task of the session failed");
            }
        }
        match end {
            End::Broken => {}
            End::SteppedDown => tracing::info!(term, "no longer leading"),
            End::Stalled => {
                self.metrics.stalls.add(1);
                tracing::warn!(term, "this coordinator stalled; giving leadership away");
                self.quorum.give_way().await;
            }
        }
    }

    /// Waits, during a recovery, until no coordinator of the generations before works with a majority, and makes this
    /// one take their place (PROTOCOL rule 60). Meanwhile no lease is granted and no member is registered, because
    /// there is no session. Returns true if this coordinator may lead. Each leadership asks again.
    async fn takes_over(&self, term: u64, stop: &CancellationToken) -> bool {
        let state = self.quorum.replicated();
        let mut takeover = Takeover::new(boot_now());
        let mut logged = None;
        loop {
            // Confirmed facts, from before the round.
            let facts = state.read(|state| {
                let recovery = state.recovery.as_deref().filter(|recovery| !recovery.former.is_empty());
                recovery.map(|recovery| (state.generation, recovery.former_facts()))
            });
            let Some((generation, facts)) = facts else { return true };
            if self.quorum.standby().is_none() {
                let text = waits_for_former(generation, "asks the former coordinators whether they work");
                self.quorum.set_standby(Some(Standby::new(text)));
            }
            let (round, about) = tokio::select! {
                () = stop.cancelled() => return false,
                asked = self.quorum.ask_former(&self.transport) => asked,
            };
            let step = takeover.judge(facts, round);
            let text = waits_for_former(generation, &next_of_takeover(facts, round.answer, &about));
            let case = (facts, round.answer);
            if step != TakeoverStep::Lead && logged.replace(case) != Some(case) {
                tracing::warn!("{text}");
            }
            let needs_order = facts.worked && !facts.taken_over;
            self.quorum.set_standby(Some(Standby { text, is_quiet: takeover.is_quiet(), needs_order }));
            let command = match step {
                TakeoverStep::Lead => return true,
                TakeoverStep::Ask => None,
                TakeoverStep::NoteFormerQuorum => Some(Command::NoteFormerQuorum),
                TakeoverStep::TakeOver => Some(Command::TakeOver),
            };
            if let Some(command) = command {
                let who = Actor::Coordinator(self.quorum.id());
                let proposal = Proposal { term, request: None, who, commands: vec![command] };
                if let Err(error) = self.quorum.propose(proposal, STEP_UP_DEADLINE).await {
                    tracing::warn!(%error, "a step of the recovery was not committed; it is tried again");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(FORMER_PAUSE) => {}
            }
            if self.quorum.confirm(STEP_UP_DEADLINE).await.ok() != Some(term) {
                return false;
            }
        }
    }

    /// Waits until no recovery can have taken the place of this coordinator: earlier heartbeats would be refused.
    /// Returns true if it still leads.
    async fn until_it_may_grant(&self, term: u64, stop: &CancellationToken) -> bool {
        let began = Instant::now();
        let mut shown = None;
        while !self.quorum.may_grant() {
            if stop.is_cancelled() || self.quorum.leading_term() != Some(term) {
                return false;
            }
            if began.elapsed() >= GRANT_WAIT_SHOWN {
                let asks = || "no lease is granted before the members were asked for later generations".to_owned();
                let why = self.quorum.blocked().unwrap_or_else(asks);
                if shown.as_ref() != Some(&why) {
                    tracing::warn!(term, "{why}");
                    self.quorum.set_standby(Some(Standby::new(why.clone())));
                    shown = Some(why);
                }
            }
            tokio::time::sleep(GRANT_LOOK_INTERVAL).await;
        }
        true
    }

    /// Commits an empty entry before a later session of `term` grants anything: the state then holds everything that
    /// the earlier session had proposed by then. Returns true if the session may begin. Raft's own entry serves the
    /// first session of a term. A read-only quorum accepts no entry; there the memory that is kept has to suffice.
    async fn commits_barrier(&self, term: u64) -> bool {
        let who = Actor::Coordinator(self.quorum.id());
        let proposal = Proposal { term, request: None, who, commands: Vec::new() };
        match self.quorum.propose(proposal, STEP_UP_DEADLINE).await {
            Ok(_) => true,
            Err(error) if error.kind == ErrorKind::ReadOnly => true,
            Err(error) => {
                tracing::warn!(%error, term, "the next session of this term waits until an entry is committed");
                false
            }
        }
    }

    /// Bootstraps the cluster, once. Returns true if there is one.
    async fn bootstrap(&self, session: &Session) -> bool {
        let state = self.quorum.replicated();
        if state.read(archon_coordinator_core::ClusterState::is_bootstrapped) {
            return true;
        }
        if self.quorum.read_only().is_some() {
            return false;
        }
        let cluster = ClusterId::new(Uuid::new_v4());
        let commands = vec![Command::Bootstrap { cluster, settings: self.settings.clone() }];
        let who = Actor::Coordinator(self.quorum.id());
        match session.propose(None, who, commands, PROPOSE_DEADLINE).await {
            Ok(responses) => match responses.first().and_then(|response| response.refusal()) {
                None => tracing::info!(%cluster, "bootstrapped"),
                Some(error) => tracing::error!(%error, "bootstrap was refused"),
            },
            Err(error) => tracing::warn!(%error, "bootstrap was not confirmed"),
        }
        state.read(archon_coordinator_core::ClusterState::is_bootstrapped)
    }

    async fn turns(&self, session: &Arc<Session>) -> End {
        let state = self.quorum.replicated();
        let mut applied = state.applied();
        let mut forgot_at = boot_now();
        let mut event_log = state.read(EventLog::new);
        let mut pause = Duration::ZERO;
        loop {
            let news = async {
                // The channel stays open while the state lives; the timer covers a close.
                let _ = applied.changed().await;
            };
            tokio::select! {
                () = session.stop().cancelled() => return End::SteppedDown,
                () = news => {}
                () = session.work.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
            if self.quorum.leading_term() != Some(session.number()) {
                return End::SteppedDown;
            }
            let now = boot_now();
            if Stall::of(session.turned_at(), None, now).is_some() {
                return End::Stalled;
            }
            session.note_turn(now);
            applied.borrow_and_update();
            let begun = Instant::now();
            let read_only = self.quorum.read_only().is_some();
            // A former coordinator that works again would grant the same leases.
            let waits = !self.quorum.may_grant() && state.read(|state| state.recovery.is_some());
            let standby = if waits { self.quorum.blocked().map(Standby::new) } else { None };
            if standby != self.quorum.standby() {
                standby.iter().for_each(|standby| tracing::warn!("{}", standby.text));
                self.quorum.set_standby(standby);
            }
            let turned = {
                let mut term = session.term().lock();
                term.set_wall(now, wall_now());
                state.read(|state| {
                    event_log.log(state, &self.metrics);
                    if read_only || waits { term.observe(state, now) } else { term.turn(state, now) }
                })
            };
            self.metrics.turn_seconds.observe(begun.elapsed());
            if !turned.commands.is_empty() {
                self.commit(session, turned.commands).await;
            }
            if now.since(forgot_at) > FORGET_INTERVAL_MS {
                forgot_at = now;
                self.forget(session);
            }
            let due = Duration::from_millis(turned.wake_at.since(boot_now()));
            pause = if read_only || waits { READ_ONLY_PAUSE } else { due.max(Duration::from_millis(1)) };
        }
    }

    async fn commit(&self, session: &Session, mut commands: Vec<Command>) {
        self.metrics.commands.add(commands.len() as u64);
        while !commands.is_empty() {
            let mut count = commands.len().min(COMMANDS_MAX);
            while count > 1 && !self.quorum.fits(&commands[..count]) {
                count /= 2;
            }
            let rest = commands.split_off(count);
            let names = counted(&commands);
            let failures = commands.iter().filter(|command| matches!(command, Command::NodeFailed { .. }));
            let failures: Vec<Command> = failures.cloned().collect();
            let who = Actor::Coordinator(self.quorum.id());
            match session.propose(None, who, commands, PROPOSE_DEADLINE).await {
                Ok(responses) => {
                    for refusal in responses.iter().filter_map(|response| response.refusal()) {
                        // The state changed between the decision and its application; the next turn sees it.
                        tracing::debug!(%refusal, names, "a command's guard did not hold");
                    }
                }
                Err(error) => {
                    // The decision is made again from the state, if it still holds.
                    tracing::warn!(%error, names, "a turn was not committed");
                    let mut term = session.term().lock();
                    if never_proposed(error.kind) {
                        term.retract(&failures);
                    }
                    term.retract(&rest);
                    return;
                }
            }
            session.note_turn(boot_now());
            commands = rest;
        }
    }

    fn forget(&self, session: &Session) {
        self.quorum.replicated().read(|state| {
            let copies = &state.partitions;
            let held =
                |node| copies.on_node(node).filter_map(|row| row.placement_on(node)).map(|copy| copy.id).collect();
            let count = |node| usize::try_from(copies.count_on(node)).unwrap_or(usize::MAX);
            session.loads().lock().forget_departed(count, held);
        });
        let live: std::collections::BTreeSet<_> = self.quorum.replicated().read(|state| {
            let live = state.members().filter(|row| row.node.status == NodeStatus::Alive);
            live.map(|row| row.node.id).collect()
        });
        session.forget_nodes(|node| live.contains(&node));
    }
}

/// Describes a recovery that waits, with the reason.
fn waits_for_former(generation: u64, why: &str) -> String {
    format!("the recovery that began generation {generation} {why}")
}

/// Describes what a recovery does after a round of questions to the former coordinators, and what an operator can do.
fn next_of_takeover(facts: FormerFacts, answer: FormerAnswer, about: &str) -> String {
    let trial = "If the recovery is a trial, stop its coordinator";
    let order = "run `archon quorum settle --accept-data-loss`";
    match answer {
        FormerAnswer::Works if facts.taken_over => {
            format!("has taken over, and waits: {about}. Stop former coordinators that do not exit by themselves")
        }
        FormerAnswer::Idle | FormerAnswer::Silent if facts.taken_over => format!("continues within seconds: {about}"),
        FormerAnswer::Works => {
            format!("waits: {about}. {trial}; to keep it, stop the former coordinators, and then {order}")
        }
        FormerAnswer::Idle | FormerAnswer::Silent if facts.worked => format!(
            "waits for an order, because former coordinators worked with a majority beside it: {about}. {trial}; to \
             keep it, make sure that \
             the former coordinators are stopped, and {order}"
        ),
        FormerAnswer::Idle | FormerAnswer::Silent => format!("continues by itself within a minute: {about}"),
    }
}

/// Returns true if this error means that the proposal never reached Raft.
const fn never_proposed(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Overloaded | ErrorKind::ReadOnly | ErrorKind::InvalidArgument | ErrorKind::Refused)
}

/// Formats the commands by name, each with its count.
fn counted(commands: &[Command]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for command in commands {
        *counts.entry(command.name()).or_default() += 1;
    }
    let each: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    each.join(", ")
}

/// Returns a duration in whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standby_text_names_the_order_where_one_is_needed() {
        let unknown = FormerFacts { worked: false, taken_over: false };
        let worked = FormerFacts { worked: true, ..unknown };
        let text = |facts, answer| next_of_takeover(facts, answer, "coordinator 1 runs");
        assert!(text(unknown, FormerAnswer::Silent).contains("by itself"));
        for answer in [FormerAnswer::Silent, FormerAnswer::Idle, FormerAnswer::Works] {
            let text = text(worked, answer);
            assert!(text.contains("archon quorum settle --accept-data-loss") && !text.contains("by itself"), "{text}");
        }
        assert!(!text(FormerFacts { taken_over: true, ..worked }, FormerAnswer::Works).contains("settle"));
    }

    #[test]
    fn repeated_commands_are_counted_in_one_line() {
        let turn = [Command::CancelPlan, Command::Change(vec![]), Command::CancelPlan];
        assert_eq!(counted(&turn), "2 CancelPlan, 1 Change");
    }
}
