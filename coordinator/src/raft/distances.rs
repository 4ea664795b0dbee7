//! Round trips between coordinators that are too long for the timing of the quorum.

use super::hello::check_distance;
use super::quorum::Quorum;
use crate::timing::TooFar;
use archon_security::Transport;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause between two measurements.
const INTERVAL: Duration = Duration::from_secs(10);

/// Measurements in a row that must be too long before they are reported: a busy machine answers late for a moment.
const FAR_MIN: u32 = 3;

/// Coordinators that are too far away, with the number of consecutive measurements that were too long. Clones share
/// them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distances(Arc<Mutex<BTreeMap<u64, (TooFar, u32)>>>);

impl Distances {
    /// Returns the round trip to a coordinator, if it is too long for the timing.
    pub(super) fn too_far(&self, id: u64) -> Option<TooFar> {
        self.0.lock().get(&id).filter(|(_, count)| *count >= FAR_MIN).map(|(far, _)| far.clone())
    }

    /// Records a measurement. Returns a distance to report.
    fn note(&self, id: u64, measured: Result<bool, TooFar>) -> Option<TooFar> {
        let mut all = self.0.lock();
        match measured {
            Err(far) => {
                let (last, count) = all.entry(id).or_insert_with(|| (far.clone(), 0));
                last.clone_from(&far);
                *count = count.saturating_add(1);
                (*count == FAR_MIN).then_some(far)
            }
            Ok(true) => {
                all.remove(&id);
                None
            }
            // No answer: the last measurement stays.
            Ok(false) => None,
        }
    }
}

/// Measures the round trip to every member until `stop`, and logs those that are too long for the timing.
pub(super) async fn run(quorum: Quorum, transport: Transport, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let members = quorum.addresses();
        quorum.distances.0.lock().retain(|id, _| members.contains_key(id));
        for (id, address) in members.into_iter().filter(|(id, _)| *id != quorum.local_voter.id) {
            let measured = tokio::select! {
                () = stop.cancelled() => return,
                measured = check_distance(&transport, &quorum.local_voter, id, &address) => measured,
            };
            if let Some(far) = quorum.distances.note(id, measured) {
                tracing::warn!("{far}: it counts as unreachable, and elections may not end; {}", far.remedy());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::QuorumTiming;

    #[test]
    fn distance_is_reported_once_until_it_fits_again() {
        let round_trip = Duration::from_millis(260);
        let far = || TooFar { id: 3, address: "c3:1".to_owned(), round_trip, timing: QuorumTiming::default() };
        let distances = Distances::default();
        let news = || (0..5).map(|_| distances.note(3, Err(far()))).collect::<Vec<_>>();
        assert_eq!(distances.note(3, Err(far())), None);
        assert_eq!(distances.too_far(3), None, "one measurement may be late");
        assert_eq!(news(), [None, Some(far()), None, None, None]);
        assert_eq!(distances.note(3, Ok(false)), None);
        assert_eq!(distances.too_far(3), Some(far()));
        assert_eq!(distances.note(3, Ok(true)), None);
        assert_eq!(distances.too_far(3), None);
        assert_eq!(news(), [None, None, Some(far()), None, None]);
    }
}
