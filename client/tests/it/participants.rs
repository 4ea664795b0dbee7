//! Services that own partitions, with coordinators in this process.

use crate::service::{CallbackEvent, SOON, Service, wait};
use archon_client::{Admin, Client, ErrorKind, Grant, Participant, PartitionId, ReleaseCause, ServiceLoad};
use archon_coordinator::{Coordinator, CoordinatorConfig, FirstStart};
use archon_testkit::ScratchDirectory;
use archon_types::{ProtocolRange, Settings, TableId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const PARTITIONS: u32 = 6;
const LEASE: Duration = Duration::from_secs(1);

struct Quorum {
    running: Vec<Coordinator>,
    addresses: Vec<String>,
    directories: Vec<ScratchDirectory>,
}

impl Quorum {
    /// Starts coordinators, and creates a lease table.
    async fn start(count: u64) -> Self {
        let mut quorum = Self { running: Vec::new(), addresses: Vec::new(), directories: Vec::new() };
        let mut listeners = Vec::new();
        let mut peers = BTreeMap::new();
        for id in 1..=count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap().to_string();
            peers.insert(id, address.clone());
            quorum.addresses.push(address);
            listeners.push((id, listener));
        }
        for (id, listener) in listeners {
            let directory = ScratchDirectory::in_memory().unwrap();
            let (listen, data_dir) = (listener.local_addr().unwrap(), directory.path().to_owned());
            let settings = Settings { partitions: 1, ..Settings::default() };
            let config = CoordinatorConfig {
                id,
                listen,
                metrics_listen: None,
                transport: archon_security::Transport::default(),
                advertise: None,
                start: Some(FirstStart::Found { peers: peers.clone() }),
                data_dir,
                speaks: ProtocolRange::SPOKEN,
                timing: archon_coordinator::QuorumTiming::default(),
                settings,
                settings_said: Default::default(),
            };
            quorum.running.push(Coordinator::start(listener, config).await.unwrap());
            quorum.directories.push(directory);
        }
        let admin = Admin::new(quorum.addresses.clone(), SOON).unwrap();
        admin.create_lease_table("jobs", PARTITIONS).await.unwrap();
        quorum
    }

    async fn stop(&mut self) {
        for coordinator in self.running.drain(..) {
            assert!(coordinator.shutdown().await.is_none());
        }
    }
}

async fn start(quorum: &Quorum, name: &str, service: &Service) -> Participant {
    start_with(quorum, &["jobs"], name, service).await
}

async fn start_with(quorum: &Quorum, tables: &[&str], name: &str, service: &Service) -> Participant {
    let builder = Participant::builder(quorum.addresses.clone()).name(name);
    let builder = tables.iter().fold(builder, |builder, table| builder.table(*table));
    let builder = builder.address(format!("{name}.example:80"));
    let timing = (Duration::from_millis(200), LEASE, Duration::from_millis(1_250));
    builder.timing(timing.0, timing.1, timing.2).start(service.clone()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn services_hand_over_when_others_register_or_stop() {
    let mut quorum = Quorum::start(1).await;
    let (first, second) = (Service::default(), Service::default().beside());
    let second = Service { owners: Arc::clone(&first.owners), slow: Duration::from_millis(50), ..second };
    let athens = start(&quorum, "athens", &first).await;
    wait("all partitions", || athens.owned().len() == PARTITIONS as usize).await;
    let byzantium = start(&quorum, "byzantium", &second).await;
    wait("halves", || athens.owned().len() == 3 && byzantium.owned().len() == 3).await;
    assert_eq!(first.count(|told| matches!(told, CallbackEvent::Released(_, _, ReleaseCause::HandedOver))), 3);
    let taken: Vec<Grant> = byzantium.owned();
    let partition = taken[0].partition();
    assert!(athens.have_partition(partition).is_none());
    let epoch = byzantium.have_partition(partition).unwrap().check().unwrap();
    let before = first.told.lock().iter().find_map(|told| match told {
        CallbackEvent::Acquired(of, epoch) if *of == partition => Some(*epoch),
        _ => None,
    });
    assert!(before.unwrap() < epoch, "the fencing token has risen");
    assert!(byzantium.stop(Duration::from_secs(10)).await, "everything was released");
    assert_eq!(second.count(|told| matches!(told, CallbackEvent::Released(_, _, ReleaseCause::Stopped))), 3);
    assert!(taken.iter().all(|grant| grant.check().is_err()), "a grant does not outlive its participant");
    wait("all partitions again", || athens.owned().len() == PARTITIONS as usize).await;
    assert_eq!(first.count(|told| matches!(told, CallbackEvent::Lost(..))), 0);
    assert!(athens.stop(Duration::from_secs(10)).await);
    assert_eq!(first.count(|told| matches!(told, CallbackEvent::Released(..))), PARTITIONS as usize + 3);
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_lease_loses_all_and_releases_nothing() {
    let mut quorum = Quorum::start(1).await;
    let service = Service::default();
    let athens = start(&quorum, "athens", &service).await;
    wait("all partitions", || athens.owned().len() == PARTITIONS as usize).await;
    let owned = athens.owned();
    quorum.stop().await;
    let stopped = Instant::now();
    let mut last_valid = Duration::ZERO;
    wait("the end of the lease", || {
        let looked = stopped.elapsed();
        let ended = owned.iter().all(|grant| grant.check().is_err());
        last_valid = if ended { last_valid } else { looked };
        ended
    })
    .await;
    assert!(last_valid <= LEASE, "{last_valid:?}");
    wait("nothing to be owned", || athens.owned().is_empty()).await;
    assert!(owned.iter().all(|grant| grant.check().is_err()));
    wait("the service to be told", || service.count(|told| matches!(told, CallbackEvent::Lost(..))) == 6).await;
    assert_eq!(service.count(|told| matches!(told, CallbackEvent::Released(..))), 0);
    assert_eq!(athens.stats().losses, 6);
    assert!(athens.stop(Duration::from_secs(2)).await, "there is nothing to release");
}

#[tokio::test(flavor = "multi_thread")]
async fn declined_partitions_go_to_another_participant() {
    let mut quorum = Quorum::start(1).await;
    let first = Service { refuses: Some(0), ..Service::default() };
    let second = first.beside();
    let athens = start(&quorum, "athens", &first).await;
    wait("five partitions", || athens.owned().len() == 5).await;
    let byzantium = start(&quorum, "byzantium", &second).await;
    wait("all to be owned", || athens.owned().len() + byzantium.owned().len() == 6).await;
    wait("an even share", || athens.owned().len() == 3).await;
    let dropped = athens.owned()[0].clone();
    assert!(athens.drop_partition(dropped.partition()).await);
    assert!(dropped.check().is_err() && athens.have_partition(dropped.partition()).is_none());
    assert_eq!(first.count(|told| matches!(told, CallbackEvent::Released(_, _, ReleaseCause::Declined))), 1);
    wait("the other one to have it", || byzantium.have_partition(dropped.partition()).is_some()).await;
    assert!(!athens.drop_partition(dropped.partition()).await, "it is not ours any more");
    assert!(athens.stop(Duration::from_secs(10)).await && byzantium.stop(Duration::from_secs(10)).await);
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn participant_serves_several_tables_independently() {
    let mut quorum = Quorum::start(1).await;
    let admin = Admin::new(quorum.addresses.clone(), SOON).unwrap();
    let mail = TableId::new(admin.create_lease_table("mail", 4).await.unwrap().id);
    let service = Service::default();
    let athens = start_with(&quorum, &["jobs", "mail"], "athens", &service).await;
    let of_mail = |grant: &Grant| grant.partition().table == mail;
    let count = |participant: &Participant| {
        let of_mail = participant.owned().iter().filter(|grant| of_mail(grant)).count();
        (participant.owned().len() - of_mail, of_mail)
    };
    wait("both tables", || count(&athens) == (6, 4)).await;
    let jobs: Vec<Grant> = athens.owned().into_iter().filter(|grant| !of_mail(grant)).collect();

    // Hand-over: another participant registers for only one of the tables.
    let other = service.beside();
    let byzantium = start_with(&quorum, &["mail"], "byzantium", &other).await;
    wait("half of the mail", || count(&athens) == (6, 2) && count(&byzantium) == (0, 2)).await;
    let handed = byzantium.owned()[0].partition();
    let same_number = PartitionId::new(jobs[0].partition().table, handed.index);
    assert!(athens.have_partition(handed).is_none() && athens.have_partition(same_number).is_some());

    // Loss: the other participant dies, and the one of both tables takes over.
    drop(byzantium);
    wait("the mail again", || count(&athens) == (6, 4)).await;
    assert_eq!(other.count(|told| matches!(told, CallbackEvent::Lost(of, _) if of.table == mail)), 2);

    // End: one of the tables is dropped.
    admin.drop_table("mail", mail.get()).await.unwrap();
    wait("no mail", || count(&athens) == (6, 0)).await;

    assert!(
        jobs.iter().all(|grant| grant.check().is_ok()),
        "the other table went through all that in its first epochs"
    );
    let ended = |told: &CallbackEvent| match told {
        CallbackEvent::Acquired(..) => false,
        CallbackEvent::Released(of, ..) | CallbackEvent::Lost(of, _) => of.table != mail,
    };
    assert_eq!(service.count(ended), 0, "{:?}", service.told.lock());
    assert!(athens.stop(Duration::from_secs(10)).await);
    assert_eq!(service.count(ended), PARTITIONS as usize);
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_participant_loses_all_and_others_take_over() {
    let mut quorum = Quorum::start(1).await;
    let service = Service::default();
    let athens = start(&quorum, "athens", &service).await;
    wait("all partitions", || athens.owned().len() == PARTITIONS as usize).await;
    let owned = athens.owned();
    drop(athens);
    wait("the service to be told", || service.count(|told| matches!(told, CallbackEvent::Lost(..))) == 6).await;
    assert!(owned.iter().all(|grant| grant.check().is_err()));
    let byzantium = start(&quorum, "byzantium", &service.beside()).await;
    wait("all partitions", || byzantium.owned().len() == PARTITIONS as usize).await;
    assert!(byzantium.stop(Duration::from_secs(10)).await);
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn participant_outlives_the_leading_coordinator() {
    let mut quorum = Quorum::start(3).await;
    let service = Service::default();
    let athens = start(&quorum, "athens", &service).await;
    wait("all partitions", || athens.owned().len() == PARTITIONS as usize).await;
    let leads = quorum.running.iter().position(Coordinator::is_leading).unwrap();
    assert!(quorum.running.remove(leads).shutdown().await.is_none());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        assert_eq!(athens.owned().len(), PARTITIONS as usize, "after {:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(service.count(|told| matches!(told, CallbackEvent::Lost(..))), 0);
    assert!(athens.stop(Duration::from_secs(10)).await);
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_process_of_one_name_ends_the_older_once() {
    let mut quorum = Quorum::start(1).await;
    let service = Service::default();
    let older = start(&quorum, "athens", &service).await;
    wait("all partitions", || older.owned().len() == PARTITIONS as usize).await;
    let newer = start(&quorum, "athens", &service.beside()).await;
    let refused = tokio::time::timeout(SOON, older.failed()).await.unwrap();
    assert!(refused.kind() == ErrorKind::Refused && refused.to_string().contains("another process"), "{refused}");
    assert!(older.owned().is_empty());
    wait("all partitions", || newer.owned().len() == PARTITIONS as usize).await;
    assert_eq!(newer.stats().registrations, 1);
    assert!(newer.stop(Duration::from_secs(10)).await);
    assert!(!older.stop(Duration::from_secs(1)).await, "it had lost everything");
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_settings_are_rejected_at_start() {
    let mut quorum = Quorum::start(1).await;
    let seconds = Duration::from_secs;
    let builder = || Participant::builder(quorum.addresses.clone()).table("jobs").name("w1").address("127.0.0.1:80");
    let unsafe_timing = builder().timing(seconds(10), seconds(45), seconds(45)).start(Service::default()).await;
    let refused = unsafe_timing.unwrap_err();
    assert!(refused.kind() == ErrorKind::InvalidArgument && refused.to_string().contains("1.01"), "{refused}");
    // Refused before a coordinator is asked: none is there.
    let alone = || Participant::builder(["127.0.0.1:1"]).table("jobs").name("w1").address("127.0.0.1:80");
    for out_of_range in [alone().partitions_max(0), alone().weight(0), alone().weight(10_001)] {
        let refused = out_of_range.start_within(seconds(1)).start(Service::default()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    }
    let nameless = Participant::builder(quorum.addresses.clone()).table("jobs").address("127.0.0.1:80");
    assert_eq!(nameless.start(Service::default()).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let nobody = Participant::builder(["127.0.0.1:1"]).table("jobs").name("w1").address("127.0.0.1:80");
    let nobody = nobody.start_within(Duration::from_millis(500)).start(Service::default()).await.unwrap_err();
    assert!(nobody.to_string().contains("500 ms"), "{nobody}");
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn published_load_is_shown_to_operators() {
    let mut quorum = Quorum::start(1).await;
    let athens = start(&quorum, "athens", &Service::default()).await;
    athens.publish_load(ServiceLoad { bytes_stored: 1_234, operations_per_second: 56 });
    let admin = Admin::new(quorum.addresses.clone(), SOON).unwrap();
    let begun = Instant::now();
    loop {
        let nodes = admin.list_nodes().await.unwrap();
        let row = nodes.iter().find(|node| node.name == "athens").unwrap();
        if (row.bytes_stored, row.operations_per_second) == (Some(1_234), Some(56)) {
            break;
        }
        assert!(begun.elapsed() < SOON, "it is shown as {row:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(athens);
    quorum.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_find_the_owner_of_a_key_and_report_changes() {
    let mut quorum = Quorum::start(1).await;
    let service = Service::default();
    let athens = start(&quorum, "athens", &service).await;
    wait("all partitions", || athens.owned().len() == PARTITIONS as usize).await;
    let client = Client::builder(quorum.addresses.clone()).table("jobs").build().await;
    assert_eq!(client.unwrap_err().kind(), ErrorKind::InvalidArgument, "it holds no rows");
    let mut routes = Client::builder(quorum.addresses.clone()).routes("jobs").await.unwrap();
    wait("the owners", || routes.map().owners.iter().flatten().filter(|owner| owner.serves).count() == 6).await;
    let owner = routes.owner_of("invoice-7").unwrap();
    assert_eq!((owner.name.as_str(), owner.address.as_str()), ("athens", "athens.example:80"));
    assert_eq!(owner.partition, routes.partition_of("invoice-7"));
    assert_eq!(athens.have_partition(owner.partition).unwrap().epoch(), owner.epoch);
    assert!(routes.wrong(owner.partition, None) && !routes.wrong(owner.partition, Some(owner.epoch)));
    let byzantium = start(&quorum, "byzantium", &service.beside()).await;
    let begun = Instant::now();
    let other = loop {
        assert!(begun.elapsed() < SOON, "{:?}", routes.map());
        routes.changed().await.unwrap();
        let mut owners = routes.map().owners.into_iter().flatten();
        if let Some(owner) = owners.find(|owner| owner.name == "byzantium" && owner.serves) {
            break owner;
        }
    };
    assert_eq!(other.address, "byzantium.example:80");
    assert!(byzantium.have_partition(other.partition).is_some());
    assert!(athens.stop(SOON).await && byzantium.stop(SOON).await);
    let begun = Instant::now();
    while routes.map().owners.iter().any(Option::is_some) {
        assert!(begun.elapsed() < SOON, "{:?}", routes.map());
        routes.changed().await.unwrap();
    }
    let table = owner.partition.table.get();
    Admin::new(quorum.addresses.clone(), SOON).unwrap().drop_table("jobs", table).await.unwrap();
    while routes.changed().await.is_ok() {}
    assert_eq!(routes.changed().await.unwrap_err().kind(), ErrorKind::NotFound);
    quorum.stop().await;
}
