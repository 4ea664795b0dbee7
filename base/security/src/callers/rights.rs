//! Roles that can make each call. Calls that are not listed are denied.

use crate::callers::identity::Role;
use Role::{Admin, Client, Coordinator, Node, Operator, Participant};
use archon_documents::{Callers, METHODS, method_at};

/// Every role.
const ALL: &[Role] = &Role::ALL;
const COORDINATORS: &[Role] = &[Coordinator];
const NODES: &[Role] = &[Node];
const PARTICIPANTS: &[Role] = &[Participant];
const MEMBERS: &[Role] = &[Node, Participant];
/// Roles with access to keys.
const CLIENTS: &[Role] = &[Client, Admin];
/// Roles that read the state of the cluster. A coordinator has that state anyway, and shows it on its console.
const READERS: &[Role] = &[Operator, Admin, Coordinator];
const ADMINS: &[Role] = &[Admin];
/// Roles for which a coordinator may make calls: the callers of its console.
pub(crate) const SPOKEN_FOR: [Role; 3] = [Client, Operator, Admin];
/// The only call of a coordinator that was removed from the quorum: its answer reports the removal.
pub const REMOVED_COORDINATOR_CALL: &str = "/archon.v1.Raft/Hello";

/// Methods of a service: name, roles that can call it, and the commands that call it, without `archon`; the last word
/// can list alternatives. Calls between members have no command.
type Methods = &'static [(&'static str, &'static [Role], &'static str)];

/// gRPC calls, by service and method.
const CALLS: &[(&str, Methods)] = &[
    ("archon.v1.Admin", &[("JoinQuorum", COORDINATORS, ""), ("SnapshotQuorum", ADMINS, "quorum snapshot save")]),
    ("archon.v1.Carrier", &[("Report", NODES, "")]),
    (
        "archon.v1.Control",
        &[("Push", COORDINATORS, ""), ("ConfirmBoot", COORDINATORS, ""), ("FindMiddle", COORDINATORS, "")],
    ),
    (
        "archon.v1.Kv",
        &[
            ("Get", CLIENTS, "kv get"),
            ("GetStale", CLIENTS, "kv get"),
            ("Put", CLIENTS, "kv put"),
            ("Delete", CLIENTS, "kv del"),
            ("CompareAndSet", CLIENTS, "kv cas"),
            ("Increment", CLIENTS, "kv incr"),
            ("Scan", CLIENTS, "kv scan"),
            ("Batch", CLIENTS, "kv batch"),
            ("Snapshot", CLIENTS, "backup create"),
        ],
    ),
    (
        "archon.v1.Raft",
        &[
            ("Append", COORDINATORS, ""),
            ("Vote", COORDINATORS, ""),
            ("PreVote", COORDINATORS, ""),
            ("Transfer", COORDINATORS, ""),
            ("Snapshot", COORDINATORS, ""),
            ("Hello", COORDINATORS, ""),
        ],
    ),
    ("archon.v1.Replication", &[("Copy", NODES, ""), ("Yield", NODES, "")]),
    (
        "archon.v1.Session",
        &[
            ("Register", MEMBERS, ""),
            ("Report", MEMBERS, ""),
            ("Duties", MEMBERS, ""),
            ("Revocations", PARTICIPANTS, ""),
            ("Leave", MEMBERS, ""),
            ("WaitForSpace", NODES, ""),
        ],
    ),
    ("archon.v1.Stats", &[("Read", READERS, "top")]),
    ("archon.v1.Table", &[("GetTable", ALL, "")]),
    ("grpc.health.v1.Health", &[("Check", ALL, ""), ("Watch", ALL, "")]),
    ("grpc.reflection.v1.ServerReflection", &[("ServerReflectionInfo", READERS, "")]),
];

/// Roles that can open a stream of key operations. Nodes forward operations of clients; coordinators forward those of
/// their console.
pub const EXCHANGE: &[Role] = &[Client, Admin, Node, Coordinator];
/// Roles that can open a stream of replication messages.
pub const REPLICATE: &[Role] = NODES;
/// Roles that can open a stream of heartbeats.
pub const BEATS: &[Role] = MEMBERS;

/// Returns the roles that can make a gRPC call, by its path such as `/archon.v1.Kv/Get`. Unknown calls have none.
pub fn callers(path: &str) -> &'static [Role] {
    method(path).map_or(&[], |(roles, _)| roles)
}

/// Describes a call for its caller: by the commands that make it, such as `archon kv get`, otherwise by a short name.
pub(crate) fn spoken(call: &str) -> String {
    match method(call) {
        Some((_, "")) | None => format!("call {}", call.strip_prefix("/archon.v1.").unwrap_or(call)),
        Some((_, commands)) => {
            let named: Vec<String> = commands.split(", ").map(|command| format!("archon {command}")).collect();
            format!("run {}", named.join(", "))
        }
    }
}

/// Returns all commands of the table without `archon`, for a test that compares them with the existing ones.
pub fn known_commands() -> impl Iterator<Item = String> {
    let commands = CALLS.iter().flat_map(|(_, methods)| methods.iter().map(|(_, _, commands)| *commands));
    let commands = commands.chain(METHODS.iter().map(|method| method.commands));
    commands.flat_map(|commands| commands.split(", ")).filter(|command| !command.is_empty()).flat_map(|command| {
        let (before, last) =
            command.rsplit_once(' ').map_or((String::new(), command), |(before, last)| (format!("{before} "), last));
        last.split('|').map(|word| format!("{before}{word}")).collect::<Vec<_>>()
    })
}

/// The roles that may make a call, and the commands that make it.
fn method(path: &str) -> Option<(&'static [Role], &'static str)> {
    if let Some(method) = method_at(path) {
        return Some((roles(method.callers), method.commands));
    }
    let (service, method) = path.strip_prefix('/')?.split_once('/')?;
    let (_, methods) = CALLS.iter().find(|(known, _)| *known == service)?;
    methods.iter().find(|(known, ..)| *known == method).map(|(_, roles, commands)| (*roles, *commands))
}

const fn roles(callers: Callers) -> &'static [Role] {
    match callers {
        Callers::Readers => READERS,
        Callers::Admins => ADMINS,
    }
}

/// Returns all calls of the table as paths, for tests that compare them with the served ones.
pub fn known_calls() -> impl Iterator<Item = String> {
    let calls = CALLS
        .iter()
        .flat_map(|(service, methods)| methods.iter().map(move |(method, ..)| format!("/{service}/{method}")));
    calls.chain(METHODS.iter().map(|method| method.path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlisted_calls_are_denied_to_all_roles() {
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
    fn denied_call_is_described_by_its_command() {
        assert_eq!(spoken("/archon.v1.Admin/Status"), "run archon status");
        assert_eq!(spoken("/archon.v1.Admin/SetNode"), "run archon node cordon|uncordon|drain|undrain");
        assert_eq!(spoken("/archon.v1.Raft/Append"), "call Raft/Append");
        assert_eq!(spoken("a stream of heartbeats"), "call a stream of heartbeats");
    }

    #[test]
    fn operators_change_nothing_and_clients_make_no_member_calls() {
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
