//! Conversion of open enums of the administration between wire and vocabulary. Unknown values are kept, not refused, so
//! that a status of a newer coordinator can be read.

use archon_types::{Vocabulary, Word};

/// Reads an open enum that the wire carries as an enum: `W` is the wire's enum, `T` the vocabulary's. A number that
/// this version does not know becomes the unknown value `unknown_7`.
pub fn enum_word<W, T>(value: i32) -> Word<T>
where
    W: TryFrom<i32>,
    T: Vocabulary + TryFrom<W>,
{
    match W::try_from(value).ok().and_then(|wire| T::try_from(wire).ok()) {
        Some(known) => Word::Known(known),
        None => Word::Unknown(format!("unknown_{value}")),
    }
}

/// Returns the value for the wire.
pub fn put_word<T: Vocabulary>(word: &Word<T>) -> String {
    word.as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;
    use archon_types::{NodeGoal, NodeStatus};

    #[test]
    fn number_of_a_newer_version_is_accepted() {
        let drain = i32::from(v1::NodeGoal::Drain);
        assert_eq!(enum_word::<v1::NodeGoal, NodeGoal>(drain), NodeGoal::Drain);
        let newer: Word<NodeStatus> = enum_word::<v1::NodeStatus, _>(7);
        assert_eq!((newer.known(), newer.to_string()), (None, "unknown_7".to_owned()));
        assert_eq!(put_word(&newer), "unknown_7");
    }
}
