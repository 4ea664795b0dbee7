//! Which operation it is, where only that counts.

use crate::Op;

/// An operation without its key and value: for metrics and logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // As the operations, which say it.
pub enum OpKind {
    Get,
    Put,
    Delete,
    CompareAndSet,
    Increment,
    Scan,
}

impl OpKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 6] = [Self::Get, Self::Put, Self::Delete, Self::CompareAndSet, Self::Increment, Self::Scan];

    /// Their words, in the same order.
    pub const WORDS: [&str; Self::ALL.len()] = {
        let mut words = [""; Self::ALL.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = Self::ALL[at].as_str();
            at += 1;
        }
        words
    };

    /// That of an operation.
    pub const fn of(op: &Op) -> Self {
        match op {
            Op::Get { .. } => Self::Get,
            Op::Put { .. } => Self::Put,
            Op::Delete { .. } => Self::Delete,
            Op::CompareAndSet { .. } => Self::CompareAndSet,
            Op::Increment { .. } => Self::Increment,
            Op::Scan { .. } => Self::Scan,
        }
    }

    /// As labels of metrics and logs have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::CompareAndSet => "compare_and_set",
            Self::Increment => "increment",
            Self::Scan => "scan",
        }
    }

    /// Whether it changes nothing.
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Scan)
    }
}
