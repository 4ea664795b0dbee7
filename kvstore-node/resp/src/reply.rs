//! Replies, and their encoding.

use bytes::{BufMut, Bytes, BytesMut};
use std::borrow::Cow;

/// Version of the protocol of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// The one that every connection begins with.
    #[default]
    Resp2,
    /// The one that a client may choose by `HELLO 3`.
    Resp3,
}

impl Version {
    /// Returns its number.
    pub const fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// A short text of the server.
    Status(&'static str),
    /// An error: a code in capitals, and a text.
    Error(Cow<'static, str>),
    /// An integer.
    Integer(i64),
    /// A string of any bytes.
    Bulk(Bytes),
    /// A text for people.
    Text(String),
    /// No value.
    Null,
    /// No list.
    NullArray,
    /// A list.
    Array(Vec<Self>),
    /// A set; a list in the older protocol.
    Set(Vec<Self>),
    /// A map; a list of keys and values in the older protocol.
    Map(Vec<(Self, Self)>),
}

impl Reply {
    /// The reply to a command that succeeded without a result.
    pub const OK: Self = Self::Status("OK");

    /// Creates a string.
    pub fn bulk(text: impl Into<String>) -> Self {
        Self::Bulk(text.into().into())
    }

    /// Creates an error.
    pub fn error(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(text.into())
    }

    /// Returns the bytes of the strings in it, with some for each reply.
    pub fn bytes(&self) -> usize {
        const HEAD_BYTES: usize = 16;
        let content = match self {
            Self::Bulk(bytes) => bytes.len(),
            Self::Text(text) => text.len(),
            Self::Error(text) => text.len(),
            Self::Array(replies) | Self::Set(replies) => replies.iter().map(Self::bytes).sum(),
            Self::Map(pairs) => pairs.iter().map(|(key, value)| key.bytes() + value.bytes()).sum(),
            Self::Status(_) | Self::Integer(_) | Self::Null | Self::NullArray => 0,
        };
        HEAD_BYTES + content
    }

    /// Appends its encoding.
    pub fn encode(&self, version: Version, into: &mut BytesMut) {
        let is_new = version == Version::Resp3;
        match self {
            Self::Status(text) => line(b'+', text.as_bytes(), into),
            Self::Error(text) => {
                into.put_u8(b'-');
                into.extend(text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }));
                into.put_slice(b"\r\n");
            }
            Self::Integer(number) => {
                into.put_u8(b':');
                if *number < 0 {
                    into.put_u8(b'-');
                }
                number_line(number.unsigned_abs(), into);
            }
            Self::Bulk(bytes) => bulk(bytes, into),
            Self::Text(text) if is_new => {
                head(b'=', text.len() + 4, into);
                into.put_slice(b"txt:");
                into.put_slice(text.as_bytes());
                into.put_slice(b"\r\n");
            }
            Self::Text(text) => bulk(text.as_bytes(), into),
            Self::Null => into.put_slice(if is_new { b"_\r\n" } else { b"$-1\r\n" }),
            Self::NullArray => into.put_slice(if is_new { b"_\r\n" } else { b"*-1\r\n" }),
            Self::Array(replies) => list(b'*', replies, version, into),
            Self::Set(replies) => list(if is_new { b'~' } else { b'*' }, replies, version, into),
            Self::Map(pairs) => {
                if is_new {
                    head(b'%', pairs.len(), into)
                } else {
                    head(b'*', 2 * pairs.len(), into)
                }
                for (key, value) in pairs {
                    key.encode(version, into);
                    value.encode(version, into);
                }
            }
        }
    }
}

fn line(kind: u8, text: &[u8], into: &mut BytesMut) {
    into.put_u8(kind);
    into.put_slice(text);
    into.put_slice(b"\r\n");
}

fn head(kind: u8, count: usize, into: &mut BytesMut) {
    into.put_u8(kind);
    number_line(count as u64, into);
}

/// Appends a number and the end of the line, without memory for a text.
fn number_line(number: u64, into: &mut BytesMut) {
    // The largest number has 20 digits.
    let (mut digits, mut first, mut rest) = ([0; 20], 20, number);
    loop {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    into.put_slice(&digits[first..]);
    into.put_slice(b"\r\n");
}

fn bulk(bytes: &[u8], into: &mut BytesMut) {
    head(b'$', bytes.len(), into);
    into.put_slice(bytes);
    into.put_slice(b"\r\n");
}

fn list(kind: u8, replies: &[Reply], version: Version, into: &mut BytesMut) {
    head(kind, replies.len(), into);
    replies.iter().for_each(|reply| reply.encode(version, into));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use redis::Value;

    fn encoded(reply: &Reply, version: Version) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        reply.encode(version, &mut bytes);
        bytes.to_vec()
    }

    /// Returns the value that redis-rs reads from a reply; `None` of an error.
    fn value(reply: &Reply, version: Version) -> Option<Value> {
        let is_new = version == Version::Resp3;
        let all = |replies: &[Reply]| replies.iter().map(|reply| value(reply, version)).collect::<Option<Vec<_>>>();
        Some(match reply {
            Reply::Status("OK") => Value::Okay,
            Reply::Status(text) => Value::SimpleString((*text).to_owned()),
            Reply::Error(_) => return None,
            Reply::Integer(number) => Value::Int(*number),
            Reply::Bulk(bytes) => Value::BulkString(bytes.to_vec()),
            Reply::Text(text) if is_new => {
                Value::VerbatimString { format: redis::VerbatimFormat::Text, text: text.clone() }
            }
            Reply::Text(text) => Value::BulkString(text.clone().into_bytes()),
            Reply::Null | Reply::NullArray => Value::Nil,
            Reply::Set(replies) if is_new => Value::Set(all(replies)?),
            Reply::Array(replies) | Reply::Set(replies) => Value::Array(all(replies)?),
            Reply::Map(pairs) if is_new => Value::Map(
                pairs
                    .iter()
                    .map(|(key, of)| Some((value(key, version)?, value(of, version)?)))
                    .collect::<Option<Vec<_>>>()?,
            ),
            Reply::Map(pairs) => {
                let flat: Vec<Reply> = pairs.iter().flat_map(|(key, of)| [key.clone(), of.clone()]).collect();
                Value::Array(all(&flat)?)
            }
        })
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let leaf = prop_oneof![
            Just(Reply::OK),
            Just(Reply::Status("PONG")),
            any::<i64>().prop_map(Reply::Integer),
            vec(any::<u8>(), 0..20).prop_map(|bytes| Reply::Bulk(bytes.into())),
            "[a-z\n]{0,12}".prop_map(Reply::Text),
            Just(Reply::Null),
            Just(Reply::NullArray),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Reply::Array),
                vec(inner.clone(), 0..4).prop_map(Reply::Set),
                vec((inner.clone(), inner), 0..4).prop_map(Reply::Map),
            ]
        })
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, -1, 9, 10, i64::MAX, i64::MIN] {
            assert_eq!(encoded(&Reply::Integer(number), Version::Resp2), format!(":{number}\r\n").into_bytes());
        }
        let mut bytes = BytesMut::new();
        number_line(u64::MAX, &mut bytes);
        assert_eq!(bytes, "18446744073709551615\r\n");
    }

    proptest! {
        #[test]
        fn redis_rs_reads_every_reply(reply in replies(), is_new in any::<bool>()) {
            let version = if is_new { Version::Resp3 } else { Version::Resp2 };
            let read = redis::parse_redis_value(&encoded(&reply, version)).unwrap();
            prop_assert_eq!(Some(read), value(&reply, version));
        }
    }

    #[test]
    fn error_is_one_line() {
        assert_eq!(encoded(&Reply::error("ERR a\r\n+OK"), Version::Resp3), b"-ERR a  +OK\r\n");
    }
}
