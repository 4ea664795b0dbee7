//! `archon quorum …`: list of the coordinators, and its changes.

pub(super) mod leaderless;
mod recovery;
pub(crate) mod upgrade;

use super::orders::with_list;
use super::quorum::leaderless::{asked, without_leader};
use super::wait::{WaitEnd, WatchedProcess, wait};
use super::{short_time, since};
use crate::args::{QuorumSnapshotVerb, QuorumVerb, QuorumWaitArgs};
#[cfg(test)]
use crate::documents::contract;
use crate::documents::{LeadTransferred, QuorumChanged};
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, count_text};
use crate::recover::save;
use archon_client::{Admin, CoordinatorRole, CoordinatorStatus, Error, ErrorKind, Quorum, QuorumChange};
use recovery::{settle, show_recovery};
use std::cell::RefCell;

/// Documents of the verbs.
#[cfg(test)]
pub(crate) const DOCUMENTS: contract::Documents = &[
    ("quorum list", contract::one::<Quorum>),
    ("quorum promote", contract::one::<QuorumChanged>),
    ("quorum demote", contract::one::<QuorumChanged>),
    ("quorum remove", contract::one::<QuorumChanged>),
    ("quorum replace", contract::one::<QuorumChanged>),
    ("quorum set-address", contract::one::<QuorumChanged>),
    ("quorum transfer-leader", contract::one::<LeadTransferred>),
    ("quorum cancel", contract::one::<QuorumChanged>),
    ("quorum settle", contract::one::<QuorumChanged>),
    ("quorum recover", contract::one::<crate::documents::QuorumRecovered>),
    ("quorum snapshot save", contract::one::<crate::documents::QuorumSnapshotFile>),
    ("quorum snapshot verify", contract::one::<crate::documents::QuorumSnapshotFile>),
];

/// Carries out one of them.
pub(crate) async fn run(verb: &QuorumVerb, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let (change, force, waits) = match verb {
        QuorumVerb::List => return list(admin, output).await,
        QuorumVerb::TransferLeader(args) => return transfer(args.member, admin, output).await,
        QuorumVerb::Cancel => return cancel(admin, output).await,
        QuorumVerb::Settle(args) => return settle(args.accept_data_loss, admin, output).await,
        QuorumVerb::Snapshot(QuorumSnapshotVerb::Save(args)) => return save(args, admin, output).await,
        QuorumVerb::Snapshot(QuorumSnapshotVerb::Verify(_)) => {
            return Err(Failure::failed("verifying a file needs no coordinator"));
        }
        QuorumVerb::Recover(_) => return Err(Failure::failed("a recovery needs no coordinator")),
        QuorumVerb::Promote(args) => (QuorumChange::Promote { id: args.member }, false, &args.wait),
        QuorumVerb::Demote(args) => (QuorumChange::Demote { id: args.of.member }, args.force, &args.of.wait),
        QuorumVerb::Remove(args) => (QuorumChange::Remove { id: args.of.member }, args.force, &args.of.wait),
        QuorumVerb::Replace(args) => (QuorumChange::Replace { old: args.old, new: args.new }, false, &args.wait),
        QuorumVerb::SetAddress(args) => {
            (QuorumChange::SetAddress { id: args.member, address: args.address.clone() }, args.force, &args.wait)
        }
    };
    let text = change.to_string();
    let moves =
        matches!(change, QuorumChange::Replace { .. } | QuorumChange::Remove { .. } | QuorumChange::SetAddress { .. });
    let begun = std::time::Instant::now();
    let changed = match begin(change, force, waits, admin, output).await? {
        WaitEnd::Over(changed) => changed,
        WaitEnd::Detached => return Err(Failure::new(Exit::Refused, format!("the change was not started: {text}"))),
        WaitEnd::TimedOut => {
            return Err(Failure::new(Exit::TimedOut, format!("another change is still running; not started: {text}"))
                .with_remedy("see `archon quorum list`"));
        }
    };
    let waits = &QuorumWaitArgs {
        wait_timeout: waits.wait_timeout.map(|limit| limit.saturating_sub(begun.elapsed())),
        ..waits.clone()
    };
    if !output.is_json() {
        output.line(if changed {
            format!("started: {text}")
        } else {
            format!("already in effect or running: {text}")
        })?;
    }
    finish(&text, changed, moves, waits, admin, output).await
}

fn failure(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::AssignmentInProgress => Failure::from(error)
            .with_remedy("`archon quorum list` shows the running change, `archon quorum cancel` cancels it"),
        _ => with_list(error, "see `archon quorum list`"),
    }
}

/// Requests a change; one with a wait also waits for the change before it, such as the join of a newcomer.
async fn begin(
    change: QuorumChange,
    force: bool,
    waits: &QuorumWaitArgs,
    admin: &Admin,
    output: &Output,
) -> Result<WaitEnd<bool>, Failure> {
    let ask = async || admin.change_quorum(change.clone(), force).await;
    if !waits.wait {
        return Ok(WaitEnd::Over(ask().await.map_err(failure)?));
    }
    wait(&mut Beginning { ask, output, said: false }, waits.wait_timeout).await
}

struct Beginning<'a, F> {
    ask: F,
    output: &'a Output,
    said: bool,
}

impl<F: AsyncFnMut() -> Result<bool, Error>> WatchedProcess for Beginning<'_, F> {
    type Outcome = bool;

    async fn look(&mut self) -> Result<Option<bool>, Failure> {
        match (self.ask)().await {
            Ok(changed) => Ok(Some(changed)),
            Err(error) if error.kind() == ErrorKind::AssignmentInProgress => {
                if !std::mem::replace(&mut self.said, true) {
                    self.say(&format!("waiting: {error}"));
                }
                Ok(None)
            }
            Err(error) => Err(failure(error)),
        }
    }

    fn say(&self, text: &str) {
        self.output.talk(text);
    }

    fn finish(&self) {}
}

/// Names the quorum's addresses for members started later: their configured lists predate the change.
fn addresses_text(quorum: &Quorum) -> String {
    let addresses: Vec<&str> = quorum.coordinators.iter().map(|member| member.address.as_str()).collect();
    format!(
        "running members know the new addresses; start others with --coordinators {}, and update ARCHON_COORDINATORS \
         and configuration files",
        addresses.join(",")
    )
}

/// Waits if requested, then prints the state of the quorum. `moves`: addresses are added or removed.
async fn finish(
    text: &str,
    changed: bool,
    moves: bool,
    waits: &QuorumWaitArgs,
    admin: &Admin,
    output: &Output,
) -> Result<Exit, Failure> {
    let quorum = if waits.wait {
        let mut watched = Change { admin, output, said: RefCell::default() };
        match wait(&mut watched, waits.wait_timeout).await? {
            WaitEnd::Over(quorum) => quorum,
            WaitEnd::Detached => {
                output.talk(
                    "detached: the change continues; see `archon quorum list`, cancel it with `archon quorum \
                             cancel`",
                );
                return Ok(Exit::Done);
            }
            WaitEnd::TimedOut => {
                return Err(Failure::new(Exit::TimedOut, format!("still running: {text}"))
                    .with_remedy("see `archon quorum list`; cancel it with `archon quorum cancel`"));
            }
        }
    } else {
        admin.quorum_of_leader().await?
    };
    if output.is_json() {
        output.json(&QuorumChanged { change: text.to_owned(), changed, quorum })?;
    } else if waits.wait {
        output.line(format!("done: {text}; {}", spare_text(&quorum)))?;
        if moves {
            output.talk(addresses_text(&quorum));
        }
    } else if changed {
        output.talk("it is carried out by itself; watch it with `archon quorum list`");
    }
    Ok(Exit::Done)
}

struct Change<'a> {
    admin: &'a Admin,
    output: &'a Output,
    said: RefCell<String>,
}

/// Returns true if an answer without a pending change means that the change has ended. A follower, or a new leader that has
/// not applied its whole log, may not know of it yet.
fn knows_changes(quorum: &Quorum) -> bool {
    quorum.leader_id == Some(quorum.id) && quorum.applied_index == quorum.last_log_index
}

impl WatchedProcess for Change<'_> {
    type Outcome = Quorum;

    async fn look(&mut self) -> Result<Option<Quorum>, Failure> {
        let quorum = self.admin.quorum_of_leader().await?;
        match &quorum.pending {
            None if knows_changes(&quorum) => return Ok(Some(quorum)),
            None => {}
            Some(pending) => {
                let next = pending.next.clone().unwrap_or_default();
                if !next.is_empty() && *self.said.borrow() != next {
                    self.say(&next);
                    self.said.replace(next);
                }
            }
        }
        Ok(None)
    }

    fn say(&self, text: &str) {
        self.output.talk(text);
    }

    fn finish(&self) {}
}

async fn list(admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let (quorum, leaderless) = asked(admin).await?;
    if output.is_json() {
        output.json(&quorum)?;
        return leaderless.map_or(Ok(Exit::Done), |answer| Err(without_leader(&quorum, answer)));
    }
    let columns = [
        Column::number("ID"),
        Column::text("ADDRESS"),
        Column::text("ROLE"),
        Column::text("VOTES"),
        Column::text("BEHIND"),
    ];
    let rows = quorum.coordinators.iter().map(|member| row(member, &quorum, output)).collect();
    output.rows(&columns, rows, "no coordinators")?;
    if let Some(answer) = leaderless {
        return Err(without_leader(&quorum, answer));
    }
    if let Some(pending) = &quorum.pending {
        let next = pending.next.as_ref().map_or_else(String::new, |what| format!("; next: {what}"));
        let age = since(pending.began_at_ms).map_or_else(String::new, |age| format!(" for {}", short_time(age)));
        output.talk(format!("running{age}, requested by {}: {}{next}", pending.by, pending.change));
    }
    output.talk(spare_text(&quorum));
    if let Some(recovery) = &quorum.recovery {
        show_recovery(quorum.generation, recovery, output)?;
    } else if let Some(waits) = &quorum.waits {
        output.talk(waits);
    }
    Ok(Exit::Done)
}

pub(super) fn row(member: &CoordinatorStatus, told_by: &Quorum, output: &Output) -> Vec<String> {
    let role = member.role.as_str();
    let role = match member.role.known() {
        // The supposed leader in a follower's view was asked, and has not answered.
        Some(CoordinatorRole::Leader) if told_by.id != member.id => output.bad("does not answer"),
        Some(CoordinatorRole::Unreachable) if told_by.leader_id.is_none() => output.bad("does not answer"),
        Some(CoordinatorRole::Leader) => output.bold(role),
        Some(CoordinatorRole::Unreachable) => output.bad(role),
        _ => role.to_owned(),
    };
    let behind = member.entries_behind.map_or_else(|| "-".to_owned(), |entries| entries.to_string());
    let votes = if member.learner { "no" } else { "yes" };
    vec![member.id.to_string(), member.address.clone(), role, votes.to_owned(), behind]
}

/// Describes the number of voters that may fail.
pub(crate) fn spare_text(quorum: &Quorum) -> String {
    let voters = quorum.voters().count();
    let has = count_text(voters, "voter", "voters");
    let fails = match quorum.spare_voters {
        _ if quorum.leader_id.is_none() => return format!("{has}, no known leader"),
        None => {
            return format!(
                "{has}; tolerated failures are unknown, because only the leading coordinator knows and it \
                            does not answer"
            );
        }
        Some(0) => "none of them may fail".to_owned(),
        Some(1) => "one more may fail".to_owned(),
        Some(spare) => format!("{spare} more may fail"),
    };
    let even = match voters {
        2 => "; one voter tolerates as many failures: use an odd number".to_owned(),
        _ if voters.is_multiple_of(2) && voters > 0 => {
            format!("; {} tolerate as many failures: use an odd number", voters - 1)
        }
        _ => String::new(),
    };
    format!("{has}: {fails}{even}")
}

async fn transfer(to: Option<u64>, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let leader = admin.transfer_lead(to).await.map_err(failure)?;
    let text = match leader {
        Some(leader) => format!("coordinator {leader} leads"),
        None => "leadership was transferred; see `archon quorum list`".to_owned(),
    };
    output.done(&LeadTransferred { leader_id: leader }, text)
}

async fn cancel(admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    admin.cancel_quorum_change().await.map_err(failure)?;
    let quorum = admin.quorum_of_leader().await?;
    let document = QuorumChanged { change: "cancelled".to_owned(), changed: true, quorum };
    output.done(&document, "cancelled: the voters stay as they are")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::output::Format;
    use archon_client::OpenEnum;

    pub(crate) fn quorum(voters: u64, spare_voters: Option<u32>) -> Quorum {
        let member = |id: u64| CoordinatorStatus {
            id,
            address: format!("127.0.0.1:710{id}"),
            role: OpenEnum::Known(CoordinatorRole::Follower),
            learner: id > voters,
            entries_behind: None,
            lack: None,
        };
        Quorum {
            id: 1,
            role: OpenEnum::Known(CoordinatorRole::Leader),
            leader_id: Some(1),
            leader_address: None,
            term: 1,
            last_log_index: 0,
            applied_index: 0,
            coordinators: (1..=voters + 1).map(member).collect(),
            spare_voters,
            pending: None,
            retired_ids: Vec::new(),
            cluster_id: String::new(),
            generation: 1,
            generation_key: None,
            recovery: None,
            waits: None,
        }
    }

    #[test]
    fn killed_coordinator_is_not_shown_as_leader() {
        let mut found = quorum(3, None);
        found.coordinators[1].role = OpenEnum::Known(CoordinatorRole::Leader);
        found.leader_id = Some(2);
        let shown = |found: &Quorum| row(&found.coordinators[1], found, &Output::plain(Format::Table))[2].clone();
        assert_eq!(shown(&found), "does not answer");
        found.id = 2;
        assert_eq!(shown(&found), "leader", "it says so itself");
    }

    #[test]
    fn blocked_quorum_change_names_quorum_commands() {
        let detail = archon_client::ErrorDetail::new(ErrorKind::AssignmentInProgress, "another change is under way");
        let text = failure(Error::from(detail)).to_string();
        assert!(text.contains("archon quorum list") && text.contains("archon quorum cancel"), "{text}");
        assert!(!text.contains("rebalance"), "{text}");
    }

    #[tokio::test(start_paused = true)]
    async fn change_with_wait_waits_for_a_join() {
        let mut asked = 0;
        let ask = async || {
            asked += 1;
            let busy = archon_client::ErrorDetail::new(ErrorKind::AssignmentInProgress, "coordinator 4 is to join");
            if asked < 3 { Err(Error::from(busy)) } else { Ok(true) }
        };
        let output = Output::plain(Format::Table);
        let begun = wait(&mut Beginning { ask, output: &output, said: false }, None).await;
        assert!(matches!(begun, Ok(WaitEnd::Over(true))));
    }

    #[test]
    fn leader_knows_changes_once_it_has_applied_its_log() {
        assert!(knows_changes(&quorum(3, None)));
        assert!(!knows_changes(&Quorum { last_log_index: 1, ..quorum(3, None) }), "it may have a change to apply");
        assert!(!knows_changes(&Quorum { leader_id: Some(2), ..quorum(3, None) }), "a follower");
    }

    #[test]
    fn four_voters_tolerate_no_more_failures_than_three() {
        assert_eq!(spare_text(&quorum(3, Some(1))), "3 voters: one more may fail");
        assert_eq!(spare_text(&quorum(1, Some(0))), "1 voter: none of them may fail");
        assert_eq!(
            spare_text(&quorum(4, Some(1))),
            "4 voters: one more may fail; 3 tolerate as many failures: use an odd number"
        );
        assert_eq!(
            spare_text(&quorum(2, Some(0))),
            "2 voters: none of them may fail; one voter tolerates as many failures: use an odd number"
        );
        assert!(spare_text(&quorum(3, None)).contains("only the leading coordinator knows"));
        let nobody = Quorum { leader_id: None, ..quorum(3, None) };
        assert_eq!(spare_text(&nobody), "3 voters, no known leader");
    }
}
