//! Changes of what is there: a node's zone, weight and limit, a table's number of copies.

use super::ids::{request_id, uuid_bytes};
use super::{ConvertError, checked, in_range};
use crate::v1;
use archon_types::limits::{REPLICAS_MAX, WEIGHT_MAX, check_name};
use archon_types::{RequestId, TableChange, TraitsChange};

/// A request to give a node another zone, weight or limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterNode {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The node's name.
    pub name: String,
    /// What is to change.
    pub change: TraitsChange,
}

/// A request for another number of copies of each partition of a table, or for other limits above which they are split.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlterTable {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The table's name.
    pub name: String,
    /// What is to change.
    pub change: TableChange,
}

impl TryFrom<v1::AlterTableRequest> for AlterTable {
    type Error = ConvertError;

    fn try_from(wire: v1::AlterTableRequest) -> Result<Self, ConvertError> {
        checked(check_name("table", &wire.name), "AlterTableRequest.name")?;
        Ok(Self {
            request: request_id(&wire.request_id, "AlterTableRequest.request_id")?,
            change: TableChange {
                replication: wire
                    .replication
                    .map(|copies| in_range(copies, 1, u32::from(REPLICAS_MAX), "AlterTableRequest.replication"))
                    .transpose()?,
                split_above_bytes: wire.split_above_bytes.map(limit),
                split_above_rate: wire.split_above_rate.map(limit),
                merge_below_bytes: wire.merge_below_bytes.map(limit),
            },
            name: wire.name,
        })
    }
}

impl From<AlterTable> for v1::AlterTableRequest {
    fn from(request: AlterTable) -> Self {
        Self {
            cluster: None,
            request_id: uuid_bytes(request.request.get()),
            name: request.name,
            replication: request.change.replication.map(u32::from),
            split_above_bytes: request.change.split_above_bytes.map(Option::unwrap_or_default),
            split_above_rate: request.change.split_above_rate.map(Option::unwrap_or_default),
            merge_below_bytes: request.change.merge_below_bytes.map(Option::unwrap_or_default),
        }
    }
}

/// Zero stands for none.
fn limit(wire: u64) -> Option<u64> {
    Some(wire).filter(|limit| *limit > 0)
}

impl TryFrom<v1::AlterNodeRequest> for AlterNode {
    type Error = ConvertError;

    fn try_from(wire: v1::AlterNodeRequest) -> Result<Self, ConvertError> {
        checked(check_name("node", &wire.name), "AlterNodeRequest.name")?;
        let zone = wire.zone.map(|zone| Some(zone).filter(|zone| !zone.is_empty()));
        if let Some(Some(zone)) = &zone {
            checked(check_name("zone", zone), "AlterNodeRequest.zone")?;
        }
        let weight = |weight| in_range(weight, 1, WEIGHT_MAX, "AlterNodeRequest.weight");
        let change = TraitsChange {
            zone,
            weight: wire.weight.map(weight).transpose()?,
            partitions_max: wire.partitions_max.map(|most| Some(most).filter(|most| *most > 0)),
        };
        if change == TraitsChange::default() {
            return Err(ConvertError::new("AlterNodeRequest", "say a weight, a limit or a zone"));
        }
        let request = request_id(&wire.request_id, "AlterNodeRequest.request_id")?;
        Ok(Self { request, name: wire.name, change })
    }
}

impl From<AlterNode> for v1::AlterNodeRequest {
    fn from(request: AlterNode) -> Self {
        let TraitsChange { zone, weight, partitions_max } = request.change;
        Self {
            cluster: None,
            request_id: uuid_bytes(request.request.get()),
            name: request.name,
            weight,
            partitions_max: partitions_max.map(Option::unwrap_or_default),
            zone: zone.map(Option::unwrap_or_default),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;
    use uuid::Uuid;

    fn change() -> impl Strategy<Value = TraitsChange> {
        let zone = proptest::option::of(proptest::option::of("[a-z]{1,9}"));
        let parts = (zone, proptest::option::of(1..=WEIGHT_MAX), proptest::option::of(proptest::option::of(1..=9u32)));
        parts.prop_map(|(zone, weight, partitions_max)| TraitsChange { zone, weight, partitions_max })
    }

    proptest! {
        #[test]
        fn a_change_of_a_node_round_trips_through_bytes(change in change(), id in 1u128..) {
            prop_assume!(change != TraitsChange::default());
            let asked = AlterNode { request: RequestId::new(Uuid::from_u128(id)), name: "athens".into(), change };
            let bytes = v1::AlterNodeRequest::from(asked.clone()).encode_to_vec();
            prop_assert_eq!(AlterNode::try_from(v1::AlterNodeRequest::decode(bytes.as_slice()).unwrap()), Ok(asked));
        }

        #[test]
        fn any_bytes_are_handled_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(wire) = v1::AlterNodeRequest::decode(bytes.as_slice()) {
                let _ = AlterNode::try_from(wire);
            }
        }
    }

    #[test]
    fn a_change_of_a_table_round_trips_and_bad_ones_are_named() {
        let request = RequestId::new(Uuid::from_u128(5));
        let change = TableChange {
            replication: Some(3),
            split_above_bytes: Some(Some(1 << 20)),
            split_above_rate: Some(None),
            merge_below_bytes: Some(Some(9)),
        };
        let asked = AlterTable { request, name: "orders".into(), change };
        let wire = v1::AlterTableRequest::from(asked.clone());
        assert_eq!(AlterTable::try_from(wire.clone()), Ok(asked.clone()));
        let nothing = AlterTable { change: TableChange::default(), ..asked };
        assert_eq!(AlterTable::try_from(v1::AlterTableRequest::from(nothing.clone())), Ok(nothing));
        let field = |wire: v1::AlterTableRequest| AlterTable::try_from(wire).unwrap_err().field;
        assert_eq!(field(v1::AlterTableRequest { name: "a b".into(), ..wire.clone() }), "AlterTableRequest.name");
        assert_eq!(
            field(v1::AlterTableRequest { replication: Some(8), ..wire.clone() }),
            "AlterTableRequest.replication"
        );
        let request_id = Default::default();
        assert_eq!(field(v1::AlterTableRequest { request_id, ..wire }), "AlterTableRequest.request_id");
    }

    #[test]
    fn bad_changes_of_a_node_are_named() {
        let request_id = uuid_bytes(Uuid::from_u128(5));
        let good = v1::AlterNodeRequest { request_id, name: "athens".into(), weight: Some(5), ..Default::default() };
        assert!(AlterNode::try_from(good.clone()).is_ok());
        let field = |wire: v1::AlterNodeRequest| AlterNode::try_from(wire).unwrap_err().field;
        assert_eq!(field(v1::AlterNodeRequest { name: "a b".into(), ..good.clone() }), "AlterNodeRequest.name");
        assert_eq!(field(v1::AlterNodeRequest { weight: Some(0), ..good.clone() }), "AlterNodeRequest.weight");
        let zone = Some("a b".to_owned());
        assert_eq!(field(v1::AlterNodeRequest { zone, ..good.clone() }), "AlterNodeRequest.zone");
        assert_eq!(field(v1::AlterNodeRequest { weight: None, ..good.clone() }), "AlterNodeRequest");
        let request_id = Default::default();
        assert_eq!(field(v1::AlterNodeRequest { request_id, ..good }), "AlterNodeRequest.request_id");
    }
}
