//! Tests of commands on all keys, on rows in memory that change between calls.

use super::*;
use archon_types::Revision;
use futures::FutureExt as _;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const PARTITIONS: u32 = 5;

/// Rows in memory. Partitions without a row in the map are served by another node.
#[derive(Default)]
struct Rows(BTreeMap<u32, BTreeSet<Bytes>>);

impl Rows {
    fn of_all_partitions() -> Self {
        Self((0..PARTITIONS).map(|partition| (partition, BTreeSet::new())).collect())
    }

    fn keys_of(&mut self, key: &Bytes) -> &mut BTreeSet<Bytes> {
        self.0.entry(partition_of(slot_of(key), PARTITIONS)).or_default()
    }
}

impl Pages for Rows {
    fn partitions(&self) -> u32 {
        PARTITIONS
    }

    fn serves(&self, partition: u32) -> bool {
        self.0.contains_key(&partition)
    }

    async fn page(&mut self, partition: u32, keys: KeyRange, order: ScanOrder, limit: u32) -> Result<Page, Refusal> {
        let mut found: Vec<Bytes> = self.0[&partition].iter().filter(|key| keys.contains(key)).cloned().collect();
        if order == ScanOrder::Descending {
            found.reverse();
        }
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let next = found.last().filter(|_| more).map(|last| KeyRange::ALL.after(last).begin);
        let entry = |key| Entry { key, value: Bytes::new(), revision: Revision::new(1), expires: None };
        Ok(Page { entries: found.into_iter().map(entry).collect(), next })
    }
}

/// Runs a command on rows in memory, which waits for nothing.
fn block_on<T>(command: impl Future<Output = T>) -> T {
    command.now_or_never().expect("it waits for nothing")
}

fn key(number: u16) -> Bytes {
    format!("k{number}").into()
}

fn arguments(cursor: u64, options: &str) -> ScanArguments {
    let words = format!("{cursor} {options}");
    let words: Vec<Bytes> = words.split_whitespace().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
    ScanArguments::parse(&words).unwrap()
}

/// Calls `SCAN` once; returns the next cursor, and the keys.
fn step(rows: &mut Rows, cursors: &Cursors, cursor: u64, options: &str) -> (u64, Vec<Bytes>) {
    let Ok(Reply::Array(reply)) = block_on(scan(rows, cursors, arguments(cursor, options))) else { panic!("refused") };
    let [Reply::Bulk(cursor), Reply::Array(keys)] = &reply[..] else { panic!("{reply:?}") };
    let keys = keys.iter().map(|key| if let Reply::Bulk(key) = key { key.clone() } else { panic!("{key:?}") });
    (std::str::from_utf8(cursor).unwrap().parse().unwrap(), keys.collect())
}

proptest! {
    /// Keys come and go between the calls, and the node forgets cursors.
    #[test]
    fn scan_returns_every_key_that_stays(
        kept in vec(any::<u16>(), 0..60),
        changes in vec((any::<u16>(), any::<bool>(), prop::bool::weighted(0.1)), 0..60),
        count in 1u32..12,
    ) {
        let (mut rows, mut cursors) = (Rows::of_all_partitions(), Cursors::default());
        let kept: BTreeSet<Bytes> = kept.into_iter().map(key).collect();
        for key in &kept {
            rows.keys_of(key).insert(key.clone());
        }
        let (mut found, mut cursor, mut changes) = (BTreeSet::new(), 0, changes.into_iter());
        for _ in 0..10_000 {
            let keys;
            (cursor, keys) = step(&mut rows, &cursors, cursor, &format!("COUNT {count}"));
            prop_assert!(keys.len() <= count as usize);
            found.extend(keys);
            if cursor == 0 {
                break;
            }
            let Some((number, is_there, forgets)) = changes.next() else { continue };
            let changed = key(number);
            match is_there {
                _ if kept.contains(&changed) => {}
                true => drop(rows.keys_of(&changed).insert(changed.clone())),
                false => drop(rows.keys_of(&changed).remove(&changed)),
            }
            if forgets {
                cursors = Cursors::default();
            }
        }
        prop_assert_eq!(cursor, 0, "the iteration does not end");
        prop_assert!(found.is_superset(&kept));
    }
}

#[test]
fn scan_of_other_nodes_partitions_is_left_to_them() {
    let mut rows = Rows::of_all_partitions();
    let all: BTreeSet<Bytes> = (0..200).map(key).collect();
    for key in &all {
        rows.keys_of(key).insert(key.clone());
    }
    let other = Rows([1, 4].into_iter().filter_map(|partition| rows.0.remove_entry(&partition)).collect());
    let mut found = BTreeSet::new();
    for mut node in [rows, other] {
        let (cursors, mut cursor) = (Cursors::default(), 0);
        loop {
            let keys;
            (cursor, keys) = step(&mut node, &cursors, cursor, "COUNT 7");
            assert!(keys.into_iter().all(|key| found.insert(key)), "a key is returned twice");
            if cursor == 0 {
                break;
            }
        }
    }
    assert_eq!(found, all);
}

#[test]
fn partition_that_was_begun_is_ended_after_it_has_moved() {
    let (mut rows, cursors) = (Rows::of_all_partitions(), Cursors::default());
    for number in 0..9 {
        rows.keys_of(&"{t}".into()).insert(format!("{{t}}{number}").into());
    }
    let (cursor, first) = step(&mut rows, &cursors, 0, "COUNT 4 MATCH {t}*");
    struct MovedPages(Rows);
    impl Pages for MovedPages {
        fn partitions(&self) -> u32 {
            PARTITIONS
        }
        fn serves(&self, _: u32) -> bool {
            false
        }
        async fn page(&mut self, at: u32, keys: KeyRange, order: ScanOrder, limit: u32) -> Result<Page, Refusal> {
            self.0.page(at, keys, order, limit).await
        }
    }
    let scanned = block_on(scan(&mut MovedPages(rows), &cursors, arguments(cursor, "COUNT 100 MATCH {t}*")));
    let Ok(Reply::Array(reply)) = scanned else { panic!("refused") };
    let [Reply::Bulk(end), Reply::Array(rest)] = &reply[..] else { panic!("{reply:?}") };
    assert_eq!((&end[..], first.len(), rest.len()), (&b"0"[..], 4, 5));
}

#[test]
fn random_key_is_one_of_the_keys() {
    let mut rows = Rows::of_all_partitions();
    assert_eq!(block_on(random_key(&mut rows)), Ok(Reply::Null));
    let all: BTreeSet<Bytes> = (0..200).map(key).collect();
    for key in &all {
        rows.keys_of(key).insert(key.clone());
    }
    let drawn: BTreeSet<Bytes> = (0..300)
        .map(|_| match block_on(random_key(&mut rows)) {
            Ok(Reply::Bulk(key)) => key,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(drawn.is_subset(&all) && drawn.len() > 20, "{}", drawn.len());
}

#[test]
fn random_position_lies_between_the_keys() {
    let (first, last) = (&b"user:0001"[..], &b"user:9"[..]);
    let drawn = [0, u32::MAX / 2, u32::MAX].map(|random| between(first, last, random));
    assert!(drawn.is_sorted() && drawn[0] < drawn[1] && drawn[1] < drawn[2]);
    assert!(&drawn[0][..] <= first && drawn[0].starts_with(b"user:0001"), "{:?}", drawn[0]);
    assert!(drawn[2].starts_with(b"user:9"), "{:?}", drawn[2]);
    assert_eq!(between(b"k", b"k", u32::MAX), &b"k\0\0\0\0"[..]);
}

#[test]
fn command_reads_bounded_number_of_keys_and_bytes() {
    let entry = |bytes: usize| Entry {
        key: Bytes::from_static(b"k"),
        value: Bytes::from(vec![0; bytes]),
        revision: Revision::new(1),
        expires: None,
    };
    let spent = |bytes: usize| {
        let (mut budget, entry) = (Budget::new(), entry(bytes));
        (0..KEYS_MAX + 1).take_while(|_| budget.spend(&entry).is_ok()).count()
    };
    assert_eq!((spent(10), spent(READ_BYTES_MAX / 4)), (KEYS_MAX, 3));
    let mut budget = Budget::new();
    assert_eq!((0..100).take_while(|_| budget.spend_page().is_ok()).count(), KEYS_MAX / PAGE_KEYS as usize);
}

#[test]
fn pattern_with_tag_has_one_partition() {
    let matching = |pattern: &str| MatchingKeys::new(KeyPattern::parse(pattern.as_bytes()).unwrap(), 9);
    let tagged = matching("{user}:*");
    let own = partition_of(slot_of(b"{user}:7"), 9);
    assert!((0..9).filter(|partition| tagged.may_be_in(*partition)).eq([own]));
    assert!(tagged.range.contains(b"{user}:7") && !tagged.range.contains(b"{users}"));
    assert!((0..9).all(|partition| matching("user*{a}").may_be_in(partition)));
    assert!(matching("*").range.is_all());
    assert!(matching(&"k".repeat(KEY_BYTES_MAX + 1)).range.is_empty());
}
