//! Plans, and the request to apply one.

use super::ids::{non_zero, request_id, uuid_bytes};
use super::subject::subject_of;
use super::words::put_word;
use super::{ConvertError, required};
use crate::v1;
use archon_types::plan::{Move, Plan, Unmet};
use archon_types::text::into_plain;
use archon_types::{NodeId, PartitionId, RequestId, Version, Word};

/// Maximum number of moves in a plan: every partition of several of the largest tables.
pub const PLAN_MOVES_MAX: usize = 262_144;
/// A request to apply a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApplyPlan {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The plan, as it was shown.
    pub plan: Plan,
}

impl TryFrom<v1::ApplyPlanRequest> for ApplyPlan {
    type Error = ConvertError;

    fn try_from(wire: v1::ApplyPlanRequest) -> Result<Self, ConvertError> {
        let request = request_id(&wire.request_id, "ApplyPlanRequest.request_id")?;
        let plan: Plan = required(wire.plan, "ApplyPlanRequest.plan")?.try_into()?;
        check_kinds(&plan)?;
        Ok(Self { request, plan })
    }
}

impl From<ApplyPlan> for v1::ApplyPlanRequest {
    fn from(request: ApplyPlan) -> Self {
        Self { cluster: None, request_id: uuid_bytes(request.request.get()), plan: Some(request.plan.into()) }
    }
}

/// Checks that a plan may be applied: a plan with unknown kinds of moves may be shown, but not applied.
///
/// # Errors
/// [`ConvertError`] naming `Move.kind` and the first unknown kind.
pub fn check_kinds(plan: &Plan) -> Result<(), ConvertError> {
    match plan.moves.iter().find(|step| step.kind.known().is_none()) {
        Some(step) => Err(ConvertError::new("Move.kind", format!("{:?} is not known", step.kind.as_str()))),
        None => Ok(()),
    }
}

impl TryFrom<v1::Plan> for Plan {
    type Error = ConvertError;

    fn try_from(wire: v1::Plan) -> Result<Self, ConvertError> {
        if wire.moves.len() > PLAN_MOVES_MAX {
            let problem = format!("{} moves; the limit is {PLAN_MOVES_MAX}", wire.moves.len());
            return Err(ConvertError::new("Plan.moves", problem));
        }
        Ok(Self {
            table_version: Version::new(wire.table_version),
            moves_version: Version::new(wire.moves_version),
            moves: wire.moves.into_iter().map(Move::try_from).collect::<Result<_, _>>()?,
            unmet: wire.unmet.into_iter().map(Unmet::from).collect(),
        })
    }
}

impl From<Plan> for v1::Plan {
    fn from(plan: Plan) -> Self {
        Self {
            table_version: plan.table_version.get(),
            moves_version: plan.moves_version.get(),
            moves: plan.moves.into_iter().map(Into::into).collect(),
            unmet: plan.unmet.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<v1::Move> for Move {
    type Error = ConvertError;

    fn try_from(wire: v1::Move) -> Result<Self, ConvertError> {
        let (from, to) = (required(wire.from, "Move.from")?, required(wire.to, "Move.to")?);
        let (from_id, to_id) = (non_zero(from.id, "Move.from")?, non_zero(to.id, "Move.to")?);
        if from_id == to_id {
            return Err(ConvertError::new("Move.to", format!("is node {to_id}, from which it moves")));
        }
        let partition = PartitionId::try_from(required(wire.partition, "Move.partition")?)?;
        Ok(Self {
            kind: Word::read(&wire.kind),
            table_id: partition.table,
            table: into_plain(wire.table_name),
            partition: partition.index,
            from_id: NodeId::new(from_id),
            from: into_plain(from.name),
            to_id: NodeId::new(to_id),
            to: into_plain(to.name),
            bytes_total: wire.bytes,
            code: Word::read(&wire.code),
            message: into_plain(wire.message),
        })
    }
}

impl From<Move> for v1::Move {
    fn from(step: Move) -> Self {
        Self {
            partition: Some(step.partition_id().into()),
            from: Some(v1::NodeName { id: step.from_id.get(), name: step.from }),
            to: Some(v1::NodeName { id: step.to_id.get(), name: step.to }),
            bytes: step.bytes_total,
            table_name: step.table,
            kind: put_word(&step.kind),
            code: put_word(&step.code),
            message: step.message,
        }
    }
}

impl From<v1::Unmet> for Unmet {
    fn from(wire: v1::Unmet) -> Self {
        Self { code: Word::read(&wire.code), subject: subject_of(wire.subject), message: into_plain(wire.message) }
    }
}

impl From<Unmet> for v1::Unmet {
    fn from(unmet: Unmet) -> Self {
        Self { code: put_word(&unmet.code), subject: Some(unmet.subject.into()), message: unmet.message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::plan;
    use proptest::prelude::*;
    use prost::Message;
    use uuid::Uuid;

    proptest! {
        #[test]
        fn plan_round_trips_through_bytes(plan in plan(), id in 1u128..) {
            let request = ApplyPlan { request: RequestId::new(Uuid::from_u128(id)), plan };
            let bytes = v1::ApplyPlanRequest::from(request.clone()).encode_to_vec();
            let wire = v1::ApplyPlanRequest::decode(bytes.as_slice()).unwrap();
            prop_assert_eq!(ApplyPlan::try_from(wire), Ok(request));
        }

        #[test]
        fn any_bytes_are_handled_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(wire) = v1::ApplyPlanRequest::decode(bytes.as_slice()) {
                let _ = ApplyPlan::try_from(wire);
            }
        }
    }

    #[test]
    fn invalid_plan_names_the_field() {
        let request = RequestId::new(Uuid::from_u128(5));
        let node = |id| Some(v1::NodeName { id, name: "n".into() });
        let partition = Some(v1::PartitionId { table: 1, index: 0 });
        let step = v1::Move { partition, from: node(2), to: node(2), ..Default::default() };
        assert_eq!(Move::try_from(step).unwrap_err().field, "Move.to");
        assert_eq!(
            ApplyPlan::try_from(v1::ApplyPlanRequest { request_id: uuid_bytes(request.get()), ..Default::default() })
                .unwrap_err()
                .field,
            "ApplyPlanRequest.plan"
        );
    }

    #[test]
    fn plan_of_a_newer_coordinator_is_shown_but_not_applied() {
        let node = |id| Some(v1::NodeName { id, name: "n".into() });
        let partition = Some(v1::PartitionId { table: 1, index: 0 });
        let (kind, code) = ("witness".to_owned(), "quorum".to_owned());
        let step = v1::Move { partition, from: node(1), to: node(2), kind, code, ..Default::default() };
        let plan = v1::Plan { moves: vec![step], ..Default::default() };
        let shown = Plan::try_from(plan.clone()).unwrap();
        assert_eq!((shown.moves[0].kind.as_str(), shown.moves[0].code.to_string()), ("witness", "quorum".to_owned()));
        let request_id = uuid_bytes(Uuid::from_u128(5));
        let error = ApplyPlan::try_from(v1::ApplyPlanRequest { cluster: None, request_id, plan: Some(plan) });
        assert_eq!(error.unwrap_err().to_string(), "Move.kind: \"witness\" is not known");
    }
}
