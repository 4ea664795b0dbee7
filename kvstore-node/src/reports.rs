//! Facts on their way to the coordinator: bounded, the newest per fact, kept until answered.

use archon_types::{Epoch, Fact, PlacementId, Report};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use tokio::sync::Notify;

/// Most reports that wait. Replicas repeat what matters, so what does not fit is not lost for good.
pub(crate) const REPORTS_WAITING_MAX: usize = 65_536;

/// Which fact about which placement: a newer report of the same replaces an older one. Of releases each epoch's counts.
type Key = (PlacementId, u8, Epoch);

/// The queue. Shards put in; the session takes out.
#[derive(Debug, Default)]
pub(crate) struct ReportQueue {
    waiting: Mutex<BTreeMap<Key, Report>>,
    filled: Notify,
}

impl ReportQueue {
    /// Queues a report. Returns whether it was taken.
    pub(crate) fn put(&self, report: Report) -> bool {
        let key = key(&report);
        let mut waiting = self.waiting.lock();
        if waiting.len() >= REPORTS_WAITING_MAX && !waiting.contains_key(&key) {
            return false;
        }
        waiting.insert(key, report);
        drop(waiting);
        self.filled.notify_one();
        true
    }

    /// Copies up to `count` reports; they stay until [`ReportQueue::answered`].
    pub(crate) fn peek(&self, count: usize) -> Vec<Report> {
        self.waiting.lock().values().take(count).cloned().collect()
    }

    /// Forgets a report that was answered, unless a newer one has taken its place meanwhile.
    pub(crate) fn answered(&self, report: &Report) {
        let mut waiting = self.waiting.lock();
        let key = key(report);
        if waiting.get(&key) == Some(report) {
            waiting.remove(&key);
        }
    }

    /// Forgets everything: the incarnation whose facts they were is over.
    pub(crate) fn clear(&self) {
        self.waiting.lock().clear();
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Waits until something was put in since the last wait.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
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
    };
    let epoch = if report.fact == Fact::Released { report.epoch } else { Epoch::ZERO };
    (report.placement, fact, epoch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{PartitionId, TableId, Version};

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
    fn the_newest_report_of_a_fact_is_kept_and_a_late_answer_does_not_remove_it() {
        let queue = ReportQueue::default();
        assert!(queue.put(report(1, 1)));
        let taken = queue.peek(10);
        assert!(queue.put(report(1, 2)));
        assert!(queue.put(report(2, 1)));
        queue.answered(&taken[0]);
        assert_eq!(queue.peek(10), [report(1, 2), report(2, 1)]);
        queue.answered(&report(1, 2));
        queue.answered(&report(2, 1));
        assert!(queue.is_empty());
    }
}
