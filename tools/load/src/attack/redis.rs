//! Greedy and malformed clients of the Redis listener, over connections without TLS.

use super::attack_counts::AttackCounts;
use super::target::Target;
use archon_types::limits::VALUE_BYTES_MAX;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

/// Attackers, one for each tactic.
pub(super) const ATTACKERS: usize = TACTICS.len();
/// Receive buffer of a client that does not read.
const WINDOW_BYTES: u32 = 4 * 1024;
/// Interval of the bytes of a client that stays in the middle of a request.
const DRIP: Duration = Duration::from_millis(700);
/// Bytes of one write.
const CHUNK_BYTES: usize = 64 * 1024;
/// Requests of one pipeline.
const PIPELINE: usize = 10_000;

#[derive(Clone, Copy)]
enum Tactic {
    /// Most of a large argument, and then a byte at times.
    HalfCommand,
    /// Negative lengths and lengths beyond every limit, 512 MB included.
    WrongLengths,
    /// A request of a million arguments.
    ManyArguments,
    /// Lists of lists.
    Nested,
    /// An inline command without an end.
    EndlessLine,
    /// Pipelines of commands without their arguments, with the replies read.
    WrongArity,
    /// Pipelines of reads of a large value, with no reply read.
    Unread,
    /// The same, with a byte of the replies read at times.
    SlowReader,
}

const TACTICS: [Tactic; 8] = [
    Tactic::HalfCommand,
    Tactic::WrongLengths,
    Tactic::ManyArguments,
    Tactic::Nested,
    Tactic::EndlessLine,
    Tactic::WrongArity,
    Tactic::Unread,
    Tactic::SlowReader,
];

/// Attacks until the node ends the connection.
pub(super) async fn attack(number: usize, target: &Target, deeds: &AttackCounts) -> io::Result<()> {
    match TACTICS[number % TACTICS.len()] {
        Tactic::HalfCommand => {
            let mut client = Client::open(target, None, deeds).await?;
            client.send(format!("*2\r\n$3\r\nGET\r\n${VALUE_BYTES_MAX}\r\n").as_bytes()).await?;
            client.send_times(&[b'x'; CHUNK_BYTES], VALUE_BYTES_MAX / CHUNK_BYTES - 1).await?;
            loop {
                sleep(DRIP).await;
                client.send(b"x").await?;
            }
        }
        Tactic::WrongLengths => {
            for head in [
                "*-5\r\n*1\r\n$-7\r\n",
                "*99999999999999999999\r\n",
                "*2\r\n$3\r\nSET\r\n$536870912\r\n",
                "*2147483647\r\n$2147483647\r\n",
                "*1\r\n$-9223372036854775808\r\n",
                "*1\r\n:5\r\n",
            ] {
                let mut client = Client::open(target, None, deeds).await?;
                client.send(head.as_bytes()).await?;
                // The node answers with an error and closes the connection, or waits for more and gets it.
                let _ = client.send_times(&[b'x'; CHUNK_BYTES], 64).await;
                deeds.refused.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        }
        Tactic::ManyArguments => {
            let mut client = Client::open(target, None, deeds).await?;
            client.send(b"*1000000\r\n").await?;
            client.send_times(&b"$1\r\na\r\n".repeat(1_000), 1_000).await?;
            client.drain().await
        }
        Tactic::Nested => {
            let mut client = Client::open(target, None, deeds).await?;
            client.send_times(&b"*1\r\n".repeat(CHUNK_BYTES / 4), 64).await?;
            client.drain().await
        }
        Tactic::EndlessLine => {
            let mut client = Client::open(target, None, deeds).await?;
            loop {
                client.send(&[b'x'; CHUNK_BYTES]).await?;
            }
        }
        Tactic::WrongArity => {
            let mut client = Client::open(target, None, deeds).await?;
            let pipeline = b"*1\r\n$3\r\nGET\r\n".repeat(PIPELINE);
            loop {
                client.send(&pipeline).await?;
                client.drain().await?;
            }
        }
        Tactic::Unread => {
            let mut client = Client::open(target, Some(WINDOW_BYTES), deeds).await?;
            client.put_large(target).await?;
            let pipeline = packed(&[b"GET", large_key(target).as_bytes()]).repeat(1_000);
            loop {
                client.send(&pipeline).await?;
            }
        }
        Tactic::SlowReader => {
            let mut client = Client::open(target, Some(WINDOW_BYTES), deeds).await?;
            client.put_large(target).await?;
            client.send(&packed(&[b"GET", large_key(target).as_bytes()]).repeat(100)).await?;
            loop {
                sleep(DRIP).await;
                if client.stream.read(&mut [0]).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

fn large_key(target: &Target) -> String {
    format!("{}greedy-redis", target.tag)
}

/// Encodes a request.
fn packed(arguments: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

struct Client<'a> {
    stream: TcpStream,
    deeds: &'a AttackCounts,
}

impl<'a> Client<'a> {
    async fn open(target: &Target, window: Option<u32>, deeds: &'a AttackCounts) -> io::Result<Self> {
        let no_listener = || io::Error::from(io::ErrorKind::AddrNotAvailable);
        let address = target.redis_address.as_ref().ok_or_else(no_listener)?.parse().map_err(|_| no_listener())?;
        let socket = TcpSocket::new_v4()?;
        if let Some(window) = window {
            socket.set_recv_buffer_size(window)?;
        }
        let stream = socket.connect(address).await?;
        deeds.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Self { stream, deeds })
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send_times(bytes, 1).await
    }

    async fn send_times(&mut self, bytes: &[u8], times: usize) -> io::Result<()> {
        for _ in 0..times {
            self.stream.write_all(bytes).await?;
        }
        self.deeds.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn put_large(&mut self, target: &Target) -> io::Result<()> {
        self.send(&packed(&[b"SET", large_key(target).as_bytes(), &vec![7; VALUE_BYTES_MAX - 1024]])).await?;
        self.drain().await
    }

    /// Reads until nothing arrives for a moment.
    async fn drain(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK_BYTES];
        while let Ok(read) = timeout(DRIP / 4, self.stream.read(&mut buffer)).await {
            if read? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}
