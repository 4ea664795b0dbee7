//! A small client of the Redis protocol, version 2. It sends any bytes, and follows redirections only if asked to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Time-out of a reply, and of repetitions.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause before a request is repeated.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Most redirections of one request.
const REDIRECTIONS_MAX: usize = 5;

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    Status(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Self>),
}

impl Reply {
    pub(crate) fn status(text: &str) -> Self {
        Self::Status(text.to_owned())
    }

    pub(crate) fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    /// Returns true of errors after which clients repeat a request.
    pub(crate) fn is_not_done(&self) -> bool {
        ["CLUSTERDOWN", "TRYAGAIN", "LOADING"].iter().any(|code| self.is_error(code))
    }

    /// Returns true of an error that begins so.
    pub(crate) fn is_error(&self, begin: &str) -> bool {
        matches!(self, Self::Error(text) if text.starts_with(begin))
    }

    pub(crate) fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("no integer: {other:?}"),
        }
    }

    pub(crate) fn array(&self) -> &[Self] {
        match self {
            Self::Array(replies) => replies,
            other => panic!("no list: {other:?}"),
        }
    }
}

/// A connection to one node.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Sends a request and returns its reply. As clients of Redis Cluster do, it repeats a request that was not done
    /// because the leadership is changing: on a busy machine leases expire.
    pub(crate) fn ask<T: AsRef<[u8]>>(&mut self, request: &[T]) -> Result<Reply> {
        let bytes = packed(request);
        let began = Instant::now();
        loop {
            self.send_bytes(&bytes)?;
            let reply = self.reply()?;
            if !reply.is_not_done() || began.elapsed() > TIMEOUT {
                return Ok(reply);
            }
            std::thread::sleep(AGAIN_AFTER);
        }
    }

    pub(crate) fn reply(&mut self) -> Result<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().unwrap_or_else(|error| panic!("{line}: {error}"));
        Ok(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(number()),
            "$" => match usize::try_from(number()) {
                Err(_) => Reply::Null,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.0.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bulk(bytes)
                }
            },
            "*" if number() < 0 => Reply::Null,
            "*" => Reply::Array((0..number()).map(|_| self.reply()).collect::<Result<_>>()?),
            _ => panic!("no reply: {line}"),
        })
    }

    /// Returns true once the node has closed the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Encodes a request.
pub(crate) fn packed<T: AsRef<[u8]>>(request: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", request.len()).into_bytes();
    for argument in request.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A client that follows redirections, as those of Redis Cluster do.
pub(crate) struct ClusterClient {
    first: String,
    connections: BTreeMap<String, Connection>,
    pub(crate) redirections: usize,
}

impl ClusterClient {
    pub(crate) fn new(address: &str) -> Self {
        Self { first: address.to_owned(), connections: BTreeMap::new(), redirections: 0 }
    }

    pub(crate) fn ask<T: AsRef<[u8]>>(&mut self, request: &[T]) -> Result<Reply> {
        let mut address = self.first.clone();
        for _ in 0..REDIRECTIONS_MAX {
            let reply = self.ask_at(&address, request);
            if reply.is_err() {
                self.connections.remove(&address);
            }
            let reply = reply?;
            match &reply {
                Reply::Error(text) if text.starts_with("MOVED ") => {
                    self.redirections += 1;
                    address = text.split(' ').nth(2).expect("the address of the leader").to_owned();
                }
                _ => return Ok(reply),
            }
        }
        panic!("too many redirections");
    }

    /// Repeats a request that may be done twice until it is answered, also after a lost connection.
    pub(crate) fn ask_until_answered<T: AsRef<[u8]>>(&mut self, request: &[T]) -> Reply {
        let began = Instant::now();
        loop {
            match self.ask(request) {
                Ok(reply) if !reply.is_not_done() => return reply,
                other if began.elapsed() > TIMEOUT => panic!("{other:?}"),
                _ => std::thread::sleep(AGAIN_AFTER),
            }
        }
    }

    fn ask_at<T: AsRef<[u8]>>(&mut self, address: &str, request: &[T]) -> Result<Reply> {
        if !self.connections.contains_key(address) {
            self.connections.insert(address.to_owned(), Connection::open(address)?);
        }
        self.connections.get_mut(address).expect("inserted above").ask(request)
    }
}
