//! Round trips between coordinators that are too long for the timing of the quorum.

use crate::quorum::timing::TooFar;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Measurements in a row that must be too long before they are reported: a busy machine answers late for a moment.
const FAR_MIN: u32 = 3;

/// Round trips that were too long, by coordinator: the last one, and the number of them in a row.
#[derive(Debug, Default)]
pub(crate) struct FarStreaks(BTreeMap<u64, (TooFar, u32)>);

impl FarStreaks {
    /// Notes a measurement. Returns the number of measurements in a row that were too long, up to this one; zero if this one was not.
    pub(crate) fn note(&mut self, id: u64, measured: Result<bool, TooFar>) -> u32 {
        match measured {
            Err(far) => {
                let count = self.0.get(&id).map_or(0, |(_, count)| *count).saturating_add(1);
                self.0.insert(id, (far, count));
                count
            }
            Ok(true) => {
                self.0.remove(&id);
                0
            }
            // No answer proves nothing: the last measurement stays.
            Ok(false) => 0,
        }
    }

    /// Returns the last round trip to a coordinator, if at least so many in a row were too long.
    pub(crate) fn of(&self, id: u64, min: u32) -> Option<&TooFar> {
        self.0.get(&id).filter(|(_, count)| *count >= min).map(|(far, _)| far)
    }
}

/// The coordinators that are too far away. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distances(Arc<Mutex<FarStreaks>>);

impl Distances {
    /// Returns the round trip to a coordinator, if it is too long for the timing.
    pub(in crate::raft) fn too_far(&self, id: u64) -> Option<TooFar> {
        self.0.lock().of(id, FAR_MIN).cloned()
    }

    /// Forgets the distances to former members.
    pub(crate) fn retain(&self, members: &BTreeMap<u64, String>) {
        self.0.lock().0.retain(|id, _| members.contains_key(id));
    }

    /// Records a measurement. Returns a distance to report.
    pub(crate) fn note(&self, id: u64, measured: Result<bool, TooFar>) -> Option<TooFar> {
        let mut all = self.0.lock();
        if all.note(id, measured) == FAR_MIN { all.of(id, FAR_MIN).cloned() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::timing::QuorumTiming;
    use std::time::Duration;

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
