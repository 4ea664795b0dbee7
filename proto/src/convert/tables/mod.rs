//! The partition table and its rows.

mod merge;
pub mod middle;
mod split;
pub mod table_updates;

use super::ids::{check_address, non_zero};
use super::kv::key_range::{from_range_field, range_field};
use super::{ConvertError, checked, in_range, required};
use crate::v1;
use archon_types::limits::{REPLICAS_MAX, check_name};
use archon_types::{
    Epoch, HASH_PARTITIONS_MAX, Incarnation, Keys, Millis, Node, NodeDelta, NodeGoal, NodeId, NodeStatus, NodeTraits,
    Partition, PartitionId, PartitionStatus, Placement, PlacementId, RangeLimits, RemovedNodes, ReplicaState,
    RightStage, Table, TableContent, TableDelta, TableId, TablePiece, Version,
};

/// Maximum number of placements in a partition's row: the replicas, those being loaded and those being deleted.
pub const PLACEMENTS_MAX: usize = 8 * REPLICAS_MAX as usize;

macro_rules! wire_enum {
    ($ours:ty, $wire:ty, $field:literal, $($name:ident),+) => {
        impl From<$ours> for $wire {
            fn from(value: $ours) -> Self {
                match value { $(<$ours>::$name => Self::$name,)+ }
            }
        }

        impl TryFrom<$wire> for $ours {
            type Error = ConvertError;

            fn try_from(wire: $wire) -> Result<Self, ConvertError> {
                match wire {
                    $(<$wire>::$name => Ok(Self::$name),)+
                    <$wire>::Unspecified => Err(ConvertError::new($field, "unspecified")),
                }
            }
        }
    };
}

wire_enum!(ReplicaState, v1::ReplicaState, "ReplicaState", Load, Live, Unload);
wire_enum!(PartitionStatus, v1::PartitionStatus, "PartitionStatus", Unassigned, Assigned, Online, Unavailable, Offline);
wire_enum!(NodeStatus, v1::NodeStatus, "NodeStatus", Alive, Failed, Lost);
wire_enum!(TableContent, v1::TableHolds, "TableHolds", Data, Lease);
wire_enum!(RightStage, v1::RightStage, "RightStage", Copying, Mirroring, Formed);
wire_enum!(NodeGoal, v1::NodeGoal, "NodeGoal", Serve, Cordon, Drain, Maintain);

/// Checks an enum field: `W` is the wire's enum, `T` the vocabulary's.
///
/// # Errors
/// [`ConvertError`] naming `field` for zero (left out) and for numbers that this version does not know.
pub fn enum_field<W, T>(value: i32, field: &'static str) -> Result<T, ConvertError>
where
    W: TryFrom<i32>,
    T: TryFrom<W>,
{
    W::try_from(value)
        .ok()
        .and_then(|wire| T::try_from(wire).ok())
        .ok_or_else(|| ConvertError::new(field, format!("{value} is not a value this version knows")))
}

impl From<Placement> for v1::Placement {
    fn from(placement: Placement) -> Self {
        Self {
            id: placement.id.get(),
            node: placement.node.get(),
            state: v1::ReplicaState::from(placement.state).into(),
        }
    }
}

impl TryFrom<v1::Placement> for Placement {
    type Error = ConvertError;

    fn try_from(wire: v1::Placement) -> Result<Self, ConvertError> {
        Ok(Self {
            id: PlacementId::new(non_zero(wire.id, "Placement.id")?),
            node: NodeId::new(non_zero(wire.node, "Placement.node")?),
            state: enum_field::<v1::ReplicaState, _>(wire.state, "Placement.state")?,
        })
    }
}

impl From<Partition> for v1::Partition {
    fn from(row: Partition) -> Self {
        Self {
            id: Some(row.id.into()),
            epoch: row.epoch.get(),
            version: row.version.get(),
            leader: row.leader.map(PlacementId::get),
            placements: row.placements.into_iter().map(Into::into).collect(),
            status: v1::PartitionStatus::from(row.status).into(),
            min_in_sync: u32::from(row.min_in_sync),
            range: range_field(row.range),
            split: row.split.map(|split| (*split).into()),
            merge: row.merge.map(|merge| (*merge).into()),
            absorbed: row.absorbed.get(),
        }
    }
}

impl TryFrom<v1::Partition> for Partition {
    type Error = ConvertError;

    fn try_from(wire: v1::Partition) -> Result<Self, ConvertError> {
        if wire.placements.len() > PLACEMENTS_MAX {
            let problem = format!("{} placements; the limit is {PLACEMENTS_MAX}", wire.placements.len());
            return Err(ConvertError::new("Partition.placements", problem));
        }
        let mut placements =
            wire.placements.into_iter().map(Placement::try_from).collect::<Result<Vec<_>, ConvertError>>()?;
        placements.sort_by_key(|placement| placement.id);
        if let Some(pair) = placements.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(ConvertError::new("Partition.placements", format!("placement {} twice", pair[0].id)));
        }
        let leader = wire.leader.map(PlacementId::new);
        let leads = |placement: &Placement| Some(placement.id) == leader && placement.state == ReplicaState::Live;
        if let (Some(leader), false) = (leader, placements.iter().any(leads)) {
            return Err(ConvertError::new(
                "Partition.leader",
                format!("placement {leader} is not one of the Live ones"),
            ));
        }
        Ok(Self {
            id: required(wire.id, "Partition.id")?.try_into()?,
            epoch: Epoch::new(wire.epoch),
            version: Version::new(wire.version),
            leader,
            placements,
            status: enum_field::<v1::PartitionStatus, _>(wire.status, "Partition.status")?,
            min_in_sync: in_range(wire.min_in_sync, 1, u32::from(REPLICAS_MAX), "Partition.min_in_sync")?,
            range: from_range_field(wire.range)?,
            split: wire.split.map(|split| split.try_into().map(Box::new)).transpose()?,
            merge: wire.merge.map(|merge| merge.try_into().map(Box::new)).transpose()?,
            absorbed: Version::new(wire.absorbed),
        })
    }
}

impl From<Node> for v1::Node {
    fn from(node: Node) -> Self {
        Self {
            id: node.id.get(),
            name: node.name,
            address: node.address,
            incarnation: node.incarnation.get(),
            status: v1::NodeStatus::from(node.status).into(),
            goal: v1::NodeGoal::from(node.goal).into(),
            zone: node.zone,
            weight: node.weight,
            partitions_max: node.partitions_max,
            version: node.version.get(),
            since_ms: node.since.get(),
            redis: node.redis,
        }
    }
}

impl TryFrom<v1::Node> for Node {
    type Error = ConvertError;

    fn try_from(wire: v1::Node) -> Result<Self, ConvertError> {
        checked(check_name("node", &wire.name), "Node.name")?;
        check_address(&wire.address, "Node.address")?;
        wire.redis.iter().try_for_each(|address| check_address(address, "Node.redis"))?;
        // Earlier versions accepted a participant with a limit of zero: its row stays readable.
        let partitions_max = wire.partitions_max;
        let traits =
            NodeTraits { zone: wire.zone, weight: wire.weight, partitions_max: partitions_max.map(|most| most.max(1)) };
        checked(traits.check(), "Node")?;
        let NodeTraits { zone, weight, .. } = traits;
        Ok(Self {
            id: NodeId::new(non_zero(wire.id, "Node.id")?),
            name: wire.name,
            address: wire.address,
            incarnation: Incarnation::new(wire.incarnation),
            status: enum_field::<v1::NodeStatus, _>(wire.status, "Node.status")?,
            goal: enum_field::<v1::NodeGoal, _>(wire.goal, "Node.goal")?,
            zone,
            weight,
            partitions_max,
            version: Version::new(wire.version),
            since: Millis::new(wire.since_ms),
            redis: wire.redis,
        })
    }
}

impl From<Keys> for v1::table_info::Keys {
    fn from(keys: Keys) -> Self {
        match keys {
            Keys::Hash { partitions } => Self::HashPartitions(partitions),
            Keys::Range { next, .. } => Self::RangeNext(next),
        }
    }
}

fn keys_of(wire: v1::table_info::Keys, limits: Option<v1::RangeLimits>) -> Result<Keys, ConvertError> {
    Ok(match wire {
        v1::table_info::Keys::HashPartitions(count) => {
            Keys::Hash { partitions: in_range(count, 1, HASH_PARTITIONS_MAX, "TableInfo.hash_partitions")? }
        }
        v1::table_info::Keys::RangeNext(next) => Keys::Range {
            next: in_range(next, 1, u32::MAX, "TableInfo.range_next")?,
            limits: range_limits(limits, "TableInfo.limits")?,
        },
    })
}

pub(crate) fn range_limits(wire: Option<v1::RangeLimits>, field: &'static str) -> Result<RangeLimits, ConvertError> {
    let v1::RangeLimits { split_above_bytes, split_above_rate, merge_below_bytes } = wire.unwrap_or_default();
    let limits = RangeLimits { split_above_bytes, split_above_rate, merge_below_bytes };
    checked(limits.check(), field)?;
    Ok(limits)
}

/// Returns the limits in wire format; absent if there are none.
pub(crate) fn wire_limits(limits: RangeLimits) -> Option<v1::RangeLimits> {
    let RangeLimits { split_above_bytes, split_above_rate, merge_below_bytes } = limits;
    limits.is_set().then_some(v1::RangeLimits { split_above_bytes, split_above_rate, merge_below_bytes })
}

impl From<Table> for v1::TableInfo {
    fn from(table: Table) -> Self {
        Self {
            id: table.id.get(),
            name: table.name,
            partitions: 0,
            limits: wire_limits(table.keys.limits()),
            keys: Some(table.keys.into()),
            replication: u32::from(table.replication),
            version: table.version.get(),
            holds: v1::TableHolds::from(table.holds).into(),
        }
    }
}

impl TryFrom<v1::TableInfo> for Table {
    type Error = ConvertError;

    fn try_from(wire: v1::TableInfo) -> Result<Self, ConvertError> {
        checked(check_name("table", &wire.name), "TableInfo.name")?;
        Ok(Self {
            id: TableId::new(non_zero(wire.id, "TableInfo.id")?),
            name: wire.name,
            keys: keys_of(required(wire.keys, "TableInfo.keys")?, wire.limits)?,
            replication: in_range(wire.replication, 1, u32::from(REPLICAS_MAX), "TableInfo.replication")?,
            holds: enum_field::<v1::TableHolds, _>(wire.holds, "TableInfo.holds")?,
            version: Version::new(wire.version),
        })
    }
}

impl From<NodeDelta> for v1::NodeDelta {
    fn from(delta: NodeDelta) -> Self {
        Self {
            since: delta.since.get(),
            version: delta.version.get(),
            nodes: delta.nodes.into_iter().map(Into::into).collect(),
            removed: delta.removed.map(Into::into),
        }
    }
}

impl TryFrom<v1::NodeDelta> for NodeDelta {
    type Error = ConvertError;

    fn try_from(wire: v1::NodeDelta) -> Result<Self, ConvertError> {
        Ok(Self {
            since: Version::new(wire.since),
            version: Version::new(wire.version),
            nodes: wire.nodes.into_iter().map(Node::try_from).collect::<Result<_, _>>()?,
            removed: wire.removed.map(RemovedNodes::try_from).transpose()?,
        })
    }
}

impl From<TablePiece> for v1::TableDelta {
    fn from(piece: TablePiece) -> Self {
        let TablePiece { delta, from, next } = piece;
        Self {
            table: Some(delta.table.into()),
            since: delta.since.get(),
            version: delta.version.get(),
            partitions: delta.partitions.into_iter().map(Into::into).collect(),
            nodes: delta.nodes.into_iter().map(Into::into).collect(),
            removed: delta.removed.map(Into::into),
            from,
            next,
        }
    }
}

impl From<TableDelta> for v1::TableDelta {
    fn from(delta: TableDelta) -> Self {
        TablePiece::whole(delta).into()
    }
}

impl TryFrom<v1::TableDelta> for TablePiece {
    type Error = ConvertError;

    fn try_from(wire: v1::TableDelta) -> Result<Self, ConvertError> {
        if wire.next.is_some_and(|next| next <= wire.from) {
            let problem = format!("goes back from {} to {:?}", wire.from, wire.next);
            return Err(ConvertError::new("TableDelta.next", problem));
        }
        let table = Table::try_from(required(wire.table, "TableDelta.table")?)?;
        let end = table.keys.numbers_end();
        let belongs = |id: PartitionId| id.table == table.id && id.index < end;
        let mut partitions = Vec::with_capacity(wire.partitions.len().min(end as usize));
        for row in wire.partitions {
            let row = Partition::try_from(row)?;
            if !belongs(row.id) {
                let problem = format!("partition {} is none of table {} with numbers below {end}", row.id, table.id);
                return Err(ConvertError::new("TableDelta.partitions", problem));
            }
            partitions.push(row);
        }
        let delta = TableDelta {
            since: Version::new(wire.since),
            version: Version::new(wire.version),
            partitions,
            nodes: wire.nodes.into_iter().map(Node::try_from).collect::<Result<_, _>>()?,
            removed: wire.removed.map(RemovedNodes::try_from).transpose()?,
            table,
        };
        Ok(Self { delta, from: wire.from, next: wire.next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::{delta, garbage_delta};
    use proptest::prelude::*;
    use prost::Message;

    proptest! {
        #[test]
        fn table_delta_round_trips_through_bytes(delta in delta()) {
            let bytes = v1::TableDelta::from(delta.clone()).encode_to_vec();
            let wire = v1::TableDelta::decode(bytes.as_slice()).unwrap();
            prop_assert_eq!(TablePiece::try_from(wire), Ok(TablePiece::whole(delta)));
        }

        #[test]
        fn damaged_delta_is_an_error_or_well_formed(wire in garbage_delta()) {
            if let Ok(TablePiece { delta, .. }) = TablePiece::try_from(wire) {
                for row in &delta.partitions {
                    prop_assert!(row.id.index < delta.table.keys.numbers_end());
                    prop_assert!(row.leader.is_none() || row.leader_placement().is_some());
                }
            }
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(wire) = v1::TableDelta::decode(bytes.as_slice()) {
                let _ = TablePiece::try_from(wire);
            }
        }
    }

    fn row() -> v1::Partition {
        v1::Partition {
            id: Some(v1::PartitionId { table: 1, index: 0 }),
            epoch: 1,
            version: 1,
            leader: Some(4),
            placements: vec![v1::Placement { id: 4, node: 2, state: v1::ReplicaState::Live.into() }],
            status: v1::PartitionStatus::Online.into(),
            min_in_sync: 1,
            range: None,
            split: None,
            merge: None,
            absorbed: 0,
        }
    }

    #[test]
    fn invalid_row_names_the_field() {
        let field = |spoil: fn(&mut v1::Partition)| {
            let mut wire = row();
            spoil(&mut wire);
            Partition::try_from(wire).unwrap_err().field
        };
        assert!(Partition::try_from(row()).is_ok());
        assert_eq!(field(|row| row.id = None), "Partition.id");
        assert_eq!(field(|row| row.leader = Some(5)), "Partition.leader");
        assert_eq!(field(|row| row.placements[0].state = v1::ReplicaState::Load.into()), "Partition.leader");
        assert_eq!(field(|row| row.placements[0].state = 99), "Placement.state");
        assert_eq!(field(|row| row.placements.push(row.placements[0])), "Partition.placements");
        assert_eq!(field(|row| row.placements = vec![row.placements[0]; 1000]), "Partition.placements");
        assert_eq!(field(|row| row.status = 0), "Partition.status");
        assert_eq!(field(|row| row.min_in_sync = 0), "Partition.min_in_sync");
        assert_eq!(field(|row| row.min_in_sync = 300), "Partition.min_in_sync");
    }
}
