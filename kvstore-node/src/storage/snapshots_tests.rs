use super::*;
use crate::engine::MemoryEngine;
use archon_kv::row;
use proptest::prelude::*;

const SPACE: PlacementId = PlacementId::new(1);

fn key(number: u16) -> Bytes {
    row::value_key(format!("{number:03}").as_bytes())
}

fn write(snapshots: &Snapshots, engine: &MemoryEngine, changes: &[(u16, Option<Vec<u8>>)]) {
    let change = |(number, value): &(u16, Option<Vec<u8>>)| Change {
        space: SPACE,
        key: key(*number),
        value: value.clone().map(Bytes::from),
    };
    let changes: Vec<Change> = changes.iter().map(change).collect();
    snapshots.before_write(engine, &changes);
    engine.write(&changes).unwrap();
}

fn all() -> (Bytes, Bytes) {
    row::value_bounds(&KeyRange::ALL)
}

proptest! {
    /// Whatever is written between the pages, the rows are those present when the snapshot began.
    #[test]
    fn snapshot_shows_rows_of_its_beginning(
        first in proptest::collection::btree_map(0..60_u16, proptest::collection::vec(any::<u8>(), 0..30), 0..60),
        writes in proptest::collection::vec(
            proptest::collection::vec((0..60_u16, proptest::option::of(proptest::collection::vec(any::<u8>(), 0..30))), 1..20),
            0..20,
        ),
        rows_max in 1..8_usize,
        bytes_max in 1..200_usize,
        begin in 0..60_u16,
        end in 0..70_u16,
    ) {
        let (snapshots, engine) = (Arc::new(Snapshots::default()), MemoryEngine::default());
        write(&snapshots, &engine, &first.iter().map(|(number, value)| (*number, Some(value.clone()))).collect::<Vec<_>>());
        let snapshot = snapshots.open(SPACE, (key(begin), key(end)), SnapshotOwner::Trusted).unwrap();
        let mut writes = writes.into_iter();
        let mut found = Vec::new();
        while let Some(rows) = snapshot.next(&engine, PageLimit { rows_max, bytes_max }).unwrap() {
            prop_assert!(rows.len() <= rows_max);
            found.extend(rows.into_iter().map(|row| (row.key, row.value)));
            if let Some(changes) = writes.next() {
                write(&snapshots, &engine, &changes);
            }
        }
        let expected: Vec<(Bytes, Bytes)> = first
            .into_iter()
            .filter(|(number, _)| (begin..end).contains(number))
            .map(|(number, value)| (key(number), value.into()))
            .collect();
        prop_assert_eq!(found, expected);
        drop(snapshot);
        prop_assert_eq!((snapshots.len(), snapshots.kept_bytes.load(Ordering::Relaxed)), (0, 0));
    }
}

#[test]
fn snapshot_ends_when_unread_rows_are_cleared() {
    let (snapshots, engine) = (Arc::new(Snapshots::default()), MemoryEngine::default());
    write(&snapshots, &engine, &[(1, Some(vec![1])), (2, Some(vec![2])), (3, Some(vec![3]))]);
    let snapshot = snapshots.open(SPACE, (key(0), key(3)), SnapshotOwner::Trusted).unwrap();
    let one = PageLimit { rows_max: 1, bytes_max: usize::MAX };
    assert_eq!(snapshot.next(&engine, one).unwrap().map(|rows| rows.len()), Some(1));
    snapshots.before_clear(SPACE, (&key(0), &key(1)));
    snapshots.before_clear(SPACE, (&key(3), &key(9)));
    snapshots.before_clear(PlacementId::new(2), (&key(0), &key(9)));
    assert_eq!(snapshot.next(&engine, one).unwrap().map(|rows| rows.len()), Some(1), "other rows were cleared");
    snapshots.before_clear_all(SPACE);
    assert_eq!(snapshot.next(&engine, one), Err(SnapshotError::Cleared));
}

#[test]
fn unread_snapshot_keeps_bounded_bytes() {
    let (snapshots, engine) = (Arc::new(Snapshots::default()), MemoryEngine::default());
    let snapshot = snapshots.open(SPACE, all(), SnapshotOwner::Trusted).unwrap();
    let value = vec![7; 1024 * 1024];
    for number in 0..100 {
        write(&snapshots, &engine, &[(number, Some(value.clone()))]);
        write(&snapshots, &engine, &[(number, Some(value.clone()))]);
    }
    assert!(snapshots.kept_bytes.load(Ordering::Relaxed) <= 100 * 200, "of what was not there nothing is held");
    let other = snapshots.open(SPACE, all(), SnapshotOwner::Trusted).unwrap();
    for number in 0..100 {
        write(&snapshots, &engine, &[(number, None)]);
        assert!(snapshots.kept_bytes.load(Ordering::Relaxed) <= KEPT_BYTES_MAX);
    }
    assert_eq!(other.next(&engine, PageLimit::bytes(1)), Err(SnapshotError::TooMuchChanged(KEPT_BYTES_MAX)));
    assert_eq!(snapshot.next(&engine, PageLimit::bytes(1)), Ok(Some(Vec::new())), "the other one had room");
}

#[test]
fn snapshots_above_limit_are_refused() {
    let snapshots = Arc::new(Snapshots::default());
    let open: Vec<Snapshot> =
        (0..OPEN_MAX).map(|_| snapshots.open(SPACE, all(), SnapshotOwner::Trusted).unwrap()).collect();
    assert_eq!(snapshots.open(SPACE, all(), SnapshotOwner::Trusted).map(drop), Err(SnapshotError::TooMany));
    drop(open);
    assert!(snapshots.open(SPACE, all(), SnapshotOwner::Trusted).is_ok());
}

fn client(name: &str) -> SnapshotOwner {
    SnapshotOwner::Client(Identity::new(Role::Client, name).unwrap())
}

#[test]
fn snapshots_of_clients_leave_room_for_administrators() {
    let snapshots = Arc::new(Snapshots::default());
    let open = |owner: SnapshotOwner| snapshots.open(SPACE, all(), owner);
    let refused = |owner: SnapshotOwner| match open(owner) {
        Err(SnapshotError::TooManyOf { reader, open }) => (reader, open),
        other => panic!("{other:?}"),
    };
    let mut held: Vec<Snapshot> = (0..CLIENT_MAX).map(|_| open(client("a")).unwrap()).collect();
    assert_eq!(refused(client("a")), ("client/a".to_owned(), CLIENT_MAX));
    held.extend((0..CLIENTS_MAX - CLIENT_MAX).map(|_| open(client("b")).unwrap()));
    assert_eq!(refused(client("c")), ("clients".to_owned(), CLIENTS_MAX));
    held.extend((CLIENTS_MAX..OPEN_MAX).map(|_| open(SnapshotOwner::Trusted).unwrap()));
    assert_eq!(open(SnapshotOwner::Trusted).map(drop), Err(SnapshotError::TooMany));
    held.clear();
    let address = || SnapshotOwner::Address(IpAddr::from([127, 0, 0, 2]));
    held.extend((0..ADDRESS_MAX).map(|_| open(address()).unwrap()));
    assert_eq!(refused(address()), ("127.0.0.2".to_owned(), ADDRESS_MAX));
    assert!(open(SnapshotOwner::Address(IpAddr::from([127, 0, 0, 3]))).is_ok());
}

#[test]
fn kept_bytes_of_clients_leave_room_for_administrators() {
    let (snapshots, engine) = (Arc::new(Snapshots::default()), MemoryEngine::default());
    let large = vec![7; 1024 * 1024];
    let rows: Vec<(u16, Option<Vec<u8>>)> = (0..40).map(|number| (number, Some(large.clone()))).collect();
    write(&snapshots, &engine, &rows);
    let [of_client, of_admin] =
        [client("a"), SnapshotOwner::Trusted].map(|owner| snapshots.open(SPACE, (key(0), key(32)), owner).unwrap());
    for (number, _) in rows.iter().take(32) {
        write(&snapshots, &engine, &[(*number, Some(vec![1]))]);
    }
    let first =
        |snapshot: &Snapshot| snapshot.next(&engine, PageLimit::bytes(1)).map(|rows| rows.map(|rows| rows.len()));
    assert_eq!(first(&of_client), Err(SnapshotError::TooMuchChanged(CLIENTS_KEPT_BYTES_MAX)));
    assert_eq!(first(&of_admin), Ok(Some(1)));
    drop((of_client, of_admin));
    let kept = [&snapshots.kept_bytes, &snapshots.clients_kept_bytes].map(|kept| kept.load(Ordering::Relaxed));
    assert_eq!(kept, [0, 0]);
}
