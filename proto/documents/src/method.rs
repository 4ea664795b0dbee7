//! Administrative methods: request and answer types, rights and effects.

use archon_types::{ErrorDetail, ErrorKind, OpenEnum, UnknownWord, Vocabulary};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Roles that may call a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Callers {
    /// Operators, admins and coordinators.
    Readers,
    /// Admins.
    Admins,
}

/// Effect of a call on the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Changes nothing; no audit record.
    Reads,
    /// Changes the cluster once per request id; each call is audited.
    Writes,
}

/// A row of the method table.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// The method's name.
    pub name: &'static str,
    /// The path of its gRPC call: `/archon.v1.Admin/SetAccess`.
    pub path: &'static str,
    /// Roles that may call it.
    pub callers: Callers,
    /// Whether it changes the cluster.
    pub effect: Effect,
    /// The commands that call it, without `archon`: words separated by `, `, the last word perhaps with alternatives (`grant|revoke`).
    pub commands: &'static str,
    /// Longest request in bytes.
    pub request_bytes_max: usize,
    /// Reads a request, checks it, and writes it again: for fuzzing.
    pub rewrite: fn(&[u8]) -> Result<Vec<u8>, ErrorDetail>,
}

/// A request document.
pub trait Document: Serialize + DeserializeOwned + Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// Longest form in bytes.
    const BYTES_MAX: usize = 64 * 1024;

    /// True if serde refuses unknown fields at every level of it. Others are compared with the known form, which takes memory: 1 KiB for
    /// each ten fields.
    const IS_STRICT: bool = false;

    /// Checks the fields, as far as that needs no knowledge of the cluster. Client and coordinator both call it.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the field, the value found and the values allowed.
    fn check(&self) -> Result<(), ErrorDetail> {
        Ok(())
    }

    /// The object of the request, for the audit log: `table orders`.
    fn subject(&self) -> String {
        "cluster".to_owned()
    }

    /// The requested change, for the audit log; absent if the method's name is enough.
    fn wanted(&self) -> Option<String> {
        None
    }

    /// Returns true for a dry run: it changes nothing and is not audited.
    fn is_trial(&self) -> bool {
        false
    }
}

/// A request document with its method and answer, from the method table.
pub trait MethodCall: Document {
    /// The answer document.
    type Answer: Serialize + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static;
    /// The method.
    const METHOD: &'static Method;

    /// The effect of this request: a dry run of a method that writes only reads.
    fn effect(&self) -> Effect {
        if self.is_trial() { Effect::Reads } else { Self::METHOD.effect }
    }
}

/// A value as an audit line shows it: `none` where it is taken away.
pub(crate) fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

/// An error about a field of a request.
pub(crate) fn invalid(field: &str, problem: impl std::fmt::Display) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::InvalidArgument, format!("{field}: {problem}"))
}

/// A word of a request, which this version must know.
///
/// # Errors
/// `InvalidArgument`, naming the known words.
pub(crate) fn known<T: Vocabulary>(word: &OpenEnum<T>, field: &str) -> Result<T, ErrorDetail> {
    word.known().ok_or_else(|| invalid(field, UnknownWord::new::<T>(word.as_str())))
}
