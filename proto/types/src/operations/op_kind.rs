//! Kinds of operations.

use crate::Op;

/// An operation without its key and value: for metrics and logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // Same as the operations, which are documented.
pub enum OpKind {
    Get,
    Put,
    Delete,
    CompareAndSet,
    Increment,
    Scan,
    GetMany,
    Transaction,
}

impl OpKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Get,
        Self::Put,
        Self::Delete,
        Self::CompareAndSet,
        Self::Increment,
        Self::Scan,
        Self::GetMany,
        Self::Transaction,
    ];

    /// Names of the kinds, in the same order.
    pub const WORDS: [&str; Self::ALL.len()] = {
        let mut words = [""; Self::ALL.len()];
        let mut at = 0;
        while at < words.len() {
            words[at] = Self::ALL[at].as_str();
            at += 1;
        }
        words
    };

    /// Returns the kind of an operation.
    pub const fn of(op: &Op) -> Self {
        match op {
            Op::Get { .. } => Self::Get,
            Op::Put { .. } | Op::PutExpiring { expected: None, .. } => Self::Put,
            Op::Delete { .. } => Self::Delete,
            Op::CompareAndSet { .. } | Op::PutExpiring { expected: Some(_), .. } => Self::CompareAndSet,
            Op::Increment { .. } => Self::Increment,
            Op::Scan { .. } => Self::Scan,
            Op::GetMany(_) => Self::GetMany,
            Op::Transaction(_) => Self::Transaction,
        }
    }

    /// Returns the label for metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Put => "put",
            Self::Delete => "delete",
            Self::CompareAndSet => "compare_and_set",
            Self::Increment => "increment",
            Self::Scan => "scan",
            Self::GetMany => "get_many",
            Self::Transaction => "transaction",
        }
    }

    /// Returns true if the operation changes nothing.
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Scan | Self::GetMany)
    }
}
