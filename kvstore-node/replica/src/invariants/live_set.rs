//! S: every Live replica durably holds every acknowledged write.

use super::{DurableState, Violation};
use crate::message::Entry;
use archon_types::{PlacementId, Seq};

/// Checks the Live replicas against the committed log (from position 1), up to `acknowledged`, the part acknowledged to
/// clients.
///
/// # Errors
/// [`Violation::LiveLacks`], naming the first position that is missing or different.
pub fn live_hold_acknowledged<'a>(
    live: impl IntoIterator<Item = DurableState<'a>>,
    committed: &[Entry],
    acknowledged: Seq,
) -> Result<(), Violation> {
    for held in live {
        let after_base = committed.iter().filter(|entry| entry.at.seq > held.base.seq && entry.at.seq <= acknowledged);
        for (number, expected) in after_base.enumerate() {
            let found = held.entries.get(number);
            if found != Some(expected) {
                return Err(lacks(held.placement, expected, found));
            }
        }
    }
    Ok(())
}

fn lacks(placement: PlacementId, expected: &Entry, found: Option<&Entry>) -> Violation {
    Violation::LiveLacks { placement, seq: expected.at.seq, found: found.map(|entry| entry.at), expected: expected.at }
}
