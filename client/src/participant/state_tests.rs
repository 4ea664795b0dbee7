//! Reports of a participant that stops.

use super::super::builder::ParticipantBuilder;
use super::*;
use archon_types::{
    Duty, Epoch, Fact, Incarnation, KeyRange, NodeId, Partition, PartitionStatus, Placement, PlacementId, ReplicaState,
    Version,
};

/// A participant that owns these partitions.
fn owner_of(partitions: u32) -> (ParticipantState, Vec<Acquisition>) {
    let (effects, mut acquired) = mpsc::unbounded_channel();
    let shared = ParticipantState::new(ParticipantBuilder::new(Vec::new()).config, effects);
    let (node, incarnation, copy) =
        (NodeId::new(2), Incarnation::new(3), |index: u32| PlacementId::new(u64::from(index)));
    let host = |index| Duty::Host {
        partition: Partition {
            id: PartitionId::new(TableId::new(1), index),
            epoch: Epoch::new(4),
            version: Version::new(4),
            leader: Some(copy(index)),
            placements: vec![Placement { id: copy(index), node, state: ReplicaState::Live }],
            min_in_sync: 1,
            status: PartitionStatus::Assigned,
            range: KeyRange::ALL,
            split: None,
            merge: None,
            absorbed: Version::ZERO,
        },
        placement: copy(index),
    };
    let duties: Vec<Duty> = (0..partitions).map(host).collect();
    shared.decide(|decides, now| {
        decides.begin_life(node, incarnation, now);
        let answer = decides.send(now).answer(3_600_000, Vec::new());
        decides.granted(answer, now);
        assert!(decides.duties(incarnation, 1, Version::new(1), &duties, now));
    });
    let effects = std::iter::from_fn(|| acquired.try_recv().ok());
    let owned: Vec<Acquisition> =
        effects.map(|effect| if let Effect::Acquire(of) = effect { of } else { panic!() }).collect();
    shared.decide(|decides, now| owned.iter().for_each(|of| decides.acquired(*of, true, now)));
    for report in shared.peek(99) {
        shared.answered(&report, None);
    }
    (shared, owned)
}

fn stop(shared: &ParticipantState) {
    shared.stopping.cancel();
    shared.decide(|decides, now| decides.stop(now));
}

fn release(shared: &ParticipantState, of: Acquisition) {
    shared.decide(|decides, now| decides.released(of, now));
}

fn releases(shared: &ParticipantState) -> usize {
    shared.peek(99).iter().filter(|report| report.fact == Fact::Released).count()
}

/// A service in another process releases partitions some microseconds apart. A request for each would cost as many
/// commits.
#[test]
fn releases_of_a_stop_are_reported_together() {
    let (shared, owned) = owner_of(2);
    stop(&shared);
    release(&shared, owned[0]);
    assert_eq!(releases(&shared), 0, "no coordinator knows of the stop");
    shared.end_wait_for_stop();
    assert_eq!(releases(&shared), 0, "another release is under way");
    release(&shared, owned[1]);
    assert_eq!(releases(&shared), 2);
}

#[tokio::test]
async fn slow_release_does_not_hold_the_others_back() {
    let (shared, owned) = owner_of(2);
    stop(&shared);
    shared.end_wait_for_stop();
    release(&shared, owned[0]);
    shared.gather_releases().await;
    assert_eq!(releases(&shared), 1);
    release(&shared, owned[1]);
    assert_eq!(releases(&shared), 2);
}
