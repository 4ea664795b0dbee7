//! Queue of reports to the coordinator: bounded, with the newest report per fact, each kept until its final answer.

use archon_types::{Epoch, ErrorKind, Fact, PartitionId, PlacementId, Report};
use std::collections::BTreeMap;

/// Maximum number of queued reports. Replicas repeat important reports, so one that does not fit is not lost for
/// good.
const WAITING_MAX: usize = 65_536;

/// Key of a fact about a placement: a newer report replaces an older one with the same key. Releases count per epoch.
type Key = (PlacementId, u8, Epoch);

/// The reports of one incarnation of a member.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reports {
    waiting: BTreeMap<Key, Report>,
}

impl Reports {
    /// Adds a report. Returns whether there was room.
    pub fn put(&mut self, report: Report) -> bool {
        let key = key(&report);
        let room = self.waiting.len() < WAITING_MAX || self.waiting.contains_key(&key);
        if room {
            self.waiting.insert(key, report);
        }
        room
    }

    /// Returns up to `count` reports to send; they stay until they are answered.
    pub fn peek(&self, count: usize) -> Vec<Report> {
        self.waiting.values().take(count).cloned().collect()
    }

    /// Handles the answer to a report: accepted, or rejected with an error of this kind. Returns whether the report
    /// is finished, otherwise it is sent again. A finished one is removed unless a newer one has replaced it.
    pub fn answered(&mut self, report: &Report, refused: Option<ErrorKind>) -> bool {
        if refused.is_some_and(|kind| asks_again(&report.fact, kind)) {
            return false;
        }
        let key = key(report);
        if self.waiting.get(&key) == Some(report) {
            self.waiting.remove(&key);
        }
        true
    }

    /// Returns whether a report about this partition is queued.
    pub(crate) fn is_about(&self, partition: PartitionId) -> bool {
        self.waiting.values().any(|report| report.partition == partition)
    }

    /// Removes reports about this placement in this epoch.
    pub(crate) fn forget(&mut self, placement: PlacementId, epoch: Epoch) {
        self.waiting.retain(|_, report| (report.placement, report.epoch) != (placement, epoch));
    }

    /// Removes all reports, because their incarnation has ended.
    pub fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Returns whether to send a report again after this error. A report of a past epoch never becomes valid, although an
/// *operation* with this error may succeed elsewhere: repeated, it would block a stopping node until its time-out.
/// `StaleVersion` means that the row changed before the report was applied. Requests name the version they refer to
/// and are invalid then; facts stay true, and the replica would repeat them much later. `Refused` for a release means
/// that the chosen next leader has gone: the next attempt chooses another one. Reports for splits and merges are
/// evaluated again anyway.
fn asks_again(fact: &Fact, kind: ErrorKind) -> bool {
    match kind {
        _ if matches!(fact, Fact::Outgrown { .. } | Fact::Undersized(_)) => false,
        ErrorKind::StaleEpoch => false,
        ErrorKind::StaleVersion => !matches!(fact, Fact::CaughtUp { .. } | Fact::Silent { .. }),
        ErrorKind::Refused => matches!(fact, Fact::Released | Fact::Declined),
        kind => kind.is_retryable(),
    }
}

fn key(report: &Report) -> Key {
    let fact = match report.fact {
        Fact::Online => 0,
        Fact::CaughtUp { .. } => 1,
        Fact::Silent { .. } => 2,
        Fact::Released => 3,
        Fact::Unloaded => 4,
        Fact::Damaged { .. } => 5,
        Fact::LostData { .. } => 6,
        Fact::Emptied => 7,
        Fact::Overtaken { .. } => 8,
        Fact::Declined => 9,
        Fact::Formed { .. } => 10,
        Fact::Mirroring { .. } => 11,
        Fact::Outgrown { .. } => 14,
        Fact::Absorbed { .. } => 12,
        Fact::Unabsorbable { .. } => 13,
        Fact::Undersized(_) => 15,
        Fact::Inspected { .. } => 16,
    };
    let epoch = if matches!(report.fact, Fact::Released | Fact::Declined) { report.epoch } else { Epoch::ZERO };
    (report.placement, fact, epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{ExceededLimit, TableId, Version};

    fn report(placement: u64, version: u64) -> Report {
        Report {
            partition: PartitionId::new(TableId::new(1), 0),
            placement: PlacementId::new(placement),
            epoch: Epoch::new(1),
            version: Version::new(version),
            fact: Fact::Online,
        }
    }

    #[test]
    fn late_answer_does_not_remove_newer_report() {
        let mut reports = Reports::default();
        assert!(reports.put(report(1, 1)));
        let taken = reports.peek(10);
        assert!(reports.put(report(1, 2)));
        assert!(reports.put(report(2, 1)));
        assert!(reports.answered(&taken[0], None));
        assert_eq!(reports.peek(10), [report(1, 2), report(2, 1)]);
        assert!(reports.answered(&report(1, 2), None));
        assert!(reports.answered(&report(2, 1), None));
        assert!(reports.is_empty());
    }

    #[test]
    fn releases_of_two_epochs_are_both_reported() {
        let mut reports = Reports::default();
        let released = |epoch| Report { epoch: Epoch::new(epoch), fact: Fact::Released, ..report(1, 1) };
        assert!(reports.put(released(3)) && reports.put(released(5)));
        assert_eq!(reports.peek(10).len(), 2);
    }

    /// Otherwise it stays in the queue, although a report of a partition above a limit is useful for a moment only.
    #[test]
    fn refused_split_report_is_not_repeated() {
        let mut reports = Reports::default();
        let outgrown = Report { fact: Fact::Outgrown { at: "m".into(), by: ExceededLimit::Bytes(9) }, ..report(1, 5) };
        for kind in [ErrorKind::StaleVersion, ErrorKind::Refused, ErrorKind::Unavailable] {
            reports.put(outgrown.clone());
            assert!(reports.answered(&outgrown, Some(kind)), "{kind:?}");
            assert!(reports.is_empty());
        }
    }

    /// Otherwise the partition has no owner until the incarnation of the former one ends.
    #[test]
    fn release_is_repeated_when_next_owner_failed() {
        let mut reports = Reports::default();
        for fact in [Fact::Released, Fact::Declined] {
            let released = Report { fact, ..report(1, 5) };
            reports.put(released.clone());
            assert!(!reports.answered(&released, Some(ErrorKind::Refused)));
            assert!(reports.answered(&released, None));
        }
        reports.put(report(1, 5));
        assert!(reports.answered(&report(1, 5), Some(ErrorKind::Refused)), "of another fact it is the answer");
        assert!(reports.is_empty());
    }

    #[test]
    fn report_of_past_epoch_is_not_repeated() {
        assert!(!asks_again(&Fact::Released, ErrorKind::StaleEpoch));
        assert!(!asks_again(&Fact::Released, ErrorKind::NotFound));
        assert!(asks_again(&Fact::Released, ErrorKind::NoQuorum));
    }

    #[test]
    fn release_is_repeated_after_change_of_row() {
        let mut reports = Reports::default();
        let released = Report { fact: Fact::Released, ..report(1, 1) };
        assert!(reports.put(released.clone()));
        assert!(!reports.answered(&released, Some(ErrorKind::StaleVersion)));
        assert_eq!(reports.peek(10), [released]);
        assert!(asks_again(&Fact::Online, ErrorKind::StaleVersion));
        assert!(!asks_again(&Fact::Silent { followers: Vec::new() }, ErrorKind::StaleVersion), "it is answered");
    }
}
