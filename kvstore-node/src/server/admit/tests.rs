//! Tests of admission, and of the reserve for clients that have little.

use super::*;

const MIB: usize = 1024 * 1024;

fn at(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

/// A client of a node.
fn client(node: &NodeAdmission, last: u8) -> ClientAdmission {
    node.client(at(last))
}

/// Takes permits until one is refused.
fn all(stream: &StreamAdmission, cost: usize) -> Vec<Permit> {
    std::iter::from_fn(|| stream.try_admit(cost).ok()).collect()
}

#[test]
fn stream_is_bounded_by_operations_and_bytes() {
    let node = NodeAdmission::default();
    let stream = client(&node, 1).stream_with(2, 10_000);
    let held = [stream.try_admit(10).unwrap(), stream.try_admit(10).unwrap()];
    let refusal = stream.try_admit(10).unwrap_err();
    assert_eq!((refusal.kind, refusal.retry_after_ms), (ErrorKind::Overloaded, Some(RETRY_AFTER_STREAM_MS)));
    drop(held);
    assert_eq!((stream.ops_used(), node.bytes_used()), (0, 0));
    let large = stream.try_admit(9_000).unwrap();
    assert!(stream.try_admit(9_000).unwrap_err().message.contains("bytes"));
    assert_eq!(stream.ops_used(), 1);
    drop(large);
    assert_eq!((stream.ops_used(), node.bytes_used()), (0, 0));
}

#[test]
fn refusal_takes_no_share() {
    let node = NodeAdmission::new(4_000);
    let (one, other) = (client(&node, 1).stream(), client(&node, 1).stream());
    let held = one.try_admit(600).unwrap();
    assert!(other.try_admit(600).unwrap_err().message.contains("at this address"));
    assert_eq!(other.ops_used(), 0);
    assert!(client(&node, 1).try_admit(600).is_err());
    drop(held);
    let call = client(&node, 1).try_admit(600).unwrap();
    assert!(one.try_admit(600).is_err());
    drop(call);
    assert_eq!(node.bytes_used(), 0);
}

#[test]
fn threads_together_stay_within_bound() {
    let node = NodeAdmission::new(ADDRESS_SHARE * 10 * OPERATION_OVERHEAD_BYTES);
    let admitted = std::thread::scope(|scope| {
        let take = || client(&node, 1).try_admit(OPERATION_OVERHEAD_BYTES).ok();
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(move || (0..10).filter_map(|_| take()).collect::<Vec<_>>())).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(admitted.len(), 10);
    drop(admitted);
    assert_eq!(node.bytes_used(), 0);
}

#[test]
fn address_holds_at_most_a_quarter_of_a_node() {
    let node = NodeAdmission::default();
    let greedy = client(&node, 1);
    let streams: Vec<_> = (0..100).map(|_| greedy.stream()).collect();
    let held: Vec<_> = streams.iter().flat_map(|stream| all(stream, 10_000)).collect();
    assert!(node.bytes_used() <= NODE_BYTES_MAX / 4, "{} bytes", node.bytes_used());
    let others = client(&node, 2).stream();
    let large = others.try_admit(STREAM_BYTES_MAX).expect("others find the rest of the node");
    drop((held, large));
    assert_eq!(node.bytes_used(), 0);
}

#[test]
fn ten_greedy_streams_leave_room_for_another() {
    let node = NodeAdmission::default();
    let shared = client(&node, 1);
    let streams: Vec<_> = (0..10).map(|_| shared.stream()).collect();
    let held: Vec<_> = streams.iter().flat_map(|stream| all(stream, 64 * 1024)).collect();
    let others: Vec<_> = (0..30).map(|_| shared.stream().try_admit(STREAM_LITTLE_BYTES / 2)).collect();
    assert!(others.iter().all(Result::is_ok), "there is room for those who had none: {others:?}");
    drop((held, others));
    assert_eq!(node.bytes_used(), 0);
}

#[test]
fn greedy_addresses_leave_room_for_another() {
    let node = NodeAdmission::default();
    let mut held = Vec::new();
    for last in 1..=20 {
        let greedy = client(&node, last);
        held.extend((0..10).map(|_| greedy.stream()).flat_map(|stream| all(&stream, 16 * 1024)));
    }
    let other = client(&node, 21).stream();
    let others: Vec<_> = (0..64).map(|_| other.try_admit(1_000)).collect();
    assert!(others.iter().all(Result::is_ok), "there is room for one who had none: {others:?}");
    drop((held, others));
}

#[test]
fn permit_is_corrected_to_size_of_answer() {
    let node = NodeAdmission::default();
    let stream = client(&node, 1).stream();
    let mut scan = stream.try_admit(MIB).unwrap();
    assert_eq!(scan.answered(100_000), Ok(()));
    assert_eq!(node.bytes_used(), 100_000 + OPERATION_OVERHEAD_BYTES);
    drop(scan);
    let mut get = stream.try_admit(OPERATION_OVERHEAD_BYTES + 10).unwrap();
    assert_eq!(get.answered(MIB), Ok(()));
    assert_eq!(node.bytes_used(), MIB + OPERATION_OVERHEAD_BYTES);
    drop(get);
    assert_eq!(node.bytes_used(), 0);
}

/// Gets are admitted at a small cost, as their result is unknown, so thousands are admitted at once.
#[test]
fn unclaimed_values_leave_room_for_other_reads() {
    let node = NodeAdmission::default();
    let shared = client(&node, 1);
    let mut held = Vec::new();
    for stream in (0..30).map(|_| shared.stream()) {
        for _ in 0..200 {
            let mut get = stream.try_admit(OPERATION_OVERHEAD_BYTES).unwrap();
            // A result that does not fit is answered by the refusal.
            let _ = get.room().and_then(|()| get.answered(MIB));
            held.push(get);
        }
    }
    assert!(node.bytes_used() <= NODE_BYTES_MAX / ADDRESS_SHARE, "{} bytes", node.bytes_used());
    let mut other = shared.stream().try_admit(OPERATION_OVERHEAD_BYTES).expect("one who has nothing is admitted");
    assert_eq!(other.room().and_then(|()| other.answered(STREAM_LITTLE_BYTES / 2)), Ok(()), "and reads");
    drop(held);
}

#[test]
fn operation_that_never_fits_is_refused_with_the_remedy() {
    let node = NodeAdmission::new(8 * 1024 * 1024);
    // A quarter of the node for an address, of which a quarter stays free.
    let most = 8 * 1024 * 1024 / 16 * 3;
    assert!(client(&node, 1).try_admit(most).is_ok());
    for refusal in [client(&node, 1).try_admit(most + 1), client(&node, 1).stream().try_admit(most + 1)] {
        let refusal = refusal.unwrap_err();
        assert_eq!((refusal.kind, refusal.retry_after_ms), (ErrorKind::Overloaded, None));
        assert!(refusal.message.contains("more than 1572864") && refusal.message.contains("--memory"), "{refusal}");
    }
    assert_eq!(node.bytes_used(), 0);
}
