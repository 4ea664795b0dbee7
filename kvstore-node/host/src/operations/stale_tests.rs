use super::*;
use crate::copies::reconcile::Action;
use crate::mutant::DisabledRule;
use crate::shell::REPLICA_LAG_MS_MAX;
use crate::test_shell::TestShell;
use crate::test_shell::{
    LIFE, OWN, PARTITION, follower, follower_row, get, hear, held, partitions, position, put, request, row, serving,
    settle,
};
use archon_kv::{Effect, RowChange};
use archon_replica::{Body, Entry};
use archon_types::{Millis, ReplicaState, Seq};
use bytes::Bytes;

const KEY: &str = "key";

/// The entry at `seq` writes its own number to the key, and every third one removes it.
fn entry(seq: u64) -> Entry {
    let value = row::encode_value(Revision::new(seq), &[seq as u8]);
    let change = match seq % 3 {
        0 => RowChange::remove(row::value_key(KEY.as_bytes())),
        _ => RowChange::set(row::value_key(KEY.as_bytes()), value),
    };
    Entry { at: position(seq), bytes: Effect::new(Millis::new(seq), vec![change]).encode().unwrap() }
}

fn expected(commit: u64) -> StaleRow {
    let found =
        (!commit.is_multiple_of(3)).then(|| StoredValue::new(Bytes::from(vec![commit as u8]), Revision::new(commit)));
    StaleRow { found, as_of: Revision::new(commit) }
}

/// Covers each number of entries that a follower holds, and each number of them that it knows to be committed.
fn stale_read_shows_committed_rows_only(mutant: Option<Mutant>) -> bool {
    const ENTRIES: u64 = 7;
    (0..=ENTRIES).all(|first| {
        (0..=first).all(|commit| {
            let mut follower = follower(DisabledRule::by(mutant), follower_row());
            hear(&mut follower, Body::Adopt { at: position(0), start: Seq::ZERO, commit: Seq::ZERO });
            let append = |before: u64, upto: u64, commit: u64| {
                let entries = (before + 1..=upto).map(entry).collect();
                Body::Append { before: position(before), entries, start: Seq::ZERO, commit: Seq::new(commit) }
            };
            hear(&mut follower, append(0, first, commit));
            let now = follower.read_stale(PARTITION, KEY.as_bytes()) == Ok(expected(commit));
            // Also with committed rows on their way to the engine, followed by uncommitted ones.
            follower.each(|_, local| local.freeze());
            hear(&mut follower, append(first, ENTRIES, commit));
            let frozen = follower.read_stale(PARTITION, KEY.as_bytes()) == Ok(expected(commit));
            hear(&mut follower, append(ENTRIES, ENTRIES, ENTRIES));
            now && frozen && follower.read_stale(PARTITION, KEY.as_bytes()) == Ok(expected(ENTRIES))
        })
    })
}

fn stale_read_is_refused_at_loading_copy(mutant: Option<Mutant>) -> bool {
    let mut loading = follower_row();
    let own = loading.placements.iter_mut().find(|placed| placed.id == OWN);
    own.expect("its own").state = ReplicaState::Load;
    follower(DisabledRule::by(mutant), loading).read_stale(PARTITION, b"key") == Err(Refusal::NotLive)
}

/// The node was restarted, and its engine has rows not known to be committed.
fn stale_read_is_refused_while_engine_may_be_ahead(mutant: Option<Mutant>) -> bool {
    let [unknown, higher] = [true, false].map(|unknown| {
        let mut found = held(PARTITION);
        match unknown {
            true => found.memtable.set_engine_ahead(ENGINE_AHEAD_UNKNOWN),
            false => found.memtable.set_engine_position(Seq::new(12)),
        }
        let mut copy = partitions(DisabledRule::by(mutant));
        copy.dormant.insert(OWN, found);
        copy.duties(LIFE.incarnation, vec![Action::Open { partition: follower_row(), placement: OWN, fresh: false }]);
        settle(&mut copy);
        copy.read_stale(PARTITION, b"key")
    });
    [unknown, higher] == [Err(Refusal::CommitUnknown), Err(Refusal::CommitUnknown)]
}

archon_types::shown_by! {
    StaleShowsOpen => stale_read_shows_committed_rows_only,
    StaleWhileLoading => stale_read_is_refused_at_loading_copy,
    StaleBeyondCommit => stale_read_is_refused_while_engine_may_be_ahead,
    ReplicaUnheard => replica_read_is_refused_without_word_of_its_leader,
    ReplicaUnleased => replica_read_is_refused_without_a_lease,
}

#[test]
fn leader_without_lease_answers_stale_read() {
    let mut leader = serving(DisabledRule::default(), row(1, &[]));
    leader.operate(request(put(KEY), "write"));
    leader.settle();
    let before = leader.read_stale(PARTITION, KEY.as_bytes()).expect("it counts");
    assert_eq!(before.found, None, "the disk does not have it yet");
    settle(&mut leader);
    leader.shell_mut().lease_until = Millis::ZERO;
    leader.operate(request(get(KEY), "read"));
    assert_eq!(leader.shell().refusals, [("read", Refusal::NoLease)], "a read that promises more needs the lease");
    let after = leader.read_stale(PARTITION, KEY.as_bytes()).expect("it counts");
    let StoredValue { value, revision, .. } = after.found.expect("it is committed");
    assert!(value == "value" && revision <= after.as_of && before.as_of < revision, "{before:?}, {:?}", after.as_of);
}

#[test]
fn stale_read_without_copy_is_refused() {
    let mut node = partitions(DisabledRule::default());
    assert_eq!(node.read_stale(PARTITION, b"key"), Err(Refusal::NoCopy));
}

#[test]
fn stale_read_with_row_older_than_clear_is_refused() {
    let mut follower = follower(DisabledRule::default(), follower_row());
    hear(&mut follower, Body::Adopt { at: position(0), start: Seq::ZERO, commit: Seq::ZERO });
    let at = Bytes::from_static(b"k");
    let seal =
        archon_kv::Seal { attempt: archon_types::Version::new(2), at: at.clone(), end: None, position: position(2) };
    let effects = [
        archon_kv::reshape::split(Millis::new(2), &seal),
        archon_kv::reshape::clear(
            Millis::new(3),
            archon_types::KeyRange { begin: at, end: None },
            archon_types::Version::new(9),
        ),
    ];
    let first = entry(1); // Writes "key".
    let entries = std::iter::once(first)
        .chain((2..).zip(effects).map(|(seq, effect)| Entry { at: position(seq), bytes: effect.encode().unwrap() }))
        .collect();
    hear(&mut follower, Body::Append { before: position(0), entries, start: Seq::ZERO, commit: Seq::new(3) });
    // The push of the row that ends this partition at "k" is still on its way.
    let seen = follower.read_stale(PARTITION, KEY.as_bytes());
    assert!(!matches!(seen, Ok(StaleRow { found: None, .. })), "the key was there at every moment: {seen:?}");
}

/// Returns an in-sync follower that holds `entries` entries, of which `commit` are known to be committed, at time 1,000.
fn replica(entries: u64, commit: u64, mutant: Option<Mutant>) -> Partitions<TestShell> {
    let mut follower = follower(DisabledRule::by(mutant), follower_row());
    at(&mut follower, 1_000);
    hear(&mut follower, Body::Adopt { at: position(0), start: Seq::ZERO, commit: Seq::ZERO });
    let body = Body::Append {
        before: position(0),
        entries: (1..=entries).map(entry).collect(),
        start: Seq::ZERO,
        commit: Seq::new(commit),
    };
    hear(&mut follower, body);
    follower
}

fn at(follower: &mut Partitions<TestShell>, now: u64) {
    follower.shell_mut().now.set(Millis::new(now));
    follower.begin(Millis::new(now));
}

fn read_at(follower: &mut Partitions<TestShell>, now: u64) -> Result<Vec<Option<StoredValue>>, Refusal> {
    at(follower, now);
    follower.read_replica(PARTITION, &ManyKeys::new(vec![KEY.into(), "absent".into()]).unwrap())
}

fn replica_read_is_refused_without_word_of_its_leader(mutant: Option<Mutant>) -> bool {
    let mut follower = replica(5, 4, mutant);
    let found = |commit| Ok(vec![expected(commit).found, None]);
    let last = 1_000 + REPLICA_LAG_MS_MAX;
    let heard = read_at(&mut follower, last);
    let silent = read_at(&mut follower, last + 1);
    assert!(follower.read_stale(PARTITION, KEY.as_bytes()).is_ok(), "that has no bound");
    let announced = Body::Append { before: position(5), entries: vec![], start: Seq::ZERO, commit: Seq::new(5) };
    hear(&mut follower, announced);
    let heard_again = read_at(&mut follower, last + 1 + REPLICA_LAG_MS_MAX);
    (heard, silent, heard_again) == (found(4), Err(Refusal::Behind), found(5))
}

/// The former leader may have committed and answered all five entries without announcing that: the new one, which
/// cannot finish its take-over, does not know it either.
#[test]
fn replica_read_waits_for_the_log_of_earlier_leaders() {
    let mut follower = replica(5, 4, None);
    let keep_alive = |start: u64, commit| Body::Append {
        before: position(5),
        entries: vec![],
        start: Seq::new(start),
        commit: Seq::new(commit),
    };
    hear(&mut follower, keep_alive(5, 4));
    assert_eq!(read_at(&mut follower, 1_000), Err(Refusal::Behind));
    hear(&mut follower, keep_alive(5, 5));
    assert_eq!(read_at(&mut follower, 1_000), Ok(vec![expected(5).found, None]));
}

fn replica_read_is_refused_without_a_lease(mutant: Option<Mutant>) -> bool {
    let mut follower = replica(5, 5, mutant);
    follower.shell_mut().lease_until = Millis::new(2_000);
    let (with, without) = (read_at(&mut follower, 1_999), read_at(&mut follower, 2_000));
    (with, without) == (Ok(vec![expected(5).found, None]), Err(Refusal::Behind))
}

#[test]
fn replica_read_is_refused_while_loading() {
    let mut loading = follower_row();
    let own = loading.placements.iter_mut().find(|placed| placed.id == OWN);
    own.expect("its own").state = ReplicaState::Load;
    let mut follower = follower(DisabledRule::by(None), loading);
    follower.shell_mut().lease_until = Millis::new(u64::MAX);
    assert_eq!(read_at(&mut follower, 1_000), Err(Refusal::NotLive));
}
