//! Participants that are played: each has a session of its own, with a stream of its own for heartbeats, and calls over connections
//! that all share.

use crate::counted::{Counted, micros};
use archon_load::BeatStream;
use archon_proto::convert::beats::Beat;
use archon_proto::convert::duties::{Duties, DutiesAsked};
use archon_proto::convert::error::detail_of;
use archon_proto::convert::load::Load;
use archon_proto::convert::report::{Outcomes, Reports};
use archon_proto::convert::session::{Member, Registered, Registration};
use archon_proto::v1;
use archon_proto::v1::session_client::SessionClient;
use archon_types::{
    BootId, Duty, Epoch, ErrorDetail, ErrorKind, Fact, GenerationKey, Incarnation, LeaseTiming, PROTOCOL_NEWEST,
    Participant, Partition, PartitionId, PlacementId, PushKey, Report, StorageId, Version,
};
use hdrhistogram::Histogram;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore};
use tokio::time::sleep;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use uuid::Uuid;

/// Participants that share one connection for polls; a coordinator takes 1,024 requests at once on each.
const POLLS_PER_CONNECTION: u32 = 500;
/// Registrations under way at once.
const REGISTRATIONS_AT_ONCE: usize = 64;
/// How often a participant tries to register before the run is given up.
const REGISTER_TRIES: u32 = 100;
/// As the library's.
const POLL_WAIT: Duration = Duration::from_secs(10);
const POLL_SLACK: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(50);

/// A partition as its owner knows it.
#[derive(Clone, Copy)]
struct Owned {
    placement: PlacementId,
    epoch: Epoch,
    version: Version,
}

/// All participants.
pub(crate) struct World {
    table: String,
    timing: LeaseTiming,
    coordinators: Vec<Links>,
    /// Which of them leads, as far as anybody was told.
    leads: AtomicUsize,
    /// How often that changed.
    pub(crate) leader_changes: AtomicU64,
    registering: Semaphore,
    /// Those that are registered.
    pub(crate) registered: AtomicU64,
    players: Vec<Player>,
    counted: Mutex<Counted>,
    /// Partitions that were given up, and when, until another one has them.
    given_up: Mutex<HashMap<PartitionId, Instant>>,
    hand_overs: Mutex<Histogram<u64>>,
    /// The first and the last grant since participants died.
    grants: Mutex<Option<(Instant, Instant)>>,
}

/// The connections to one coordinator.
struct Links {
    address: String,
    bulk: Vec<SessionClient<Channel>>,
}

/// What one participant owns and is asked to do.
#[derive(Default)]
struct Player {
    owned: Mutex<BTreeMap<PartitionId, Owned>>,
    gives_up: AtomicBool,
    dead: AtomicBool,
    wake: Notify,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub(crate) fn new(
        addresses: &[String],
        leads: usize,
        table: &str,
        timing: LeaseTiming,
        participants: u32,
    ) -> anyhow::Result<Arc<Self>> {
        let links = |address: &String| {
            let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
            let clients = |count: usize| (0..count).map(|_| SessionClient::new(endpoint.connect_lazy())).collect();
            let bulk = clients(participants.div_ceil(POLLS_PER_CONNECTION) as usize);
            Ok(Links { address: address.clone(), bulk })
        };
        Ok(Arc::new(Self {
            table: table.to_owned(),
            timing,
            coordinators: addresses.iter().map(links).collect::<anyhow::Result<_>>()?,
            leads: AtomicUsize::new(leads),
            leader_changes: AtomicU64::new(0),
            registering: Semaphore::new(REGISTRATIONS_AT_ONCE),
            registered: AtomicU64::new(0),
            players: (0..participants).map(|_| Player::default()).collect(),
            counted: Mutex::new(Counted::new()),
            given_up: Mutex::default(),
            hand_overs: Mutex::new(micros()),
            grants: Mutex::default(),
        }))
    }

    /// Which coordinator leads, as far as anybody was told.
    pub(crate) fn leader(&self) -> usize {
        self.leads.load(Ordering::Relaxed)
    }

    /// Follows a refusal to whom it names.
    fn refused(&self, status: &Status) -> ErrorKind {
        self.refused_with(&detail_of(status))
    }

    fn refused_with(&self, detail: &ErrorDetail) -> ErrorKind {
        let named = |address: &String| self.coordinators.iter().position(|links| links.address == *address);
        if let Some(leads) = detail.leader.as_ref().and_then(named)
            && self.leads.swap(leads, Ordering::Relaxed) != leads
        {
            self.leader_changes.fetch_add(1, Ordering::Relaxed);
        }
        detail.kind
    }

    /// What was counted since the last call.
    pub(crate) fn take_counted(&self) -> Counted {
        std::mem::replace(&mut *lock(&self.counted), Counted::new())
    }

    /// How long hand-overs took since the last call, in microseconds.
    pub(crate) fn take_hand_overs(&self) -> Histogram<u64> {
        std::mem::replace(&mut *lock(&self.hand_overs), micros())
    }

    /// Partitions that living participants own.
    pub(crate) fn owned(&self) -> usize {
        let alive = self.players.iter().filter(|player| !player.dead.load(Ordering::Relaxed));
        alive.map(|player| lock(&player.owned).len()).sum()
    }

    /// Has a participant give up what it owns, for another one to have.
    pub(crate) fn give_up(&self, number: u32) {
        let player = &self.players[number as usize];
        player.gives_up.store(true, Ordering::Relaxed);
        player.wake.notify_one();
    }

    /// Has the first `count` participants fall silent. Gives how much they owned.
    pub(crate) fn silence(&self, count: u32) -> usize {
        *lock(&self.grants) = None;
        let dying = &self.players[..count as usize];
        for player in dying {
            player.dead.store(true, Ordering::Relaxed);
            player.wake.notify_one();
        }
        dying.iter().map(|player| lock(&player.owned).len()).sum()
    }

    /// From the first grant to the last since participants fell silent.
    pub(crate) fn last_grants(&self) -> Option<Duration> {
        lock(&self.grants).map(|(first, last)| last - first)
    }

    /// One participant's life.
    pub(crate) async fn play(self: Arc<Self>, number: u32) -> anyhow::Result<()> {
        let player = &self.players[number as usize];
        let member = {
            let _place = self.registering.acquire().await?;
            self.register(number).await?
        };
        self.registered.fetch_add(1, Ordering::Relaxed);
        let dies = async {
            while !player.dead.load(Ordering::Relaxed) {
                player.wake.notified().await;
                if player.gives_up.swap(false, Ordering::Relaxed) {
                    self.drop_all(number, member).await;
                }
            }
        };
        tokio::select! {
            () = self.heartbeats(member) => anyhow::bail!("the life of participant {number} was ended"),
            () = self.polls(number, member) => Ok(()),
            () = dies => Ok(()),
        }
    }

    async fn register(&self, number: u32) -> anyhow::Result<Member> {
        let registration = Registration {
            cluster: None,
            name: format!("worker-{number:05}"),
            address: format!("127.0.0.1:{}", 1 + number),
            storage: StorageId::new(Uuid::new_v4()),
            boot: BootId::new(Uuid::new_v4()),
            zone: None,
            weight: 100,
            partitions_max: None,
            protocol_min: 1,
            protocol_max: PROTOCOL_NEWEST,
            held: Vec::new(),
            last_incarnation: Incarnation::ZERO,
            generation_key: GenerationKey::NIL,
            expects: Incarnation::ZERO,
            participant: Some(Participant { tables: vec![self.table.clone()], timing: Some(self.timing) }),
            told: archon_types::Version::ZERO,
        };
        let request = v1::RegisterRequest::from(registration);
        for _ in 0..REGISTER_TRIES {
            match self.bulk(number).register(request.clone()).await {
                Ok(answer) => {
                    let Registered { cluster, node, incarnation, .. } = Registered::try_from(answer.into_inner())?;
                    return Ok(Member { cluster, node, incarnation });
                }
                Err(status) => drop(self.refused(&status)),
            }
            sleep(AGAIN).await;
        }
        anyhow::bail!("participant {number} could not register")
    }

    fn bulk(&self, number: u32) -> SessionClient<Channel> {
        let bulk = &self.coordinators[self.leader()].bulk;
        bulk[number as usize % bulk.len()].clone()
    }

    /// Ends when the coordinator says that this life is over.
    async fn heartbeats(&self, member: Member) {
        let every = Duration::from_millis(self.timing.heartbeat_ms);
        let deadline = Duration::from_millis(self.timing.lease_ms) / 8;
        let push_key = PushKey::new(Uuid::new_v4());
        let (mut number, mut lease_until) = (0, None);
        let mut stream: Option<(usize, BeatStream)> = None;
        loop {
            number += 1;
            let beat = Beat {
                node: member.node,
                incarnation: member.incarnation,
                number,
                table_version: Version::ZERO,
                stopping: false,
                push_key,
                load: Some(Load::default()),
                doors: None,
                proof: bytes::Bytes::new(),
            };
            let (begun, leader) = (Instant::now(), self.leader());
            if stream.as_ref().is_none_or(|(to, _)| *to != leader) {
                let connected = BeatStream::connect(&self.coordinators[leader].address, member.cluster).await;
                stream = connected.ok().map(|connected| (leader, connected));
            }
            let granted = match &mut stream {
                Some((_, stream)) => stream.beat(beat, deadline).await,
                None => Err(ErrorDetail::new(ErrorKind::Unreachable, "no connection")),
            };
            match granted {
                Ok(granted) => {
                    let mut counted = lock(&self.counted);
                    counted.micros.saturating_record(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
                    counted.lapsed += u64::from(lease_until.is_some_and(|until| Instant::now() > until));
                    lease_until = Some(begun + Duration::from_millis(granted.lease_ms));
                }
                Err(detail) => {
                    if self.refused_with(&detail) == ErrorKind::StaleIncarnation {
                        lock(&self.counted).ended += 1;
                        return;
                    }
                    if detail.kind == ErrorKind::Unreachable {
                        stream = None;
                    }
                    lock(&self.counted).missed += 1;
                    sleep(AGAIN).await;
                    continue;
                }
            }
            // As the library draws it.
            sleep(every.mul_f64(0.75 + 0.25 * drawn()).saturating_sub(begun.elapsed())).await;
        }
    }

    async fn polls(&self, number: u32, member: Member) {
        let (mut term, mut version) = (0, Version::ZERO);
        loop {
            let wait_ms = u32::try_from(POLL_WAIT.as_millis()).unwrap_or(u32::MAX);
            let mut request = Request::new(v1::DutiesRequest::from(DutiesAsked { member, term, version, wait_ms }));
            request.set_timeout(POLL_WAIT + POLL_SLACK);
            let answer = self.bulk(number).duties(request).await.map_err(|status| self.refused(&status));
            let Some(answer) = answer.ok().and_then(|answer| Duties::try_from(answer.into_inner()).ok()) else {
                sleep(AGAIN).await;
                continue;
            };
            if let Some(duties) = answer.duties {
                (term, version) = (answer.term, answer.version);
                let facts = self.obey(number, &duties);
                self.report(number, member, facts).await;
            }
        }
    }

    /// What follows from its duties is to be told.
    fn obey(&self, number: u32, duties: &[Duty]) -> Vec<Report> {
        let mut owned = lock(&self.players[number as usize].owned);
        let (mut named, mut facts) = (BTreeMap::new(), Vec::new());
        for duty in duties {
            match duty {
                Duty::Host { partition, placement } if partition.leader == Some(*placement) => {
                    named.insert(partition.id, of(partition, *placement));
                }
                Duty::HandOver { partition, placement, .. } => {
                    facts.push(report(partition.id, of(partition, *placement), Fact::Released));
                }
                Duty::Host { .. } | Duty::Unload { .. } | Duty::Inspect { .. } => {}
            }
        }
        for (partition, of) in &named {
            if owned.get(partition).is_none_or(|before| before.epoch < of.epoch) {
                facts.push(report(*partition, *of, Fact::Online));
                self.granted(*partition);
            }
        }
        *owned = named;
        facts
    }

    fn granted(&self, partition: PartitionId) {
        let now = Instant::now();
        lock(&self.counted).grants += 1;
        let mut grants = lock(&self.grants);
        *grants = Some((grants.map_or(now, |(first, _)| first), now));
        if let Some(since) = lock(&self.given_up).remove(&partition) {
            let took = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
            lock(&self.hand_overs).saturating_record(took);
        }
    }

    async fn drop_all(&self, number: u32, member: Member) {
        let player = &self.players[number as usize];
        let owned = std::mem::take(&mut *lock(&player.owned));
        let now = Instant::now();
        lock(&self.given_up).extend(owned.keys().map(|partition| (*partition, now)));
        let facts = owned.iter().map(|(partition, of)| report(*partition, *of, Fact::Declined)).collect();
        let refused = self.report(number, member, facts).await;
        if refused.is_empty() {
            return;
        }
        // Another change of the row came first, of which the next duties tell: it is owned still, and given up anew.
        for partition in refused {
            if let Some(of) = owned.get(&partition) {
                lock(&player.owned).entry(partition).or_insert(*of);
            }
        }
        sleep(AGAIN).await;
        self.give_up(number);
    }

    /// Tells facts. Gives the partitions about which one was refused.
    async fn report(&self, number: u32, member: Member, reports: Vec<Report>) -> Vec<PartitionId> {
        if reports.is_empty() {
            return Vec::new();
        }
        let partitions: Vec<PartitionId> = reports.iter().map(|report| report.partition).collect();
        let request = v1::ReportRequest::from(Reports { member, reports });
        loop {
            match self.bulk(number).report(request.clone()).await {
                Ok(answer) => {
                    let outcomes = Outcomes::from(answer.into_inner()).outcomes;
                    let refused = partitions.into_iter().zip(outcomes).filter(|(_, outcome)| outcome.is_some());
                    return refused.map(|(partition, _)| partition).collect();
                }
                Err(status) => drop(self.refused(&status)),
            }
            sleep(AGAIN).await;
        }
    }
}

fn of(partition: &Partition, placement: PlacementId) -> Owned {
    Owned { placement, epoch: partition.epoch, version: partition.version }
}

fn report(partition: PartitionId, of: Owned, fact: Fact) -> Report {
    Report { partition, placement: of.placement, epoch: of.epoch, version: of.version, fact }
}

/// Drawn from 0 to 1.
fn drawn() -> f64 {
    f64::from(u32::from_le_bytes(Uuid::new_v4().as_bytes()[..4].try_into().unwrap_or_default())) / f64::from(u32::MAX)
}
