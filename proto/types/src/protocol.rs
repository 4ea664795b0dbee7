//! The protocol that a cluster speaks: one number for all that its members say to each other, write into their logs and keep on
//! their disks. It rises once every member can speak the next one, and never falls (docs/adr/0057-upgrades.md).
//!
//! | protocol | brings |
//! |---|---|
//! | 1 | everything up to the release in which the protocol could rise |
//! | 2 | messages between coordinators, snapshots and data directories say by which protocol they were written; the protocol can be held; certificates can be withdrawn; lives are told by nodes that they are over; nodes knock at each other's doors; coordinators compare their states; the answers to heartbeats that nodes carry bring what changed of tables and nodes; generations have keys |

use crate::word::words;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The protocol of a cluster that has just been made, and of a member that says nothing of it.
pub const PROTOCOL_FIRST: u32 = 1;

/// The newest protocol that this version speaks. It speaks the one before as well, so that it runs beside the version before.
pub const PROTOCOL_NEWEST: u32 = 2;

/// The protocol from which on nodes tell each other that a life is over.
pub const OVER_SINCE: u32 = 2;

/// The protocol from which on a node says with its heartbeats up to where it holds everything, and answers bring what it lacks.
pub const NEWS_SINCE: u32 = 2;

/// No version speaks anything newer: whoever says so is not taken at its word.
pub const PROTOCOL_MAX: u32 = 1_000;

/// The protocols that a member speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProtocolRange {
    /// The oldest one, at least 1.
    pub oldest: u32,
    /// The newest one, at least `oldest`.
    pub newest: u32,
}

impl ProtocolRange {
    /// What this version speaks.
    pub const SPOKEN: Self = Self { oldest: PROTOCOL_FIRST, newest: PROTOCOL_NEWEST };

    /// Only the first one, as members speak that say nothing of it.
    pub const FIRST: Self = Self { oldest: PROTOCOL_FIRST, newest: PROTOCOL_FIRST };

    /// The same range without what is newer than `newest`; `None` if nothing is left of it.
    pub fn up_to(self, newest: u32) -> Option<Self> {
        (newest >= self.oldest).then(|| Self { newest: newest.min(self.newest), ..self })
    }

    /// Whether it holds this protocol.
    pub const fn contains(self, protocol: u32) -> bool {
        self.oldest <= protocol && protocol <= self.newest
    }
}

words! {
    /// What a member is that must speak a protocol before the cluster does.
    #[non_exhaustive]
    pub enum MemberKind: "kind of a member" {
        /// A member of the quorum.
        Coordinator = "coordinator",
        /// A node of the key-value store.
        Node = "node",
        /// A member that owns partitions for a service of its own.
        Participant = "participant",
    }
}

impl fmt::Display for ProtocolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { oldest, newest } if oldest == newest => write!(f, "{oldest}"),
            Self { oldest, newest } => write!(f, "{oldest} to {newest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_runs_beside_the_one_before() {
        let spoken = ProtocolRange::SPOKEN;
        assert!(spoken.contains(PROTOCOL_NEWEST) && spoken.contains(PROTOCOL_NEWEST - 1), "{spoken}");
        assert!(!spoken.contains(PROTOCOL_NEWEST + 1) && !spoken.contains(0), "{spoken}");
    }

    #[test]
    fn a_range_ends_where_it_is_told_to() {
        let range = ProtocolRange { oldest: 2, newest: 4 };
        let texts = [1, 2, 3, 9].map(|newest| range.up_to(newest).map(|range| range.to_string()));
        assert_eq!(texts, [None, Some("2".into()), Some("2 to 3".into()), Some("2 to 4".into())]);
    }
}
