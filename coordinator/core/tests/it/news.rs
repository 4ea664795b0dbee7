//! What the answers to carried heartbeats bring of tables and nodes, and when a push does it all the same.

use crate::bed::{TABLE, TestBed};
use crate::mutants::running;
use crate::pushes::{Whole, all_taken, next};
use archon_coordinator_core::term::{Awaited, Due, Piece, Pieces, news};
use archon_coordinator_core::*;
use archon_types::*;

archon_types::shown_by! {
    NewTableAsChange => a_table_that_was_made_since_comes_whole,
    EarlierGenerationCounts => what_an_earlier_generation_told_does_not_count,
    AnswersAwaitedForEver => a_node_to_which_answers_bring_nothing_is_pushed_to,
}

fn other_table() -> Command {
    let partitioning = Partitioning::Hash { partitions: 1 };
    Command::CreateTable { name: "other".into(), partitioning, replication: 1, holds: Holds::Data }
}

/// Tables, with what their rows are newer than, and what the list of nodes is.
type Lacking = (Vec<(TableId, Version)>, Option<Version>);

/// What a node lacks that holds everything up to `since`.
fn lacks(bed: &TestBed, since: Version) -> Option<Lacking> {
    let news = news(&bed.state, since, &Whole)?;
    assert_eq!((news.complete, news.newest), (bed.state.table_version(), Version::new(bed.state.applied)));
    Some((news.rows, news.nodes))
}

#[test]
fn a_node_hears_what_is_newer_than_what_it_holds() {
    let (mut bed, _, _) = all_taken();
    let before = bed.state.table_version();
    assert_eq!(lacks(&bed, before), None, "it holds everything");
    bed.join("delphi", 40);
    assert_eq!(lacks(&bed, before), Some((vec![], Some(before))));
    bed.fail(bed.leader(0).expect("a leader"));
    assert_eq!(lacks(&bed, before), Some((vec![(TABLE, before)], Some(before))));
    assert_eq!(lacks(&bed, Version::ZERO), None, "who holds nothing is pushed everything, its duties too");
}

fn a_table_that_was_made_since_comes_whole(mutant: Option<Mutant>) -> bool {
    let (mut bed, _, _) = all_taken();
    bed.state.mutant = mutant;
    let before = bed.state.table_version();
    bed.ok(other_table());
    lacks(&bed, before) == Some((vec![(TableId::new(2), Version::ZERO)], None))
}

#[test]
fn whoever_holds_everything_is_told_which_tables_were_dropped() {
    let (mut bed, _, _) = all_taken();
    bed.ok(other_table());
    let before = bed.state.table_version();
    bed.ok(Command::DropTable { table: TableId::new(2) });
    let news = news(&bed.state, before, &Whole).expect("it lacks the drop");
    assert_eq!(news.tables.map(|list| list.tables), Some(vec![TABLE]));
}

/// Rows that take some space, or of which only a piece is there.
struct Large(usize, Option<u64>);

impl Pieces for Large {
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
fn a_lease_waited_for_a_large_table() {
    let (mut bed, _, _) = all_taken();
    let before = bed.state.table_version();
    bed.fail(bed.leader(0).expect("a leader"));
    assert!(news(&bed.state, before, &Large(limits::NEWS_BYTES_MAX, None)).is_some());
    assert!(news(&bed.state, before, &Large(limits::NEWS_BYTES_MAX + 1, None)).is_none(), "that is pushed");
    assert!(news(&bed.state, before, &Large(1, Some(7))).is_none(), "and so is what comes in pieces");
}

#[test]
fn what_a_node_says_it_holds_is_not_pushed_to_it_again() {
    let (mut bed, node, mut acknowledged) = all_taken();
    bed.join("delphi", 40);
    bed.ok(other_table());
    let newest = bed.state.table_version();
    assert!(acknowledged.lacks_news_alone(&bed.state, node));
    acknowledged.note_held(&bed.state, bed.now, newest);
    assert_eq!(acknowledged.due(&bed.state, node), None);
    // Another coordinator leads, which knows of nothing but what it hears.
    let mut unknown = term::Acknowledged::default();
    unknown.note_held(&bed.state, bed.now, newest);
    let (push, promise) = next(&bed, node, &unknown);
    assert!(push.rows.is_empty() && push.nodes.is_none() && push.duties.is_some() && push.access.is_some(), "{push:?}");
    assert!(unknown.take(promise, push.version, false, bed.now));
    assert_eq!(unknown.due(&bed.state, node), None);
    // And it loses what it held.
    assert!(unknown.look_at_heartbeat(bed.now.plus(5_000), Version::ZERO));
}

#[test]
fn a_table_that_was_made_after_what_a_node_holds_is_pushed_whole() {
    let (mut bed, node, _) = all_taken();
    let before = bed.state.table_version();
    bed.ok(other_table());
    let mut unknown = term::Acknowledged::default();
    unknown.note_held(&bed.state, bed.now, before);
    assert_eq!(next(&bed, node, &unknown).0.rows, [(TableId::new(2), Version::ZERO)]);
}

#[test]
fn rights_of_clients_and_duties_are_awaited_of_no_answer() {
    let (mut bed, node, acknowledged) = all_taken();
    let scope = Scope { client: Some("shop".into()), table: None };
    let change = check_access(&bed.state, &scope, AccessChange::Grant(Right::Read)).expect("it may");
    bed.ok(change.expect("something to change"));
    assert!(acknowledged.due(&bed.state, node) == Some(Due::Table) && !acknowledged.lacks_news_alone(&bed.state, node));
    bed.fail(bed.leader(0).expect("a leader"));
    let led = bed.leader(0).expect("another leader");
    assert!(!acknowledged.lacks_news_alone(&bed.state, led), "its duties changed");
}

fn what_an_earlier_generation_told_does_not_count(mutant: Option<Mutant>) -> bool {
    let mut bed = running(3, mutant);
    let told = bed.state.table_version();
    bed.state.generation = 2;
    bed.state.applied = bed.state.applied.max(first_number(2));
    bed.join("delphi", 40);
    let node = bed.node("athens");
    let mut acknowledged = term::Acknowledged::default();
    acknowledged.note_held(&bed.state, bed.now, told);
    let (push, _) = next(&bed, node, &acknowledged);
    news(&bed.state, told, &Whole).is_none() && push.nodes == Some(Version::ZERO)
}

fn a_node_to_which_answers_bring_nothing_is_pushed_to(mutant: Option<Mutant>) -> bool {
    let (mut bed, _, _) = all_taken();
    bed.state.mutant = mutant;
    let (mut awaited, before, begun) = (Awaited::default(), bed.state.table_version(), bed.now);
    bed.join("delphi", 40);
    let waits = |awaited: &mut Awaited, bed: &TestBed, millis| {
        let now = begun.plus(millis);
        awaited.until(&bed.state, now, before, now)
    };
    let first = waits(&mut awaited, &bed, 0);
    // What changes meanwhile does not make it wait longer.
    bed.join("ephesus", 41);
    first.is_some() && waits(&mut awaited, &bed, 599) == first && waits(&mut awaited, &bed, 600).is_none()
}

#[test]
fn a_node_that_is_not_heard_any_more_is_pushed_to_at_once() {
    let (mut bed, _, _) = all_taken();
    let (before, heard) = (bed.state.table_version(), bed.now);
    bed.join("delphi", 40);
    let waits = |millis| Awaited::default().until(&bed.state, heard, before, heard.plus(millis)).is_some();
    assert!(waits(1_000) && !waits(1_001));
}

#[test]
fn a_node_to_which_answers_bring_something_all_the_time_is_not_pushed_to() {
    let (mut bed, _, _) = all_taken();
    let mut awaited = Awaited::default();
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
