//! Partition tables of a fake cluster.

use archon_types::{
    Epoch, KeyRange, Keys, Node, NodeId, Partition, PartitionId, PartitionStatus, Placement, PlacementId, ReplicaState,
    Table, TableContent, TableDelta, TableId, Version,
};

pub(crate) fn delta(
    version: u64,
    partitions: u32,
    addresses: &[String],
    leader: impl Fn(u32) -> Option<u64>,
) -> TableDelta {
    let table = TableId::new(1);
    let version = Version::new(version);
    let row = |index: u32| {
        let node = leader(index);
        Partition {
            id: PartitionId::new(table, index),
            epoch: Epoch::new(version.get()),
            version,
            leader: node.map(|_| PlacementId::new(u64::from(index) + 1)),
            placements: node
                .map(|node| Placement {
                    id: PlacementId::new(u64::from(index) + 1),
                    node: NodeId::new(node),
                    state: ReplicaState::Live,
                })
                .into_iter()
                .collect(),
            status: if node.is_some() { PartitionStatus::Online } else { PartitionStatus::Unavailable },
            min_in_sync: 1,
            range: KeyRange::ALL,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        }
    };
    let node = |(index, address): (usize, &String)| {
        Node::new(NodeId::new(index as u64 + 1), format!("node-{}", index + 1), address)
    };
    TableDelta {
        table: Table {
            id: table,
            name: "default".into(),
            keys: Keys::Hash { partitions },
            replication: 1,
            holds: TableContent::Data,
            version: Version::new(1),
        },
        since: Version::ZERO,
        version,
        partitions: (0..partitions).map(row).collect(),
        nodes: addresses.iter().enumerate().map(node).collect(),
        removed: None,
    }
}
