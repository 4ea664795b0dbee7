//! Keys in URLs: percent-encoded bytes, which need not be UTF-8.

use crate::error::ApiError;
use archon_client::ErrorKind;

/// Decodes percent-encoded text; `plus_is_space` as in the query of a form.
pub(super) fn decode(what: &str, text: &str, plus_is_space: bool) -> Result<Vec<u8>, ApiError> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        match first {
            b'%' => {
                let digit = |at: usize| rest.get(at).and_then(|byte| char::from(*byte).to_digit(16));
                let byte = digit(0).zip(digit(1)).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
                let broken = || invalid(format!("{what} has a % without two hexadecimal digits; write % as %25"));
                decoded.push(byte.ok_or_else(broken)?);
                rest = &rest[2..];
            }
            b'+' if plus_is_space => decoded.push(b' '),
            other => decoded.push(*other),
        }
    }
    Ok(decoded)
}

pub(super) fn invalid(why: String) -> ApiError {
    ApiError::new(ErrorKind::InvalidArgument, why)
}

/// Decodes the segment of a path that the pattern names `name`.
pub(super) fn segment(name: &str, pattern: &str, path: &str) -> Result<Vec<u8>, ApiError> {
    let found = pattern.split('/').zip(path.split('/')).find(|(part, _)| *part == name);
    let (_, text) = found.ok_or_else(|| invalid(format!("the path has no {name}")))?;
    decode("the path", text, false)
}
