//! Requests of the admin plane, checked, and plans.

use super::ids::{non_zero, request_id, uuid_bytes};
use super::table::enum_field;
use super::{ConvertError, checked, in_range, required};
use crate::v1;
use archon_types::limits::{REPLICAS_MAX, check_name};
use archon_types::{NodeGoal, NodeId, PartitionId, RequestId, SLOTS, TableId, Version};

/// Most moves in a plan: every partition of several of the largest tables.
pub const PLAN_MOVES_MAX: usize = 262_144;
/// Most events or reasons one answer holds.
pub const LIST_MAX: u32 = 10_000;

/// A request to change what is wanted of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetNode {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The node's name.
    pub name: String,
    /// What is wanted of it.
    pub goal: NodeGoal,
}

/// A request to create a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateTable {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The table's name.
    pub name: String,
    /// Number of partitions, `1..=16384`.
    pub partitions: u16,
    /// Copies of each, `1..=7`.
    pub replication: u8,
}

/// A request to drop a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DropTable {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The table's name.
    pub name: String,
    /// Its number: a later table of that name is not meant.
    pub table: TableId,
}

/// A request to carry out a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApplyPlan {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The plan, as it was shown.
    pub plan: Plan,
}

/// A list of moves, valid for one table version and one version of the moves' records.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The table version it was made for.
    pub table_version: Version,
    /// The version of the moves' records it was made for.
    pub moves_version: Version,
    /// What moves where, and why.
    pub moves: Vec<Move>,
    /// What the plan cannot meet.
    pub unmet: Vec<Unmet>,
}

/// One placement's move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Move {
    /// The partition.
    pub partition: PartitionId,
    /// The node that holds the copy.
    pub from: NodeId,
    /// The node that is to hold it.
    pub to: NodeId,
    /// Bytes to copy, an estimate.
    pub bytes: u64,
    /// Why it moves.
    pub reason: String,
    /// The name of `from`, for people; not used to decide.
    pub from_name: String,
    /// The name of `to`, for people; not used to decide.
    pub to_name: String,
    /// Only the leadership moves, to a copy that counts already.
    pub leadership: bool,
}

/// A goal that a plan cannot meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unmet {
    /// What kind of goal, for scripts.
    pub code: String,
    /// Of what.
    pub subject: String,
    /// Why not, for people.
    pub message: String,
}

impl TryFrom<v1::SetNodeRequest> for SetNode {
    type Error = ConvertError;

    fn try_from(wire: v1::SetNodeRequest) -> Result<Self, ConvertError> {
        checked(check_name("node", &wire.name), "SetNodeRequest.name")?;
        Ok(Self {
            request: request_id(&wire.request_id, "SetNodeRequest.request_id")?,
            goal: enum_field::<v1::NodeGoal, _>(wire.goal, "SetNodeRequest.goal")?,
            name: wire.name,
        })
    }
}

impl From<SetNode> for v1::SetNodeRequest {
    fn from(request: SetNode) -> Self {
        Self {
            cluster: None,
            request_id: uuid_bytes(request.request.get()),
            name: request.name,
            goal: v1::NodeGoal::from(request.goal).into(),
        }
    }
}

impl TryFrom<v1::CreateTableRequest> for CreateTable {
    type Error = ConvertError;

    fn try_from(wire: v1::CreateTableRequest) -> Result<Self, ConvertError> {
        checked(check_name("table", &wire.name), "CreateTableRequest.name")?;
        Ok(Self {
            request: request_id(&wire.request_id, "CreateTableRequest.request_id")?,
            partitions: in_range(wire.partitions, 1, u32::from(SLOTS), "CreateTableRequest.partitions")?,
            replication: in_range(wire.replication, 1, u32::from(REPLICAS_MAX), "CreateTableRequest.replication")?,
            name: wire.name,
        })
    }
}

impl From<CreateTable> for v1::CreateTableRequest {
    fn from(request: CreateTable) -> Self {
        Self {
            cluster: None,
            request_id: uuid_bytes(request.request.get()),
            name: request.name,
            partitions: u32::from(request.partitions),
            replication: u32::from(request.replication),
        }
    }
}

impl TryFrom<v1::DropTableRequest> for DropTable {
    type Error = ConvertError;

    fn try_from(wire: v1::DropTableRequest) -> Result<Self, ConvertError> {
        checked(check_name("table", &wire.name), "DropTableRequest.name")?;
        Ok(Self {
            request: request_id(&wire.request_id, "DropTableRequest.request_id")?,
            table: TableId::new(non_zero(wire.table, "DropTableRequest.table")?),
            name: wire.name,
        })
    }
}

impl From<DropTable> for v1::DropTableRequest {
    fn from(request: DropTable) -> Self {
        let request_id = uuid_bytes(request.request.get());
        Self { cluster: None, request_id, name: request.name, table: request.table.get() }
    }
}

impl TryFrom<v1::ApplyPlanRequest> for ApplyPlan {
    type Error = ConvertError;

    fn try_from(wire: v1::ApplyPlanRequest) -> Result<Self, ConvertError> {
        Ok(Self {
            request: request_id(&wire.request_id, "ApplyPlanRequest.request_id")?,
            plan: required(wire.plan, "ApplyPlanRequest.plan")?.try_into()?,
        })
    }
}

impl From<ApplyPlan> for v1::ApplyPlanRequest {
    fn from(request: ApplyPlan) -> Self {
        Self { cluster: None, request_id: uuid_bytes(request.request.get()), plan: Some(request.plan.into()) }
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
        let (from, to) = (non_zero(wire.from, "Move.from")?, non_zero(wire.to, "Move.to")?);
        if from == to {
            return Err(ConvertError::new("Move.to", format!("is node {to}, from which it moves")));
        }
        Ok(Self {
            partition: required(wire.partition, "Move.partition")?.try_into()?,
            from: NodeId::new(from),
            to: NodeId::new(to),
            bytes: wire.bytes,
            reason: wire.reason,
            from_name: wire.from_name,
            to_name: wire.to_name,
            leadership: wire.leadership,
        })
    }
}

impl From<Move> for v1::Move {
    fn from(step: Move) -> Self {
        Self {
            partition: Some(step.partition.into()),
            from: step.from.get(),
            to: step.to.get(),
            bytes: step.bytes,
            reason: step.reason,
            from_name: step.from_name,
            to_name: step.to_name,
            leadership: step.leadership,
        }
    }
}

impl From<v1::Unmet> for Unmet {
    fn from(wire: v1::Unmet) -> Self {
        Self { code: wire.code, subject: wire.subject, message: wire.message }
    }
}

impl From<Unmet> for v1::Unmet {
    fn from(unmet: Unmet) -> Self {
        Self { code: unmet.code, subject: unmet.subject, message: unmet.message }
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
        fn a_plan_round_trips_through_bytes(plan in plan(), id in 1u128..) {
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
            if let Ok(wire) = v1::CreateTableRequest::decode(bytes.as_slice()) {
                let _ = CreateTable::try_from(wire);
            }
            if let Ok(wire) = v1::DropTableRequest::decode(bytes.as_slice()) {
                let _ = DropTable::try_from(wire);
            }
            if let Ok(wire) = v1::SetNodeRequest::decode(bytes.as_slice()) {
                let _ = SetNode::try_from(wire);
            }
        }
    }

    #[test]
    fn requests_round_trip_and_bad_ones_are_named() {
        let request = RequestId::new(Uuid::from_u128(5));
        let create = CreateTable { request, name: "orders".into(), partitions: 16_384, replication: 3 };
        let wire = v1::CreateTableRequest::from(create.clone());
        assert_eq!(CreateTable::try_from(wire.clone()), Ok(create));
        let field = |wire: v1::CreateTableRequest| CreateTable::try_from(wire).unwrap_err().field;
        assert_eq!(field(v1::CreateTableRequest { name: "".into(), ..wire.clone() }), "CreateTableRequest.name");
        assert_eq!(field(v1::CreateTableRequest { partitions: 0, ..wire.clone() }), "CreateTableRequest.partitions");
        assert_eq!(field(v1::CreateTableRequest { replication: 8, ..wire.clone() }), "CreateTableRequest.replication");
        assert_eq!(
            field(v1::CreateTableRequest { request_id: Default::default(), ..wire }),
            "CreateTableRequest.request_id"
        );

        let table = TableId::new(7);
        let drop = DropTable { request, name: "orders".into(), table };
        let wire = v1::DropTableRequest::from(drop.clone());
        assert_eq!(DropTable::try_from(wire.clone()), Ok(drop));
        let field = |wire: v1::DropTableRequest| DropTable::try_from(wire).unwrap_err().field;
        assert_eq!(field(v1::DropTableRequest { table: 0, ..wire.clone() }), "DropTableRequest.table");
        assert_eq!(field(v1::DropTableRequest { name: "a b".into(), ..wire.clone() }), "DropTableRequest.name");
        let request_id = Default::default();
        assert_eq!(field(v1::DropTableRequest { request_id, ..wire }), "DropTableRequest.request_id");

        let set = SetNode { request, name: "athens".into(), goal: NodeGoal::Drain };
        let wire = v1::SetNodeRequest::from(set.clone());
        assert_eq!(SetNode::try_from(wire.clone()), Ok(set));
        assert_eq!(SetNode::try_from(v1::SetNodeRequest { goal: 0, ..wire }).unwrap_err().field, "SetNodeRequest.goal");

        let step =
            v1::Move { partition: Some(v1::PartitionId { table: 1, index: 0 }), from: 2, to: 2, ..Default::default() };
        assert_eq!(Move::try_from(step).unwrap_err().field, "Move.to");
        assert_eq!(
            ApplyPlan::try_from(v1::ApplyPlanRequest { request_id: uuid_bytes(request.get()), ..Default::default() })
                .unwrap_err()
                .field,
            "ApplyPlanRequest.plan"
        );
    }
}
