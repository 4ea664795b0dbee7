//! A finding with its severity.

use archon_documents::Reason;
use archon_types::Severity;

/// Maximum number of reasons considered for alerts.
pub(crate) const REASONS_MAX: usize = 2_000;

/// An alert, or a reason of a wait.
pub(crate) struct Found {
    /// Its severity.
    pub(in crate::service) severity: Severity,
    /// True if something waits for it; otherwise it is an alert although everything may be served.
    pub(in crate::service) waits: bool,
    /// Its reason.
    pub(in crate::service) reason: Reason,
}
