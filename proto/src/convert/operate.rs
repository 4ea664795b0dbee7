//! What operators do to nodes and partitions, checked.

use super::ids::{request_id, uuid_bytes};
use super::{ConvertError, checked};
use crate::v1;
use archon_types::limits::{check_key, check_name};
use archon_types::{DEFAULT_TABLE, RequestId};
use bytes::Bytes;

/// A request to forget a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoveNode {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The node's name.
    pub name: String,
}

/// A request to declare a node's data lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoseNode {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The node's name.
    pub name: String,
    /// Whether the operator accepts that partitions lose their last copy.
    pub accept_data_loss: bool,
}

/// A partition as operators name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionName {
    /// The table's name.
    pub table: String,
    /// The partition's number within it.
    pub index: u32,
}

/// A request to make one copy lead at the price of acknowledged writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForceLeader {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// Which partition.
    pub partition: PartitionName,
    /// On which node the copy stands; `None` leaves the choice to the coordinator.
    pub node: Option<String>,
    /// Whether the operator accepts the loss.
    pub accept_data_loss: bool,
}

/// A request to merge a partition with its right neighbour, or to give that up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergePartition {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// Which partition gets the keys.
    pub partition: PartitionName,
    /// The merge that is under way is to be given up.
    pub cancel: bool,
    /// Only say what it would do.
    pub dry_run: bool,
}

/// What is to become of a partition that is to be split, or is being split.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SplitGoal {
    /// A new partition gets its keys from this one on.
    At(Bytes),
    /// A new partition gets the upper half of its bytes, as its leader finds it.
    Middle,
    /// The split that is under way is given up.
    Cancel,
}

/// A request to split a partition, or to give that up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitPartition {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// Which partition.
    pub partition: PartitionName,
    /// What is asked for.
    pub goal: SplitGoal,
    /// Only says what it would do.
    pub dry_run: bool,
}

impl TryFrom<v1::RemoveNodeRequest> for RemoveNode {
    type Error = ConvertError;

    fn try_from(wire: v1::RemoveNodeRequest) -> Result<Self, ConvertError> {
        checked(check_name("node", &wire.name), "RemoveNodeRequest.name")?;
        Ok(Self { request: request_id(&wire.request_id, "RemoveNodeRequest.request_id")?, name: wire.name })
    }
}

impl From<RemoveNode> for v1::RemoveNodeRequest {
    fn from(request: RemoveNode) -> Self {
        Self { cluster: None, request_id: uuid_bytes(request.request.get()), name: request.name }
    }
}

impl TryFrom<v1::LoseNodeRequest> for LoseNode {
    type Error = ConvertError;

    fn try_from(wire: v1::LoseNodeRequest) -> Result<Self, ConvertError> {
        checked(check_name("node", &wire.name), "LoseNodeRequest.name")?;
        Ok(Self {
            request: request_id(&wire.request_id, "LoseNodeRequest.request_id")?,
            name: wire.name,
            accept_data_loss: wire.accept_data_loss,
        })
    }
}

impl From<LoseNode> for v1::LoseNodeRequest {
    fn from(request: LoseNode) -> Self {
        Self {
            cluster: None,
            request_id: uuid_bytes(request.request.get()),
            name: request.name,
            accept_data_loss: request.accept_data_loss,
        }
    }
}

impl PartitionName {
    /// A name from the wire; an empty table is the default one.
    ///
    /// # Errors
    /// [`ConvertError`] naming what is wrong, with `field`.
    pub(super) fn new(table: String, index: u32, field: &'static str) -> Result<Self, ConvertError> {
        let table = if table.is_empty() { DEFAULT_TABLE.to_owned() } else { table };
        checked(check_name("table", &table), field)?;
        Ok(Self { table, index })
    }
}

impl TryFrom<v1::DescribePartitionRequest> for PartitionName {
    type Error = ConvertError;

    fn try_from(wire: v1::DescribePartitionRequest) -> Result<Self, ConvertError> {
        Self::new(wire.table, wire.partition, "DescribePartitionRequest.table")
    }
}

impl TryFrom<v1::ForceLeaderRequest> for ForceLeader {
    type Error = ConvertError;

    fn try_from(wire: v1::ForceLeaderRequest) -> Result<Self, ConvertError> {
        if let Some(node) = &wire.node {
            checked(check_name("node", node), "ForceLeaderRequest.node")?;
        }
        Ok(Self {
            request: request_id(&wire.request_id, "ForceLeaderRequest.request_id")?,
            partition: PartitionName::new(wire.table, wire.partition, "ForceLeaderRequest.table")?,
            node: wire.node,
            accept_data_loss: wire.accept_data_loss,
        })
    }
}

impl From<ForceLeader> for v1::ForceLeaderRequest {
    fn from(request: ForceLeader) -> Self {
        Self {
            cluster: None,
            request_id: uuid_bytes(request.request.get()),
            table: request.partition.table,
            partition: request.partition.index,
            node: request.node,
            accept_data_loss: request.accept_data_loss,
        }
    }
}

impl TryFrom<v1::SplitPartitionRequest> for SplitPartition {
    type Error = ConvertError;

    fn try_from(wire: v1::SplitPartitionRequest) -> Result<Self, ConvertError> {
        let goal = match (wire.cancel, wire.at.is_empty()) {
            (true, _) => SplitGoal::Cancel,
            (false, true) => SplitGoal::Middle,
            (false, false) => {
                checked(check_key(&wire.at), "SplitPartitionRequest.at")?;
                SplitGoal::At(wire.at)
            }
        };
        Ok(Self {
            request: request_id(&wire.request_id, "SplitPartitionRequest.request_id")?,
            partition: PartitionName::new(wire.table, wire.partition, "SplitPartitionRequest.table")?,
            goal,
            dry_run: wire.dry_run,
        })
    }
}

impl From<SplitPartition> for v1::SplitPartitionRequest {
    fn from(request: SplitPartition) -> Self {
        Self {
            cluster: None,
            request_id: uuid_bytes(request.request.get()),
            table: request.partition.table,
            partition: request.partition.index,
            cancel: request.goal == SplitGoal::Cancel,
            at: match request.goal {
                SplitGoal::At(key) => key,
                SplitGoal::Middle | SplitGoal::Cancel => Bytes::new(),
            },
            dry_run: request.dry_run,
        }
    }
}

impl TryFrom<v1::MergePartitionRequest> for MergePartition {
    type Error = ConvertError;

    fn try_from(wire: v1::MergePartitionRequest) -> Result<Self, ConvertError> {
        Ok(Self {
            request: request_id(&wire.request_id, "MergePartitionRequest.request_id")?,
            partition: PartitionName::new(wire.table, wire.partition, "MergePartitionRequest.table")?,
            cancel: wire.cancel,
            dry_run: wire.dry_run,
        })
    }
}

impl From<MergePartition> for v1::MergePartitionRequest {
    fn from(request: MergePartition) -> Self {
        Self {
            cluster: None,
            request_id: uuid_bytes(request.request.get()),
            table: request.partition.table,
            partition: request.partition.index,
            cancel: request.cancel,
            dry_run: request.dry_run,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;
    use uuid::Uuid;

    fn force() -> impl Strategy<Value = ForceLeader> {
        let name = || "[a-z][a-z0-9.-]{0,20}";
        (1u128.., name(), any::<u32>(), proptest::option::of(name()), any::<bool>()).prop_map(
            |(id, table, index, node, accept_data_loss)| ForceLeader {
                request: RequestId::new(Uuid::from_u128(id)),
                partition: PartitionName { table, index },
                node,
                accept_data_loss,
            },
        )
    }

    proptest! {
        #[test]
        fn requests_round_trip_through_bytes(force in force()) {
            let bytes = v1::ForceLeaderRequest::from(force.clone()).encode_to_vec();
            let wire = v1::ForceLeaderRequest::decode(bytes.as_slice()).unwrap();
            prop_assert_eq!(ForceLeader::try_from(wire), Ok(force.clone()));
            let at = force.node.clone().map(|name| SplitGoal::At(name.into()));
            for goal in at.into_iter().chain([SplitGoal::Middle, SplitGoal::Cancel]) {
                let (partition, dry_run) = (force.partition.clone(), force.accept_data_loss);
                let split = SplitPartition { request: force.request, partition, goal, dry_run };
                prop_assert_eq!(SplitPartition::try_from(v1::SplitPartitionRequest::from(split.clone())), Ok(split));
            }
            let (cancel, partition) = (force.node.is_some(), force.partition.clone());
            let dry_run = force.accept_data_loss;
            let merge = MergePartition { request: force.request, partition, cancel, dry_run };
            prop_assert_eq!(MergePartition::try_from(v1::MergePartitionRequest::from(merge.clone())), Ok(merge));
            let lose = LoseNode {
                request: force.request, name: force.partition.table.clone(), accept_data_loss: force.accept_data_loss,
            };
            prop_assert_eq!(LoseNode::try_from(v1::LoseNodeRequest::from(lose.clone())), Ok(lose));
            let remove = RemoveNode { request: force.request, name: force.partition.table };
            prop_assert_eq!(RemoveNode::try_from(v1::RemoveNodeRequest::from(remove.clone())), Ok(remove));
        }

        #[test]
        fn any_bytes_are_handled_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(wire) = v1::ForceLeaderRequest::decode(bytes.as_slice()) {
                let _ = ForceLeader::try_from(wire);
            }
            if let Ok(wire) = v1::LoseNodeRequest::decode(bytes.as_slice()) {
                let _ = LoseNode::try_from(wire);
            }
            if let Ok(wire) = v1::RemoveNodeRequest::decode(bytes.as_slice()) {
                let _ = RemoveNode::try_from(wire);
            }
            if let Ok(wire) = v1::DescribePartitionRequest::decode(bytes.as_slice()) {
                let _ = PartitionName::try_from(wire);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let request_id = uuid_bytes(Uuid::from_u128(5));
        let good = v1::ForceLeaderRequest { request_id, partition: 7, ..Default::default() };
        assert_eq!(ForceLeader::try_from(good.clone()).unwrap().partition.table, DEFAULT_TABLE);
        let field = |wire: v1::ForceLeaderRequest| ForceLeader::try_from(wire).unwrap_err().field;
        assert_eq!(field(v1::ForceLeaderRequest { table: "-".into(), ..good.clone() }), "ForceLeaderRequest.table");
        assert_eq!(
            field(v1::ForceLeaderRequest { node: Some("a b".into()), ..good.clone() }),
            "ForceLeaderRequest.node"
        );
        // Without an identity a retry could take effect twice.
        let anonymous = v1::ForceLeaderRequest { request_id: Default::default(), ..good };
        assert_eq!(field(anonymous), "ForceLeaderRequest.request_id");
        let nobody = v1::RemoveNodeRequest { request_id: uuid_bytes(Uuid::from_u128(5)), ..Default::default() };
        assert_eq!(RemoveNode::try_from(nobody).unwrap_err().field, "RemoveNodeRequest.name");
    }
}
