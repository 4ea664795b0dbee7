//! One direction of one proxied connection.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;
use tokio::time::sleep;

/// Bytes read at once; small, so that a slow link is evenly slow.
const CHUNK_BYTES: usize = 16 * 1024;

/// Faults on the traffic from one host to another.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    /// Nothing passes. Bytes in flight are held back, and arrive late once the link is mended.
    pub(super) cut: bool,
    /// Delay of everything that arrives.
    pub(super) delay: Duration,
    /// Rate limit, if any.
    pub(super) bytes_per_second: Option<u64>,
    /// Raising this number breaks the existing connections.
    pub(super) resets: u64,
}

/// Waits until the link is not cut.
pub(super) async fn passable(link: &mut watch::Receiver<Link>) {
    // Fails only when the proxies are gone, and this task with them.
    let _ = link.wait_for(|link| !link.cut).await;
}

/// Waits for a reset of the link.
pub(super) async fn reset(mut link: watch::Receiver<Link>) {
    let before = link.borrow().resets;
    if link.wait_for(|link| link.resets > before).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Copies bytes until either end is closed or fails.
pub(super) async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut link: watch::Receiver<Link>) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        passable(&mut link).await;
        let Ok(count @ 1..) = from.read(&mut chunk).await else { break };
        let (delay, rate) = {
            let link = link.borrow();
            (link.delay, link.bytes_per_second)
        };
        let transmission =
            rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(count as f64 / rate.max(1) as f64));
        sleep(delay + transmission).await;
        passable(&mut link).await;
        if to.write_all(&chunk[..count]).await.is_err() {
            return;
        }
    }
    // The end of the stream is a message too, and is held back like the others.
    passable(&mut link).await;
    let _ = to.shutdown().await;
}
