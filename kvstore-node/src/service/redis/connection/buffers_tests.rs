//! Tests of slow clients, and of the memory of large requests.

use super::*;
use archon_types::ErrorKind;
use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt as _, duplex};
use tokio::time::Instant;

const FROM: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const REPLIES: usize = 100_000;

fn replies() -> BytesMut {
    BytesMut::from(&vec![b'r'; REPLIES][..])
}

#[tokio::test(start_paused = true)]
async fn replies_without_reader_count_until_they_stall() {
    let (mut node, _client) = duplex(1_000);
    let unread = UnreadBudget::new(1 << 20);
    let (counted, begun) = (unread.clone(), Instant::now());
    let sending = tokio::spawn(async move { send(&mut node, &mut replies(), &counted, FROM).await });
    tokio::time::sleep(STALLED / 2).await;
    assert!(unread.used() >= REPLIES, "{} bytes are counted", unread.used());
    assert!(matches!(sending.await.unwrap(), Err(FrameError::Stalled(_))));
    assert_eq!((begun.elapsed().as_secs(), unread.used()), (STALLED.as_secs(), 0));
}

#[tokio::test(start_paused = true)]
async fn slow_reader_gets_all_replies() {
    let (mut node, mut client) = duplex(10_000);
    let unread = UnreadBudget::new(1 << 20);
    let counted = unread.clone();
    let sending = tokio::spawn(async move { send(&mut node, &mut replies(), &counted, FROM).await });
    let mut taken = 0;
    while taken < REPLIES {
        tokio::time::sleep(STALLED / 2).await;
        taken += client.read(&mut [0; 10_000]).await.unwrap();
    }
    sending.await.unwrap().unwrap();
    assert_eq!(unread.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn replies_without_room_and_reader_are_refused() {
    let (mut node, _client) = duplex(1_000);
    let sent = send(&mut node, &mut replies(), &UnreadBudget::new(REPLIES), FROM).await;
    assert!(matches!(sent, Err(FrameError::Refused(detail)) if detail.kind == ErrorKind::Overloaded));
    // A client that takes them at once needs no room.
    let (mut node, _client) = duplex(2 * REPLIES);
    send(&mut node, &mut replies(), &UnreadBudget::new(REPLIES), FROM).await.unwrap();
}

#[test]
fn input_keeps_no_memory_of_large_request() {
    let mut input = Input::default();
    input.bytes.extend_from_slice(&vec![b'a'; 1 << 20]);
    input.make_room();
    assert!(input.allocated > 1 << 20);
    // The beginning of the next request has arrived.
    let _taken = input.bytes.split_to((1 << 20) - 10);
    input.shrink();
    input.make_room();
    assert_eq!(input.bytes.len(), 10);
    assert!(input.allocated <= KEPT_BYTES_MAX, "{}", input.allocated);
    input.bytes.clear();
    input.make_room();
    assert!(input.bytes.capacity() <= KEPT_BYTES_MAX, "{}", input.bytes.capacity());
}
