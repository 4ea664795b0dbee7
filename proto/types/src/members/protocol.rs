//! Protocol of a cluster: one number for the messages between its members, their logs and their disk formats. It rises
//! once every member supports the next one, and never falls (docs/design/adr/0057-upgrades.md).
//!
//! | protocol | introduces |
//! |---|---|
//! | 1 | everything up to the release in which the protocol could rise |
//! | 2 | messages between coordinators, snapshots and data directories state the protocol they were written by; the protocol can be held; certificates can be revoked; nodes notify fenced incarnations; nodes probe each other as clients do; coordinators compare their states; answers to relayed heartbeats carry changes of tables and nodes; generations have keys |

use crate::admin::open_enum::words;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Protocol of a new cluster, and of a member that does not report its protocols.
pub const PROTOCOL_FIRST: u32 = 1;

/// Newest protocol of this version. It also supports the previous one, so that it runs beside the previous version.
pub const PROTOCOL_NEWEST: u32 = 2;

/// Protocol from which on nodes notify each other of fenced incarnations.
pub const OVER_SINCE: u32 = 2;

/// Protocol from which on a node's heartbeats state the version up to which it holds everything, and answers bring the
/// missing updates.
pub const NEWS_SINCE: u32 = 2;

/// Upper limit for plausible protocols: a member that reports a newer one is not believed.
pub const PROTOCOL_MAX: u32 = 1_000;

/// Protocols that a member supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProtocolRange {
    /// Oldest protocol, at least 1.
    pub oldest: u32,
    /// Newest protocol, at least `oldest`.
    pub newest: u32,
}

impl ProtocolRange {
    /// Protocols that this version supports.
    pub const SPOKEN: Self = Self { oldest: PROTOCOL_FIRST, newest: PROTOCOL_NEWEST };

    /// Only the first protocol, for members that do not report their protocols.
    pub const FIRST: Self = Self { oldest: PROTOCOL_FIRST, newest: PROTOCOL_FIRST };

    /// Returns the range without protocols above `newest`; `None` if it would be empty.
    pub fn up_to(self, newest: u32) -> Option<Self> {
        (newest >= self.oldest).then(|| Self { newest: newest.min(self.newest), ..self })
    }

    /// Returns true if the range contains this protocol.
    pub const fn contains(self, protocol: u32) -> bool {
        self.oldest <= protocol && protocol <= self.newest
    }
}

words! {
    /// Kind of a member that must support a protocol before the cluster uses it.
    #[non_exhaustive]
    pub enum MemberKind: "kind of a member" {
        /// A member of the quorum.
        Coordinator = "coordinator",
        /// A node of the key-value store.
        Node = "node",
        /// A process of a user's service that owns partitions of lease tables.
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
    fn version_runs_beside_the_previous_one() {
        let spoken = ProtocolRange::SPOKEN;
        assert!(spoken.contains(PROTOCOL_NEWEST) && spoken.contains(PROTOCOL_NEWEST - 1), "{spoken}");
        assert!(!spoken.contains(PROTOCOL_NEWEST + 1) && !spoken.contains(0), "{spoken}");
    }

    #[test]
    fn range_ends_at_the_given_protocol() {
        let range = ProtocolRange { oldest: 2, newest: 4 };
        let texts = [1, 2, 3, 9].map(|newest| range.up_to(newest).map(|range| range.to_string()));
        assert_eq!(texts, [None, Some("2".into()), Some("2 to 3".into()), Some("2 to 4".into())]);
    }
}
