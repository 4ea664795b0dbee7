//! Subjects of unmet goals. A subject that this version does not know is [`Subject::Unknown`].

use crate::v1;
use crate::v1::subject;
use archon_types::subject::{NodeName, Subject};
use archon_types::text::into_plain;

impl From<NodeName> for v1::NodeName {
    fn from(node: NodeName) -> Self {
        Self { id: node.node_id, name: node.node }
    }
}

impl From<v1::NodeName> for NodeName {
    fn from(wire: v1::NodeName) -> Self {
        Self { node_id: wire.id, node: into_plain(wire.name) }
    }
}

impl From<Subject> for v1::Subject {
    fn from(subject: Subject) -> Self {
        use subject::About;
        let group = |name: &str| Some(About::Group(name.to_owned()));
        let about = match subject {
            Subject::Cluster => group("cluster"),
            Subject::Coordinators => group("coordinators"),
            Subject::Copies => group("copies"),
            Subject::Rebalance => group("rebalance"),
            Subject::Coordinator { coordinator_id } => Some(About::Coordinator(coordinator_id)),
            Subject::Node { node_id, node } => Some(About::Node(v1::NodeName { id: node_id, name: node })),
            Subject::Table { table_id, table } => Some(About::Table(v1::TableName { id: table_id, name: table })),
            Subject::Partition { table_id, table, partition } => Some(About::Partition(v1::PartitionName {
                table: Some(v1::TableName { id: table_id, name: table }),
                index: partition,
            })),
            _ => None,
        };
        Self { about }
    }
}

impl From<v1::Subject> for Subject {
    fn from(wire: v1::Subject) -> Self {
        use subject::About;
        match wire.about {
            Some(About::Group(group)) => match group.as_str() {
                "cluster" => Self::Cluster,
                "coordinators" => Self::Coordinators,
                "copies" => Self::Copies,
                "rebalance" => Self::Rebalance,
                _ => Self::Unknown,
            },
            Some(About::Coordinator(coordinator_id)) => Self::Coordinator { coordinator_id },
            Some(About::Node(node)) => Self::Node { node_id: node.id, node: into_plain(node.name) },
            Some(About::Table(table)) => Self::Table { table_id: table.id, table: into_plain(table.name) },
            Some(About::Partition(v1::PartitionName { table: Some(table), index: partition })) => {
                Self::Partition { table_id: table.id, table: into_plain(table.name), partition }
            }
            Some(About::Partition(v1::PartitionName { table: None, .. })) | None => Self::Unknown,
        }
    }
}

/// Returns the subject of a message, if it has one.
pub fn subject_of(wire: Option<v1::Subject>) -> Subject {
    wire.map_or(Subject::Unknown, Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::subject;
    use proptest::prelude::*;
    use prost::Message;

    proptest! {
        #[test]
        fn subjects_round_trip_through_bytes(subject in subject()) {
            let bytes = v1::Subject::from(subject.clone()).encode_to_vec();
            prop_assert_eq!(subject_of(v1::Subject::decode(bytes.as_slice()).ok()), subject);
        }
    }

    #[test]
    fn subject_of_a_newer_version_is_accepted() {
        let about = |about| subject_of(Some(v1::Subject { about: Some(about) }));
        assert_eq!(about(subject::About::Group("regions".into())), Subject::Unknown);
        assert_eq!(subject_of(None), Subject::Unknown);
    }
}
