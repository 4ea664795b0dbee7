//! Reports of the voters about themselves to the leader.

use crate::raft::log::low_space::LowSpace;
use crate::raft::network::hello::Answers;
use archon_proto::convert::admin::upgrade::protocol_range;
use archon_proto::v1;
use archon_types::{MemberCertificate, ProtocolRange};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::Code;

/// Last reports of the voters about their space, their certificates and their protocols. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct VoterReports(Arc<Mutex<BTreeMap<u64, VoterReport>>>, Refusals);

/// Reasons for which a process in place of a voter refuses this coordinator.
type Refusals = Arc<Mutex<BTreeMap<u64, String>>>;

#[derive(Clone, Copy, Debug, Default)]
struct VoterReport {
    /// Its lack of space in the log.
    lack: Option<LowSpace>,
    /// True if one of its snapshots waits for space.
    snapshot_waits: bool,
    /// Its certificate.
    certificate: Option<MemberCertificate>,
    /// Its protocols.
    speaks: Option<ProtocolRange>,
}

impl VoterReports {
    /// Takes the report from a voter's answer.
    pub(in crate::raft) fn note(&self, voter: u64, answer: &v1::RaftMessage) {
        let v1::RaftMessage { lack, snapshot_waits, certificate, protocol_min, protocol_max, .. } = answer;
        // An invalid range counts as unknown.
        let speaks = protocol_range((*protocol_min, *protocol_max), "RaftMessage.protocol_min").ok();
        let (lack, certificate) = (lack.map(Into::into), certificate.map(Into::into));
        self.0.lock().insert(voter, VoterReport { lack, snapshot_waits: *snapshot_waits, certificate, speaks });
    }

    /// Notes the answers from the addresses of voters: one that refuses this coordinator is not of its quorum.
    pub(in crate::raft) fn note_answers(&self, answers: &Answers) {
        let mut refusals = self.1.lock();
        for (voter, answer) in answers {
            match answer {
                Err(status) if status.code() == Code::FailedPrecondition => {
                    refusals.insert(*voter, status.message().to_owned());
                }
                _ => drop(refusals.remove(voter)),
            }
        }
    }

    /// Returns the reason for which the process in place of a voter refuses this coordinator.
    pub(in crate::raft) fn refusal(&self, voter: u64) -> Option<String> {
        self.1.lock().get(&voter).cloned()
    }

    fn report(&self, voter: u64) -> VoterReport {
        self.0.lock().get(&voter).copied().unwrap_or_default()
    }

    /// Returns the certificate of a voter.
    pub(in crate::raft) fn certificate(&self, voter: u64) -> Option<MemberCertificate> {
        self.report(voter).certificate
    }

    /// Returns the protocols of a voter.
    pub(in crate::raft) fn speaks(&self, voter: u64) -> Option<ProtocolRange> {
        self.report(voter).speaks
    }

    /// Returns true if a snapshot of a voter waits for space.
    pub(in crate::raft) fn snapshot_waits(&self, voter: u64) -> bool {
        self.report(voter).snapshot_waits
    }

    /// Returns a voter's lack of space.
    pub(in crate::raft) fn lack(&self, voter: u64) -> Option<LowSpace> {
        self.report(voter).lack
    }

    /// Returns true if no voter lacks space.
    pub(super) fn has_no_lack(&self) -> bool {
        self.0.lock().values().all(|report| report.lack.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{DiskFull, DiskLimit};

    const FULL: LowSpace = LowSpace::Full(DiskFull { free_bytes: 0, needed_bytes: 1 << 24, limit: DiskLimit::Bytes });

    #[test]
    fn foreign_coordinator_at_a_voters_address_is_named() {
        let reports = VoterReports::default();
        let said = |status| Answers::from([(2, Err(status))]);
        reports.note_answers(&said(tonic::Status::failed_precondition("of another cluster")));
        assert_eq!(reports.refusal(2).as_deref(), Some("of another cluster"));
        reports.note_answers(&said(tonic::Status::unavailable("nobody")));
        assert_eq!(reports.refusal(2), None);
    }

    #[test]
    fn voter_with_space_again_reports_no_lack() {
        let reports = VoterReports::default();
        let answer = |lack, snapshot_waits| v1::RaftMessage { lack, snapshot_waits, ..Default::default() };
        reports.note(2, &answer(Some(FULL.into()), true));
        reports.note(3, &answer(Some(LowSpace::Fails.into()), false));
        assert!(reports.snapshot_waits(2) && !reports.snapshot_waits(3));
        assert_eq!((reports.lack(2), reports.lack(3), reports.lack(1)), (Some(FULL), Some(LowSpace::Fails), None));
        reports.note(2, &answer(None, false));
        assert!(!reports.snapshot_waits(2));
        reports.note(3, &answer(None, false));
        assert!(reports.has_no_lack());
    }
}
