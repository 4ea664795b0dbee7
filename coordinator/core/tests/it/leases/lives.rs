//! Participants that fall silent, restart or share a name: owners until the end of a lease, and after.

use crate::bed::{Jobs, boxed, register, worker};
use archon_coordinator_core::*;
use archon_types::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

#[test]
fn killed_participants_leases_pass_on_after_lease_end() {
    let mut jobs = Jobs::with_workers(12, 3);
    let (before, dead) = (jobs.owners(), jobs.worker(0));
    jobs.bed.heartbeat_all();
    jobs.bed.pass(1_200, &[dead]);
    assert_eq!(jobs.owners(), before, "its lease may not be over");
    jobs.bed.pass(400, &[dead]);
    assert!(jobs.owners().values().all(|owner| *owner != dead));
    assert_eq!(jobs.owners().len(), 12);
    assert_eq!(jobs.moved(&before), 4);
}

#[test]
fn participant_has_its_own_failure_timeout() {
    let mut jobs = Jobs::new(2);
    let timing = LeaseTiming { heartbeat_ms: 2_000, lease_ms: 3_000, failure_timeout_ms: 4_000, margin_ms: 100 };
    let slow = Participant { tables: vec!["jobs".into()], timing: Some(timing) };
    let slow = jobs.bed.join_with(Register { participant: Some(slow), ..worker(0) });
    jobs.bed.settle();
    jobs.bed.join_with(worker(1));
    jobs.bed.settle();
    let answer = jobs.bed.heartbeat(slow).unwrap();
    assert_eq!(answer.lease_ms, 3_000);
    jobs.bed.pass(3_900, &[slow]);
    assert!(jobs.bed.state.is_alive(slow), "a node would be failed by now");
    jobs.bed.pass(300, &[slow]);
    assert!(!jobs.bed.state.is_alive(slow));
    assert_eq!(jobs.counts(), [0, 2]);
}

/// The new process may name a shorter time-out; the lease of the former one keeps its length.
#[test]
fn shorter_time_out_does_not_shorten_former_lease() {
    let mut jobs = Jobs::new(1);
    let timing =
        |lease_ms| LeaseTiming { heartbeat_ms: 100, lease_ms, failure_timeout_ms: lease_ms * 2, margin_ms: 100 };
    let serves = |lease_ms| Some(Participant { tables: vec!["jobs".into()], timing: Some(timing(lease_ms)) });
    let first = jobs.bed.join_with(Register { participant: serves(5_000), ..worker(0) });
    jobs.bed.settle();
    jobs.bed.heartbeat(first);
    let epoch = jobs.rows().next().unwrap().epoch;
    let boot = BootId::new(Uuid::from_u128(99));
    let again = jobs.bed.join_with(Register { participant: serves(400), boot, ..worker(0) });
    assert_eq!(again, first, "its name is who it is");
    jobs.bed.pass(9_500, &[]);
    assert!(jobs.owners().is_empty(), "the life before may own it still");
    jobs.bed.pass(1_000, &[]);
    assert_eq!(jobs.owners().len(), 1);
    assert!(jobs.rows().next().unwrap().epoch > epoch);
}

#[test]
fn name_belongs_to_live_participant() {
    let mut jobs = Jobs::with_workers(4, 1);
    let boot = BootId::new(Uuid::from_u128(99));
    let elsewhere = Register { boot, address: "elsewhere.example:1".into(), ..worker(0) };
    assert_eq!(jobs.bed.refused(boxed(elsewhere.clone())), ErrorKind::NameTaken);
    assert_eq!(jobs.bed.refused(boxed(Register { name: "athens".into(), ..elsewhere.clone() })), ErrorKind::NameTaken);
    assert_eq!(jobs.bed.refused(boxed(register("worker-0", 77, 78))), ErrorKind::NameTaken, "of a participant");
    let none = Some(Participant { tables: vec![], timing: None });
    assert_eq!(
        jobs.bed.refused(boxed(Register { participant: none, ..elsewhere.clone() })),
        ErrorKind::InvalidArgument
    );
    let dead = jobs.worker(0);
    jobs.bed.pass(1_500, &[dead]);
    assert_eq!(jobs.bed.join_with(elsewhere), dead);
}

/// Each process took the other's registration for its own ended incarnation, and began the next one.
#[test]
fn two_processes_of_one_name_do_not_fence_each_other() {
    let mut jobs = Jobs::with_workers(4, 1);
    let older = jobs.bed.state.participants.get(&jobs.worker(0)).unwrap().node.incarnation;
    let process = |storage| Register { storage: StorageId::new(Uuid::from_u128(storage)), ..worker(0) };
    let boot = |boot| BootId::new(Uuid::from_u128(boot));
    let newer = Register { boot: boot(98), ..process(97) };
    assert_eq!(jobs.bed.join_with(newer.clone()), jobs.worker(0), "a restart is believed at once");
    let returns = Register { boot: boot(99), last_incarnation: Some(older), ..worker(0) };
    assert_eq!(jobs.bed.refused(boxed(returns.clone())), ErrorKind::Refused);
    let row = jobs.bed.state.participants.get(&jobs.worker(0)).unwrap();
    assert!(row.node.incarnation > older && row.storage == newer.storage, "the newer one lives on");
    let own = Register { boot: boot(96), last_incarnation: Some(row.node.incarnation), ..newer };
    assert_eq!(jobs.bed.join_with(own), jobs.worker(0), "its own next life");
    let dead = jobs.worker(0);
    jobs.bed.pass(1_500, &[dead]);
    assert_eq!(jobs.bed.join_with(returns), dead, "there is no other any more");
}

/// The reporting owner got an error about its own incarnation, and did not repeat the release.
#[test]
fn hand_over_to_fenced_incarnation_is_not_stale_for_sender() {
    let mut jobs = Jobs::with_workers(2, 2);
    let row = jobs.rows().next().unwrap().clone();
    let (owner, next) = (row.leader_placement().unwrap().node, jobs.worker(0));
    let next = if next == owner { jobs.worker(1) } else { next };
    let to = Placement {
        id: PlacementId::new(jobs.bed.state.placement_last.get() + 1),
        node: next,
        state: ReplicaState::Live,
    };
    let incarnation = Incarnation::new(jobs.bed.incarnation(next).get() - 1);
    let edits = vec![
        Edit::Add(to),
        Edit::Lead { placement: to.id, incarnation, ending: LeadershipEnd::Released },
        Edit::Forget(row.placements[0].id),
    ];
    let hand_over = PartitionChange { partition: row.id, if_version: row.version, edits };
    assert_eq!(jobs.bed.refused(Command::Change(vec![hand_over])), ErrorKind::Refused);
}

/// Events of the participants of a table.
#[derive(Clone, Debug)]
enum Step {
    Join,
    Restart(u32),
    Silence(u32),
    Goal(u32, NodeGoal),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let goal = prop::sample::select(vec![NodeGoal::Serve, NodeGoal::Cordon, NodeGoal::Drain]);
    prop_oneof![
        Just(Step::Join),
        (0..8u32).prop_map(Step::Restart),
        (0..8u32).prop_map(Step::Silence),
        (0..8u32, goal).prop_map(|(worker, goal)| Step::Goal(worker, goal)),
        (1..30u64).prop_map(|steps| Step::Pass(steps * 100)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// No owner is named while a granted lease may cover the partition, through restarts, silence and goals; in the
    /// end, with all participants serving, all partitions are owned and evenly spread.
    #[test]
    fn no_partition_is_granted_while_former_lease_runs(steps in prop::collection::vec(step(), 1..40)) {
        let mut jobs = Jobs::with_workers(7, 3);
        let (mut joined, mut boots) = (3, 500u128);
        // End of each incarnation's lease, by its own clock, which is this one.
        let mut leases: BTreeMap<(NodeId, Incarnation), Millis> = BTreeMap::new();
        let mut granted: BTreeMap<(u32, Epoch), (NodeId, Incarnation)> = BTreeMap::new();
        let mut silent: BTreeSet<NodeId> = BTreeSet::new();
        // These had no owner while the incarnation of their former owner went on and was heard: it has released them.
        let mut released: BTreeSet<(u32, Epoch)> = BTreeSet::new();
        for step in steps {
            let known = |number: u32| format!("worker-{}", number % joined);
            match step {
                Step::Join => { jobs.bed.join_with(worker(joined)); joined += 1; }
                Step::Restart(number) => {
                    boots += 1;
                    let again = worker(number % joined);
                    let node = jobs.bed.join_with(Register { boot: BootId::new(Uuid::from_u128(boots)), ..again });
                    silent.remove(&node);
                }
                Step::Silence(number) => { silent.insert(jobs.bed.node(&known(number))); }
                Step::Goal(number, goal) => {
                    let node = jobs.bed.node(&known(number));
                    jobs.bed.ok(Command::SetNode { node, goal, if_nodes: None });
                }
                Step::Pass(millis) => {
                    let until = jobs.bed.now.plus(millis);
                    while jobs.bed.now < until {
                        jobs.bed.now = jobs.bed.now.plus(100);
                        for node in jobs.bed.alive() {
                            if silent.contains(&node) { continue; }
                            let life = (node, jobs.bed.incarnation(node));
                            if let Some(answer) = jobs.bed.heartbeat(node) {
                                leases.insert(life, jobs.bed.now.plus(answer.lease_ms));
                            }
                        }
                        let deaf: Vec<NodeId> = silent.iter().copied().collect();
                        jobs.bed.round(&deaf);
                    }
                }
            }
            let now = jobs.bed.now;
            for row in jobs.rows() {
                let Some(owner) = row.leader_placement().map(|copy| copy.node) else {
                    if let Some((of, former)) = granted.range(..(row.id.index, row.epoch)).next_back()
                        && of.0 == row.id.index && !silent.contains(&former.0)
                        && jobs.bed.state.incarnation(former.0) == Some(former.1)
                    {
                        released.insert(*of);
                    }
                    continue;
                };
                let life = (owner, jobs.bed.incarnation(owner));
                let news = !granted.contains_key(&(row.id.index, row.epoch));
                let before = granted.range(..(row.id.index, row.epoch)).next_back();
                if let Some(((index, epoch), former)) = before.filter(|_| news)
                    && *index == row.id.index && *former != life
                {
                    // A live former owner released it; a silent or replaced one cannot have.
                    let gone = silent.contains(&former.0) || jobs.bed.state.incarnation(former.0) != Some(former.1);
                    let until = leases.get(former).copied().unwrap_or_default();
                    let free = !gone || until <= now || released.contains(&(*index, *epoch));
                    prop_assert!(free, "{} epoch {epoch} of {former:?} runs until {until:?}, now {now:?}", row.id);
                }
                granted.insert((row.id.index, row.epoch), life);
            }
        }
        for node in jobs.bed.state.participants.keys().copied().collect::<Vec<_>>() {
            jobs.bed.ok(Command::SetNode { node, goal: NodeGoal::Serve, if_nodes: None });
        }
        jobs.bed.pass(1_500, &silent.iter().copied().collect::<Vec<_>>());
        jobs.bed.settle();
        let alive = |row: &&NodeRow| row.node.status == NodeStatus::Alive;
        let workers: Vec<NodeId> = jobs.bed.state.participants.values().filter(alive).map(|row| row.node.id).collect();
        if !workers.is_empty() {
            let counts: Vec<u32> = workers.iter().map(|node| jobs.bed.state.partitions.leaders_on(*node)).collect();
            prop_assert_eq!(counts.iter().sum::<u32>(), 7);
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{:?}", counts);
        }
    }
}
