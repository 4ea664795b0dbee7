//! Reply of a server as a client library returned it, and its text in the protocol of the scripts.

use archon_types::hex;

/// Reply to one command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// No value.
    Nil,
    /// A number.
    Integer(i64),
    /// A value, or a status such as `OK`.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Self>),
    /// The server replied with this error, or the library gave up a transaction: the command had no effect.
    Refused(String),
    /// The library got no reply: the outcome of a write is unknown.
    Lost(String),
}

impl Reply {
    /// Returns the reply to a command that succeeded without a result.
    pub fn ok() -> Self {
        Self::Bytes(b"OK".to_vec())
    }

    /// Parses a word of an answer; see `integration-tests/redis-clients/driver.py`.
    pub(super) fn parse(word: &str) -> Option<Self> {
        if word == "_" {
            return Some(Self::Nil);
        }
        let rest = word.get(1..)?;
        let text = || Some(String::from_utf8_lossy(&hex::decode(rest)?).into_owned());
        match word.as_bytes()[0] {
            b':' => rest.parse().ok().map(Self::Integer),
            b'=' => hex::decode(rest).map(|bytes| Self::Bytes(bytes.to_vec())),
            b'*' => rest.split(',').map(Self::parse).collect::<Option<_>>().map(Self::List),
            b'-' => text().map(Self::Refused),
            b'!' => text().map(Self::Lost),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_an_answer_are_parsed() {
        for (word, reply) in [
            ("_", Reply::Nil),
            (":-7", Reply::Integer(-7)),
            ("=", Reply::Bytes(vec![])),
            ("=00ff4f", Reply::Bytes(vec![0, 255, b'O'])),
            ("*=61,_", Reply::List(vec![Reply::Bytes(b"a".to_vec()), Reply::Nil])),
            ("-6e6f", Reply::Refused("no".into())),
            ("!6e6f", Reply::Lost("no".into())),
        ] {
            assert_eq!(Reply::parse(word), Some(reply), "{word}");
        }
        assert_eq!(hex::encode(&[0, 255]), "00ff");
        for word in ["", "x", ":", ":x", "=0", "=0g", "*", "*=61,x", "é"] {
            assert_eq!(Reply::parse(word), None, "{word}");
        }
    }
}
