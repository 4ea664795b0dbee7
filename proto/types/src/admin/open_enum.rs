//! Vocabularies of the administration: small sets of words that programs compare and people read.
//!
//! Each word has two forms: one for programs (`in_sync`, in JSON, plan files and on the wire) and one for people
//! (`InSync`, in tables, logs and messages). [`OpenEnum`] is a word of another program, which may be
//! newer than this one.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Longest accepted word, in bytes; a longer one is truncated.
const WORD_BYTES_MAX: usize = 64;

/// A closed set of words.
pub trait Vocabulary: Copy + Eq + fmt::Debug + 'static {
    /// Name of its type, in schemas and documents.
    const TYPE: &'static str;
    /// Subject of its words, for errors: `node status`.
    const WHAT: &'static str;
    /// All words.
    const ALL: &'static [Self];

    /// Returns the form for programs: `in_sync`.
    fn word(self) -> &'static str;

    /// Returns the form for people: `InSync`.
    fn shown(self) -> &'static str;

    /// Returns the meaning of the word, as a sentence.
    fn meaning(self) -> &'static str;

    /// Returns the word with this form for programs.
    fn find(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.word() == word)
    }
}

/// Text that is not a word of the expected vocabulary.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{found:?} is not a valid {what}; use {known}")]
pub struct UnknownWord {
    /// Text found.
    pub found: String,
    /// Subject of the vocabulary: `node status`.
    pub what: &'static str,
    /// Valid words, separated by commas.
    pub known: String,
}

impl UnknownWord {
    /// Creates the error for a word that `T` does not have.
    pub fn new<T: Vocabulary>(found: &str) -> Self {
        let known = T::ALL.iter().map(|word| word.word()).collect::<Vec<_>>().join(", ");
        Self { found: found.to_owned(), what: T::WHAT, known }
    }
}

/// Declares a vocabulary. Each word has its variant, its form for programs, and its meaning as the comment.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident: $what:literal {
            $($(#[doc = $doc:literal])+ $(#[serde($($serde:tt)*)])? $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[doc = $doc])+ $(#[serde($($serde)*)])? $variant,)+ }

        impl $name {
            /// All words.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// Forms for programs, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word,)+];

            /// Returns the form for programs.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl $crate::admin::open_enum::Vocabulary for $name {
            const TYPE: &'static str = stringify!($name);
            const WHAT: &'static str = $what;
            const ALL: &'static [Self] = Self::ALL;

            fn word(self) -> &'static str {
                self.as_str()
            }

            fn shown(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)+ }
            }

            fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc,)+).trim_ascii(),)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad($crate::admin::open_enum::Vocabulary::shown(*self))
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::admin::open_enum::UnknownWord;

            fn from_str(text: &str) -> Result<Self, $crate::admin::open_enum::UnknownWord> {
                <Self as $crate::admin::open_enum::Vocabulary>::find(text)
                    .ok_or_else(|| $crate::admin::open_enum::UnknownWord::new::<Self>(text))
            }
        }
    };
}
pub(crate) use words;

/// A word of another program. A word that this program does not know is kept: a status of a newer coordinator can be
/// read, displayed and passed on, and equals no known word.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OpenEnum<T> {
    /// A word of the vocabulary.
    Known(T),
    /// Another word, without characters that could disturb a terminal.
    Unknown(String),
}

impl<T: Vocabulary> OpenEnum<T> {
    /// Reads the form for programs, known or not.
    pub fn read(word: &str) -> Self {
        match T::find(word) {
            Some(known) => Self::Known(known),
            None => {
                // Truncated again after escaping, so that a word that is passed on does not change.
                let mut kept =
                    crate::common::text::plain(&word[..word.floor_char_boundary(WORD_BYTES_MAX)]).into_owned();
                kept.truncate(kept.floor_char_boundary(WORD_BYTES_MAX));
                Self::Unknown(kept)
            }
        }
    }

    /// Returns the word, if this program knows it.
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(word) => Some(*word),
            Self::Unknown(_) => None,
        }
    }

    /// Returns the form for programs.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.word(),
            Self::Unknown(word) => word,
        }
    }
}

impl<T> From<T> for OpenEnum<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: Vocabulary> PartialEq<T> for OpenEnum<T> {
    fn eq(&self, other: &T) -> bool {
        self.known() == Some(*other)
    }
}

/// Formats the form for people; an unknown word is unchanged.
impl<T: Vocabulary> fmt::Display for OpenEnum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Known(word) => word.shown(),
            Self::Unknown(word) => word,
        })
    }
}

impl<T: Vocabulary> Serialize for OpenEnum<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, T: Vocabulary> Deserialize<'de> for OpenEnum<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::read(&Cow::<'de, str>::deserialize(deserializer)?))
    }
}

/// The words of this version; a newer one may have others.
impl<T: Vocabulary> JsonSchema for OpenEnum<T> {
    fn schema_name() -> Cow<'static, str> {
        T::TYPE.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words: Vec<Schema> =
            T::ALL.iter().map(|word| json_schema!({ "const": word.word(), "description": word.meaning() })).collect();
        json_schema!({ "type": "string", "oneOf": words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Condition, CoordinatorRole, ErrorKind, EventCode, MoveCode, MoveKind, MovePhase, NodeGoal, NodeStatus,
        PartitionStatus, RangeChangeKind, RangeChangePhase, ReasonCode, ReplicaState, UnmetCode,
    };

    fn snake(name: &str) -> String {
        let mut out = String::new();
        for character in name.chars() {
            if character.is_ascii_uppercase() && !out.is_empty() {
                out.push('_');
            }
            out.push(character.to_ascii_lowercase());
        }
        out
    }

    fn check<T: Vocabulary + fmt::Display>() {
        for word in T::ALL {
            assert_eq!(word.word(), snake(word.shown()), "{word:?}");
            assert_eq!(word.to_string(), word.shown());
            assert!(word.meaning().ends_with('.'), "{word:?}: {}", word.meaning());
            assert_eq!(serde_json::to_value(OpenEnum::Known(*word)).unwrap(), word.word());
            assert_eq!(serde_json::from_value::<OpenEnum<T>>(word.word().into()).unwrap(), *word);
        }
    }

    #[test]
    fn every_word_has_a_program_form_and_a_display_form() {
        check::<Condition>();
        check::<CoordinatorRole>();
        check::<ErrorKind>();
        check::<EventCode>();
        check::<MoveCode>();
        check::<MoveKind>();
        check::<MovePhase>();
        check::<NodeGoal>();
        check::<NodeStatus>();
        check::<PartitionStatus>();
        check::<ReasonCode>();
        check::<ReplicaState>();
        check::<RangeChangeKind>();
        check::<RangeChangePhase>();
        check::<UnmetCode>();
    }

    #[test]
    fn unknown_word_is_read_displayed_and_passed_on() {
        let newer: OpenEnum<NodeStatus> = serde_json::from_str("\"half_asleep\"").unwrap();
        assert_eq!(newer, OpenEnum::Unknown("half_asleep".to_owned()));
        assert!(NodeStatus::ALL.iter().all(|known| newer != *known));
        assert_eq!((newer.known(), newer.to_string()), (None, "half_asleep".to_owned()));
        assert_eq!(serde_json::to_string(&newer).unwrap(), "\"half_asleep\"");
        // It cannot reach a terminal or its scrollback.
        let long = format!("\u{1b}[2J{}", "ä".repeat(1_000));
        let OpenEnum::Unknown(kept) = OpenEnum::<NodeStatus>::read(&long) else { panic!("known") };
        let disturbing = format!("{}\0\0{}", "x".repeat(40), "x".repeat(40));
        let handed_on = OpenEnum::<NodeStatus>::read(&disturbing);
        assert_eq!(OpenEnum::read(handed_on.as_str()), handed_on, "escaped, it is as long as it may be");
        assert!(kept.starts_with("\\u{1b}[2Jä") && kept.len() < 80, "{kept}");
    }

    #[test]
    fn user_input_must_be_a_known_word() {
        let error = "Alive".parse::<NodeStatus>().unwrap_err();
        assert_eq!(error.to_string(), "\"Alive\" is not a valid node status; use alive, failed, lost");
        assert_eq!("alive".parse(), Ok(NodeStatus::Alive));
    }
}
