//! Facts that a node reports to the coordinator, and their outcomes.

use super::session::Member;
use crate::convert::{ConvertError, bounded, checked, ids, required};
use crate::v1;
use archon_types::into_plain;
use archon_types::{
    Epoch, ErrorDetail, ExceededLimit, Fact, Incarnation, LowUsage, PlacementId, ReplicaName, Report, Seq, Version,
    limits,
};
use bytes::Bytes;

/// Maximum number of reports in one request.
pub const REPORTS_MAX: usize = 4_096;

/// Reports of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reports {
    /// The sender.
    pub member: Member,
    /// Its reports.
    pub reports: Vec<Report>,
}

/// Outcomes of reports, in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcomes {
    /// `None`: committed, or already so.
    pub outcomes: Vec<Option<ErrorDetail>>,
    /// The newest table version.
    pub table_version: Version,
}

impl From<ReplicaName> for v1::ReplicaName {
    fn from(name: ReplicaName) -> Self {
        Self { placement: name.placement.get(), incarnation: name.incarnation.get() }
    }
}

impl From<v1::ReplicaName> for ReplicaName {
    fn from(wire: v1::ReplicaName) -> Self {
        Self { placement: PlacementId::new(wire.placement), incarnation: Incarnation::new(wire.incarnation) }
    }
}

impl From<Report> for v1::ReplicaReport {
    fn from(report: Report) -> Self {
        use v1::replica_report::Fact as Wire;
        let fact = match report.fact {
            Fact::Online => Wire::Online(v1::FactOnline {}),
            Fact::CaughtUp { joiner } => Wire::CaughtUp(v1::FactCaughtUp { joiner: Some(joiner.into()) }),
            Fact::Silent { followers } => {
                Wire::Silent(v1::FactSilent { followers: followers.into_iter().map(Into::into).collect() })
            }
            Fact::Released => Wire::Released(v1::FactReleased {}),
            Fact::Unloaded => Wire::Unloaded(v1::FactUnloaded {}),
            Fact::Damaged { why } => Wire::Damaged(v1::FactDamaged { why }),
            Fact::LostData { leader, commit, agreed } => Wire::LostData(v1::FactLostData {
                leader: leader.get(),
                commit_seq: commit.get(),
                agreed_seq: agreed.get(),
            }),
            Fact::Emptied => Wire::Emptied(v1::FactEmptied {}),
            Fact::Inspected { last } => Wire::Inspected(v1::FactInspected { last: Some(last.into()) }),
            Fact::Declined => Wire::Declined(v1::FactDeclined {}),
            Fact::Formed { attempt, copy, position } => Wire::Formed(v1::FactFormed {
                attempt: attempt.get(),
                copy: copy.get(),
                position: Some(position.into()),
            }),
            Fact::Mirroring { attempt, copy } => {
                Wire::Mirroring(v1::FactMirroring { attempt: attempt.get(), copy: copy.get() })
            }
            Fact::Outgrown { at, by } => Wire::Outgrown(v1::FactOutgrown {
                at,
                by: Some(match by {
                    ExceededLimit::Bytes(bytes) => v1::fact_outgrown::By::Bytes(bytes),
                    ExceededLimit::Rate(rate) => v1::fact_outgrown::By::Rate(rate),
                }),
            }),
            Fact::Undersized(LowUsage { bytes, rate }) => Wire::Undersized(v1::FactUndersized { bytes, rate }),
            Fact::Absorbed { attempt } => Wire::Absorbed(v1::FactAbsorbed { attempt: attempt.get() }),
            Fact::Unabsorbable { attempt, bytes } => {
                Wire::Unabsorbable(v1::FactUnabsorbable { attempt: attempt.get(), bytes })
            }
            Fact::Overtaken { by } => Wire::Overtaken(v1::FactOvertaken { by: by.get() }),
        };
        Self {
            partition: Some(report.partition.into()),
            placement: report.placement.get(),
            epoch: report.epoch.get(),
            version: report.version.get(),
            fact: Some(fact),
        }
    }
}

impl TryFrom<v1::ReplicaReport> for Report {
    type Error = ConvertError;

    fn try_from(wire: v1::ReplicaReport) -> Result<Self, ConvertError> {
        use v1::replica_report::Fact as Wire;
        let fact = match required(wire.fact, "ReplicaReport.fact")? {
            Wire::Online(_) => Fact::Online,
            Wire::CaughtUp(fact) => Fact::CaughtUp { joiner: required(fact.joiner, "FactCaughtUp.joiner")?.into() },
            Wire::Silent(fact) => {
                bounded(fact.followers.len(), usize::from(limits::REPLICAS_MAX) * 2, "FactSilent.followers")?;
                Fact::Silent { followers: fact.followers.into_iter().map(Into::into).collect() }
            }
            Wire::Released(_) => Fact::Released,
            Wire::Unloaded(_) => Fact::Unloaded,
            Wire::Damaged(fact) => Fact::Damaged { why: into_plain(fact.why) },
            Wire::LostData(fact) => Fact::LostData {
                leader: PlacementId::new(ids::non_zero(fact.leader, "FactLostData.leader")?),
                commit: Seq::new(fact.commit_seq),
                agreed: Seq::new(fact.agreed_seq),
            },
            Wire::Emptied(_) => Fact::Emptied,
            Wire::Inspected(fact) => Fact::Inspected { last: required(fact.last, "FactInspected.last")?.into() },
            Wire::Declined(v1::FactDeclined {}) => Fact::Declined,
            Wire::Formed(fact) => Fact::Formed {
                attempt: Version::new(fact.attempt),
                copy: PlacementId::new(ids::non_zero(fact.copy, "FactFormed.copy")?),
                position: required(fact.position, "FactFormed.position")?.into(),
            },
            Wire::Mirroring(fact) => Fact::Mirroring {
                attempt: Version::new(fact.attempt),
                copy: PlacementId::new(ids::non_zero(fact.copy, "FactMirroring.copy")?),
            },
            Wire::Undersized(v1::FactUndersized { bytes, rate }) => Fact::Undersized(LowUsage { bytes, rate }),
            Wire::Outgrown(fact) => Fact::Outgrown {
                by: match required(fact.by, "FactOutgrown.by")? {
                    v1::fact_outgrown::By::Bytes(bytes) => ExceededLimit::Bytes(bytes),
                    v1::fact_outgrown::By::Rate(rate) => ExceededLimit::Rate(rate),
                },
                at: {
                    checked(limits::check_key(&fact.at), "FactOutgrown.at")?;
                    fact.at
                },
            },
            Wire::Absorbed(fact) => Fact::Absorbed { attempt: Version::new(fact.attempt) },
            Wire::Unabsorbable(fact) => Fact::Unabsorbable { attempt: Version::new(fact.attempt), bytes: fact.bytes },
            Wire::Overtaken(fact) => Fact::Overtaken { by: Epoch::new(fact.by) },
        };
        Ok(Self {
            partition: required(wire.partition, "ReplicaReport.partition")?.try_into()?,
            placement: PlacementId::new(ids::non_zero(wire.placement, "ReplicaReport.placement")?),
            epoch: Epoch::new(wire.epoch),
            version: Version::new(wire.version),
            fact,
        })
    }
}

impl From<Reports> for v1::ReportRequest {
    fn from(reports: Reports) -> Self {
        let (cluster, sender) = reports.member.wire();
        let reports = reports.reports.into_iter().map(Into::into).collect();
        Self { cluster, sender, reports, nonce: Bytes::new(), proof: Bytes::new() }
    }
}

impl TryFrom<v1::ReportRequest> for Reports {
    type Error = ConvertError;

    fn try_from(wire: v1::ReportRequest) -> Result<Self, ConvertError> {
        bounded(wire.reports.len(), REPORTS_MAX, "ReportRequest.reports")?;
        Ok(Self {
            member: Member::from_wire(wire.cluster.as_ref(), wire.sender.as_ref())?,
            reports: wire.reports.into_iter().map(Report::try_from).collect::<Result<_, _>>()?,
        })
    }
}

impl From<Outcomes> for v1::ReportResponse {
    fn from(outcomes: Outcomes) -> Self {
        let outcome = |error: Option<ErrorDetail>| v1::ReportOutcome { error: error.map(Into::into) };
        Self {
            outcomes: outcomes.outcomes.into_iter().map(outcome).collect(),
            table_version: outcomes.table_version.get(),
            proof: Bytes::new(),
        }
    }
}

impl From<v1::ReportResponse> for Outcomes {
    fn from(wire: v1::ReportResponse) -> Self {
        Self {
            outcomes: wire.outcomes.into_iter().map(|outcome| outcome.error.map(Into::into)).collect(),
            table_version: Version::new(wire.table_version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{ClusterId, ErrorKind, NodeId, PartitionId, Position, TableId};
    use proptest::prelude::*;
    use prost::Message;
    use uuid::Uuid;

    fn member() -> Member {
        Member { cluster: ClusterId::new(Uuid::from_u128(1)), node: NodeId::new(2), incarnation: Incarnation::new(3) }
    }

    #[test]
    fn every_reported_fact_round_trips() {
        let name = ReplicaName { placement: PlacementId::new(9), incarnation: Incarnation::new(4) };
        let facts = [
            Fact::Online,
            Fact::CaughtUp { joiner: name },
            Fact::Silent { followers: vec![name] },
            Fact::Released,
            Fact::Unloaded,
            Fact::Damaged { why: "checksum".into() },
            Fact::Overtaken { by: Epoch::new(u64::MAX) },
            Fact::Declined,
            Fact::LostData { leader: PlacementId::new(3), commit: Seq::new(9), agreed: Seq::new(7) },
            Fact::Emptied,
            Fact::Inspected { last: Position::new(Epoch::new(3), Seq::new(11)) },
            Fact::Mirroring { attempt: Version::new(6), copy: PlacementId::new(4) },
            Fact::Absorbed { attempt: Version::new(6) },
            Fact::Unabsorbable { attempt: Version::new(7), bytes: u64::MAX },
            Fact::Formed {
                attempt: Version::new(6),
                copy: PlacementId::new(4),
                position: Position::new(Epoch::new(2), Seq::new(9)),
            },
            Fact::Undersized(LowUsage { bytes: 0, rate: None }),
            Fact::Undersized(LowUsage { bytes: 7, rate: Some(0) }),
            Fact::Outgrown { at: "m".into(), by: ExceededLimit::Bytes(5) },
            Fact::Outgrown { at: "m".into(), by: ExceededLimit::Rate(u64::MAX) },
        ];
        let reports = facts.map(|fact| Report {
            partition: PartitionId::new(TableId::new(1), 5),
            placement: PlacementId::new(8),
            epoch: Epoch::new(2),
            version: Version::new(7),
            fact,
        });
        let reports = Reports { member: member(), reports: reports.into() };
        assert_eq!(Reports::try_from(v1::ReportRequest::from(reports.clone())), Ok(reports));
        let outcomes = Outcomes {
            outcomes: vec![None, Some(ErrorDetail::new(ErrorKind::StaleVersion, "older"))],
            table_version: Version::new(7),
        };
        assert_eq!(Outcomes::from(v1::ReportResponse::from(outcomes.clone())), outcomes);
    }

    proptest! {
        #[test]
        fn any_bytes_are_reports_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(wire) = v1::ReportRequest::decode(&bytes[..]) {
                let _ = Reports::try_from(wire);
            }
        }
    }

    #[test]
    fn damage_text_holds_no_control_characters() {
        let report = Report {
            partition: archon_types::PartitionId::new(archon_types::TableId::new(1), 0),
            placement: PlacementId::new(1),
            epoch: Epoch::new(1),
            version: Version::new(1),
            fact: Fact::Damaged { why: "bad\nERROR forged \u{1b}[2J".into() },
        };
        let heard = Report::try_from(v1::ReplicaReport::from(report)).unwrap();
        assert_eq!(heard.fact, Fact::Damaged { why: "bad\\nERROR forged \\u{1b}[2J".into() });
    }
}
