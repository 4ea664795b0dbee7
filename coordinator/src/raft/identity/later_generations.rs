//! Questions to the members about other generations of the cluster: whether a later one has taken this one's place, and whether this
//! coordinator may grant leases beside it (PROTOCOL rule 60).

use super::generations::Generations;
use crate::clock::boot_now;
use crate::raft::network::hello::{Answers, HelloQuestions, ask_all, ask_each};
use crate::raft::quorum::Quorum;
use archon_coordinator_core::{FormerAnswer, FormerRound};
use archon_proto::v1::{HelloResponse, Takeover};
use archon_security::Transport;
use std::collections::BTreeMap;
use std::error::Error as _;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

/// Pause between two rounds of questions. A recovery listens for longer before it takes over.
pub(super) const ASK_INTERVAL: Duration = Duration::from_secs(5);
/// The same while leases wait for the answers.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Pause between two confirmations of a leader.
const CONFIRM_INTERVAL: Duration = Duration::from_millis(500);
/// Longest pause of this process, in milliseconds, after which its last round of questions counts. Questions sent to it
/// during a longer one had no answer; a recovery asks twice, and each connection has a second for its handshake.
pub(in crate::raft) const PAUSE_MAX_MS: u64 = 1_000;
/// The same during a recovery: former coordinators ask it once.
pub(super) const PAUSE_IN_RECOVERY_MAX_MS: u64 = 500;
/// Interval of checks for a due round and for a pause of the process.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Deadline of a leader's confirmation.
const CONFIRM_DEADLINE: Duration = Duration::from_secs(2);

/// The later generations of the answers to one round.
#[derive(Debug, Default, PartialEq, Eq)]
struct LaterGenerations {
    /// The latest that has taken this one's place.
    taken_over: Option<u64>,
    /// The coordinators of those that have not, each with its generation.
    waiting: BTreeMap<u64, u64>,
    /// Coordinators among them that do not know whether their generation has.
    unknown: BTreeMap<u64, u64>,
    /// The coordinators of generations that do not continue this one, each with its generation.
    others: BTreeMap<u64, u64>,
}

impl LaterGenerations {
    /// Collects the answers to a coordinator that lives in `generation`.
    fn of(answers: &Answers, generation: u64) -> Self {
        let mut later = Self::default();
        for (id, answer) in answers.iter().filter_map(|(id, answer)| Some((*id, answer.as_ref().ok()?))) {
            if answer.other_generation > 0 {
                later.others.insert(id, answer.other_generation);
            }
            if answer.later_generation > generation {
                later.taken_over = later.taken_over.max(Some(answer.later_generation));
            }
            if answer.standby_generation > generation {
                later.waiting.insert(id, answer.standby_generation);
                if answer.takeover() != Takeover::Waits {
                    later.unknown.insert(id, answer.standby_generation);
                }
            }
        }
        later
    }

    /// Returns the reason for which no lease is granted beside them.
    fn blocks(&self) -> Option<String> {
        if let Some(generation) = self.taken_over {
            return Some(format!("generation {generation} of this cluster has taken over; this coordinator exits"));
        }
        let each = self.unknown.iter().map(|(id, generation)| format!("{id} (generation {generation})"));
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| {
            format!(
                "no lease is granted: a recovery answers at the addresses of members and has not decided yet whether \
                 it takes over: coordinator {}. If it is a trial, stop it",
                each.join(", ")
            )
        })
    }
}

/// Asks until `stop`.
pub(in crate::raft) async fn run(quorum: Quorum, transport: Transport, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = tick(&quorum) => {}
        () = confirm(&quorum) => {}
        () = ask(&quorum, &transport) => {}
        () = greet_former(&quorum, &transport) => {}
    }
}

/// Notes that this process runs.
async fn tick(quorum: &Quorum) {
    loop {
        let recovers = quorum.replicated().read(|state| state.recovery.is_some());
        let pause_max_ms = if recovers { PAUSE_IN_RECOVERY_MAX_MS } else { PAUSE_MAX_MS };
        quorum.generations().tick(pause_max_ms);
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Notes a leader's majority, also while no member asks for a round.
async fn confirm(quorum: &Quorum) {
    loop {
        if quorum.leading_term().is_some() {
            // Each confirmation is noted; without one the next is tried.
            let _ = quorum.confirm(quorum.timing().round(CONFIRM_DEADLINE)).await;
        }
        tokio::time::sleep(CONFIRM_INTERVAL).await;
    }
}

async fn ask(quorum: &Quorum, transport: &Transport) {
    let generations = quorum.generations();
    let mut asked = None::<Instant>;
    loop {
        let interval = if generations.waits_for_answers() { ASK_AGAIN } else { ASK_INTERVAL };
        // Also as a leader: two that come back after a recovery are a majority of what was.
        if asked.is_none_or(|asked| asked.elapsed() >= interval) {
            asked = Some(Instant::now());
            ask_once(quorum, transport, generations).await;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

async fn ask_once(quorum: &Quorum, transport: &Transport, generations: &Generations) {
    let period = generations.period();
    let own = quorum.replicated().read(|state| {
        let lived = (state.cluster, state.generation, state.generation_key(state.generation));
        state.is_bootstrapped().then_some(lived)
    });
    // Before there is a cluster there is no later generation of it.
    if let Some((_, generation, _)) = own {
        let what = HelloQuestions { lived: own, works: period.is_some(), ..HelloQuestions::default() };
        let (members, successors) = (quorum.members(), generations.take_successors());
        let asked = successors.iter().map(|(id, address)| (*id, address.as_str()));
        // At once: one that does not answer must not delay the judgement of this coordinator's own quorum.
        let (answers, of_successors) = tokio::join!(
            ask_all(transport, &quorum.local_voter, &members, &what),
            ask_each(transport, &quorum.local_voter, asked, &what),
        );
        quorum.voter_reports.note_answers(&answers);
        let mut later = LaterGenerations::of(&answers, generation);
        let of_successors = of_successors.into_iter().map(|(id, _, answer)| (id, answer)).collect();
        later.taken_over = later.taken_over.max(LaterGenerations::of(&of_successors, generation).taken_over);
        if follows_majority(quorum, &answers) {
            generations.note_majority();
        }
        let blocks = later.blocks();
        generations.note_answers(later.waiting, later.others);
        if let Some(why) = blocks {
            generations.unclear(why);
            if let Some(generation) = later.taken_over {
                generations.note_later(generation);
            }
            return;
        }
        let (recovers, stands_by) = quorum.replicated().read(|state| (state.recovery.is_some(), state.stands_by()));
        // While it stands by there is no session, and its leader asks by itself.
        if recovers && !stands_by {
            let (round, about) = quorum.ask_former(transport).await;
            if round.answer == FormerAnswer::Works {
                generations.unclear(format!(
                    "this generation has taken over, and grants no lease: {about}. Stop former coordinators that do \
                     not exit by themselves"
                ));
                return;
            }
        }
    }
    if let Some(period) = period {
        generations.clear(period);
    }
}

/// Greets the coordinators of the generations before this one after the recovery has settled. One that comes back asks
/// this coordinator, and ends.
async fn greet_former(quorum: &Quorum, transport: &Transport) {
    loop {
        tokio::time::sleep(ASK_INTERVAL).await;
        let settled = quorum.replicated().read(|state| state.recovery.is_none() && !state.former().is_empty());
        if settled && quorum.leading_term().is_some() {
            let (round, about) = quorum.ask_former(transport).await;
            if round.answer == FormerAnswer::Works {
                let next = next_of_former(transport.tls().is_some());
                tracing::warn!("{about} beside this generation, which has replaced it; {next}");
            }
        }
    }
}

/// Returns what becomes of a former coordinator that was greeted: without a certificate it believes no successor.
const fn next_of_former(is_certified: bool) -> &'static str {
    match is_certified {
        true => "it ends once it has asked this coordinator",
        false => "without TLS it does not believe this coordinator: stop it",
    }
}

/// Returns true if the leader that this coordinator hears works with a majority, by its own answer.
fn follows_majority(quorum: &Quorum, answers: &Answers) -> bool {
    let Some(Ok(answer)) = quorum.leader().and_then(|leader| answers.get(&leader)) else { return false };
    answer.works && answer.generation == 0 && quorum.hears_leader()
}

impl Quorum {
    /// Asks the coordinators of the generations before this one whether they work with a majority. Also returns, as
    /// text, the ones that do, or the ones asked.
    pub(crate) async fn ask_former(&self, transport: &Transport) -> (FormerRound, String) {
        let id = self.id();
        let (own, former, address, settled) = self.replicated().read(|state| {
            let lived = (state.cluster, state.generation, state.generation_key(state.generation));
            let address = state.coordinators.members.get(&id).map(|member| member.address.clone());
            (lived, state.former().to_vec(), address, state.recovery.is_none())
        });
        // At its own address there is no other one.
        let former: Vec<_> = former.into_iter().filter(|(_, of)| Some(of) != address.as_ref()).collect();
        let began = boot_now();
        let addresses = former.iter().map(|(id, address)| (*id, address.as_str()));
        // A former coordinator that has the address asks there, and ends. Until the recovery has settled, it may be a trial.
        let address = address.filter(|_| settled).unwrap_or_default();
        let what = HelloQuestions { lived: Some(own), address, ..HelloQuestions::default() };
        let mut answers = ask_each(transport, &self.local_voter, addresses, &what).await;
        answers.sort_by(|(one, at, _), (other, there, _)| (one, at).cmp(&(other, there)));
        let ended = boot_now();
        let mut round = FormerRound { began, ended, answer: FormerAnswer::Silent };
        let asked: Vec<String> = former.iter().map(|(id, address)| format!("{id} at {address}")).collect();
        let mut text = match &asked[..] {
            [] => "no former coordinator has another address than this one".to_owned(),
            _ => format!("none of the former coordinators answers that it works ({})", asked.join(", ")),
        };
        for (id, address, answer) in answers {
            let word = former_answer(&answer);
            if word > round.answer {
                round.answer = word;
                let of = answer.map(|answer| answer.generation).ok().filter(|generation| *generation > 0);
                let of = of.map(|generation| format!(", of generation {generation},")).unwrap_or_default();
                text = format!("coordinator {id} at {address}{of} {}", does(word == FormerAnswer::Works));
            }
        }
        if let Some((id, generation, works)) = self.generations().former(ended) {
            let word = if works { FormerAnswer::Works } else { FormerAnswer::Idle };
            if word > round.answer {
                round.answer = word;
                text = format!("coordinator {id}, of generation {generation}, asks this one and {}", does(works));
            }
        }
        (round, text)
    }
}

const fn does(works: bool) -> &'static str {
    if works { "works with a majority" } else { "runs without reporting a majority" }
}

/// Judges the answer from the address of a former coordinator. A process that answers with an error runs, and may work again.
fn former_answer(answer: &Result<HelloResponse, Status>) -> FormerAnswer {
    match answer {
        Ok(answer) if answer.works && answer.generation != 0 => FormerAnswer::Works,
        // This coordinator itself, at another of its addresses.
        Ok(answer) if !answer.boot.is_empty() => FormerAnswer::Silent,
        Ok(_) => FormerAnswer::Idle,
        // An error of the connection has a source; one that a process sent has none.
        Err(status) if status.source().is_some() => FormerAnswer::Silent,
        Err(status) if matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled) => FormerAnswer::Silent,
        Err(_) => FormerAnswer::Idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::identity::majority::{GRANTS_MS, Majority, WORKS_MS};
    use archon_types::Millis;

    const HOUR: u64 = 3_600_000;

    fn at(ms: u64) -> Millis {
        Millis::new(HOUR + ms)
    }

    /// A majority whose coordinator asked while it worked.
    fn cleared(ms: u64) -> Majority {
        let mut majority = Majority::default();
        majority.tick(at(ms), PAUSE_MAX_MS);
        majority.note(at(ms));
        let period = majority.period(at(ms)).expect("it works");
        majority.clear(period);
        majority
    }

    #[test]
    fn former_coordinator_without_certificate_has_to_be_stopped() {
        assert!(next_of_former(true).starts_with("it ends"));
        assert!(next_of_former(false).ends_with("stop it"));
    }

    #[test]
    fn restarted_coordinator_grants_after_a_round_of_questions() {
        let mut majority = Majority::default();
        majority.tick(at(0), PAUSE_MAX_MS);
        assert!(!majority.works(at(0)) && !majority.may_grant(at(0)) && majority.period(at(0)).is_none());
        majority.note(at(0));
        assert!(majority.works(at(0)) && majority.waits(at(0)) && !majority.may_grant(at(0)));
        let period = majority.period(at(0)).expect("it works");
        majority.clear(period);
        assert!(majority.may_grant(at(0)) && !majority.waits(at(0)));
    }

    #[test]
    fn coordinator_works_for_longer_than_it_grants() {
        let mut majority = cleared(0);
        run(&mut majority, GRANTS_MS + 1);
        assert!(majority.may_grant(at(GRANTS_MS)) && !majority.may_grant(at(GRANTS_MS + 1)));
        assert!(majority.works(at(WORKS_MS)) && !majority.works(at(WORKS_MS + 1)));
    }

    #[test]
    fn new_leader_grants_at_once_if_the_majority_goes_on() {
        let mut majority = cleared(0);
        run(&mut majority, WORKS_MS);
        majority.note(at(WORKS_MS));
        assert!(majority.may_grant(at(WORKS_MS)));
    }

    /// Runs until then without a pause.
    fn run(majority: &mut Majority, until: u64) {
        (0..=until).step_by(100).chain([until]).for_each(|ms| majority.tick(at(ms), PAUSE_MAX_MS));
    }

    #[test]
    fn short_pause_calls_for_another_round_and_is_no_end_of_work() {
        let mut majority = cleared(0);
        assert!(majority.may_grant(at(PAUSE_MAX_MS)) && !majority.may_grant(at(PAUSE_MAX_MS + 1)));
        majority.tick(at(PAUSE_MAX_MS + 1), PAUSE_MAX_MS);
        assert!(majority.works(at(PAUSE_MAX_MS + 1)) && majority.waits(at(PAUSE_MAX_MS + 1)));
        assert!(!majority.may_grant(at(PAUSE_MAX_MS + 1)));
    }

    #[test]
    fn pause_of_an_hour_calls_for_another_round() {
        let mut majority = cleared(0);
        assert!(!majority.may_grant(at(HOUR)));
        majority.tick(at(HOUR), PAUSE_MAX_MS);
        majority.note(at(HOUR));
        assert!(majority.works(at(HOUR)) && !majority.may_grant(at(HOUR)));
        // A round that began before the pause proves nothing about the time after it.
        let mut majority = cleared(0);
        let period = majority.period(at(0)).expect("it works");
        majority.tick(at(HOUR), PAUSE_MAX_MS);
        majority.note(at(HOUR));
        majority.clear(period);
        assert!(!majority.may_grant(at(HOUR)) && majority.waits(at(HOUR)));
    }

    fn later(generation: u64, takeover: Takeover) -> Answers {
        let mut answer = HelloResponse { takeover: takeover.into(), ..HelloResponse::default() };
        match takeover {
            Takeover::Unspecified => answer.later_generation = generation,
            Takeover::Waits | Takeover::Unknown => answer.standby_generation = generation,
        }
        Answers::from([(3, Ok(answer))])
    }

    #[test]
    fn former_process_that_answers_with_an_error_runs() {
        let word = |answer| former_answer(&answer);
        assert_eq!(word(Err(Status::failed_precondition("another directory"))), FormerAnswer::Idle);
        assert_eq!(word(Err(Status::unavailable("this coordinator is starting"))), FormerAnswer::Idle);
        assert_eq!(word(Ok(HelloResponse::default())), FormerAnswer::Idle, "a version that names no generation");
        assert_eq!(word(Ok(HelloResponse { works: true, generation: 1, ..Default::default() })), FormerAnswer::Works);
        assert_eq!(word(Err(Status::deadline_exceeded("no answer"))), FormerAnswer::Silent);
        assert_eq!(word(Err(Status::from_error("refused".into()))), FormerAnswer::Silent);
    }

    #[test]
    fn question_of_a_former_coordinator_counts_as_running() {
        let generations = Generations::default();
        let now = boot_now();
        assert_eq!(generations.former(now), None);
        generations.note_former(1, 1, false);
        assert_eq!(generations.former(boot_now()), Some((1, 1, false)));
        generations.note_former(2, 1, true);
        generations.note_former(1, 1, false);
        assert_eq!(generations.former(boot_now()), Some((2, 1, true)), "one that works is preferred");
    }

    #[test]
    fn coordinator_that_heard_of_its_successor_grants_nothing() {
        let generations = Generations::default();
        generations.tick(PAUSE_MAX_MS);
        generations.note_majority();
        generations.clear(generations.period().expect("it works"));
        assert!(generations.may_grant());
        generations.note_later(2);
        generations.clear(generations.period().expect("it works"));
        assert!(!generations.may_grant());
    }

    #[test]
    fn waiting_recovery_ends_no_coordinator() {
        let waiting = LaterGenerations { waiting: BTreeMap::from([(3, 2)]), ..LaterGenerations::default() };
        assert_eq!(LaterGenerations::of(&later(2, Takeover::Waits), 1), waiting);
        assert_eq!(waiting.blocks(), None);
        let unknown = LaterGenerations::of(&later(2, Takeover::Unknown), 1);
        let why = unknown.blocks().expect("a reason");
        assert!(why.contains("coordinator 3 (generation 2)"), "{why}");
        assert_eq!(unknown, LaterGenerations { unknown: BTreeMap::from([(3, 2)]), ..waiting });
        let taken = LaterGenerations { taken_over: Some(2), ..LaterGenerations::default() };
        assert_eq!(LaterGenerations::of(&later(2, Takeover::Unspecified), 1), taken);
        assert_eq!(LaterGenerations::of(&later(2, Takeover::Unspecified), 2), LaterGenerations::default());
    }
}
