//! The loops of the attackers.

use super::attack_counts::AttackCounts;
use super::kind::Attack;
use super::raw::{RawStream, operations};
use super::redis;
use super::target::Target;
use archon_security::Stream;
use archon_types::limits::{BATCH_OPS_MAX, MESSAGE_BYTES_MAX, VALUE_BYTES_MAX};
use archon_types::{ClientId, KeyRange, Millis, Op, OpId, ScanOrder};
use bytes::Bytes;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

/// Pending scan messages of one attacker.
const SCANS_AHEAD: usize = 2;
/// Rows to scan.
const ROWS: usize = 4_000;
const ROW_BYTES: usize = 250;
/// Receive buffer for unread answers.
const WINDOW_BYTES: u32 = 4 * 1024;
/// Pause of an attacker before it returns.
const PAUSE: Duration = Duration::from_millis(20);
/// Keepalive interval of an idle attacker.
const SIGN: Duration = Duration::from_millis(700);
/// Maximum connections of the connection flood: more than a node accepts from one address.
const FLOOD_MAX: usize = 3_000;

/// Returns the number of attackers.
pub(super) const fn attackers(attack: Attack) -> usize {
    match attack {
        Attack::Scans | Attack::NewClients => 4,
        Attack::SlowReaders => 10,
        Attack::HalfMessages => 20,
        Attack::Connections => 1,
        Attack::Redis => redis::ATTACKERS,
    }
}

/// Attacks until dropped.
pub(super) async fn attack(attack: Attack, number: usize, target: &Target, deeds: &AttackCounts) {
    loop {
        let ended = match attack {
            Attack::Scans => scans(target, deeds).await,
            Attack::SlowReaders => slow_reader(number, target, deeds).await,
            Attack::HalfMessages => half_message(target, deeds).await,
            Attack::Connections => connections(target, deeds).await,
            Attack::NewClients => new_clients(target, deeds).await,
            Attack::Redis => redis::attack(number, target, deeds).await,
        };
        if ended.is_err() {
            deeds.refused.fetch_add(1, Ordering::Relaxed);
        }
        sleep(PAUSE).await;
    }
}

async fn opened(target: &Target, window: Option<u32>, deeds: &AttackCounts) -> io::Result<RawStream> {
    let stream = RawStream::open(target, window).await?;
    deeds.connections.fetch_add(1, Ordering::Relaxed);
    Ok(stream)
}

/// Sends a message and discards received bytes for a moment.
async fn sent(stream: &mut RawStream, message: &[u8], ops: usize, deeds: &AttackCounts) -> io::Result<()> {
    stream.send(message).await?;
    deeds.sent.fetch_add(ops as u64, Ordering::Relaxed);
    Ok(())
}

/// Reads until nothing arrives for a moment.
async fn drained(stream: &mut Stream, quiet: Duration) -> io::Result<()> {
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(read) = timeout(quiet, stream.read(&mut buffer)).await {
        if read? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

async fn scans(target: &Target, deeds: &AttackCounts) -> io::Result<()> {
    let mut stream = opened(target, None, deeds).await?;
    let rows: Vec<_> =
        (0..ROWS).map(|row| Op::Put { key: key(target, row), value: vec![7; ROW_BYTES].into() }).collect();
    for part in rows.chunks(500) {
        let ops = part.iter().map(|op| (None, op.clone()));
        sent(&mut stream, &operations(target.partition, ClientId::NIL, ops), part.len(), deeds).await?;
        drained(&mut stream.0, PAUSE).await?;
    }
    let keys = KeyRange::of_prefix(target.tag.clone().into());
    let scan = Op::Scan { keys, order: ScanOrder::Ascending, limit: 4_096 };
    let message = operations(target.partition, ClientId::NIL, (0..BATCH_OPS_MAX).map(|_| (None, scan.clone())));
    loop {
        for _ in 0..SCANS_AHEAD {
            sent(&mut stream, &message, BATCH_OPS_MAX, deeds).await?;
        }
        drained(&mut stream.0, PAUSE).await?;
    }
}

fn key(target: &Target, number: usize) -> Bytes {
    format!("{}greedy-{number}", target.tag).into()
}

async fn slow_reader(number: usize, target: &Target, deeds: &AttackCounts) -> io::Result<()> {
    let mut stream = opened(target, Some(WINDOW_BYTES), deeds).await?;
    let large = Op::Put { key: key(target, ROWS + number), value: vec![7; VALUE_BYTES_MAX].into() };
    sent(&mut stream, &operations(target.partition, ClientId::NIL, [(None, large.clone())]), 1, deeds).await?;
    sleep(SIGN).await;
    let get = Op::Get { key: key(target, ROWS + number) };
    let gets = operations(target.partition, ClientId::NIL, (0..20).map(|_| (None, get.clone())));
    sent(&mut stream, &gets, 20, deeds).await?;
    for _ in 0..7 {
        sent(&mut stream, &operations(target.partition, ClientId::NIL, [(None, large.clone())]), 1, deeds).await?;
    }
    loop {
        sleep(SIGN).await;
        stream.alive().await?;
        // Where others' answers fill all buffers, the reads are refused, with short answers.
        sent(&mut stream, &gets, 20, deeds).await?;
    }
}

async fn half_message(target: &Target, deeds: &AttackCounts) -> io::Result<()> {
    let mut stream = opened(target, None, deeds).await?;
    let length = MESSAGE_BYTES_MAX - 1024;
    let head = [&[1][..], &u32::try_from(length).unwrap_or(0).to_le_bytes()].concat();
    stream.send(&head).await?;
    stream.send(&vec![0; length - 64]).await?;
    loop {
        sleep(2 * SIGN).await;
        stream.send(&[0]).await?;
    }
}

async fn connections(target: &Target, deeds: &AttackCounts) -> io::Result<()> {
    let mut held = Vec::new();
    while held.len() < FLOOD_MAX {
        let stream = match TcpStream::connect(&target.address).await {
            Ok(stream) => stream,
            Err(error) if held.is_empty() => return Err(error),
            // The attacker's own descriptors are bounded as well.
            Err(_) => break,
        };
        deeds.connections.fetch_add(1, Ordering::Relaxed);
        held.push(stream);
        if held.len() % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    sleep(4 * SIGN).await;
    let ended = held.iter().filter(|stream| stream.try_read(&mut [0]).is_ok()).count();
    deeds.refused.fetch_add(ended as u64, Ordering::Relaxed);
    Ok(())
}

async fn new_clients(target: &Target, deeds: &AttackCounts) -> io::Result<()> {
    const TOGETHER: usize = 64;
    let mut stream = opened(target, None, deeds).await?;
    let mut number = 0;
    loop {
        for _ in 0..TOGETHER {
            let client = ClientId::new(Uuid::from_u128(rand::random()));
            let stamp = Millis::new(u64::try_from(now_ms()).unwrap_or(0));
            let id = OpId { client, number: 1, done_below: 1, stamp };
            let op = Op::Put { key: key(target, number % ROWS), value: Bytes::from_static(b"new") };
            number += 1;
            sent(&mut stream, &operations(target.partition, client, [(Some(id), op)]), 1, deeds).await?;
        }
        drained(&mut stream.0, Duration::from_millis(5)).await?;
    }
}

/// Returns a slightly past time on the node's log clock, so that the stamp is neither forgotten nor in the future.
fn now_ms() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_millis().saturating_sub(2)
}
