//! Tests of clients that close the connection or their direction.

use super::*;
use std::net::Ipv4Addr;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

/// Returns both ends of a connection.
async fn connection() -> (Stream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0.into(), client)
}

#[tokio::test]
async fn command_ends_soon_after_its_client_is_gone() {
    let mut looks = interval(Duration::from_millis(5));
    // Also with bytes of a further command that were not read.
    for unread in [&b""[..], b"GET"] {
        let (node, mut client) = connection().await;
        client.write_all(unread).await.unwrap();
        let waits = unless_gone(&mut looks, &node, std::future::pending::<()>());
        tokio::pin!(waits);
        for _ in 0..3 {
            let ended = tokio::time::timeout(Duration::from_millis(5), &mut waits).await;
            assert!(ended.is_err(), "its client is there");
        }
        drop(client);
        let ended = tokio::time::timeout(Duration::from_secs(60), waits).await.expect("the end is noticed");
        assert!(matches!(ended, Err(End::Gone)));
    }
}

/// As `printf 'GET key\r\n' | nc -N node 6379` does.
#[tokio::test(start_paused = true)]
async fn client_that_closes_its_direction_gets_its_replies() {
    let (mut looks, (node, client)) = (looks(), connection().await);
    let (_read, mut write) = client.into_split();
    write.shutdown().await.unwrap();
    // The next look is due at once.
    tokio::time::sleep(LOOK_INTERVAL).await;
    for _ in 0..12 {
        let command = tokio::time::sleep(LOOK_INTERVAL / 4);
        assert!(unless_gone(&mut looks, &node, command).await.is_ok());
    }
}
