//! What the voters report of themselves to whoever leads.

use super::hello::Answers;
use super::lack::Lack;
use archon_proto::convert::upgrade::protocol_range;
use archon_proto::v1;
use archon_types::{MemberCertificate, ProtocolRange};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tonic::Code;

/// What the voters reported of themselves with their last answers: of their space, their
/// certificates and their protocols. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct VoterReports(Arc<Mutex<BTreeMap<u64, VoterReport>>>, Refusals);

/// Why whoever answers in place of a voter refuses this coordinator.
type Refusals = Arc<Mutex<BTreeMap<u64, String>>>;

#[derive(Clone, Copy, Debug, Default)]
struct VoterReport {
    /// What its log lacks.
    lack: Option<Lack>,
    /// A snapshot of its waits for space.
    snapshot_waits: bool,
    /// By which it talks.
    certificate: Option<MemberCertificate>,
    /// What it speaks.
    speaks: Option<ProtocolRange>,
}

impl VoterReports {
    /// Takes in what a voter's answer says.
    pub(super) fn note(&self, voter: u64, answer: &v1::RaftMessage) {
        let v1::RaftMessage { lack, snapshot_waits, certificate, protocol_min, protocol_max, .. } = answer;
        // One that says nonsense of it speaks none as far as is known.
        let speaks = protocol_range((*protocol_min, *protocol_max), "RaftMessage.protocol_min").ok();
        let (lack, certificate) = (lack.map(Into::into), certificate.map(Into::into));
        self.0.lock().insert(voter, VoterReport { lack, snapshot_waits: *snapshot_waits, certificate, speaks });
    }

    /// What those said that were asked where voters are: one that refuses this coordinator is none of its own.
    pub(super) fn note_answers(&self, answers: &Answers) {
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

    /// Why whoever answers in place of a voter refuses this coordinator.
    pub(super) fn refusal(&self, voter: u64) -> Option<String> {
        self.1.lock().get(&voter).cloned()
    }

    fn report(&self, voter: u64) -> VoterReport {
        self.0.lock().get(&voter).copied().unwrap_or_default()
    }

    /// By which certificate a voter talks.
    pub(super) fn certificate(&self, voter: u64) -> Option<MemberCertificate> {
        self.report(voter).certificate
    }

    /// What a voter speaks.
    pub(super) fn speaks(&self, voter: u64) -> Option<ProtocolRange> {
        self.report(voter).speaks
    }

    /// Whether a snapshot of a voter waits for space.
    pub(super) fn snapshot_waits(&self, voter: u64) -> bool {
        self.report(voter).snapshot_waits
    }

    /// What a voter lacks.
    pub(super) fn lack(&self, voter: u64) -> Option<Lack> {
        self.report(voter).lack
    }

    /// Whether no voter lacks space.
    pub(super) fn has_no_lack(&self) -> bool {
        self.0.lock().values().all(|report| report.lack.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{DiskFull, DiskLimit};

    const FULL: Lack = Lack::Full(DiskFull { free_bytes: 0, needed_bytes: 1 << 24, limit: DiskLimit::Bytes });

    #[test]
    fn another_clusters_coordinator_in_place_of_a_voter_was_called_one_that_does_not_answer() {
        let reports = VoterReports::default();
        let said = |status| Answers::from([(2, Err(status))]);
        reports.note_answers(&said(tonic::Status::failed_precondition("of another cluster")));
        assert_eq!(reports.refusal(2).as_deref(), Some("of another cluster"));
        reports.note_answers(&said(tonic::Status::unavailable("nobody")));
        assert_eq!(reports.refusal(2), None);
    }

    #[test]
    fn a_voter_that_has_space_again_lacks_nothing() {
        let reports = VoterReports::default();
        let answer = |lack, snapshot_waits| v1::RaftMessage { lack, snapshot_waits, ..Default::default() };
        reports.note(2, &answer(Some(FULL.into()), true));
        reports.note(3, &answer(Some(Lack::Fails.into()), false));
        assert!(reports.snapshot_waits(2) && !reports.snapshot_waits(3));
        assert_eq!((reports.lack(2), reports.lack(3), reports.lack(1)), (Some(FULL), Some(Lack::Fails), None));
        reports.note(2, &answer(None, false));
        assert!(!reports.snapshot_waits(2));
        reports.note(3, &answer(None, false));
        assert!(reports.has_no_lack());
    }
}
