//! Lease tables: who owns the partitions of somebody else's service, and how few change hands.

use crate::bed::{Bed, boxed, register, settings};
use archon_coordinator_core::*;
use archon_types::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

pub(crate) const JOBS: TableId = TableId::new(2);

pub(crate) fn worker(number: u32) -> Register {
    let name = format!("worker-{number}");
    let participant = Some(Participant { tables: vec!["jobs".into()], timing: None });
    Register { participant, ..register(&name, 10_000 + u128::from(number), 20_000 + u128::from(number)) }
}

pub(crate) struct Jobs {
    pub(crate) bed: Bed,
}

impl Jobs {
    pub(crate) fn new(partitions: u32) -> Self {
        let mut bed = Bed::running(settings(4, 1, 1), &["athens"]);
        bed.ok(Command::CreateTable {
            name: "jobs".into(),
            partitioning: Partitioning::Hash { partitions },
            replication: 1,
            holds: Holds::Lease,
        });
        Self { bed }
    }

    pub(crate) fn with_workers(partitions: u32, workers: u32) -> Self {
        let mut jobs = Self::new(partitions);
        for number in 0..workers {
            jobs.bed.join_with(worker(number));
        }
        jobs.bed.settle();
        jobs
    }

    fn rows(&self) -> impl Iterator<Item = &Partition> {
        self.bed.state.partitions.of_table(JOBS)
    }

    pub(crate) fn owners(&self) -> BTreeMap<u32, NodeId> {
        self.rows().filter_map(|row| Some((row.id.index, row.leader_placement()?.node))).collect()
    }

    pub(crate) fn counts(&self) -> Vec<u32> {
        let workers = self.bed.state.participants.keys();
        workers.map(|node| self.bed.state.partitions.leaders_on(*node)).collect()
    }

    pub(crate) fn worker(&self, number: u32) -> NodeId {
        self.bed.node(&format!("worker-{number}"))
    }

    /// How many partitions have other owners than before.
    fn moved(&self, before: &BTreeMap<u32, NodeId>) -> usize {
        self.owners().iter().filter(|(index, owner)| before.get(index) != Some(owner)).count()
    }
}

#[test]
fn participants_share_the_partitions_of_their_table_and_nodes_get_none() {
    let jobs = Jobs::with_workers(12, 3);
    assert_eq!(jobs.counts(), [4, 4, 4]);
    assert!(jobs.rows().all(|row| row.status == PartitionStatus::Online && row.placements.len() == 1));
    let data = jobs.bed.state.partitions.of_table(TableId::new(1));
    assert!(data.flat_map(|row| &row.placements).all(|copy| copy.node == jobs.bed.node("athens")));
    jobs.bed.round_trip();
}

#[test]
fn those_that_start_together_are_waited_for_before_anything_is_handed_out() {
    let mut jobs = Jobs::new(12);
    for number in 0..3 {
        jobs.bed.join_with(worker(number));
        jobs.bed.pass(500, &[]);
        assert!(jobs.owners().is_empty(), "the next one is just coming");
    }
    let before = jobs.bed.state.partitions.newest(JOBS);
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [4, 4, 4]);
    assert!(jobs.bed.state.partitions.newest(JOBS) > before);
    // Each partition was granted once.
    let begun =
        jobs.rows().map(|row| row.epoch.get()).max().unwrap() - jobs.rows().map(|row| row.epoch.get()).min().unwrap();
    assert_eq!(begun, 0);
}

#[test]
fn six_newcomers_beside_sixty_four_take_the_fewest_that_they_can() {
    let mut jobs = Jobs::with_workers(1_024, 64);
    assert!(jobs.counts().iter().all(|count| *count == 16));
    let before = jobs.owners();
    for number in 64..70 {
        jobs.bed.join_with(worker(number));
    }
    jobs.bed.settle();
    let counts = jobs.counts();
    assert!(counts.iter().all(|count| (14..=15).contains(count)), "{counts:?}");
    let newcomers: u32 = counts[64..].iter().sum();
    assert_eq!(jobs.moved(&before), newcomers as usize, "nothing moves but to newcomers");
}

#[test]
fn what_a_killed_participant_owned_is_owned_by_others_once_its_lease_is_over() {
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
fn a_participant_has_its_own_time_out() {
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

/// The new process may name a shorter time-out; the lease of the former one runs as long as that one was told.
#[test]
fn a_restart_with_a_shorter_time_out_shortened_the_lease_of_the_life_before() {
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
fn a_name_belongs_to_whoever_lives() {
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

/// Each took the registration of the other for its own life that had ended, and began the next one.
#[test]
fn two_processes_of_one_name_and_address_ended_each_others_lives_in_turn() {
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

#[test]
fn a_drained_participant_hands_over_everything_and_a_cordoned_one_keeps_it() {
    let mut jobs = Jobs::with_workers(12, 3);
    let (drained, cordoned) = (jobs.worker(0), jobs.worker(1));
    jobs.bed.ok(Command::SetNode { node: cordoned, goal: NodeGoal::Cordon, if_nodes: None });
    let drain = check_drain(&jobs.bed.state, drained).unwrap();
    jobs.bed.ok(drain.command);
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [0, 4, 8]);
    jobs.bed.ok(Command::SetNode { node: drained, goal: NodeGoal::Serve, if_nodes: None });
    jobs.bed.ok(Command::SetNode { node: cordoned, goal: NodeGoal::Serve, if_nodes: None });
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [4, 4, 4]);
}

#[test]
fn leases_are_bumped_barred_and_taken_offline_like_data() {
    let mut jobs = Jobs::with_workers(6, 3);
    let give = |jobs: &mut Jobs, order| {
        let command = check_order(&jobs.bed.state, order, "").unwrap().expect("news");
        jobs.bed.ok(command);
        jobs.bed.turn();
    };
    let release = |jobs: &mut Jobs, partition| {
        let row = jobs.bed.state.partition(partition).unwrap().clone();
        let (owner, placement) = (row.leader_placement().unwrap().node, row.leader.unwrap());
        let withdrawn = jobs.bed.heartbeat(owner).unwrap().withdrawn;
        assert!(!withdrawn.contains(&(partition, row.epoch)), "it is asked, for it may have work to finish");
        let asked = |duty: &Duty| matches!(duty, Duty::HandOver { placement: own, .. } if *own == placement);
        assert!(duties(&jobs.bed.state, owner).unwrap().iter().any(asked));
        let fact = Fact::Released;
        let report = Report { partition, placement, epoch: row.epoch, version: row.version, fact };
        jobs.bed.report(owner, &report).unwrap();
    };
    let before = jobs.rows().next().unwrap().clone();
    let (partition, epoch, owner) = (before.id, before.epoch, before.leader_placement().unwrap().node);
    give(&mut jobs, Order::Bump { partition, epoch });
    release(&mut jobs, partition);
    let now = jobs.bed.state.partition(partition).unwrap();
    assert_eq!((now.leader, now.epoch), (before.leader, epoch.next().unwrap()));
    jobs.bed.settle();

    let again = epoch.next().unwrap();
    give(&mut jobs, Order::Bump { partition, epoch: again });
    jobs.bed.pass(9 * jobs.bed.state.timing_of(owner).failure_timeout_ms, &[]);
    assert!(
        jobs.bed.state.partition(partition).unwrap().epoch > again,
        "it did not answer, and was not asked for ever"
    );

    give(&mut jobs, Order::Offline { partition });
    release(&mut jobs, partition);
    jobs.bed.settle();
    assert_eq!(jobs.owners().len(), 5);
    give(&mut jobs, Order::Online { partition });
    jobs.bed.settle();
    assert_eq!(jobs.owners().len(), 6);

    give(&mut jobs, Order::Bar { bar: Bar::Table(JOBS), member: owner });
    jobs.bed.settle();
    assert!(jobs.owners().values().all(|other| *other != owner), "it hands over what it has");
    for number in 0..3 {
        let member = jobs.worker(number);
        if member != owner {
            give(&mut jobs, Order::Bar { bar: Bar::Partition(partition), member });
        }
    }
    let row = jobs.bed.state.partition(partition).unwrap().clone();
    jobs.bed.ok(Command::Change(vec![PartitionChange::one(partition, row.version, Edit::Vacate(Ending::Released))]));
    jobs.bed.settle();
    let remembered = Remembered::new(&jobs.bed.state, &jobs.bed.liveness, jobs.bed.now);
    assert_eq!(explain(&jobs.bed.state, &remembered, partition), Some(vec![Why::AllBarred { participants: 3 }]));
    give(&mut jobs, Order::Unbar { bar: Bar::Table(JOBS), member: owner });
    jobs.bed.settle();
    assert_eq!(jobs.owners()[&partition.index], owner);

    let until = jobs.bed.now.plus(60_000);
    give(&mut jobs, Order::Maintain { member: owner, until });
    jobs.bed.settle();
    assert!(jobs.owners().values().all(|other| *other != owner) || jobs.owners().len() == 6, "the barred one stays");
    jobs.bed.round_trip();
}

/// The owner that reported was told that its own life was over, and did not repeat the release.
#[test]
fn a_hand_over_to_a_life_that_has_ended_was_refused_as_stale_to_the_one_that_released() {
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
        Edit::Lead { placement: to.id, incarnation, ending: Ending::Released },
        Edit::Forget(row.placements[0].id),
    ];
    let hand_over = PartitionChange { partition: row.id, if_version: row.version, edits };
    assert_eq!(jobs.bed.refused(Command::Change(vec![hand_over])), ErrorKind::Refused);
}

#[test]
fn whoever_drops_a_partition_is_not_given_it_again_at_once() {
    let mut jobs = Jobs::with_workers(4, 2);
    let row = jobs.rows().next().unwrap().clone();
    let (owner, epoch) = (row.leader_placement().unwrap().node, row.epoch);
    let drop =
        Report { partition: row.id, placement: row.leader.unwrap(), epoch, version: row.version, fact: Fact::Dropped };
    jobs.bed.report(owner, &drop).unwrap();
    jobs.bed.pass(2_000, &[]);
    assert_ne!(jobs.owners()[&row.id.index], owner);
    assert!(jobs.bed.state.partition(row.id).unwrap().epoch > epoch);
}

#[test]
fn limits_hold_and_what_nobody_takes_says_why() {
    let mut jobs = Jobs::new(4);
    let remembered = Remembered::new(&jobs.bed.state, &jobs.bed.liveness, jobs.bed.now);
    let why = explain(&jobs.bed.state, &remembered, PartitionId::new(JOBS, 0)).unwrap();
    assert_eq!(why, [Why::NoParticipant { table: "jobs".into() }]);
    jobs.bed.join_with(Register { partitions_max: Some(3), ..worker(0) });
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [3]);
    let left = jobs.rows().find(|row| row.leader.is_none()).unwrap().id;
    let remembered = Remembered::new(&jobs.bed.state, &jobs.bed.liveness, jobs.bed.now);
    let why = explain(&jobs.bed.state, &remembered, left).unwrap();
    assert_eq!(why, [Why::NodesAtLimit { full: 1, plan: false }]);
}

#[test]
fn a_limit_is_one_for_all_tables_that_a_participant_serves() {
    let mut jobs = Jobs::new(4);
    let more = Command::CreateTable {
        name: "more".into(),
        partitioning: Partitioning::Hash { partitions: 4 },
        replication: 1,
        holds: Holds::Lease,
    };
    jobs.bed.ok(more);
    let served = Participant { tables: vec!["jobs".into(), "more".into()], timing: None };
    jobs.bed.join_with(Register { partitions_max: Some(3), participant: Some(served), ..worker(0) });
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [3]);
}

/// The first assignment of a table ended with the first partition that nobody might own.
#[test]
fn a_partition_barred_from_all_does_not_keep_the_others_from_their_first_owner() {
    let mut jobs = Jobs::new(4);
    for number in 0..2 {
        jobs.bed.join_with(worker(number));
        let order = Order::Bar { bar: Bar::Partition(PartitionId::new(JOBS, 0)), member: jobs.worker(number) };
        let command = check_order(&jobs.bed.state, order, "").unwrap().expect("news");
        jobs.bed.ok(command);
    }
    jobs.bed.settle();
    assert_eq!(jobs.owners().into_keys().collect::<Vec<_>>(), [1, 2, 3]);
}

/// It stood still: the partitions that should have left first were those barred from the newcomer.
#[test]
fn a_newcomer_barred_from_some_partitions_gets_others() {
    let mut jobs = Jobs::with_workers(6, 1);
    jobs.bed.join_with(worker(1));
    let newcomer = jobs.worker(1);
    for index in 0..3 {
        let order = Order::Bar { bar: Bar::Partition(PartitionId::new(JOBS, index)), member: newcomer };
        let command = check_order(&jobs.bed.state, order, "").unwrap().expect("news");
        jobs.bed.ok(command);
    }
    jobs.bed.settle();
    assert_eq!(jobs.counts(), [3, 3]);
}

#[test]
fn a_lease_table_made_anew_grants_higher_epochs_than_the_one_that_was_dropped() {
    let mut jobs = Jobs::with_workers(4, 2);
    let highest = jobs.rows().map(|row| row.epoch).max().unwrap();
    jobs.bed.ok(Command::DropTable { table: JOBS });
    let owner = jobs.worker(0);
    let answer = jobs.bed.heartbeat(owner).unwrap();
    assert_eq!(answer.withdrawn.len(), 2, "its lease covers none of them any more");
    jobs.bed.settle();
    assert_eq!(jobs.bed.state.condemned.len(), 0);
    let create = Command::CreateTable {
        name: "jobs".into(),
        partitioning: Partitioning::Hash { partitions: 4 },
        replication: 1,
        holds: Holds::Lease,
    };
    let Response::TableCreated { table } = jobs.bed.ok(create) else { panic!("not created") };
    jobs.bed.settle();
    assert!(jobs.bed.state.partitions.of_table(table).all(|row| row.epoch > highest && row.leader.is_some()));
}

/// `status` waited for participants that are gone to delete what they never had.
#[test]
fn a_lease_table_whose_participants_are_gone_is_dropped_without_anything_to_delete() {
    let mut jobs = Jobs::with_workers(4, 2);
    let (dead, alive) = (jobs.worker(0), jobs.worker(1));
    jobs.bed.ok(Command::SetNode { node: alive, goal: NodeGoal::Cordon, if_nodes: None });
    jobs.bed.heartbeat_all();
    jobs.bed.pass(1_500, &[dead]);
    assert!(!jobs.bed.state.is_alive(dead));
    jobs.bed.ok(Command::DropTable { table: JOBS });
    assert!(jobs.bed.state.condemned.nodes().all(|(node, _)| node == alive));
    jobs.bed.settle();
    assert!(jobs.bed.state.condemned.is_empty());
}

#[test]
fn nothing_of_a_lease_is_copied_planned_or_forced() {
    let mut jobs = Jobs::with_workers(4, 2);
    let replicated = Command::CreateTable {
        name: "more".into(),
        partitioning: Partitioning::Hash { partitions: 4 },
        replication: 3,
        holds: Holds::Lease,
    };
    assert_eq!(jobs.bed.refused(replicated), ErrorKind::InvalidArgument);
    assert!(plan(&jobs.bed.state, Goal::default()).moves.is_empty());
    let row = jobs.rows().next().unwrap().clone();
    let outcome = Forced::Empty;
    let force = Command::AcceptLoss { partition: row.id, if_version: row.version, outcome };
    assert_eq!(jobs.bed.refused(force), ErrorKind::Refused);
    let unload = Edit::Unload(row.placements[0].id);
    assert_eq!(
        jobs.bed.refused(Command::Change(vec![PartitionChange::one(row.id, row.version, unload)])),
        ErrorKind::Refused
    );
}

/// What may happen to the participants of a table.
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

    /// No owner is named while a lease that somebody was answered may cover the partition, through restarts, silence and goals;
    /// and in the end, with everybody serving, all is owned and even.
    #[test]
    fn no_partition_is_granted_while_a_lease_of_its_former_owner_runs(steps in prop::collection::vec(step(), 1..40)) {
        let mut jobs = Jobs::with_workers(7, 3);
        let (mut joined, mut boots) = (3, 500u128);
        // Until when each life's lease runs, by its own clock, which is this one.
        let mut leases: BTreeMap<(NodeId, Incarnation), Millis> = BTreeMap::new();
        let mut granted: BTreeMap<(u32, Epoch), (NodeId, Incarnation)> = BTreeMap::new();
        let mut silent: BTreeSet<NodeId> = BTreeSet::new();
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
                let Some(owner) = row.leader_placement().map(|copy| copy.node) else { continue };
                let life = (owner, jobs.bed.incarnation(owner));
                let news = !granted.contains_key(&(row.id.index, row.epoch));
                let before = granted.range(..(row.id.index, row.epoch)).next_back();
                if let Some(((index, epoch), former)) = before.filter(|_| news)
                    && *index == row.id.index && *former != life
                {
                    // A live former owner released it; one that is silent or was replaced cannot have.
                    let gone = silent.contains(&former.0) || jobs.bed.state.incarnation(former.0) != Some(former.1);
                    let until = leases.get(former).copied().unwrap_or_default();
                    let released = !gone || until <= now;
                    prop_assert!(released, "{} epoch {epoch} of {former:?} runs until {until:?}, now {now:?}", row.id);
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
