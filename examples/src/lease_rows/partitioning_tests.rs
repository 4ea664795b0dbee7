use super::*;
use std::sync::Arc;

const MINUTE: u64 = 60_000;
const BEGAN: u64 = 1_000_000;

fn config(partitions_max: usize) -> Config {
    Config { name: "me".to_owned(), timing: Timing::MINUTES, partitions_max, load_max: None }
}

fn server(partitions_max: usize) -> Partitioning {
    Partitioning::new(config(partitions_max), BEGAN, 0)
}

fn row(partition: u32, etag: u64, server: &str) -> ListedRow {
    let row = Row { server: server.to_owned(), ..Row::default() };
    ListedRow { partition, etag: Etag(etag), row: Arc::new(row) }
}

fn changed(listed: ListedRow, change: impl FnOnce(&mut Row)) -> ListedRow {
    let mut row = Row::clone(&listed.row);
    change(&mut row);
    ListedRow { row: Arc::new(row), ..listed }
}

fn effects(server: &mut Partitioning) -> Vec<Effect> {
    std::iter::from_fn(|| server.next_effect()).collect()
}

/// Returns the partitions of written rows, with their ETags.
fn puts(effects: &[Effect]) -> Vec<(u32, u64)> {
    let put = |effect: &Effect| match effect {
        Effect::Put { partition, etag, .. } => Some((*partition, etag.0)),
        _ => None,
    };
    effects.iter().filter_map(put).collect()
}

/// Returns a server that holds partition 7 since [`BEGAN`], taken as ETag 5 and renewed first after `drawn`.
fn holder(drawn: u64) -> (Partitioning, Lease) {
    let mut server = server(1);
    server.listed(Some(vec![row(7, 4, "")]), BEGAN, 0);
    assert_eq!(puts(&effects(&mut server)), [(7, 4)]);
    server.put(7, Put::Written(Etag(5)), BEGAN + 10, drawn);
    let lease = Lease { partition: 7, token: 5 };
    assert_eq!(effects(&mut server), [Effect::Acquire(lease)]);
    assert_eq!(server.have(7, BEGAN + 10), None, "the service is not ready yet");
    server.acquired(lease, true, BEGAN + 20);
    assert_eq!(server.have(7, BEGAN + 20), Some(lease));
    (server, lease)
}

#[test]
fn server_takes_free_rows_up_to_its_maximum() {
    let mut server = server(2);
    let foreign = row(1, 1, "other");
    let barred = changed(row(2, 2, ""), |row| row.prohibited = ["me".to_owned()].into());
    let broken = changed(row(3, 3, "other"), |row| row.broken = true);
    let rows = vec![row(0, 9, ""), foreign, barred, broken, row(4, 4, "")];
    server.listed(Some(rows.clone()), BEGAN, 2);
    assert_eq!(puts(&effects(&mut server)), [(3, 3), (4, 4)], "in an order that is drawn");
    server.listed(Some(rows), BEGAN + 1, 0);
    assert_eq!(puts(&effects(&mut server)), [], "that is as much as it may");
}

#[test]
fn only_a_row_unchanged_for_four_minutes_is_taken() {
    let mut server = server(9);
    let reads = |server: &mut Partitioning, at: u64, after: u64, rows: Vec<ListedRow>| {
        server.tick(at);
        assert_eq!(effects(server), [Effect::List]);
        server.listed(Some(rows), at + after, 0);
        assert_eq!(effects(server), []);
    };
    reads(&mut server, BEGAN, 50, vec![row(0, 1, "a"), row(1, 2, "b"), row(2, 3, "c")]);
    reads(&mut server, BEGAN + 2 * MINUTE, 10, vec![row(0, 1, "a"), row(1, 4, "b")]);
    reads(&mut server, BEGAN + 4 * MINUTE, 10, vec![row(0, 1, "a"), row(1, 4, "b"), row(2, 3, "c")]);
    assert_eq!(server.wake_at(), BEGAN + 4 * MINUTE + 50);
    server.tick(BEGAN + 4 * MINUTE + 50);
    assert_eq!(puts(&effects(&mut server)), [(0, 1)], "2 was gone meanwhile, so it counts anew");
    server.put(0, Put::Conflict, BEGAN + 4 * MINUTE + 60, 0);
    server.tick(BEGAN + 5 * MINUTE);
    assert_eq!(puts(&effects(&mut server)), [], "it has to be read again first");
}

#[test]
fn lease_counts_from_the_sending_of_an_answered_renewal() {
    let (mut server, lease) = holder(MINUTE);
    server.tick(BEGAN + MINUTE);
    assert_eq!(puts(&effects(&mut server)), [(7, 5)]);
    server.put(7, Put::Written(Etag(6)), BEGAN + 2 * MINUTE, 0);
    assert_eq!(server.have(7, BEGAN + 4 * MINUTE - 1), Some(lease));
    assert_eq!(server.have(7, BEGAN + 4 * MINUTE), None, "three minutes from the sending");
    server.tick(BEGAN + 3 * MINUTE);
    assert_eq!(puts(&effects(&mut server)), [(7, 6)], "two minutes from the renewal before");
    server.put(7, Put::Unknown, BEGAN + 3 * MINUTE + 100, 0);
    server.tick(server.wake_at());
    assert_eq!(puts(&effects(&mut server)), [(7, 6)], "again, under the same ETag");
    server.tick(BEGAN + 4 * MINUTE);
    assert_eq!(effects(&mut server), [Effect::Lost(lease)]);
    server.put(7, Put::Written(Etag(7)), BEGAN + 4 * MINUTE + 1, 0);
    assert_eq!((effects(&mut server), server.lease_of(7, BEGAN + 4 * MINUTE + 1)), (vec![], None), "too late");
}

#[test]
fn row_written_by_another_server_is_lost_at_renewal() {
    let (mut server, lease) = holder(MINUTE);
    server.tick(BEGAN + MINUTE);
    effects(&mut server);
    assert!(server.check(lease, BEGAN + MINUTE));
    server.put(7, Put::Conflict, BEGAN + MINUTE + 10, 0);
    assert_eq!(effects(&mut server), [Effect::Lost(lease)]);
    assert!(!server.check(lease, BEGAN + MINUTE + 10));
}

#[test]
fn late_answer_acquires_nothing() {
    let mut server = server(1);
    server.listed(Some(vec![row(7, 4, "")]), BEGAN, 0);
    effects(&mut server);
    server.put(7, Put::Written(Etag(5)), BEGAN + 3 * MINUTE, 0);
    assert_eq!((effects(&mut server), server.lease_of(7, BEGAN + 3 * MINUTE)), (vec![], None));
}

#[test]
fn dropped_partition_is_released_then_broken() {
    let (mut server, lease) = holder(MINUTE);
    assert!(server.drop_partition(7, BEGAN + MINUTE));
    assert_eq!(effects(&mut server), [Effect::Release(lease, ReleaseReason::Dropped)]);
    assert!(server.have(7, BEGAN + MINUTE).is_none() && server.check(lease, BEGAN + MINUTE));
    // A renewal falls due while the service releases it.
    server.tick(BEGAN + MINUTE);
    assert_eq!(puts(&effects(&mut server)), [(7, 5)]);
    server.released(lease, BEGAN + MINUTE + 5);
    assert!(!server.check(lease, BEGAN + MINUTE + 5));
    assert_eq!(effects(&mut server), [], "its ETag is not known now");
    server.put(7, Put::Written(Etag(6)), BEGAN + MINUTE + 10, 0);
    let last = effects(&mut server);
    assert_eq!(puts(&last), [(7, 6)]);
    assert!(matches!(&last[0], Effect::Put { row, .. } if row.broken && row.server == "me"), "{last:?}");
    server.stop();
    assert!(!server.is_over());
    server.put(7, Put::Unknown, BEGAN + 2 * MINUTE, 0);
    assert!(server.is_over());
}

#[test]
fn overloaded_server_releases_its_heaviest_for_good() {
    let mut server = Partitioning::new(Config { load_max: Some(10), ..config(9) }, BEGAN, 0);
    server.listed(Some(vec![row(0, 1, ""), row(1, 2, "")]), BEGAN, 0);
    effects(&mut server);
    for partition in [0, 1] {
        let lease = Lease { partition, token: 10 + u64::from(partition) };
        server.put(partition, Put::Written(Etag(lease.token)), BEGAN, MINUTE);
        server.acquired(lease, true, BEGAN);
    }
    effects(&mut server);
    server.set_load(0, 4);
    server.set_load(1, 7);
    server.tick(BEGAN + 1);
    let heavy = Lease { partition: 1, token: 11 };
    assert_eq!(effects(&mut server)[0], Effect::Release(heavy, ReleaseReason::Overloaded));
    server.released(heavy, BEGAN + 2);
    let written = effects(&mut server);
    assert!(matches!(&written[..], [Effect::Put { row, .. }] if row.broken && row.load == 7), "{written:?}");
    server.put(1, Put::Written(Etag(12)), BEGAN + 3, 0);
    let broken = changed(row(1, 12, "me"), |row| (row.broken, row.load) = (true, 7));
    server.listed(Some(vec![row(0, 10, "me"), broken]), BEGAN + 4, 0);
    assert_eq!(puts(&effects(&mut server)), []);
}

#[test]
fn row_with_a_pending_write_is_not_taken() {
    let (mut server, lease) = holder(MINUTE);
    let read = |server: &mut Partitioning, at: u64| {
        server.tick(at);
        let written = puts(&effects(server));
        server.listed(Some(vec![row(7, 5, "me")]), at + 10, 0);
        (written, puts(&effects(server)))
    };
    assert_eq!(read(&mut server, BEGAN + 50), (vec![], vec![]));
    server.tick(BEGAN + MINUTE);
    assert_eq!(puts(&effects(&mut server)), [(7, 5)], "a renewal, which is answered late");
    assert_eq!(read(&mut server, BEGAN + 3 * MINUTE), (vec![], vec![]));
    assert!(!server.check(lease, BEGAN + 3 * MINUTE));
    assert_eq!(read(&mut server, BEGAN + 5 * MINUTE), (vec![], vec![]), "its answer would be taken for another one");
    server.put(7, Put::Unknown, BEGAN + 5 * MINUTE + 20, 0);
    assert_eq!(read(&mut server, BEGAN + 7 * MINUTE), (vec![], vec![(7, 5)]));
}
