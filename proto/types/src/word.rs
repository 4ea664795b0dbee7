//! Vocabularies of the administration: small sets of words that programs compare and people read.
//!
//! Each word has two forms: the one of programs (`in_sync`, in JSON, plan files and on the wire) and the one of people
//! (`InSync`, in tables, logs and messages). [`Word`] is a word as another program said it, which may be newer than this one.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Longest word that is taken in, in bytes; of a longer one the beginning is.
const WORD_BYTES_MAX: usize = 64;

/// A closed set of words.
pub trait Vocabulary: Copy + Eq + fmt::Debug + 'static {
    /// Its type's name, as schemas and documents show it.
    const TYPE: &'static str;
    /// What its words are for, as errors name it: `node status`.
    const WHAT: &'static str;
    /// Every word.
    const ALL: &'static [Self];

    /// The form of programs: `in_sync`.
    fn word(self) -> &'static str;

    /// The form of people: `InSync`.
    fn shown(self) -> &'static str;

    /// What the word says, in a sentence.
    fn meaning(self) -> &'static str;

    /// The word that programs write so.
    fn find(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.word() == word)
    }
}

/// Text that is no word of the vocabulary it was read as.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{found:?} is no {what}; write {known}")]
pub struct UnknownWord {
    /// What was found.
    pub found: String,
    /// What it should be: `node status`.
    pub what: &'static str,
    /// The words that there are, separated by commas.
    pub known: String,
}

impl UnknownWord {
    /// For a word that `T` does not have.
    pub fn new<T: Vocabulary>(found: &str) -> Self {
        let known = T::ALL.iter().map(|word| word.word()).collect::<Vec<_>>().join(", ");
        Self { found: found.to_owned(), what: T::WHAT, known }
    }
}

/// Declares a vocabulary. Of each word it has the variant, what programs write, and in its comment what it says.
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
            /// Every word.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];
            /// What programs write for each, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word,)+];

            /// What programs write for it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl $crate::word::Vocabulary for $name {
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
                f.pad($crate::word::Vocabulary::shown(*self))
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::word::UnknownWord;

            fn from_str(text: &str) -> Result<Self, $crate::word::UnknownWord> {
                <Self as $crate::word::Vocabulary>::find(text).ok_or_else(|| $crate::word::UnknownWord::new::<Self>(text))
            }
        }
    };
}
pub(crate) use words;

/// A word as another program said it. One that this program does not know is kept as it came: a status of a newer
/// coordinator can be read, shown and handed on, and equals no word that is known.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Word<T> {
    /// A word of the vocabulary.
    Known(T),
    /// Another word, without anything that could disturb a terminal.
    Unknown(String),
}

impl<T: Vocabulary> Word<T> {
    /// The word that programs write so, known or not.
    pub fn read(word: &str) -> Self {
        match T::find(word) {
            Some(known) => Self::Known(known),
            None => {
                // Cut once more after what disturbs is escaped, so that a word which is handed on stays as it is.
                let mut kept = crate::text::plain(&word[..word.floor_char_boundary(WORD_BYTES_MAX)]).into_owned();
                kept.truncate(kept.floor_char_boundary(WORD_BYTES_MAX));
                Self::Unknown(kept)
            }
        }
    }

    /// The word, if this program knows it.
    pub fn known(&self) -> Option<T> {
        match self {
            Self::Known(word) => Some(*word),
            Self::Unknown(_) => None,
        }
    }

    /// What programs write for it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(word) => word.word(),
            Self::Unknown(word) => word,
        }
    }
}

impl<T> From<T> for Word<T> {
    fn from(word: T) -> Self {
        Self::Known(word)
    }
}

impl<T: Vocabulary> PartialEq<T> for Word<T> {
    fn eq(&self, other: &T) -> bool {
        self.known() == Some(*other)
    }
}

/// What people read: an unknown word as it came.
impl<T: Vocabulary> fmt::Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Known(word) => word.shown(),
            Self::Unknown(word) => word,
        })
    }
}

impl<T: Vocabulary> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de, T: Vocabulary> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::read(&Cow::<'de, str>::deserialize(deserializer)?))
    }
}

/// The words that this version says; a newer one may say others.
impl<T: Vocabulary> JsonSchema for Word<T> {
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
        PartitionStatus, ReasonCode, ReplicaState, ReshapingKind, ReshapingPhase, UnmetCode,
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
            assert_eq!(serde_json::to_value(Word::Known(*word)).unwrap(), word.word());
            assert_eq!(serde_json::from_value::<Word<T>>(word.word().into()).unwrap(), *word);
        }
    }

    #[test]
    fn every_word_has_one_form_for_programs_and_one_for_people() {
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
        check::<ReshapingKind>();
        check::<ReshapingPhase>();
        check::<UnmetCode>();
    }

    #[test]
    fn a_word_of_a_newer_program_is_read_shown_and_handed_on() {
        let newer: Word<NodeStatus> = serde_json::from_str("\"half_asleep\"").unwrap();
        assert_eq!(newer, Word::Unknown("half_asleep".to_owned()));
        assert!(NodeStatus::ALL.iter().all(|known| newer != *known));
        assert_eq!((newer.known(), newer.to_string()), (None, "half_asleep".to_owned()));
        assert_eq!(serde_json::to_string(&newer).unwrap(), "\"half_asleep\"");
        // It is no way to a terminal, nor to its scrollback.
        let long = format!("\u{1b}[2J{}", "ä".repeat(1_000));
        let Word::Unknown(kept) = Word::<NodeStatus>::read(&long) else { panic!("known") };
        let disturbing = format!("{}\0\0{}", "x".repeat(40), "x".repeat(40));
        let handed_on = Word::<NodeStatus>::read(&disturbing);
        assert_eq!(Word::read(handed_on.as_str()), handed_on, "escaped, it is as long as it may be");
        assert!(kept.starts_with("\\u{1b}[2Jä") && kept.len() < 80, "{kept}");
    }

    #[test]
    fn what_a_person_writes_must_be_a_word() {
        let error = "Alive".parse::<NodeStatus>().unwrap_err();
        assert_eq!(error.to_string(), "\"Alive\" is no node status; write alive, failed, lost");
        assert_eq!("alive".parse(), Ok(NodeStatus::Alive));
    }
}
