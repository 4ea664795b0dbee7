//! Wire ⇄ vocabulary. Every field that comes from outside is checked here, once; nothing panics on any input.
//!
//! Conversions to the wire are `From` and cannot fail. Conversions from the wire are `TryFrom` with [`ConvertError`],
//! which names the message and field and describes the fault; it becomes an `InvalidArgument` [`ErrorDetail`]. Errors
//! themselves always convert ([`error`]): a kind that this version does not know still arrives as an error.

mod bare;
pub mod error;
pub mod ids;
pub mod kv;

use archon_types::{ErrorDetail, ErrorKind};

/// A field of a message that cannot be accepted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct ConvertError {
    /// The message and field, as `Message.field`.
    pub field: &'static str,
    /// Description of the fault, with the value found and the expected one.
    pub problem: String,
}

impl ConvertError {
    /// Creates an error about `field`, written `Message.field`.
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

impl From<ConvertError> for ErrorDetail {
    fn from(error: ConvertError) -> Self {
        Self::new(ErrorKind::InvalidArgument, error.to_string())
    }
}

impl From<ConvertError> for tonic::Status {
    fn from(error: ConvertError) -> Self {
        error::status_of(&error.into())
    }
}

/// Returns the content of a required field.
///
/// # Errors
/// [`ConvertError`] naming `field` if it is absent.
pub fn required<T>(value: Option<T>, field: &'static str) -> Result<T, ConvertError> {
    value.ok_or_else(|| ConvertError::new(field, "missing, but required"))
}

/// Returns `value` if it lies in `low..=high`, narrowed to the type of the vocabulary.
///
/// # Errors
/// [`ConvertError`] naming `field`, the value and the range.
pub fn in_range<T: TryFrom<u32>>(value: u32, low: u32, high: u32, field: &'static str) -> Result<T, ConvertError> {
    match T::try_from(value) {
        Ok(narrow) if (low..=high).contains(&value) => Ok(narrow),
        _ => Err(ConvertError::new(field, format!("{value} must be {low} to {high}"))),
    }
}

/// Refuses a list with more than `max` elements.
pub(crate) fn bounded(count: usize, max: usize, field: &'static str) -> Result<(), ConvertError> {
    if count > max { Err(ConvertError::new(field, format!("{count} of them; the limit is {max}"))) } else { Ok(()) }
}

/// Converts a failed check of `archon_types::limits` into an error about `field`.
pub(crate) fn checked(result: Result<(), ErrorDetail>, field: &'static str) -> Result<(), ConvertError> {
    result.map_err(|detail| ConvertError::new(field, detail.message))
}

pub mod admin;
pub mod members;
pub mod tables;
#[cfg(test)]
pub(crate) mod testing;
