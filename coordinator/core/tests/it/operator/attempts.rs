//! Administrative requests, decided again when rows change between decision and commit.

use crate::bed::TestBed;
use crate::bed::ranges::times;
use crate::ranges::splits::ranges;
use archon_coordinator_core::*;
use archon_types::*;
use uuid::Uuid;

const REQUEST: RequestId = RequestId::new(Uuid::from_u128(u128::MAX));

impl TestBed {
    /// Decides a request, and commits it after `meanwhile`. Returns the responses of this attempt.
    fn attempt(
        &mut self,
        decide: impl Fn(&ClusterState) -> Command,
        meanwhile: impl FnOnce(&mut Self),
    ) -> Result<Vec<Response>, Vec<Response>> {
        let attempt = Attempt::next(&self.state, REQUEST)?;
        let command = decide(&self.state);
        let id = attempt.id_for(&command)?;
        meanwhile(self);
        let batch = CommandBatch { request: Some(id), ..self.batch(vec![command]) };
        Ok(self.commit_batch(&batch))
    }
}

fn cancel(state: &ClusterState) -> Command {
    check_cancel_split(state, times(0)).expect("it can be cancelled")
}

/// A split of three replicas that report one after the other.
fn splitting() -> (TestBed, Vec<NodeId>) {
    let mut bed = ranges(3, None);
    let split = bed.begin_split(0, "m");
    let nodes = split.copies.iter().map(|copy| copy.node).collect();
    (bed, nodes)
}

#[test]
fn cancellation_overtaken_by_replica_succeeds_next() {
    let (mut bed, nodes) = splitting();
    for node in nodes {
        let overtaken = bed.attempt(cancel, |bed| drop(bed.mirrors(node, 0).expect("it counts"))).unwrap();
        assert!(Attempt::is_overtaken(&overtaken), "{overtaken:?}");
    }
    let done = bed.attempt(cancel, |_| {}).unwrap();
    assert!(!Attempt::is_overtaken(&done) && bed.of_times(0).split.is_none(), "{done:?}");
    assert_eq!(bed.attempt(|_| unreachable!("it is answered"), |_| {}), Err(done));
}

/// The same request is sent to two coordinators, and both decide before either commits.
#[test]
fn simultaneous_copies_of_a_request_take_effect_once() {
    let (mut bed, nodes) = splitting();
    let decided = |bed: &TestBed| {
        let command = cancel(&bed.state);
        let id = Attempt::next(&bed.state, REQUEST).unwrap().id_for(&command).unwrap();
        CommandBatch { request: Some(id), ..bed.batch(vec![command]) }
    };
    let first = decided(&bed);
    bed.mirrors(nodes[0], 0).expect("it counts");
    let second = decided(&bed);
    let responses = [&first, &second].map(|batch| bed.commit_batch(batch));
    assert_eq!(responses[0], responses[1], "one attempt has one answer");
    let (first, second) = (decided(&bed), decided(&bed));
    let responses = [&first, &second].map(|batch| bed.commit_batch(batch));
    assert!(!Attempt::is_overtaken(&responses[0]) && responses[0] == responses[1], "{responses:?}");
}

#[test]
fn request_that_is_always_overtaken_is_refused_in_the_end() {
    let mut bed = TestBed::running(crate::bed::settings(1, 1, 1), &["athens"]);
    let mut count = 0;
    let refused = loop {
        let limit = TraitsChange { weight: Some(600 + count), ..TraitsChange::default() };
        let node = bed.node("athens");
        let decide = |state: &ClusterState| {
            let change = TraitsChange { weight: Some(300 + count), ..TraitsChange::default() };
            check_alter_node(state, node, &change).unwrap().command.unwrap()
        };
        let meanwhile = |bed: &mut TestBed| {
            let command = check_alter_node(&bed.state, node, &limit).unwrap().command.unwrap();
            bed.ok(command);
        };
        match bed.attempt(decide, meanwhile) {
            Ok(responses) => assert!(Attempt::is_overtaken(&responses), "{responses:?}"),
            Err(refused) => break refused,
        }
        count += 1;
        assert!(count < 100, "it goes on forever");
    };
    assert!(count > 1 && Attempt::is_overtaken(&refused), "{count}: {refused:?}");
}

#[test]
fn loss_is_accepted_only_for_the_rows_as_they_were() {
    let mut bed = TestBed::running(crate::bed::settings(1, 1, 1), &["athens", "byzantium"]);
    let node = bed.node("byzantium");
    bed.fail(node);
    let judged = bed.state.node(node).unwrap().node.version;
    let lost = |_: &ClusterState| Command::NodeLost { node, if_version: judged };
    let changes = |bed: &mut TestBed| drop(bed.ok(Command::SetNode { node, goal: NodeGoal::Cordon, if_nodes: None }));
    let refused = bed.attempt(lost, changes).unwrap();
    assert!(Attempt::is_overtaken(&refused), "{refused:?}");
    assert_eq!(bed.attempt(lost, |_| {}), Err(refused));
}
