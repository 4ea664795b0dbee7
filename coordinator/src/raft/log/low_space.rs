//! Low disk space of the voters: reasons for which a voter refuses new entries, and for which the quorum then refuses
//! changes.

use archon_proto::v1;
use archon_types::DiskFull;
use archon_wal::Shortage;
use std::fmt;

/// Reason for which a voter accepts nothing new into its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LowSpace {
    /// Its disk is full.
    Full(DiskFull),
    /// Its disk or its directory refuses another file for another reason, which its own log contains.
    Fails,
}

impl From<Shortage> for LowSpace {
    fn from(shortage: Shortage) -> Self {
        if shortage.is_full() {
            let (free_bytes, needed_bytes) = (shortage.free_bytes.unwrap_or(0), shortage.needed_bytes);
            Self::Full(DiskFull::new(free_bytes, needed_bytes, None))
        } else {
            Self::Fails
        }
    }
}

impl From<LowSpace> for v1::VoterLack {
    fn from(lack: LowSpace) -> Self {
        match lack {
            LowSpace::Full(lack) => Self { full: Some(lack.into()) },
            LowSpace::Fails => Self { full: None },
        }
    }
}

impl From<v1::VoterLack> for LowSpace {
    fn from(wire: v1::VoterLack) -> Self {
        wire.full.map_or(Self::Fails, |lack| Self::Full(lack.into()))
    }
}

impl fmt::Display for LowSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(lack) => write!(f, "its disk is full: {lack}"),
            Self::Fails => f.write_str("it cannot create files on its disk; see its log"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::quorum::voter_view::{VoterView, read_only};
    use archon_types::{CoordinatorRole, DiskLimit};

    const FULL: LowSpace = LowSpace::Full(DiskFull { free_bytes: 0, needed_bytes: 1 << 24, limit: DiskLimit::Bytes });

    fn voters(of: [(CoordinatorRole, Option<LowSpace>); 3]) -> Vec<VoterView> {
        let ids = [1, 2, 3].into_iter().zip(of);
        let voter = |(id, (role, lack))| VoterView { lack, ..VoterView::of(id, role) };
        ids.map(voter).collect()
    }

    #[test]
    fn changes_require_space_at_leader_and_majority() {
        let roles = |lacks: [Option<LowSpace>; 3], third: CoordinatorRole| {
            voters([(CoordinatorRole::Leader, lacks[0]), (CoordinatorRole::Follower, lacks[1]), (third, lacks[2])])
        };
        assert_eq!(read_only(1, &roles([None, None, None], CoordinatorRole::Follower)), None);
        assert_eq!(read_only(1, &roles([None, Some(FULL), None], CoordinatorRole::Follower)), None);
        assert_eq!(read_only(1, &roles([None, None, Some(LowSpace::Fails)], CoordinatorRole::Follower)), None);
        // A missing majority is detected by the quorum rounds instead.
        assert_eq!(
            read_only(
                1,
                &voters([
                    (CoordinatorRole::Leader, None),
                    (CoordinatorRole::Unreachable, None),
                    (CoordinatorRole::Unreachable, None)
                ])
            ),
            None
        );

        let own = read_only(1, &roles([Some(FULL), None, None], CoordinatorRole::Follower)).unwrap();
        assert_eq!(own, "coordinator 1 at 127.0.0.1:1: its disk is full: 0 MiB are free, 16 MiB are needed");
        let both = read_only(1, &roles([None, Some(FULL), Some(LowSpace::Fails)], CoordinatorRole::Follower)).unwrap();
        assert!(both.contains("coordinator 2 at") && both.contains("coordinator 3 at"), "{both}");
        let away = read_only(1, &roles([None, Some(FULL), None], CoordinatorRole::Unreachable)).unwrap();
        assert!(
            away.contains("2 at 127.0.0.1:2: its disk is full") && away.contains("3 at 127.0.0.1:3 does not answer"),
            "{away}"
        );
    }
}
