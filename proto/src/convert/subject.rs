//! What reasons and events are about, and who caused something. A subject that this version does not know is
//! [`Subject::Unknown`].

use crate::v1;
use crate::v1::{cause, subject};
use archon_security::Identity;
use archon_types::subject::{Cause, NodeName, Subject};
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

impl From<Cause> for v1::Cause {
    fn from(cause: Cause) -> Self {
        use cause::By;
        let by = match cause {
            Cause::Coordinator { coordinator_id } => Some(By::Coordinator(coordinator_id)),
            Cause::Node { node_id, node } => {
                Some(By::Node(v1::NodeName { id: node_id.unwrap_or_default(), name: node }))
            }
            Cause::Admin { admin, from, via } => {
                Some(By::Admin(v1::AdminName { identity: admin, from: from.to_string(), via }))
            }
            _ => None,
        };
        Self { by }
    }
}

impl From<v1::Cause> for Cause {
    fn from(wire: v1::Cause) -> Self {
        use cause::By;
        match wire.by {
            Some(By::Coordinator(coordinator_id)) => Self::Coordinator { coordinator_id },
            Some(By::Node(node)) => {
                Self::Node { node_id: Some(node.id).filter(|id| *id > 0), node: into_plain(node.name) }
            }
            Some(By::Admin(admin)) => admin_of(admin).unwrap_or(Self::Unknown),
            None => Self::Unknown,
        }
    }
}

/// A person or script, if that names one: an identity is short, and has no character that is odd.
fn admin_of(wire: v1::AdminName) -> Option<Cause> {
    let from = wire.from.parse().ok()?;
    let identity = |text: Option<String>| match text {
        Some(text) => text.parse::<Identity>().ok().map(|identity| Some(identity.to_string())),
        None => Some(None),
    };
    Some(Cause::Admin { admin: identity(wire.identity)?, from, via: identity(wire.via)? })
}

/// What a message says that it is about, if it says so.
pub fn subject_of(wire: Option<v1::Subject>) -> Subject {
    wire.map_or(Subject::Unknown, Into::into)
}

/// Who caused what a message tells, if it says so.
pub fn cause_of(wire: Option<v1::Cause>) -> Cause {
    wire.map_or(Cause::Unknown, Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::testing::{cause, subject};
    use proptest::prelude::*;
    use prost::Message;

    proptest! {
        #[test]
        fn subjects_and_causes_round_trip_through_bytes(subject in subject(), cause in cause()) {
            let bytes = v1::Subject::from(subject.clone()).encode_to_vec();
            prop_assert_eq!(subject_of(v1::Subject::decode(bytes.as_slice()).ok()), subject);
            let bytes = v1::Cause::from(cause.clone()).encode_to_vec();
            prop_assert_eq!(cause_of(v1::Cause::decode(bytes.as_slice()).ok()), cause);
        }
    }

    #[test]
    fn what_a_newer_coordinator_speaks_of_is_no_error() {
        let about = |about| subject_of(Some(v1::Subject { about: Some(about) }));
        assert_eq!(about(subject::About::Group("regions".into())), Subject::Unknown);
        assert_eq!(subject_of(None), Subject::Unknown);
        assert_eq!(cause_of(None), Cause::Unknown);
    }

    #[test]
    fn a_cause_that_names_nobody_is_not_shown() {
        let by = |identity: Option<&str>, from: &str| {
            let admin = v1::AdminName { identity: identity.map(str::to_owned), from: from.to_owned(), via: None };
            cause_of(Some(v1::Cause { by: Some(cause::By::Admin(admin)) }))
        };
        let alice = Cause::Admin { admin: Some("admin/alice".into()), from: [10, 0, 0, 7].into(), via: None };
        assert_eq!(by(Some("admin/alice"), "10.0.0.7"), alice);
        let long = format!("admin/{}", "a".repeat(1_000));
        for (identity, from) in [("admin/a\u{1b}[31m", "10.0.0.7"), (&long, "10.0.0.7"), ("admin/alice", "nowhere")] {
            assert_eq!(by(Some(identity), from), Cause::Unknown, "{identity}");
        }
    }
}
