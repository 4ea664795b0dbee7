//! Mutants that the random runs of `simulation` catch late or never: each has a conversation of its own, which returns
//! whether the rule held, with or without a mutant.

use super::script::{Script, at, entry, message, name, recovered, unheard};
use super::simulation;
use crate::{Body, Input, Mutant, Output, Position, RecoveredState};
use archon_types::ReplicaState::{Live, Load};
use archon_types::{Epoch, ErrorKind, Fact, Incarnation, NodeId, PlacementId, ReplicaState, Seq, Version};

archon_types::shown_by! {
    CommitBelowMin => nothing_is_committed_below_min_in_sync,
    MinCountsJoiner => requested_joiner_does_not_count_for_min_in_sync,
    TakeoverBelowMin => takeover_waits_for_min_in_sync,
    NoLeaseBelowMin => no_read_is_confirmed_below_min_in_sync,
    AdmitStalled => stalled_leader_admits_nothing,
    AskWithoutLease => no_replica_is_requested_without_lease,
    NamesOneSilent => all_silent_followers_are_reported,
    NoBackoff => refused_request_is_not_repeated_at_once,
    ResumeEpoch => epoch_is_not_led_twice,
    LeadsInNextLife => new_incarnation_leads_nothing,
    TakeoverJoinerShort => joiner_during_takeover_holds_whole_log,
    CutCommitted => committed_entries_are_not_cut,
    FollowOldEpoch => old_epoch_is_not_followed,
    FollowStranger => sender_outside_row_is_not_followed,
    AnyEpochBelieved => epoch_beyond_any_election_is_rejected,
    FirstHeardStays => row_decides_leader_over_first_sender,
    OvertakenUnreported => overtaken_leader_reports_higher_epoch,
    StaleAddressee => message_for_another_placement_is_not_followed,
    AckOfOtherEpoch => acknowledgement_of_another_epoch_does_not_count,
    AckOfOtherLife => acknowledgement_of_another_incarnation_does_not_count,
    ReleaseUndone => release_is_final,
    ReleaseEarly => release_waits_for_pending_proposals,
    AloneWithoutLease => sole_copy_confirms_no_read,
    ConfirmReused => round_does_not_serve_later_read,
    ConfirmSkipsJoiner => confirmation_includes_joiner,
    ConfirmOne => confirmation_needs_all_followers,
    ConfirmAnyRound => answer_to_another_round_does_not_count,
    ConfirmBlindly => replica_with_higher_epoch_does_not_confirm,
    ServeUnheard => first_leader_serves_once_recorded,
    TailCommitted => recovered_tail_is_not_committed,
    CountsByOldRow => row_from_before_pull_does_not_make_copy_live,
    KeepsOrphanedCopy => pull_ends_with_leadership_of_its_source,
    LevelBeforeStart => replica_is_level_once_log_of_earlier_leaders_is_committed,
}

#[test]
fn every_mutant_is_caught_by_a_test() {
    for mutant in Mutant::ALL {
        assert!(SHOWN.contains(mutant) || simulation::SHOWN.contains(mutant), "nothing catches {mutant:?}");
        assert!((0..=25).contains(&mutant.rule()) || mutant.rule() == 33);
    }
}

fn serving(states: &[ReplicaState], min: u8, mutant: Option<Mutant>) -> Script {
    let mut script = Script::serving(states, min);
    script.replica.set_mutant(mutant);
    script
}

fn starting(own: u64, recovered: RecoveredState, mutant: Option<Mutant>) -> Script {
    let mut script = Script::new(own, recovered);
    script.replica.set_mutant(mutant);
    script
}

fn adopted() -> Body {
    Body::Adopted { at: Position::ZERO, held: Seq::ZERO }
}

fn ack(held: u64) -> Body {
    Body::Ack { held: Seq::new(held) }
}

fn asks(out: &[Output], wanted: &Fact) -> bool {
    out.iter().any(|output| matches!(output, Output::Report(report) if report.fact == *wanted))
}

fn confirms(out: &[Output], ticket: u64) -> bool {
    out.iter().any(|output| matches!(output, Output::ConfirmDone { tickets, ok: true } if tickets.contains(&ticket)))
}

fn nothing_is_committed_below_min_in_sync(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live], 2, mutant);
    script.propose(1);
    script.persisted(2);
    // The follower's storage is lost.
    script.configure((1, 2), 1, &[Live], 2);
    script.replica.commit() == Seq::ZERO && script.replica.admit() == Err(ErrorKind::NotEnoughReplicas)
}

fn requested_joiner_does_not_count_for_min_in_sync(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live], 2, mutant);
    script.configure((1, 2), 1, &[Live, Load], 2);
    script.turn([Input::Lease(true), Input::Tick]);
    // It left the Live set, so it has to answer again before it is requested.
    let out = script.hear(2, 1, adopted());
    assert!(asks(&out, &Fact::CaughtUp { joiner: name(2) }), "{out:?}");
    script.replica.admit() == Err(ErrorKind::NotEnoughReplicas)
}

fn takeover_waits_for_min_in_sync(mutant: Option<Mutant>) -> bool {
    let mut script = starting(1, RecoveredState::default(), mutant);
    script.configure((1, 1), 1, &[Live, Load], 2);
    !script.persisted(1).contains(&Output::Serve(true))
}

fn no_read_is_confirmed_below_min_in_sync(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live, Live], 3, mutant);
    script.configure((1, 2), 1, &[Live, Live, Load], 3);
    script.one(Input::Confirm { ticket: 1 });
    !confirms(&script.hear(2, 1, Body::Confirmed { round: 1 }), 1)
}

fn stalled_leader_admits_nothing(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live], 2, mutant);
    script.propose(1);
    script.persisted(2);
    script.tick_after(1_000);
    script.replica.admit() == Err(ErrorKind::NotEnoughReplicas)
}

fn no_replica_is_requested_without_lease(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Load], 1, mutant);
    let mut out = script.hear(2, 1, adopted());
    out.extend(script.tick_after(20));
    !asks(&out, &Fact::CaughtUp { joiner: name(2) })
}

fn all_silent_followers_are_reported(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live, Live], 1, mutant);
    script.propose(1);
    script.persisted(2);
    asks(&script.tick_after(1_000), &Fact::Silent { followers: vec![name(2), name(3)] })
}

fn refused_request_is_not_repeated_at_once(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live], 2, mutant);
    script.propose(1);
    script.persisted(2);
    let silent = Fact::Silent { followers: vec![name(2)] };
    assert!(asks(&script.tick_after(1_000), &silent));
    script.configure((1, 2), 1, &[Live, Live], 2);
    !asks(&script.tick_after(20), &silent)
}

fn epoch_is_not_led_twice(mutant: Option<Mutant>) -> bool {
    let mut script = starting(1, recovered(5, &[5], 0), mutant);
    script.configure((5, 9), 1, &[Live], 1);
    script.persisted(1);
    script.replica.admit().is_err()
}

fn new_incarnation_leads_nothing(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live], 1, mutant);
    script.one(Input::Renew { node: archon_types::NodeId::new(1), incarnation: Incarnation::new(2) });
    script.replica.admit().is_err()
}

fn joiner_during_takeover_holds_whole_log(mutant: Option<Mutant>) -> bool {
    let mut script = starting(1, recovered(1, &[1, 1], 0), mutant);
    script.configure((2, 4), 1, &[Live, Load], 2);
    script.persisted(1);
    script.one(Input::Lease(true));
    let out = script.hear(2, 2, adopted());
    !asks(&out, &Fact::CaughtUp { joiner: name(2) })
}

fn committed_entries_are_not_cut(mutant: Option<Mutant>) -> bool {
    let mut script = starting(2, recovered(1, &[1, 1], 1), mutant);
    let append =
        Body::Append { before: Position::ZERO, entries: vec![entry(2, 1)], start: Seq::ZERO, commit: Seq::ZERO };
    let alarmed = script.hear(1, 2, append).iter().any(|output| matches!(output, Output::Alarm(_)));
    alarmed && script.replica.last() == at(1, 2)
}

fn first(epoch: u64) -> Body {
    Body::Append { before: Position::ZERO, entries: vec![entry(epoch, 1)], start: Seq::ZERO, commit: Seq::ZERO }
}

fn old_epoch_is_not_followed(mutant: Option<Mutant>) -> bool {
    let mut script = starting(2, recovered(4, &[], 0), mutant);
    script.hear(1, 3, first(3));
    script.replica.last() == Position::ZERO
}

fn sender_outside_row_is_not_followed(mutant: Option<Mutant>) -> bool {
    let mut script = starting(2, RecoveredState::default(), mutant);
    script.configure((1, 1), 1, &[Live, Live, Live], 2);
    // Placement 99 is in no row, and placement 3 is on another node than the sender's.
    script.hear(99, 3, first(3));
    let mut elsewhere = message(3, 2, 3, first(3));
    elsewhere.from.node = NodeId::new(9);
    script.one(Input::Message(elsewhere));
    let unmoved = script.replica.epoch() == Epoch::ZERO && script.replica.last() == Position::ZERO;
    // Once the row is known, its leader is accepted.
    script.hear(3, 3, first(3));
    unmoved && script.replica.epoch() == Epoch::new(3)
}

fn epoch_beyond_any_election_is_rejected(mutant: Option<Mutant>) -> bool {
    let mut script = starting(2, RecoveredState::default(), mutant);
    script.configure((7, 1), 1, &[Live, Live], 1);
    let reached = 7 + archon_types::limits::EPOCHS_AHEAD_MAX;
    script.hear(1, u64::MAX, first(u64::MAX));
    script.hear(1, reached + 1, first(reached + 1));
    let unmoved = script.replica.epoch() == Epoch::ZERO;
    // Nor does a leader give way to a follower that claims to know such an epoch.
    let mut leader = serving(&[Live, Live], 1, mutant);
    let nack = |refused| Body::Nack { refused, hint: Position::ZERO, copying: false };
    leader.hear(2, u64::MAX, nack(Position::ZERO));
    let leads = leader.replica.status() == crate::ReplicaStatus::Serving;
    script.hear(1, reached, first(reached));
    unmoved && leads && script.replica.epoch() == Epoch::new(reached)
}

fn row_decides_leader_over_first_sender(mutant: Option<Mutant>) -> bool {
    let mut script = starting(2, RecoveredState::default(), mutant);
    script.configure((1, 1), 1, &[Live, Live, Live], 2);
    // Placement 3 leads without a grant, in an epoch that is granted to placement 1 a moment later.
    script.hear(3, 2, Body::Adopt { at: Position::ZERO, start: Seq::new(9), commit: Seq::ZERO });
    script.configure((2, 2), 1, &[Live, Live, Live], 2);
    script.hear(1, 2, first(2));
    script.replica.last() != Position::ZERO
}

fn overtaken_leader_reports_higher_epoch(mutant: Option<Mutant>) -> bool {
    let told = |script: &Script, by| script.report(1, 1, Fact::Overtaken { by: Epoch::new(by) });
    let nack = Body::Nack { refused: Position::ZERO, hint: Position::ZERO, copying: false };
    // A follower knows the higher epoch.
    let mut script = serving(&[Live, Live], 1, mutant);
    let out = script.hear(2, 5, nack);
    let mut held = out.contains(&told(&script, 5)) && script.replica.status() == crate::ReplicaStatus::Following;
    // The report is repeated until a row of a higher epoch comes, with a leadership above both.
    held &= script.tick_after(1_000).contains(&told(&script, 5));
    script.configure((6, 2), 1, &[Live, Live], 1);
    held &= !script.replica.wants_ticks() || script.replica.status() == crate::ReplicaStatus::TakingOver;
    held &= !script.tick_after(1_000).contains(&told(&script, 5));
    // The leader itself followed another one that was never granted.
    let mut script = serving(&[Live, Live], 1, mutant);
    script.hear(2, 5, Body::Adopt { at: Position::ZERO, start: Seq::new(9), commit: Seq::ZERO });
    held &= script.tick_after(30).contains(&told(&script, 5));
    // The copy followed another leader before it was named.
    let mut script = starting(1, recovered(5, &[], 0), mutant);
    held &= script.configure((1, 1), 1, &[Live, Live], 1).contains(&told(&script, 5));
    // The copy followed another leader in the very epoch that it is granted.
    let mut script = starting(1, recovered(1, &[], 0), mutant);
    held & script.configure((1, 1), 1, &[Live, Live], 1).contains(&told(&script, 1))
}

fn message_for_another_placement_is_not_followed(mutant: Option<Mutant>) -> bool {
    let mut script = starting(2, RecoveredState::default(), mutant);
    let mut lost = message(1, 2, 1, first(1));
    lost.to.placement = PlacementId::new(9);
    script.one(Input::Message(lost));
    script.replica.last() == Position::ZERO
}

fn acknowledgement_of_another_epoch_does_not_count(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live], 1, mutant);
    script.propose(1);
    script.persisted(2);
    script.hear(2, 0, ack(1));
    script.replica.commit() == Seq::ZERO
}

fn acknowledgement_of_another_incarnation_does_not_count(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live], 1, mutant);
    script.propose(1);
    script.persisted(2);
    let mut other_life = message(2, 1, 1, ack(1));
    other_life.from.incarnation = Incarnation::new(9);
    script.one(Input::Message(other_life));
    script.replica.commit() == Seq::ZERO
}

fn release_is_final(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live], 1, mutant);
    let released = script.one(Input::HandOver { epoch: Epoch::new(1), to: PlacementId::new(2) });
    assert!(asks(&released, &Fact::Released));
    script.configure((1, 5), 1, &[Live], 1);
    script.persisted(2);
    script.replica.admit().is_err()
}

fn release_waits_for_pending_proposals(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live], 1, mutant);
    script.propose(1);
    !asks(&script.one(Input::HandOver { epoch: Epoch::new(1), to: PlacementId::new(2) }), &Fact::Released)
}

fn sole_copy_confirms_no_read(mutant: Option<Mutant>) -> bool {
    !confirms(&serving(&[Live], 1, mutant).one(Input::Confirm { ticket: 1 }), 1)
}

fn round_does_not_serve_later_read(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live], 1, mutant);
    script.one(Input::Confirm { ticket: 1 });
    script.one(Input::Confirm { ticket: 2 });
    let out = script.hear(2, 1, Body::Confirmed { round: 1 });
    assert!(confirms(&out, 1), "{out:?}");
    !confirms(&out, 2)
}

fn confirmation_includes_joiner(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live, Load], 1, mutant);
    script.one(Input::Lease(true));
    script.hear(3, 1, adopted());
    script.one(Input::Confirm { ticket: 1 });
    !confirms(&script.hear(2, 1, Body::Confirmed { round: 1 }), 1)
}

fn confirmation_needs_all_followers(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live, Live], 1, mutant);
    script.one(Input::Confirm { ticket: 1 });
    !confirms(&script.hear(2, 1, Body::Confirmed { round: 1 }), 1)
}

fn answer_to_another_round_does_not_count(mutant: Option<Mutant>) -> bool {
    let mut script = serving(&[Live, Live], 1, mutant);
    script.one(Input::Confirm { ticket: 1 });
    script.hear(2, 1, Body::Confirmed { round: 1 });
    script.one(Input::Confirm { ticket: 2 });
    !confirms(&script.hear(2, 1, Body::Confirmed { round: 1 }), 2)
}

fn replica_with_higher_epoch_does_not_confirm(mutant: Option<Mutant>) -> bool {
    let mut script = starting(2, recovered(4, &[], 0), mutant);
    let out = script.hear(1, 3, Body::Confirm { round: 8 });
    !out.iter().any(|output| matches!(output, Output::Send(sent) if matches!(sent.body, Body::Confirmed { .. })))
}

/// The earlier leader may have answered for both entries, and announced the first one.
fn replica_is_level_once_log_of_earlier_leaders_is_committed(mutant: Option<Mutant>) -> bool {
    let mut script = starting(2, recovered(1, &[1, 1], 1), mutant);
    script.configure((2, 3), 1, &[Live, Live], 1);
    let append = |commit| {
        let (before, start) = (at(1, 2), Seq::new(2));
        Body::Append { before, entries: vec![], start, commit: Seq::new(commit) }
    };
    script.hear(1, 2, append(1));
    script.persisted(1);
    let early = script.replica.level_since();
    script.hear(1, 2, append(2));
    early.is_none() && script.replica.level_since() == Some(script.now)
}

fn recovered_tail_is_not_committed(mutant: Option<Mutant>) -> bool {
    starting(1, recovered(1, &[1, 1], 0), mutant).replica.commit() == Seq::ZERO
}

/// The source led epoch 1 when the copy began. Re-elected, it may have been reset in between.
fn pull_ends_with_leadership_of_its_source(mutant: Option<Mutant>) -> bool {
    [1, 3].into_iter().all(|leader| {
        let mut script = starting(2, RecoveredState { epoch: Epoch::new(1), ..RecoveredState::default() }, mutant);
        script.configure((1, 2), 1, &[Live, Load, Live], 1);
        let out = script.hear(1, 1, Body::Behind { base: at(1, 5) });
        assert!(matches!(out[..], [Output::StartCopy { copy: 1, .. }]), "{out:?}");
        assert_eq!(script.configure((1, 3), 1, &[Live, Load, Live], 1), [], "the leadership stands");
        let out = script.configure((3, 4), leader, &[Live, Load, Live], 1);
        let copied = script.one(Input::Copied { copy: 1, at: at(1, 7), version: Version::new(1) });
        out == [Output::StopCopy { copy: 1 }] && copied.is_empty()
    })
}

fn first_leader_serves_once_recorded(mutant: Option<Mutant>) -> bool {
    let mut script = starting(1, RecoveredState::default(), mutant);
    script.one(Input::Configure(unheard((1, 1), 1, &[Live], 1)));
    let waits = !script.persisted(1).contains(&Output::Serve(true));
    let serves = script.configure((1, 2), 1, &[Live], 1).contains(&Output::Serve(true));
    waits && serves
}

/// The replica was Live once, by a push that it never got. Dropped since, it is reset and pulls a copy, with rows above
/// the end of its log; and now the push arrives.
fn row_from_before_pull_does_not_make_copy_live(mutant: Option<Mutant>) -> bool {
    let mut script = starting(2, recovered(1, &[1, 1], 2), mutant);
    script.configure((1, 3), 1, &[Live, Load], 1);
    script.hear(1, 1, Body::Behind { base: at(1, 7) });
    script.persisted(1);
    script.configure((1, 4), 1, &[Live, Live], 1);
    script.one(Input::Copied { copy: 1, at: at(1, 7), version: Version::new(5) });
    let late = script.replica.counts();
    script.configure((1, 5), 1, &[Live, Load], 1);
    let loading = script.replica.counts();
    script.configure((1, 6), 1, &[Live, Live], 1);
    assert!(script.replica.counts(), "a row from after the copy does");
    !late && !loading
}
