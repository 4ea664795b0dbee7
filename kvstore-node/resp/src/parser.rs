//! Incremental parser of requests: arrays of bulk strings, and inline commands.

use crate::integer::parse_integer;
use bytes::{Buf, Bytes, BytesMut};

/// Longest line: an inline command, or the length of an array or bulk string.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Arguments for which room is reserved before they arrive.
const RESERVED_MAX: usize = 16;
/// Bytes that an argument counts in addition to its own.
const ARGUMENT_OVERHEAD_BYTES: usize = 32;

/// Bounds of one request. They are checked before memory is reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Most arguments, with the name of the command.
    pub arguments_max: usize,
    /// Longest argument, in bytes.
    pub bulk_bytes_max: usize,
    /// Most bytes of all arguments together; each counts 32 bytes more than it has.
    pub request_bytes_max: usize,
}

/// A request that Redis answers with an error before it closes the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is no number, or too large.
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    /// The length of an argument is no number, negative, or too large.
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// An argument does not begin as a bulk string.
    #[error("Protocol error: expected '$', got '{}'", char::from(printable(*.0)))]
    ExpectedBulk(u8),
    /// An inline command does not end.
    #[error("Protocol error: too big inline request")]
    InlineTooBig,
    /// The line with the number of arguments does not end.
    #[error("Protocol error: too big mbulk count string")]
    MultibulkTooBig,
    /// The line with the length of an argument does not end.
    #[error("Protocol error: too big bulk count string")]
    BulkTooBig,
    /// A quoted argument of an inline command does not end, or is followed by another character than a space.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
}

/// Replaces bytes that would break the line of an error.
const fn printable(byte: u8) -> u8 {
    if byte.is_ascii_graphic() || byte == b' ' { byte } else { b'?' }
}

/// Parser of one connection.
#[derive(Debug)]
pub struct Parser {
    limits: Limits,
    /// Arguments of the present request that have not arrived.
    missing: usize,
    /// Length of the argument that is arriving, if its line has arrived.
    bulk: Option<usize>,
    arguments: Vec<Bytes>,
    /// Bytes of the arguments that have arrived.
    bytes: usize,
    /// Bytes at the beginning of the input without the end of a line.
    scanned: usize,
}

impl Parser {
    /// Creates the parser of a new connection.
    pub const fn new(limits: Limits) -> Self {
        Self { limits, missing: 0, bulk: None, arguments: Vec::new(), bytes: 0, scanned: 0 }
    }

    /// Returns the bytes of the present request that were taken from the input.
    pub fn pending_bytes(&self) -> usize {
        self.bytes - self.bulk.map_or(0, |length| length + ARGUMENT_OVERHEAD_BYTES)
    }

    /// Takes one request from the beginning of `input`: its arguments, at least one. Returns `None` if more bytes are
    /// needed.
    ///
    /// # Errors
    /// [`ProtocolError`]; the rest of the input has no meaning then.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        loop {
            if self.missing > 0 {
                return self.next_arguments(input);
            }
            match input.first() {
                None => return Ok(None),
                Some(b'*') => {
                    let Some(count) = self.length(input, ProtocolError::MultibulkTooBig)? else { return Ok(None) };
                    let count = count.ok_or(ProtocolError::MultibulkLength)?;
                    // A request without arguments is none.
                    let Ok(count) = usize::try_from(count) else { continue };
                    if count > self.limits.arguments_max {
                        return Err(ProtocolError::MultibulkLength);
                    }
                    self.missing = count;
                    self.arguments = Vec::with_capacity(count.min(RESERVED_MAX));
                }
                Some(_) => {
                    let Some(line) = self.inline(input)? else { return Ok(None) };
                    let arguments = split_inline(&line)?;
                    if arguments.len() > self.limits.arguments_max {
                        return Err(ProtocolError::InlineTooBig);
                    }
                    if !arguments.is_empty() {
                        return Ok(Some(arguments));
                    }
                }
            }
        }
    }

    fn next_arguments(&mut self, input: &mut BytesMut) -> Result<Option<Vec<Bytes>>, ProtocolError> {
        while self.missing > 0 {
            let length = match self.bulk {
                Some(length) => length,
                None => {
                    match input.first() {
                        None => return Ok(None),
                        Some(b'$') => {}
                        Some(other) => return Err(ProtocolError::ExpectedBulk(*other)),
                    }
                    let Some(length) = self.length(input, ProtocolError::BulkTooBig)? else { return Ok(None) };
                    let length = length.and_then(|length| usize::try_from(length).ok());
                    let length = length.filter(|length| *length <= self.limits.bulk_bytes_max);
                    let length = length.ok_or(ProtocolError::BulkLength)?;
                    self.bytes += length + ARGUMENT_OVERHEAD_BYTES;
                    if self.bytes > self.limits.request_bytes_max {
                        return Err(ProtocolError::BulkLength);
                    }
                    self.bulk = Some(length);
                    length
                }
            };
            // As Redis does, the two bytes behind an argument are skipped without a check.
            if input.len() < length + 2 {
                return Ok(None);
            }
            // A copy: a part of the input would keep the whole input in memory.
            self.arguments.push(Bytes::copy_from_slice(&input[..length]));
            input.advance(length + 2);
            (self.bulk, self.missing) = (None, self.missing - 1);
        }
        self.bytes = 0;
        Ok(Some(std::mem::take(&mut self.arguments)))
    }

    /// Takes a line of one character and an integer that ends with CR LF. The integer is `None` if it is malformed.
    fn length(&mut self, input: &mut BytesMut, too_big: ProtocolError) -> Result<Option<Option<i64>>, ProtocolError> {
        match input[self.scanned..].iter().position(|byte| *byte == b'\r') {
            Some(at) if self.scanned + at + 1 < input.len() => {
                let end = self.scanned + at;
                let length = parse_integer(&input[1..end]);
                // As Redis does, the byte behind CR is skipped without a check.
                input.advance(end + 2);
                self.scanned = 0;
                Ok(Some(length))
            }
            Some(at) => {
                self.scanned += at;
                Ok(None)
            }
            None if input.len() > LINE_BYTES_MAX => Err(too_big),
            None => {
                self.scanned = input.len();
                Ok(None)
            }
        }
    }

    /// Takes a line that ends with LF or CR LF, without its end.
    fn inline(&mut self, input: &mut BytesMut) -> Result<Option<BytesMut>, ProtocolError> {
        let Some(at) = input[self.scanned..].iter().position(|byte| *byte == b'\n') else {
            if input.len() > LINE_BYTES_MAX {
                return Err(ProtocolError::InlineTooBig);
            }
            self.scanned = input.len();
            return Ok(None);
        };
        let end = self.scanned + at;
        self.scanned = 0;
        if end > LINE_BYTES_MAX {
            return Err(ProtocolError::InlineTooBig);
        }
        let mut line = input.split_to(end);
        input.advance(1);
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        Ok(Some(line))
    }
}

/// Splits an inline command into arguments, with quotes and escapes as Redis has them.
fn split_inline(line: &[u8]) -> Result<Vec<Bytes>, ProtocolError> {
    let mut arguments = Vec::new();
    let mut rest = line;
    loop {
        while let [first, more @ ..] = rest
            && first.is_ascii_whitespace()
        {
            rest = more;
        }
        if rest.is_empty() {
            return Ok(arguments);
        }
        let mut argument = Vec::new();
        rest = take_argument(rest, &mut argument)?;
        arguments.push(argument.into());
    }
}

fn take_argument<'a>(mut rest: &'a [u8], argument: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] => return Ok(rest),
            [space, ..] if space.is_ascii_whitespace() => return Ok(rest),
            [quote @ (b'"' | b'\''), more @ ..] => {
                let more = take_quoted(*quote, more, argument)?;
                if more.first().is_some_and(|next| !next.is_ascii_whitespace()) {
                    return Err(ProtocolError::UnbalancedQuotes);
                }
                return Ok(more);
            }
            [byte, more @ ..] => {
                argument.push(*byte);
                more
            }
        };
    }
}

fn take_quoted<'a>(quote: u8, mut rest: &'a [u8], argument: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, more) = match rest {
            [] => return Err(ProtocolError::UnbalancedQuotes),
            [end, more @ ..] if *end == quote => return Ok(more),
            [b'\\', b'\'', more @ ..] if quote == b'\'' => (b'\'', more),
            [b'\\', b'x', high, low, more @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) << 4 | hex(*low), more)
            }
            [b'\\', escaped, more @ ..] if quote == b'"' => {
                let byte = match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                };
                (byte, more)
            }
            [byte, more @ ..] => (*byte, more),
        };
        argument.push(byte);
        rest = more;
    }
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10) & 15,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { arguments_max: 64, bulk_bytes_max: 1_000, request_bytes_max: 4_000 };

    fn all(bytes: &[u8], piece: usize) -> (Vec<Vec<Bytes>>, Option<ProtocolError>) {
        let (mut parser, mut input, mut found) = (Parser::new(LIMITS), BytesMut::new(), Vec::new());
        for part in bytes.chunks(piece.max(1)) {
            input.extend_from_slice(part);
            loop {
                match parser.next(&mut input) {
                    Ok(Some(request)) => found.push(request),
                    Ok(None) => break,
                    Err(error) => return (found, Some(error)),
                }
            }
        }
        (found, None)
    }

    fn requests(bytes: &[u8]) -> Vec<Vec<Bytes>> {
        let (found, error) = all(bytes, usize::MAX);
        assert_eq!(error, None);
        found
    }

    fn error(bytes: &[u8]) -> String {
        all(bytes, usize::MAX).1.map(|error| error.to_string()).unwrap_or_default()
    }

    fn array(arguments: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes
    }

    #[test]
    fn malformed_requests_get_the_texts_of_redis() {
        let long = vec![b'1'; LINE_BYTES_MAX + 1];
        let cases: [(&[u8], &str); 14] = [
            (b"*x\r\n", "Protocol error: invalid multibulk length"),
            (b"*1000000\r\n", "Protocol error: invalid multibulk length"),
            (b"*99999999999999999999\r\n", "Protocol error: invalid multibulk length"),
            (b"*3\r\n$3\r\nSET\r\n:1\r\n", "Protocol error: expected '$', got ':'"),
            (b"*1\r\n\x01", "Protocol error: expected '$', got '?'"),
            (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
            (b"*1\r\n$536870912\r\n", "Protocol error: invalid bulk length"),
            (b"*1\r\n$1001\r\n", "Protocol error: invalid bulk length"),
            (b"*1\r\n$x\r\n", "Protocol error: invalid bulk length"),
            (b"SET \"a\r\n", "Protocol error: unbalanced quotes in request"),
            (b"SET \"a\"b\r\n", "Protocol error: unbalanced quotes in request"),
            (&long, "Protocol error: too big inline request"),
            (&[b"*", &long[..]].concat(), "Protocol error: too big mbulk count string"),
            (&[b"*1\r\n$", &long[..]].concat(), "Protocol error: too big bulk count string"),
        ];
        for (bytes, text) in cases {
            assert_eq!(error(bytes), text, "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(40)]));
        }
    }

    #[test]
    fn request_of_many_arguments_is_bounded() {
        let four = array(&vec![vec![0; 1_000]; 4]);
        assert_eq!(error(&four), "Protocol error: invalid bulk length", "each counts its overhead");
        assert_eq!(requests(&array(&vec![vec![0; 1_000]; 3])).len(), 1);
        assert_eq!(requests(&[array(&vec![vec![0; 1_000]; 3]), array(&vec![vec![0; 1_000]; 3])].concat()).len(), 2);
    }

    #[test]
    fn empty_requests_are_skipped() {
        assert_eq!(requests(b"*0\r\n\r\n*-1\r\n  \r\n*1\r\n$4\r\nPING\r\n"), [[Bytes::from_static(b"PING")]]);
    }

    #[test]
    fn inline_commands_have_quotes_and_escapes() {
        let found = requests(b"SET k\t\"a \\x41\\n\\q\" 'it\\'s'\nGET   k\r\n");
        let of =
            |texts: &[&'static str]| texts.iter().map(|text| Bytes::from_static(text.as_bytes())).collect::<Vec<_>>();
        assert_eq!(found, [of(&["SET", "k", "a A\nq", "it's"]), of(&["GET", "k"])]);
    }

    #[test]
    fn requests_of_redis_rs_are_read() {
        let packed = redis::cmd("SET").arg("k").arg(&b"a\r\n\0"[..]).arg(7).get_packed_command();
        assert_eq!(requests(&packed), [[&b"SET"[..], b"k", b"a\r\n\0", b"7"]]);
    }

    proptest! {
        #[test]
        fn requests_survive_every_division(
            sent in vec(vec(vec(any::<u8>(), 0..20), 1..5), 0..6),
            piece in 1usize..9,
        ) {
            let bytes: Vec<u8> = sent.iter().flat_map(|request| array(request)).collect();
            let (found, error) = all(&bytes, piece);
            prop_assert_eq!(error, None);
            prop_assert_eq!(found, sent);
        }

        #[test]
        fn division_of_any_bytes_changes_nothing(
            bytes in vec(prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), b'0'..=b'3', any::<u8>()], 0..200),
            piece in 1usize..9,
        ) {
            prop_assert_eq!(all(&bytes, piece), all(&bytes, usize::MAX));
        }
    }
}
