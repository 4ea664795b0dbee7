//! Losses that reach the service later than the participant.

use crate::service::{CallbackEvent, SOON, Service, wait};
use archon_client::testing::{FakeCoordinator, ParticipantReport};
use archon_client::{
    AcquireError, Callbacks, Epoch, Grant, Participant, ParticipantBuilder, PartitionId, ReleaseCause,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_secs(1);
/// Longer than a test.
const LEASE: Duration = Duration::from_secs(300);

fn builder(coordinator: &FakeCoordinator) -> ParticipantBuilder {
    let builder = Participant::builder([coordinator.address()]).table("jobs").name("athens").address("127.0.0.1:80");
    builder.timing(Duration::from_millis(100), LEASE, LEASE + LEASE / 4).loss_delay(DELAY)
}

async fn owning(coordinator: &FakeCoordinator, participant: &Participant, index: u32) -> Grant {
    let partition = coordinator.partition("jobs", index);
    coordinator.grant("athens", partition);
    wait("the partition", || participant.have_partition(partition).is_some()).await;
    participant.have_partition(partition).unwrap()
}

/// Lets several heartbeats be answered, and with them the reports that are due.
async fn heartbeats(participant: &Participant) {
    let before = participant.stats().heartbeats;
    wait("heartbeats", || participant.stats().heartbeats > before + 3).await;
}

/// A service with releases that keep their thread until the gate opens, so that they cannot be cancelled.
struct BlockingService {
    entered: Sender<()>,
    gate: Mutex<Receiver<()>>,
    lost: Arc<Mutex<Vec<PartitionId>>>,
}

impl Callbacks for BlockingService {
    async fn acquire(&self, _: Grant) -> Result<(), AcquireError> {
        Ok(())
    }

    async fn release(&self, _: Grant, _: ReleaseCause) {
        let _ = self.entered.send(());
        let _ = self.gate.lock().recv();
    }

    fn lost(&self, partition: PartitionId, _: Epoch) {
        self.lost.lock().push(partition);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn undelivered_loss_permits_nothing_and_holds_reports() {
    let coordinator = FakeCoordinator::start().await.unwrap();
    let (entered, enters) = channel();
    let (open, gate) = channel();
    let lost = Arc::new(Mutex::new(Vec::new()));
    let service = BlockingService { entered, gate: Mutex::new(gate), lost: Arc::clone(&lost) };
    let athens = builder(&coordinator).start(service).await.unwrap();
    let (grant, other) = (owning(&coordinator, &athens, 3).await, owning(&coordinator, &athens, 4).await);
    assert!(!grant.lease_left().is_zero() && !grant.valid_for().is_zero());
    assert!(coordinator.hand_over(grant.partition(), None));
    wait("the release to begin", || enters.try_recv().is_ok()).await;
    assert!(coordinator.withdraw(grant.partition()));
    wait("the loss", || grant.check().is_err()).await;
    heartbeats(&athens).await;
    assert!(lost.lock().is_empty(), "the release keeps its thread");
    assert_eq!((grant.lease_left(), grant.valid_for()), (Duration::ZERO, Duration::ZERO));
    assert_eq!(other.lease_left(), Duration::ZERO, "a permission for all partitions would cover the lost one");
    assert!(other.check().is_ok() && !other.valid_for().is_zero(), "the other one is owned");
    let released = |reported: &[ParticipantReport]| {
        reported
            .iter()
            .any(|of| matches!(of, ParticipantReport::Released { partition, .. } if *partition == grant.partition()))
    };
    let opened = Instant::now();
    assert!(!released(&coordinator.reported()));
    open.send(()).unwrap();
    wait("the delivery", || *lost.lock() == [grant.partition()]).await;
    wait("a permission", || !other.lease_left().is_zero()).await;
    coordinator.wait_for(SOON, released).await.unwrap();
    assert!(opened.elapsed() >= DELAY, "reported after {:?}", opened.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn participant_leaves_after_the_delay_of_a_loss() {
    for within in [Duration::from_secs(30), DELAY / 4] {
        let in_time = within > DELAY;
        let coordinator = FakeCoordinator::start().await.unwrap();
        let service = Service::default();
        let athens = builder(&coordinator).start(service.clone()).await.unwrap();
        let grant = owning(&coordinator, &athens, 3).await;
        let withdrawn = Instant::now();
        // The duties still name it, so there is nothing to report.
        assert!(coordinator.withdraw_by_heartbeat(grant.partition()));
        wait("the loss", || service.count(|told| matches!(told, CallbackEvent::Lost(..))) == 1).await;
        assert_eq!(athens.stop(within).await, in_time);
        let left = coordinator.reported().iter().any(|of| matches!(of, ParticipantReport::Left { .. }));
        assert_eq!(left, in_time, "the service may act until the delay has ended");
        assert!(!left || withdrawn.elapsed() >= DELAY, "left after {:?}", withdrawn.elapsed());
    }
}
