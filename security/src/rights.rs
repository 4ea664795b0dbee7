//! Which role may call what. Whatever is not named here, nobody may.

use crate::identity::Role;
use Role::{Admin, Client, Coordinator, Node, Operator, Participant};

/// Every role.
const ALL: &[Role] = &Role::ALL;
const COORDINATORS: &[Role] = &[Coordinator];
const NODES: &[Role] = &[Node];
const MEMBERS: &[Role] = &[Node, Participant];
/// Whoever works with keys.
const CLIENTS: &[Role] = &[Client, Admin];
/// Whoever looks at the cluster. A coordinator knows it all, and shows it at its console.
const READERS: &[Role] = &[Operator, Admin, Coordinator];
const ADMINS: &[Role] = &[Admin];

/// The methods of a service, each with the roles that may call it.
type Methods = &'static [(&'static str, &'static [Role])];

/// Calls of gRPC, by service and method.
const CALLS: &[(&str, Methods)] = &[
    (
        "archon.v1.Admin",
        &[
            ("Status", READERS),
            ("ListNodes", READERS),
            ("SetNode", ADMINS),
            ("AlterNode", ADMINS),
            ("CheckNode", READERS),
            ("RemoveNode", ADMINS),
            ("LoseNode", ADMINS),
            ("DescribePartition", READERS),
            ("Order", ADMINS),
            ("Check", READERS),
            ("ForceLeader", ADMINS),
            ("SplitPartition", ADMINS),
            ("MergePartition", ADMINS),
            ("ListTables", READERS),
            ("CreateTable", ADMINS),
            ("AlterTable", ADMINS),
            ("CheckTable", READERS),
            ("DropTable", ADMINS),
            ("PlanRebalance", READERS),
            ("ApplyPlan", ADMINS),
            ("RebalanceStatus", READERS),
            ("CancelRebalance", ADMINS),
            ("ListSettings", READERS),
            ("Configure", ADMINS),
            ("ListAccess", READERS),
            ("SetAccess", ADMINS),
            ("Withdraw", ADMINS),
            ("Explain", READERS),
            ("Quorum", READERS),
            ("ChangeQuorum", ADMINS),
            ("JoinQuorum", COORDINATORS),
            ("TransferLead", ADMINS),
            ("ShowUpgrade", READERS),
            ("ChangeUpgrade", ADMINS),
            ("SnapshotQuorum", ADMINS),
            ("Events", READERS),
        ],
    ),
    ("archon.v1.Control", &[("Push", COORDINATORS), ("ConfirmBoot", COORDINATORS), ("FindMiddle", COORDINATORS)]),
    (
        "archon.v1.Kv",
        &[
            ("Get", CLIENTS),
            ("GetStale", CLIENTS),
            ("Put", CLIENTS),
            ("Delete", CLIENTS),
            ("CompareAndSet", CLIENTS),
            ("Increment", CLIENTS),
            ("Scan", CLIENTS),
            ("Batch", CLIENTS),
            ("Snapshot", CLIENTS),
        ],
    ),
    (
        "archon.v1.Raft",
        &[
            ("Append", COORDINATORS),
            ("Vote", COORDINATORS),
            ("PreVote", COORDINATORS),
            ("Transfer", COORDINATORS),
            ("Snapshot", COORDINATORS),
            ("Hello", COORDINATORS),
        ],
    ),
    ("archon.v1.Replication", &[("Copy", NODES), ("Yield", NODES)]),
    ("archon.v1.Session", &[("Register", MEMBERS), ("Report", MEMBERS), ("Duties", MEMBERS), ("Leave", MEMBERS)]),
    ("archon.v1.Stats", &[("Read", READERS)]),
    ("archon.v1.Table", &[("GetTable", ALL)]),
    ("grpc.health.v1.Health", &[("Check", ALL), ("Watch", ALL)]),
    ("grpc.reflection.v1.ServerReflection", &[("ServerReflectionInfo", READERS)]),
];

/// Who may open a stream of operations on keys. A node passes on what clients ask of it, a coordinator what they ask of its console.
pub const EXCHANGE: &[Role] = &[Client, Admin, Node, Coordinator];
/// Who may open a stream of messages between replicas.
pub const REPLICATE: &[Role] = NODES;
/// Who may open a stream of heartbeats.
pub const BEATS: &[Role] = MEMBERS;

/// The roles that may make a call of gRPC, by its path: `/archon.v1.Kv/Get`. Nobody may make one that is not known.
pub fn callers(path: &str) -> &'static [Role] {
    let found = path.strip_prefix('/').and_then(|path| path.split_once('/')).and_then(|(service, method)| {
        let (_, methods) = CALLS.iter().find(|(known, _)| *known == service)?;
        methods.iter().find(|(known, _)| *known == method).map(|(_, roles)| *roles)
    });
    found.unwrap_or(&[])
}

/// Every call that the table knows, as paths: for tests that compare it with what is served.
pub fn known_calls() -> impl Iterator<Item = String> {
    CALLS.iter().flat_map(|(service, methods)| methods.iter().map(move |(method, _)| format!("/{service}/{method}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_nobody_may_call() {
        for path in [
            "",
            "/",
            "/archon.v1.Admin",
            "/archon.v1.Admin/",
            "/archon.v1.Admin/status",
            "archon.v1.Admin/Status",
            "/x/Status",
        ] {
            assert!(callers(path).is_empty(), "{path}");
        }
        assert_eq!(callers("/archon.v1.Admin/Status"), READERS);
    }

    #[test]
    fn an_operator_changes_nothing_and_a_client_is_no_member() {
        let changes = [
            "SetNode",
            "ForceLeader",
            "DropTable",
            "ApplyPlan",
            "Configure",
            "Order",
            "SplitPartition",
            "SnapshotQuorum",
            "Withdraw",
            "ChangeUpgrade",
        ];
        for method in changes {
            assert_eq!(callers(&format!("/archon.v1.Admin/{method}")), ADMINS, "{method}");
        }
        for path in known_calls().filter(|path| path.contains("Kv")) {
            assert!(!callers(&path).contains(&Operator), "{path}");
        }
        for path in known_calls()
            .filter(|path| ["Raft", "Control", "Session", "Replication", "Admin"].iter().any(|s| path.contains(s)))
        {
            assert!(!callers(&path).contains(&Client), "{path}");
        }
    }
}
