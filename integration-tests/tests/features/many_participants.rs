//! A large fleet: 1,024 partitions on 64 participants, and on 70. All participants run in one program, with a session
//! each, beside coordinators that are processes.

use archon_client::{AcquireError, Admin, Callbacks, Epoch, Grant, Participant, PartitionId, ReleaseCause};
use archon_integration_tests::cluster::TIMEOUT;
use archon_integration_tests::{Cluster, Options, Room};
use archon_testkit::{check, wait_for};
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;

const PARTITIONS: u32 = 1_024;
const FIRST: usize = 64;
const ALL: usize = 70;
/// Just enough for 64 participants.
const PARTITIONS_MAX: u32 = 16;

/// Owners of all partitions, and the number of acquisitions of each partition.
#[derive(Default)]
struct Ledger {
    owners: BTreeMap<u32, (Epoch, usize)>,
    last: BTreeMap<u32, Epoch>,
    acquired: BTreeMap<u32, u32>,
    lost: usize,
    wrong: Vec<String>,
}

#[derive(Clone)]
struct Member {
    number: usize,
    ledger: Arc<Mutex<Ledger>>,
}

impl Member {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Callbacks for Member {
    async fn acquire(&self, grant: Grant) -> Result<(), AcquireError> {
        let (index, epoch) = (grant.partition().index, grant.epoch());
        let mut ledger = self.ledger();
        let before = ledger.owners.insert(index, (epoch, self.number));
        let last = ledger.last.insert(index, epoch);
        if before.is_some() || last > Some(epoch) {
            let wrong = format!("{} acquires {index} in epoch {epoch}, after {last:?} of {before:?}", self.number);
            ledger.wrong.push(wrong);
        }
        *ledger.acquired.entry(index).or_default() += 1;
        Ok(())
    }

    async fn release(&self, grant: Grant, _: ReleaseCause) {
        self.ledger().owners.remove(&grant.partition().index);
    }

    fn lost(&self, partition: PartitionId, _: Epoch) {
        let mut ledger = self.ledger();
        ledger.lost += 1;
        ledger.owners.remove(&partition.index);
    }
}

#[test]
fn six_new_participants_get_a_share_and_nothing_else_moves() {
    let cluster = Cluster::start(
        env!("CARGO_BIN_EXE_archon-under-test"),
        // Seventy sessions with leases load the machine.
        &Options { coordinators: 1, nodes: Vec::new(), nodes_min: 1, room: Room::Whole, ..Options::default() },
    );
    let runtime = Runtime::new().expect("a runtime");
    let coordinators = cluster.coordinator_addresses();
    let admin = Admin::new(coordinators.clone(), Duration::from_secs(10)).expect("valid endpoints");
    runtime.block_on(admin.create_lease_table("jobs", PARTITIONS)).expect("a lease table");

    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let start = |number: usize| {
        let millis = Duration::from_millis;
        let builder = Participant::builder(&coordinators).table("jobs").name(format!("server-{number}"));
        let builder = builder.address(format!("server-{number}.example:80")).partitions_max(PARTITIONS_MAX);
        let member = Member { number, ledger: Arc::clone(&ledger) };
        builder.timing(millis(1_500), millis(6_000), millis(7_500)).start(member)
    };
    let all = |numbers: std::ops::Range<usize>| {
        let started = runtime.block_on(join_all(numbers.map(start)));
        started.into_iter().collect::<Result<Vec<_>, _>>().expect("all are registered")
    };
    let wait = |what: &str, members: &[Participant], shares: std::ops::RangeInclusive<usize>| {
        wait_for(what, TIMEOUT, || {
            let owned: Vec<usize> = members.iter().map(|member| member.owned().len()).collect();
            let even = owned.iter().all(|owned| shares.contains(owned));
            check(even && owned.iter().sum::<usize>() == PARTITIONS as usize, || format!("{owned:?}"))
        })
        .1
    };

    let mut members = all(0..FIRST);
    println!("64 own 16 each after {:?}", wait("16 partitions each", &members, 16..=16));
    members.extend(all(FIRST..ALL));
    println!("70 own 14 or 15 each after {:?}", wait("14 or 15 partitions each", &members, 14..=15));
    let newcomers: usize = members[FIRST..].iter().map(|member| member.owned().len()).sum();
    {
        let ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = ledger.acquired.values().filter(|times| **times == 2).count();
        println!("{moved} partitions moved");
        assert!(ledger.acquired.values().all(|times| *times <= 2), "one moved twice: {:?}", ledger.acquired);
        assert_eq!((moved, ledger.lost), (newcomers, 0), "each that moved went to a newcomer, and none was lost");
        assert_eq!(newcomers, (ALL - FIRST) * (PARTITIONS as usize / ALL), "no more than needed for even shares");
    }
    let leaves = members.remove(0);
    assert!(runtime.block_on(leaves.stop(Duration::from_secs(20))), "everything was released");
    println!("69 own all after {:?}", wait("all to be owned by 69", &members, 14..=16));
    runtime.block_on(join_all(members.into_iter().map(|member| member.stop(Duration::from_secs(20)))));
    let ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!((&ledger.wrong, ledger.owners.len()), (&Vec::new(), 0));
}
