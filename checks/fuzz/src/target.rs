//! One decoder and its required properties.

use archon_testkit::Random;

/// A decoder's answer to an input. It must not panic: that is what fuzzing looks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Accepted; the text describes the shape.
    Accepted(String),
    /// Refused, with this error.
    Refused(String),
}

impl Verdict {
    /// Returns the verdict of a result; `shape` describes the decoded value.
    pub fn of<T, E: std::fmt::Display>(result: Result<T, E>, shape: impl FnOnce(&T) -> String) -> Self {
        match result {
            Ok(value) => Self::Accepted(shape(&value)),
            Err(error) => Self::Refused(error.to_string()),
        }
    }

    /// Returns what distinguishes this answer from others: its words without numbers and quoted input.
    pub fn signature(&self) -> String {
        let (mark, text) = match self {
            Self::Accepted(text) => ('+', text),
            Self::Refused(text) => ('-', text),
        };
        let mut signature = String::from(mark);
        let mut quoted = false;
        for character in text.chars() {
            match character {
                '"' | '`' => quoted = !quoted,
                _ if quoted => {}
                '0'..='9' => {
                    if !signature.ends_with('#') {
                        signature.push('#');
                    }
                }
                _ => signature.push(character),
            }
            if signature.len() > 160 {
                break;
            }
        }
        signature
    }
}

/// A decoder under test.
#[derive(Clone)]
pub struct Target {
    /// Its name: room, slash, decoded type.
    pub name: String,
    /// Decodes an input and checks the properties of an accepted one. A panic is a finding.
    pub run: fn(&[u8]) -> Verdict,
    /// Real encodings to begin from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Generates an input, if there is a description.
    pub generate: Option<fn(&str, &mut Random) -> Vec<u8>>,
    /// Fixes checksums after a mutation.
    pub fix_checksums: Option<fn(&mut [u8])>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Target {
    /// Returns a target without generator and checksums.
    pub fn new(name: impl Into<String>, run: fn(&[u8]) -> Verdict, seeds: fn() -> Vec<Vec<u8>>) -> Self {
        Self { name: name.into(), run, seeds, generate: None, fix_checksums: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_omits_numbers_and_quoted_input() {
        let one = Verdict::Refused("Op.key: 17 bytes of \"abc\" are too many".into());
        let other = Verdict::Refused("Op.key: 99 bytes of \"x\" are too many".into());
        assert_eq!(one.signature(), other.signature());
        assert_ne!(one.signature(), Verdict::Accepted(String::new()).signature());
    }
}
