//! Errors of refused commands.

use archon_types::{Epoch, ErrorDetail, ErrorKind, Version};

pub(crate) fn next_epoch(epoch: Epoch) -> Result<Epoch, ErrorDetail> {
    epoch.next().ok_or_else(|| ErrorDetail::new(ErrorKind::Internal, format!("epoch {epoch} has no successor")))
}

pub(crate) fn invalid(message: impl Into<String>) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::InvalidArgument, message)
}

pub(crate) fn not_found(message: impl Into<String>) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::NotFound, message)
}

/// Returns the error for a decision based on an outdated view: `what` has version `now`, and was judged in version
/// `judged`.
pub(crate) fn stale(what: &str, now: Version, judged: Version) -> ErrorDetail {
    let message = format!("{what} changed meanwhile; look again");
    ErrorDetail::new(ErrorKind::StaleVersion, message).with_have_need(now.get(), judged.get())
}

/// Returns the error for decisions about data during a recovery: no row is trusted then.
pub(crate) fn recovering() -> ErrorDetail {
    let message = "the coordinators are being recovered; wait for the end of the recovery (`archon quorum list`)";
    ErrorDetail::new(ErrorKind::Unavailable, message).with_retry_after_ms(1_000)
}

pub(crate) fn refused(message: impl Into<String>) -> ErrorDetail {
    ErrorDetail::new(ErrorKind::Refused, message)
}
