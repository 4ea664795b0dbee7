//! The quoting rules of CSV (RFC 4180), checked byte by byte: the parser itself accepts text after a closing quote, and so takes
//! several lines for one field.

/// A byte at which a file breaks the rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Violation {
    /// The offset of the byte in the file.
    pub(super) at: u64,
    /// The problem, and the line where it is.
    pub(super) why: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// At the begin of a field.
    Begin,
    /// In a field without quotes.
    Bare,
    /// Between quotes.
    Quoted,
    /// After a quote that closes the field, unless another one follows.
    Closed,
}

/// Follows the quotes of a file from its first byte.
#[derive(Debug)]
pub(super) struct Quotes {
    state: State,
    offset: u64,
    line: u64,
    after_return: bool,
    /// The line of the quote that opened the current field.
    opened: u64,
    violation: Option<Violation>,
}

impl Quotes {
    pub(super) const fn new() -> Self {
        Self { state: State::Begin, offset: 0, line: 1, after_return: false, opened: 0, violation: None }
    }

    /// Follows the next bytes. Bytes after the first violation are ignored.
    pub(super) fn follow(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
            self.offset += 1;
        }
    }

    fn step(&mut self, byte: u8) {
        const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
        let is_mark = usize::try_from(self.offset).ok().and_then(|at| BYTE_ORDER_MARK.get(at)) == Some(&byte);
        self.state = match (self.state, byte) {
            (State::Begin, _) if is_mark => State::Begin,
            (State::Begin, b'"') => {
                self.opened = self.line;
                State::Quoted
            }
            (State::Quoted, b'"') => State::Closed,
            (State::Closed, b'"') | (State::Quoted, _) => State::Quoted,
            (_, b',' | b'\n' | b'\r') => State::Begin,
            (State::Closed, _) => {
                let (begin, end) = (self.opened, self.line);
                self.violate(format!(
                    "text follows the quote on line {end} that closes the field in quotes from line {begin}; write a quote inside a \
                     field twice, and the field in quotes"
                ));
                State::Bare
            }
            (State::Bare, b'"') => {
                let line = self.line;
                self.violate(format!(
                    "a quote (\") on line {line} stands in a field that is not in quotes; write it twice, and the field in quotes"
                ));
                State::Bare
            }
            (State::Begin | State::Bare, _) => State::Bare,
        };
        // CRLF ends one line.
        if byte == b'\r' || (byte == b'\n' && !self.after_return) {
            self.line += 1;
        }
        self.after_return = byte == b'\r';
    }

    fn violate(&mut self, why: String) {
        let at = self.offset;
        self.violation.get_or_insert(Violation { at, why });
    }

    /// Returns the first violation before the offset `end`.
    pub(super) fn violation_before(&self, end: u64) -> Option<&str> {
        self.violation.as_ref().filter(|violation| violation.at < end).map(|violation| &*violation.why)
    }

    /// Returns the problem of a file that ends here inside quotes.
    pub(super) fn open_at_end(&self) -> Option<String> {
        (self.state == State::Quoted)
            .then(|| format!("the quote (\") that opens a field on line {} is not closed", self.opened))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> Option<String> {
        let mut quotes = Quotes::new();
        // Pieces end anywhere.
        text.as_bytes().chunks(3).for_each(|piece| quotes.follow(piece));
        quotes.violation_before(u64::MAX).map(str::to_owned).or_else(|| quotes.open_at_end())
    }

    #[test]
    fn quotes_follow_the_rules_of_csv() {
        for right in ["a,\"1\n2\"\nb,\"x\"\"y\"\r\n", "\u{feff}\"a\",b\n", "a,\"\"\n", "\"\"\"\"\n", "a,b\rc,\"d\"\r"] {
            assert_eq!(problem(right), None, "{right}");
        }
        for (wrong, why) in [
            ("a,\"1\nb,2\nc,\"3\n", "text follows the quote on line 3 that closes the field in quotes from line 1"),
            ("a,\"two b\" is the text\n", "text follows the quote on line 1"),
            ("\r\n\"a\"b,1\n", "text follows the quote on line 2"),
            ("a,5\" pipe\n", "line 1 stands in a field that is not in quotes"),
            ("a, \"b\"\n", "stands in a field that is not in quotes"),
            ("a\rb,\"1\n", "opens a field on line 2 is not closed"),
        ] {
            assert!(problem(wrong).is_some_and(|found| found.contains(why)), "{wrong}: {:?}", problem(wrong));
        }
    }
}
