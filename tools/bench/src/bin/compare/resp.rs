//! The subset of the Redis protocol (RESP2) for reading, writing and finding the slots.

use archon_load::Failure;
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::pipe::Frames;

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// Absent.
    Nil,
    /// A short text, such as `OK`.
    Simple(Bytes),
    /// An error.
    Error(String),
    /// A number.
    Number(i64),
    /// A value.
    Bulk(Bytes),
    /// Several answers.
    Array(Vec<Reply>),
}

/// Parser of answers in a stream.
#[derive(Debug, Default)]
pub(crate) struct Resp;

impl Frames for Resp {
    type Reply = Reply;

    fn next(&mut self, arrived: &mut BytesMut) -> Result<Option<Reply>, Failure> {
        match end_of(arrived, 0)? {
            Some(_) => take(arrived).map(Some),
            None => Ok(None),
        }
    }
}

fn unreadable(what: &str) -> Failure {
    Failure::new("Protocol", format!("Redis answered something unreadable: {what}"))
}

/// Returns the text of the line that begins at `at`, and the start of the next line.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let length = bytes.get(at..)?.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[at..at + length], at + length + 2))
}

fn number(text: &[u8]) -> Result<i64, Failure> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or_else(|| unreadable("a number was expected"))
}

/// Returns the end of the answer that begins at `at`, if it is complete.
fn end_of(bytes: &[u8], at: usize) -> Result<Option<usize>, Failure> {
    let Some((head, mut next)) = line(bytes, at) else { return Ok(None) };
    match head.first() {
        Some(b'+' | b'-' | b':') => Ok(Some(next)),
        Some(b'$') => {
            let length = number(&head[1..])?;
            let end = usize::try_from(length).map_or(next, |length| next + length + 2);
            Ok((end <= bytes.len()).then_some(end))
        }
        Some(b'*') => {
            for _ in 0..number(&head[1..])? {
                match end_of(bytes, next)? {
                    Some(end) => next = end,
                    None => return Ok(None),
                }
            }
            Ok(Some(next))
        }
        _ => Err(unreadable("an unknown kind of answer")),
    }
}

/// Takes a complete answer.
fn take(arrived: &mut BytesMut) -> Result<Reply, Failure> {
    let (head, next) = line(arrived, 0).ok_or_else(|| unreadable("half a line"))?;
    let (kind, length) = (head.first().copied().unwrap_or(0), head.len());
    let value = match kind {
        b'$' | b'*' | b':' => number(&head[1..])?,
        _ => 0,
    };
    let head = arrived.split_to(next).freeze().slice(1..length);
    match kind {
        b'+' => Ok(Reply::Simple(head)),
        b'-' => Ok(Reply::Error(String::from_utf8_lossy(&head).into_owned())),
        b':' => Ok(Reply::Number(value)),
        b'$' => {
            let Ok(length) = usize::try_from(value) else { return Ok(Reply::Nil) };
            let bytes = arrived.split_to(length).freeze();
            arrived.advance(2);
            Ok(Reply::Bulk(bytes))
        }
        _ if value < 0 => Ok(Reply::Nil),
        _ => (0..value).map(|_| take(arrived)).collect::<Result<_, _>>().map(Reply::Array),
    }
}

/// Appends a command.
pub(crate) fn command(out: &mut BytesMut, parts: &[&[u8]]) {
    head(out, b'*', parts.len());
    for part in parts {
        head(out, b'$', part.len());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}

fn head(out: &mut BytesMut, kind: u8, mut number: usize) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&[kind]);
    out.extend_from_slice(&digits[at..]);
    out.extend_from_slice(b"\r\n");
}

/// A connection for one client: request, answer, next request.
#[derive(Debug)]
pub(crate) struct DedicatedConnection {
    stream: TcpStream,
    buffer: BytesMut,
}

impl DedicatedConnection {
    /// Connects.
    pub(crate) async fn open(address: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::with_capacity(4 * 1024) })
    }

    /// Sends a request and waits for the answer.
    pub(crate) async fn call(&mut self, parts: &[&[u8]]) -> Result<Reply, Failure> {
        self.send(&[parts]).await?;
        self.answer().await
    }

    /// Sends requests in one write.
    pub(crate) async fn send(&mut self, requests: &[&[&[u8]]]) -> Result<(), Failure> {
        let mut out = self.buffer.split();
        requests.iter().for_each(|parts| command(&mut out, parts));
        self.stream.write_all(&out).await?;
        out.clear();
        self.buffer = out;
        Ok(())
    }

    /// Waits for the answer to the oldest request without one.
    pub(crate) async fn answer(&mut self) -> Result<Reply, Failure> {
        if let Some(reply) = Resp.next(&mut self.buffer)? {
            return Ok(reply);
        }
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(Failure::new("Broken", "Redis closed the connection"));
            }
            if let Some(reply) = Resp.next(&mut self.buffer)? {
                return Ok(reply);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed_whole_and_in_order() {
        let bytes = b"+OK\r\n$5\r\nhe\r\no\r\n$-1\r\n:-7\r\n*2\r\n*1\r\n:1\r\n$0\r\n\r\n-MOVED 1 a\r\n";
        let expected = [
            Reply::Simple(Bytes::from_static(b"OK")),
            Reply::Bulk(Bytes::from_static(b"he\r\no")),
            Reply::Nil,
            Reply::Number(-7),
            Reply::Array(vec![Reply::Array(vec![Reply::Number(1)]), Reply::Bulk(Bytes::new())]),
            Reply::Error("MOVED 1 a".into()),
        ];
        for step in [1, 3, bytes.len()] {
            let (mut arrived, mut found) = (BytesMut::new(), Vec::new());
            for chunk in bytes.chunks(step) {
                arrived.extend_from_slice(chunk);
                while let Some(reply) = Resp.next(&mut arrived).unwrap() {
                    found.push(reply);
                }
            }
            assert_eq!(found, expected, "in steps of {step}");
        }
        assert!(Resp.next(&mut BytesMut::from(&b"!what\r\n"[..])).is_err());
    }

    #[test]
    fn command_is_encoded_as_an_array_of_values() {
        let mut out = BytesMut::new();
        command(&mut out, &[b"SET", b"key", &[b'x'; 12]]);
        assert_eq!(&out[..], b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$12\r\nxxxxxxxxxxxx\r\n");
    }
}
