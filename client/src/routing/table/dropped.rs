//! The end of a table. A handle refers to one table, not to a name: a table created later under the same name is
//! another table, and callers that relied on data in the first one must learn that it was dropped.

use super::TableCache;
use crate::state::ClientState;
use archon_types::{ErrorDetail, ErrorKind, Version};
use std::sync::atomic::Ordering;

/// Returns `true` if an answer proves that a table known as of `since` no longer exists: the sender's version must be
/// at least `since`.
pub(super) fn says_dropped(detail: &ErrorDetail, since: Version) -> bool {
    let knew = detail.table_version.is_some_and(|version| version >= since);
    detail.kind == ErrorKind::NotFound && since > Version::ZERO && knew
}

impl TableCache {
    /// Returns `true` if the table no longer exists.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// Returns the error for every later use of the table.
    pub(crate) fn dropped(&self) -> ErrorDetail {
        let why = format!(
            "table {:?} was dropped with all its data; a new table with this name must be opened again",
            self.name
        );
        ErrorDetail::new(ErrorKind::NotFound, why)
    }

    /// Records that the table was dropped. Waiting callers get the error immediately, and a later caller that opens
    /// the name gets the table that has it then.
    pub(crate) fn note_dropped(&self, shared: &ClientState) {
        if !self.dropped.swap(true, Ordering::AcqRel) {
            tracing::debug!(table = self.name, "the table was dropped");
            shared.forget_table(&self.name, self);
            self.changed.send_modify(|_| {});
            // Wakes the background task, which then ends.
            self.wanted.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_is_believed_only_at_the_known_version_or_later() {
        let detail = |kind, version: Option<u64>| ErrorDetail {
            table_version: version.map(Version::new),
            ..ErrorDetail::new(kind, "why")
        };
        assert!(says_dropped(&detail(ErrorKind::NotFound, Some(7)), Version::new(7)));
        assert!(!says_dropped(&detail(ErrorKind::NotFound, Some(6)), Version::new(7)), "it lags behind");
        assert!(!says_dropped(&detail(ErrorKind::NotFound, None), Version::new(7)));
        assert!(!says_dropped(&detail(ErrorKind::Unavailable, Some(9)), Version::new(7)));
        assert!(!says_dropped(&detail(ErrorKind::NotFound, Some(9)), Version::ZERO), "nothing was held");
    }
}
