//! D: no acknowledged write is lost: a serving leader has committed every write that was ever acknowledged.

use super::Violation;
use archon_types::{Epoch, PlacementId, Seq};

/// Checks a leader at the moment at which it begins to serve.
///
/// # Errors
/// [`Violation::LeaderLacks`].
pub fn leader_holds_acknowledged(
    placement: PlacementId,
    epoch: Epoch,
    commit: Seq,
    acknowledged: Seq,
) -> Result<(), Violation> {
    if commit < acknowledged {
        return Err(Violation::LeaderLacks { placement, epoch, commit, acknowledged });
    }
    Ok(())
}
