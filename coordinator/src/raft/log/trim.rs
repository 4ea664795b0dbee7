//! Bounds the log in memory by bytes. openraft bounds it by entries, and an entry may hold the changes of one heartbeat
//! or ten thousand successors.

use super::log_space::LogSpace;
use super::store::LogSize;
use crate::raft::machine::raft::Raft;
use openraft::async_runtime::WatchReceiver as _;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Size above which a snapshot is taken and the log cut, for any number of entries; in encoded bytes.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Size of the rest, for voters that are a little behind.
const BYTES_KEPT: u64 = 16 * 1024 * 1024;
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Next action on the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Entries can be cut only once a snapshot contains them.
    Snapshot,
    /// Cut the entries at or below this index.
    Purge(u64),
}

/// Decides the action: `most` is the maximum in bytes, `first` the first index held, `keep_from` the first that stays.
fn step(bytes: u64, most: u64, first: u64, keep_from: u64, snapshot: Option<u64>, applied: Option<u64>) -> Step {
    let Some(upto) = keep_from.checked_sub(1).filter(|upto| bytes > most && *upto >= first) else {
        return Step::Nothing;
    };
    match snapshot {
        // Entries in a snapshot are cut at once, even if more must follow: under load there is always more by then.
        Some(snapshot) if snapshot >= first.min(upto) => Step::Purge(snapshot.min(upto)),
        // Entries that are not applied yet would be in no snapshot taken now.
        _ if applied.is_some_and(|applied| snapshot.is_none_or(|snapshot| applied > snapshot)) => Step::Snapshot,
        _ => Step::Nothing,
    }
}

/// Bounds the log until `stop`.
pub(in crate::raft) async fn run(raft: Raft, log: LogSize, space: LogSpace, stop: CancellationToken) {
    let mut asked = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        // On a full disk, only cutting the log frees files.
        let (most, kept) = if space.is_freed_by_a_cut() { (0, 0) } else { (BYTES_MAX, BYTES_KEPT) };
        let (bytes, first, keep_from) = log.look(kept);
        let (snapshot, applied) = {
            let metrics = raft.metrics();
            let metrics = metrics.borrow_watched();
            (metrics.snapshot.as_ref().map(|id| id.index), metrics.last_applied.as_ref().map(|id| id.index))
        };
        let next = step(bytes, most, first, keep_from, snapshot, applied);
        // One snapshot is requested at a time.
        if next == Step::Snapshot && asked == Some(snapshot) {
            continue;
        }
        let done = match next {
            Step::Nothing => continue,
            Step::Snapshot => {
                tracing::info!(bytes, most, "the log is too large; taking a snapshot");
                asked = Some(snapshot);
                raft.trigger().snapshot().await
            }
            Step::Purge(upto) => raft.trigger().purge_log(upto).await,
        };
        if done.is_err() {
            // Raft ended: its health check reports that.
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_of_few_large_entries_is_cut_after_a_snapshot() {
        let large = BYTES_MAX + 1;
        assert_eq!(step(BYTES_MAX, BYTES_MAX, 21, 50, Some(90), Some(99)), Step::Nothing, "it is small enough");
        assert_eq!(step(large, BYTES_MAX, 0, 50, None, Some(99)), Step::Snapshot);
        assert_eq!(
            step(large, BYTES_MAX, 21, 50, Some(20), Some(99)),
            Step::Snapshot,
            "what is to go is not in the snapshot"
        );
        assert_eq!(step(large, BYTES_MAX, 21, 50, Some(49), Some(99)), Step::Purge(49));
        assert_eq!(step(large, BYTES_MAX, 0, 0, Some(49), Some(99)), Step::Nothing, "one entry alone is that large");
        assert_eq!(
            step(large, BYTES_MAX, 21, 50, Some(20), Some(20)),
            Step::Nothing,
            "nothing new could be in a snapshot"
        );
    }

    #[test]
    fn full_disk_cuts_all_but_the_newest_entry() {
        assert_eq!(step(900, 0, 21, 50, Some(20), Some(50)), Step::Snapshot);
        assert_eq!(step(900, 0, 21, 50, Some(50), Some(50)), Step::Purge(49));
        assert_eq!(step(9, 0, 50, 50, Some(50), Some(50)), Step::Nothing, "one is left");
    }

    /// While a snapshot was made, more was appended than is kept, so that a cut never happened.
    #[test]
    fn entries_in_a_snapshot_are_cut_despite_later_ones() {
        assert_eq!(step(BYTES_MAX + 1, BYTES_MAX, 21, 50, Some(30), Some(99)), Step::Purge(30));
        assert_eq!(step(BYTES_MAX + 1, BYTES_MAX, 31, 50, Some(30), Some(99)), Step::Snapshot);
    }
}
