//! Patterns of `KEYS`, `SCAN` and `CONFIG GET`.

/// Longest pattern behind its literal prefix, in bytes: comparing it takes time in proportion to it, for each byte of a key.
pub(crate) const PATTERN_BYTES_MAX: usize = 256;

/// A pattern of keys: a literal prefix, and the rest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeyPattern {
    /// Every key that matches begins with these bytes.
    prefix: Vec<u8>,
    rest: Vec<u8>,
}

impl KeyPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// The error for the client, if the pattern is too long.
    pub fn parse(pattern: &[u8]) -> Result<Self, String> {
        let (mut prefix, mut rest) = (Vec::new(), pattern);
        rest = loop {
            rest = match rest {
                [] | [b'*' | b'?' | b'[', ..] => break rest,
                [b'\\', escaped, more @ ..] => {
                    prefix.push(*escaped);
                    more
                }
                [literal, more @ ..] => {
                    prefix.push(*literal);
                    more
                }
            };
        };
        if rest.len() > PATTERN_BYTES_MAX {
            return Err(format!(
                "ERR the pattern has {} bytes from its first special character on, and at most {PATTERN_BYTES_MAX} are allowed",
                rest.len()
            ));
        }
        Ok(Self { prefix, rest: rest.to_vec() })
    }

    /// Returns the bytes that every matching key begins with.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Returns the most steps that comparing a key may take.
    pub fn steps(&self, key: &[u8]) -> usize {
        key.len().saturating_mul(self.rest.len() + 1)
    }

    /// Returns true if a key matches.
    pub fn matches(&self, key: &[u8]) -> bool {
        key.strip_prefix(&self.prefix[..]).is_some_and(|rest| glob_matches(&self.rest, rest))
    }
}

/// Returns true if a text matches a pattern as in Redis: `*` stands for any bytes, `?` for one, `[ab]`, `[a-z]` and `[^a]`
/// for one of a class; a backslash takes the next byte literally.
fn glob_matches(pattern: &[u8], text: &[u8]) -> bool {
    // Positions to return to: behind the last star, and in the text.
    let (mut pattern, mut text, mut retry) = (pattern, text, None);
    loop {
        if let [b'*', more @ ..] = pattern {
            (pattern, retry) = (more, Some((more, text)));
            continue;
        }
        let Some((first, others)) = text.split_first() else { return pattern.is_empty() };
        if let Some(more) = match_byte(pattern, *first) {
            (pattern, text) = (more, others);
            continue;
        }
        let Some((behind, [_, later @ ..])) = retry else { return false };
        (pattern, text, retry) = (behind, later, Some((behind, later)));
    }
}

/// Compares the first element of a pattern, which is no star, with a byte. Returns the rest of the pattern if it matches.
fn match_byte(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [] => None,
        [b'?', rest @ ..] => Some(rest),
        [b'[', class @ ..] => match_class(class, byte),
        [b'\\', escaped, rest @ ..] => (*escaped == byte).then_some(rest),
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
    }
}

/// Does the same with the class behind a bracket. As in Redis, one that does not end reaches to the end of the pattern.
fn match_class(class: &[u8], byte: u8) -> Option<&[u8]> {
    let (mut class, is_negated) = match class {
        [b'^', rest @ ..] => (rest, true),
        _ => (class, false),
    };
    let mut is_within = false;
    loop {
        class = match class {
            [] => break,
            [b'\\', escaped, rest @ ..] => {
                is_within |= *escaped == byte;
                rest
            }
            [b']', rest @ ..] => {
                class = rest;
                break;
            }
            [begin, b'-', end, rest @ ..] => {
                is_within |= (*begin.min(end)..=*begin.max(end)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                is_within |= *literal == byte;
                rest
            }
        };
    }
    (is_within != is_negated).then_some(class)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "save"),
            ("s**e", "save"),
            ("s?v?", "save"),
            ("*a*e*", "save"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[c-a]llo", "hbllo"),
            ("a\\*b", "a*b"),
            ("[\\]]", "]"),
            ("[a", "a"),
            ("\\", "\\"),
            ("*[0-9]x", "a1b2x"),
        ] {
            assert!(glob_matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("?", ""),
            ("?", "ab"),
            ("*x", "save"),
            ("h[ae]llo", "hillo"),
            ("h[^e]llo", "hello"),
            ("a\\*b", "aab"),
            ("[]", "a"),
            ("h[a-c]llo", "hdllo"),
        ] {
            assert!(!glob_matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn literal_prefix_ends_at_special_character() {
        let prefix = |pattern: &str| KeyPattern::parse(pattern.as_bytes()).unwrap().prefix().to_vec();
        assert_eq!(prefix("user:*"), b"user:");
        assert_eq!(prefix("a\\*b?"), b"a*b");
        assert_eq!(prefix("[ab]c"), b"");
        assert_eq!(prefix("whole"), b"whole");
        assert!(KeyPattern::parse(b"whole").unwrap().matches(b"whole"));
        assert!(!KeyPattern::parse(b"whole").unwrap().matches(b"wholes"));
    }

    #[test]
    fn pattern_has_bounded_length() {
        let long = [&vec![b'a'; 4_000][..], &vec![b'*'; PATTERN_BYTES_MAX]].concat();
        assert!(KeyPattern::parse(&long).is_ok());
        assert!(
            KeyPattern::parse(&[&long[..], b"*"].concat()).unwrap_err().starts_with("ERR the pattern has 257 bytes")
        );
    }

    /// The definition, without any cleverness.
    fn naive(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([b'*', rest @ ..], _) => (0..=text.len()).any(|taken| naive(rest, &text[taken..])),
            (_, [first, others @ ..]) => match_byte(pattern, *first).is_some_and(|rest| naive(rest, others)),
            (_, []) => pattern.is_empty(),
        }
    }

    proptest! {
        #[test]
        fn patterns_agree_with_their_definition(
            pattern in vec(prop::sample::select(b"ab*?[]-^\\".to_vec()), 0..10),
            text in vec(prop::sample::select(b"ab-]".to_vec()), 0..10),
        ) {
            let matches = naive(&pattern, &text);
            prop_assert_eq!(glob_matches(&pattern, &text), matches);
            prop_assert_eq!(KeyPattern::parse(&pattern).unwrap().matches(&text), matches);
        }
    }
}
