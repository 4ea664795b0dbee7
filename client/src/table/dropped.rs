//! The end of a table. A handle is a handle on one table, not on a name: what goes by the name later is another table, and
//! whoever relied on what was in this one has to hear of it.

use super::TableCache;
use crate::shared::Shared;
use archon_types::{ErrorDetail, ErrorKind, Version};
use std::sync::atomic::Ordering;

/// Whether an answer proves that a table held as of `since` is there no more: whoever gave it knew at least as much.
pub(super) fn says_dropped(detail: &ErrorDetail, since: Version) -> bool {
    let knew = detail.table_version.is_some_and(|version| version >= since);
    detail.kind == ErrorKind::NotFound && since > Version::ZERO && knew
}

impl TableCache {
    /// Whether there is no such table any more.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// What whoever uses the table is told then.
    pub(crate) fn dropped(&self) -> ErrorDetail {
        let why = format!(
            "table {:?} was dropped with all that was in it; one that goes by the name since is another table, to be opened \
             anew",
            self.name
        );
        ErrorDetail::new(ErrorKind::NotFound, why)
    }

    /// There is no such table any more: whoever waits for it is told so at once, and whoever opens one of the name gets the
    /// one that there is.
    pub(crate) fn note_dropped(&self, shared: &Shared) {
        if !self.dropped.swap(true, Ordering::AcqRel) {
            tracing::debug!(table = self.name, "the table was dropped");
            shared.forget_table(&self.name, self);
            self.changed.send_modify(|_| {});
            // Its background task ends.
            self.wanted.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whoever_knows_as_much_can_say_that_a_table_was_dropped() {
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
