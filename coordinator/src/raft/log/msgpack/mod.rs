//! MessagePack with field names, for openraft's types. The encoder writes the same bytes as `rmp-serde` with names; the
//! decoder expects the requested type. A decoder driven by the bytes would compile every branch for each type.

mod read;
mod write;

#[cfg(test)]
mod tests;

pub(in crate::raft) use read::decode;
pub(in crate::raft) use write::encode;

use std::fmt::Display;
use std::io;

/// Maximum nesting depth of containers that are read.
const DEPTH_MAX: u16 = 128;

/// Error of an encoder or decoder.
#[derive(Debug, thiserror::Error)]
pub(in crate::raft) enum Error {
    #[error("the bytes end within a value")]
    End,
    #[error("found {found} instead of {expected}")]
    Type { expected: &'static str, found: &'static str },
    #[error("text is not UTF-8")]
    Text,
    #[error("{0} items of a list or map were not read")]
    Left(usize),
    #[error("lists and maps are nested deeper than {DEPTH_MAX}")]
    Depth,
    #[error("a list or map has no length, or more than 32 bits count")]
    Length,
    #[error("{0}")]
    Value(String),
    #[error(transparent)]
    Write(#[from] io::Error),
}

impl serde::de::Error for Error {
    fn custom<T: Display>(message: T) -> Self {
        Self::Value(message.to_string())
    }
}

impl serde::ser::Error for Error {
    fn custom<T: Display>(message: T) -> Self {
        Self::Value(message.to_string())
    }
}
