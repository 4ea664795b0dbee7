//! Updates of tables and nodes in the answers to relayed heartbeats, and pushes that happen nevertheless.

use super::pushes::{WholeTables, all_taken, next};
use crate::bed::{TABLE, TestBed};
use crate::mutants::running;
use archon_coordinator_core::term::{AnswerDeadline, HeartbeatSummary, Piece, Pieces, PushStep, PushUrgency, news};
use archon_coordinator_core::*;
use archon_types::*;

archon_types::shown_by! {
    NewTableAsChange => table_created_since_is_sent_whole,
    EarlierGenerationCounts => version_of_earlier_generation_does_not_count,
    AnswersAwaitedForEver => node_without_updates_in_answers_is_pushed_to,
}

fn other_table() -> Command {
    let partitioning = Partitioning::Hash { partitions: 1 };
    Command::CreateTable { name: "other".into(), partitioning, replication: 1, holds: TableContent::Data }
}

/// Tables with the versions that their rows are newer than, and the content of the list of nodes.
type MissingTables = (Vec<(TableId, Version)>, Option<Version>);

/// Returns the data that a holder of everything up to `since` lacks.
fn lacks(bed: &TestBed, since: Version) -> Option<MissingTables> {
    let news = news(&bed.state, since, &WholeTables)?;
    assert_eq!((news.complete, news.newest), (bed.state.table_version(), Version::new(bed.state.applied)));
    Some((news.rows, news.nodes))
}

#[test]
fn news_contain_what_a_node_lacks() {
    let (mut bed, _, _) = all_taken();
    let before = bed.state.table_version();
    assert_eq!(lacks(&bed, before), None, "it holds everything");
    bed.join("delphi", 40);
    assert_eq!(lacks(&bed, before), Some((vec![], Some(before))));
    bed.fail(bed.leader(0).expect("a leader"));
    assert_eq!(lacks(&bed, before), Some((vec![(TABLE, before)], Some(before))));
    assert_eq!(lacks(&bed, Version::ZERO), None, "who holds nothing is pushed everything, its duties too");
}

fn table_created_since_is_sent_whole(mutant: Option<Mutant>) -> bool {
    let (mut bed, _, _) = all_taken();
    bed.state.mutant = mutant;
    let before = bed.state.table_version();
    bed.ok(other_table());
    lacks(&bed, before) == Some((vec![(TableId::new(2), Version::ZERO)], None))
}

#[test]
fn news_list_tables_after_a_drop() {
    let (mut bed, _, _) = all_taken();
    bed.ok(other_table());
    let before = bed.state.table_version();
    bed.ok(Command::DropTable { table: TableId::new(2) });
    let news = news(&bed.state, before, &WholeTables).expect("it lacks the drop");
    assert_eq!(news.tables.map(|list| list.tables), Some(vec![TABLE]));
}

/// Rows of some size, or with further pieces.
struct LargeRows(usize, Option<u64>);

impl Pieces for LargeRows {
    type Rows = ();
    type Nodes = ();

    fn rows(&self, state: &ClusterState, table: TableId, _: Version, _: u64) -> Option<Piece<()>> {
        Some(Piece { content: (), bytes: self.0, version: state.rows_version_of(table), next: self.1 })
    }

    fn nodes(&self, state: &ClusterState, _: Version) -> Option<Piece<()>> {
        Some(Piece { content: (), bytes: 0, version: state.nodes_version, next: None })
    }
}

#[test]
fn large_tables_are_left_out_of_answers() {
    let (mut bed, _, _) = all_taken();
    let before = bed.state.table_version();
    bed.fail(bed.leader(0).expect("a leader"));
    assert!(news(&bed.state, before, &LargeRows(limits::NEWS_BYTES_MAX, None)).is_some());
    assert!(news(&bed.state, before, &LargeRows(limits::NEWS_BYTES_MAX + 1, None)).is_none(), "that is pushed");
    assert!(news(&bed.state, before, &LargeRows(1, Some(7))).is_none(), "and so is what comes in pieces");
}

#[test]
fn reported_holdings_are_not_pushed_again() {
    let (mut bed, node, mut acknowledged) = all_taken();
    bed.join("delphi", 40);
    bed.ok(other_table());
    let newest = bed.state.table_version();
    assert!(acknowledged.lacks_news_alone(&bed.state, node));
    acknowledged.note_held(&bed.state, bed.now, newest);
    assert_eq!(acknowledged.due(&bed.state, node), None);
    // Another coordinator leads, which knows only the heartbeats that it gets.
    let mut unknown = term::PushProgress::default();
    unknown.note_held(&bed.state, bed.now, newest);
    let (push, promise) = next(&bed, node, &unknown);
    assert!(push.rows.is_empty() && push.nodes.is_none() && push.duties.is_some() && push.access.is_some(), "{push:?}");
    assert!(unknown.take(promise, push.version, false, bed.now));
    assert_eq!(unknown.due(&bed.state, node), None);
    // The node loses its tables.
    assert!(unknown.look_at_heartbeat(bed.now.plus(5_000), Version::ZERO));
}

#[test]
fn table_newer_than_holdings_is_pushed_whole() {
    let (mut bed, node, _) = all_taken();
    let before = bed.state.table_version();
    bed.ok(other_table());
    let mut unknown = term::PushProgress::default();
    unknown.note_held(&bed.state, bed.now, before);
    assert_eq!(next(&bed, node, &unknown).0.rows, [(TableId::new(2), Version::ZERO)]);
}

#[test]
fn rights_and_duties_are_pushed_without_waiting() {
    let (mut bed, node, acknowledged) = all_taken();
    let scope = Scope { client: Some("shop".into()), table: None };
    let change = check_access(&bed.state, &scope, AccessChange::Grant(Right::Read)).expect("it may");
    bed.ok(change.expect("something to change"));
    assert!(
        acknowledged.due(&bed.state, node) == Some(PushUrgency::Table)
            && !acknowledged.lacks_news_alone(&bed.state, node)
    );
    bed.fail(bed.leader(0).expect("a leader"));
    let led = bed.leader(0).expect("another leader");
    assert!(!acknowledged.lacks_news_alone(&bed.state, led), "its duties changed");
}

fn version_of_earlier_generation_does_not_count(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let told = bed.state.table_version();
    bed.state.generation = 2;
    bed.state.applied = bed.state.applied.max(first_number(2));
    bed.join("delphi", 40);
    let node = bed.node("athens");
    let mut acknowledged = term::PushProgress::default();
    acknowledged.note_held(&bed.state, bed.now, told);
    let (push, _) = next(&bed, node, &acknowledged);
    news(&bed.state, told, &WholeTables).is_none() && push.nodes == Some(Version::ZERO)
}

fn node_without_updates_in_answers_is_pushed_to(mutant: Option<Mutant>) -> bool {
    let (mut bed, _, _) = all_taken();
    bed.state.mutant = mutant;
    let (mut awaited, before, begun) = (AnswerDeadline::default(), bed.state.table_version(), bed.now);
    bed.join("delphi", 40);
    let waits = |awaited: &mut AnswerDeadline, bed: &TestBed, millis| {
        let now = begun.plus(millis);
        awaited.until(&bed.state, now, before, now)
    };
    let first = waits(&mut awaited, &bed, 0);
    // Later changes do not prolong the wait.
    bed.join("ephesus", 41);
    first.is_some() && waits(&mut awaited, &bed, 599) == first && waits(&mut awaited, &bed, 600).is_none()
}

#[test]
fn silent_node_is_pushed_to_at_once() {
    let (mut bed, _, _) = all_taken();
    let (before, heard) = (bed.state.table_version(), bed.now);
    bed.join("delphi", 40);
    let waits = |millis| AnswerDeadline::default().until(&bed.state, heard, before, heard.plus(millis)).is_some();
    assert!(waits(1_000) && !waits(1_001));
}

#[test]
fn node_kept_current_by_answers_gets_no_push() {
    let (mut bed, _, _) = all_taken();
    let mut awaited = AnswerDeadline::default();
    let mut holds = bed.state.table_version();
    for round in 0..20 {
        bed.join(&format!("n{round}"), 100 + round);
        let newest = bed.state.table_version();
        for _ in 0..2 {
            bed.now = bed.now.plus(200);
            assert!(awaited.until(&bed.state, bed.now, holds, bed.now).is_some(), "round {round}");
        }
        holds = newest;
    }
}

#[test]
fn push_waits_for_answers_to_relayed_heartbeats_only() {
    let (mut bed, node, mut acknowledged) = all_taken();
    let (holds, push) = (bed.state.table_version(), PushStep::Push(PushUrgency::Table));
    bed.join("delphi", 40);
    let (state, now) = (&bed.state, bed.now);
    let heard = HeartbeatSummary { at: now, holds, carried: true };
    let mut step = |heard, has_news| acknowledged.next_step(state, node, heard, now, |_| has_news);
    assert_eq!(step(None, true), push, "no heartbeat came yet");
    assert_eq!(step(Some(HeartbeatSummary { carried: false, ..heard }), true), push);
    assert_eq!(step(Some(heard), false), push, "no answer has room for it");
    assert_eq!(step(Some(heard), true), PushStep::Await(now.plus(600)));
    let current = HeartbeatSummary { holds: state.table_version(), ..heard };
    assert!(!acknowledged.hear(state, current, false));
    assert_eq!(acknowledged.due(state, node), Some(PushUrgency::Table), "an old node reports its tables alone");
    assert!(!acknowledged.hear(state, current, true));
    assert_eq!(acknowledged.next_step(state, node, Some(current), now, |_| true), PushStep::Idle);
}

#[test]
fn push_that_ended_a_wait_lets_the_next_one_begin() {
    let (mut bed, node, mut acknowledged) = all_taken();
    let (holds, begun) = (bed.state.table_version(), bed.now);
    let step = |bed: &TestBed, acknowledged: &mut term::PushProgress, millis| {
        let at = begun.plus(millis);
        acknowledged.next_step(&bed.state, node, Some(HeartbeatSummary { at, holds, carried: true }), at, |_| true)
    };
    bed.join("delphi", 40);
    assert_eq!(step(&bed, &mut acknowledged, 0), PushStep::Await(begun.plus(600)));
    assert_eq!(step(&bed, &mut acknowledged, 600), PushStep::Push(PushUrgency::Table), "the answers did not bring it");
    let (push, promise) = next(&bed, node, &acknowledged);
    assert!(acknowledged.take(promise, push.version, false, begun.plus(600)));
    assert_eq!(step(&bed, &mut acknowledged, 600), PushStep::Idle);
    bed.join("ephesus", 41);
    assert_eq!(step(&bed, &mut acknowledged, 600), PushStep::Await(begun.plus(1_200)));
}
