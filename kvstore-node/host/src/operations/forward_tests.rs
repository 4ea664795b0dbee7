use super::*;
use crate::mutant::DisabledRule;
use crate::partitions::Partitions;
use crate::test_shell::{LIFE, OTHER, PARTITION, TestShell, get, partitions, put, request, row, serving, settle};
use archon_types::{Answer, ClientId, NodeId, ReplicaState};
use bytes::Bytes;
use uuid::Uuid;

const LEADER: NodeId = NodeId::new(9);
const NAME: OpId = OpId { client: ClientId::new(Uuid::from_u128(7)), number: 1, done_below: 0, stamp: Millis::ZERO };

fn of_any_node(op: Op) -> Request<&'static str> {
    Request { origin: Origin::AnyNodeClient, ..request(op, "caller") }
}

/// A node that knows only the leader of the partition.
fn bystander(broken: DisabledRule) -> Partitions<TestShell> {
    let mut node = partitions(broken);
    node.shell_mut().leader = Some(LEADER);
    node
}

/// The client gets no answer from the first node, and retries.
fn operation_forwarded_twice_under_one_name_applies_once(mutant: Option<Mutant>) -> bool {
    let mut first = bystander(DisabledRule::by(mutant));
    let mut leader = serving(DisabledRule::default(), row(1, &[]));
    while leader.clients_to_read() > 0 {
        leader.read_clients();
    }
    let increment = Op::Increment { key: Bytes::from_static(b"key"), by: 1 };
    for instant in [1_000, 1_001] {
        first.begin(Millis::new(instant));
        first.operate(Request { id: Some(NAME), ..of_any_node(increment.clone()) });
        let (to, passed_on) = first.shell_mut().forwarded.pop().expect("it is passed on");
        assert_eq!((to, passed_on.partition), (LEADER, PARTITION));
        leader.operate(Request { origin: Origin::Forwarded, ..passed_on });
        settle(&mut leader);
    }
    let sum = |answer: &_| match answer {
        (_, Ok(Answer::Counter { value, .. })) => *value,
        other => panic!("{other:?}"),
    };
    let sums: Vec<i64> = leader.shell().answers.iter().map(sum).collect();
    assert_eq!(sums.len(), 2, "both are answered: {:?}", leader.shell().refusals);
    sums == [1, 1]
}

/// Each node takes the other for the leader.
fn forwarded_operation_is_not_forwarded_again(mutant: Option<Mutant>) -> bool {
    let mut node = bystander(DisabledRule::by(mutant));
    node.operate(Request { origin: Origin::Forwarded, ..of_any_node(put("key")) });
    node.shell().refusals == [("caller", Refusal::Elsewhere)]
}

archon_types::shown_by! {
    ForwardRenamed => operation_forwarded_twice_under_one_name_applies_once,
    ForwardedAgain => forwarded_operation_is_not_forwarded_again,
}

#[test]
fn only_operations_of_any_node_clients_are_forwarded() {
    let this = Some(LIFE.node);
    assert_eq!(Origin::AnyNodeClient.goes_to(Some(LEADER), this), Some(LEADER));
    assert_eq!(Origin::AnyNodeClient.goes_to(None, this), None, "no leader");
    assert_eq!(Origin::AnyNodeClient.goes_to(this, this), None, "this node is about to lead");
    assert_eq!(Origin::RoutingClient.goes_to(Some(LEADER), this), None);
    assert_eq!(Origin::Forwarded.goes_to(Some(LEADER), this), None);
    assert_eq!(
        [Origin::of(false, false), Origin::of(false, true), Origin::of(true, false), Origin::of(true, true)],
        [Origin::RoutingClient, Origin::AnyNodeClient, Origin::Forwarded, Origin::Forwarded]
    );
}

#[test]
fn former_leader_forwards_operations_to_new_leader() {
    let mut node = serving(DisabledRule::default(), row(1, &[(OTHER, ReplicaState::Load)]));
    node.shell_mut().leader = Some(LEADER);
    node.operate(of_any_node(get("key")));
    assert_eq!((node.shell().answers.len(), node.shell().forwarded.len()), (1, 0));
    node.shell_mut().lease_until = Millis::ZERO;
    node.operate(of_any_node(get("key")));
    assert_eq!(node.shell().refusals, [("caller", Refusal::NoLease)], "another node is not asked for a lease");
    node.renew(crate::NodeRegistration { incarnation: archon_types::Incarnation::new(2), ..LIFE });
    settle(&mut node);
    node.operate(of_any_node(get("key")));
    settle(&mut node);
    let to: Vec<NodeId> = node.shell().forwarded.iter().map(|(to, _)| *to).collect();
    assert_eq!((to, node.shell().refusals.len()), (vec![LEADER], 1));
}

#[test]
fn unanswered_write_is_not_reported_as_without_effect() {
    let of = |op: Op, id: Option<OpId>| PassedOn::of(&op, id.as_ref());
    let (read, named, unnamed) = (of(get("key"), Some(NAME)), of(put("key"), Some(NAME)), of(put("key"), None));
    for harmless in [of(get("key"), None), read] {
        assert!(harmless.unanswered(true).is_retryable() && harmless.unanswered(false).is_retryable());
    }
    assert_eq!([named.unanswered(false), unnamed.unanswered(false)], [ErrorKind::Unreachable; 2]);
    assert_eq!(named.unanswered(true), ErrorKind::DeadlineExceeded, "clients ask again under the same name");
    assert_eq!(unnamed.unanswered(true), ErrorKind::MaybeApplied);
}
