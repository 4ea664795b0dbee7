//! Shell for tests: an in-memory engine, a clock set by the test, and lists of the calls made.

use crate::copies::pages::{CopyJob, OfferResult};
use crate::operations::park_limits::ParkLimits;
use crate::operations::request::Origin;
use crate::ranges::split_watch::SplitSearch;
use crate::ranges::split_work::FormedCopy;
use crate::ranges::yield_page::YieldAsk;
use crate::{
    Action, Completions, CopyEvent, CopyLocation, DisabledRule, FlushUrgency, FormJob, LocalCopy, LogWrite,
    NodeRegistration, Outcome, Partitions, RecoveredCopy, Refusal, Reply, Request, RetentionLimits, Shell,
};
use archon_kv::engine::{Change, ClearStep, EngineError, KeyBounds, Page, PageLimit};
use archon_kv::{DedupLimits, Engine, MemoryEngine, MemtableBudget, ViewError};
use archon_replica::{
    Body, Entry, Identity, Input, Limits, Message, Position, RecoveredError, RecoveredState, Replica, ReplicaAddress,
    Timing,
};
use archon_types::{
    Epoch, ErrorDetail, ErrorKind, Incarnation, Millis, NodeId, Op, Partition, PartitionId, PartitionStatus, Placement,
    PlacementId, RangeLimits, ReplicaState, Report, ScanOrder, Seq, TableId, Version,
};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::BTreeMap;

pub(crate) const PARTITION: PartitionId = PartitionId::new(TableId::new(1), 0);
pub(crate) const OWN: PlacementId = PlacementId::new(1);
pub(crate) const OTHER: PlacementId = PlacementId::new(2);
pub(crate) const LIFE: NodeRegistration = NodeRegistration { node: NodeId::new(1), incarnation: Incarnation::new(1) };

impl Reply for &'static str {
    fn room(&self) -> Result<(), ErrorDetail> {
        match *self {
            "takes nothing" => Err(ErrorDetail::new(ErrorKind::Overloaded, "no room")),
            _ => Ok(()),
        }
    }

    fn hold(&mut self, answer: &Outcome) -> Result<(), ErrorDetail> {
        match (*self, answer) {
            ("holds nothing", Ok(_)) => Err(ErrorDetail::new(ErrorKind::Overloaded, "no room to wait")),
            _ => Ok(()),
        }
    }
}

/// An engine that refuses everything, as after a write that met a full disk.
struct RefusingEngine;

impl RefusingEngine {
    fn error() -> EngineError {
        let source = std::io::ErrorKind::QuotaExceeded.into();
        EngineError::Io { directory: "refusing".into(), what: "read a row", source }
    }
}

impl Engine for RefusingEngine {
    fn get(&self, _: PlacementId, _: &[u8]) -> Result<Option<Bytes>, EngineError> {
        Err(Self::error())
    }
    fn page(&self, _: PlacementId, _: KeyBounds<'_>, _: ScanOrder, _: PageLimit) -> Result<Page, EngineError> {
        Err(Self::error())
    }
    fn write(&self, _: &[Change]) -> Result<(), EngineError> {
        Err(Self::error())
    }
    fn clear_range(&self, _: PlacementId, _: KeyBounds<'_>, _: usize) -> Result<ClearStep, EngineError> {
        Err(Self::error())
    }
    fn spaces(&self) -> Result<Vec<PlacementId>, EngineError> {
        Err(Self::error())
    }
    fn sync(&self) -> Result<(), EngineError> {
        Err(Self::error())
    }
}

/// Shell for tests.
pub(crate) struct TestShell {
    pub(crate) now: Cell<Millis>,
    /// Duration of each engine access, in milliseconds.
    pub(crate) look_ms: u64,
    pub(crate) lease_until: Millis,
    pub(crate) timing: Timing,
    pub(crate) engine: MemoryEngine,
    pub(crate) dedup: DedupLimits,
    pub(crate) gathered: Completions,
    pub(crate) writes: Vec<LogWrite>,
    pub(crate) answers: Vec<(&'static str, Outcome)>,
    pub(crate) refusals: Vec<(&'static str, Refusal)>,
    pub(crate) reports: Vec<Report>,
    /// Leader according to the table.
    pub(crate) leader: Option<NodeId>,
    pub(crate) forwarded: Vec<(NodeId, Request<&'static str>)>,
    pub(crate) life: NodeRegistration,
    pub(crate) forms: Vec<FormJob>,
    /// Messages to other replicas.
    pub(crate) sent: Vec<Message>,
    /// Copies with a known end, and that end.
    pub(crate) ends: Vec<(PlacementId, Position)>,
    /// Copies that are no longer formed.
    pub(crate) stopped: Vec<PlacementId>,
    pub(crate) formed: Vec<FormedCopy>,
    pub(crate) limits: RangeLimits,
    pub(crate) stored_bytes: Option<u64>,
    pub(crate) searches: Vec<SplitSearch>,
    /// Durations of seals.
    pub(crate) sealed_ms: Vec<u64>,
    pub(crate) asks: Vec<YieldAsk>,
    /// Writes find no room.
    pub(crate) is_full: bool,
    /// Reports find no room.
    pub(crate) reports_full: bool,
    /// The engine is busy.
    pub(crate) engine_busy: bool,
    /// Jobs that form a copy are refused.
    pub(crate) refuses_forms: bool,
    /// The engine refuses reads, and the node goes on without them.
    pub(crate) reads_fail: bool,
    /// Incarnations of the other nodes.
    pub(crate) peers_incarnation: Incarnation,
    /// Number of times that a copy began to serve.
    pub(crate) began_to_serve: u64,
    /// Memtables are full of rows that wait for the engine.
    pub(crate) engine_lags: bool,
    /// Bytes that the node has logged.
    pub(crate) log_written: u64,
}

impl Default for TestShell {
    fn default() -> Self {
        Self {
            now: Cell::new(Millis::new(1_000)),
            look_ms: 0,
            lease_until: Millis::new(10_000),
            timing: Timing::default(),
            engine: MemoryEngine::default(),
            dedup: DedupLimits::default(),
            gathered: Completions::default(),
            writes: Vec::new(),
            answers: Vec::new(),
            refusals: Vec::new(),
            reports: Vec::new(),
            leader: None,
            forwarded: Vec::new(),
            life: LIFE,
            ends: Vec::new(),
            sent: Vec::new(),
            stopped: Vec::new(),
            forms: Vec::new(),
            formed: Vec::new(),
            limits: RangeLimits::NONE,
            stored_bytes: None,
            searches: Vec::new(),
            sealed_ms: Vec::new(),
            asks: Vec::new(),
            is_full: false,
            reports_full: false,
            engine_busy: false,
            refuses_forms: false,
            reads_fail: false,
            peers_incarnation: Incarnation::new(1),
            began_to_serve: 0,
            engine_lags: false,
            log_written: 0,
        }
    }
}

impl TestShell {
    fn looked(&self) {
        self.now.set(self.now.get().plus(self.look_ms));
    }
}

impl Shell for TestShell {
    type Reply = &'static str;
    type Guard = ();
    type Page = ();
    type Own = ();

    fn clock(&self) -> Millis {
        self.now.get()
    }
    fn wall(&self) -> Millis {
        self.now.get()
    }
    fn life(&self) -> Option<NodeRegistration> {
        Some(self.life)
    }
    fn has_lease(&self, now: Millis) -> bool {
        now < self.lease_until
    }
    fn covers(&self, _: PartitionId, _: Epoch, now: Millis) -> bool {
        now < self.lease_until
    }
    fn peer(&self, _: NodeId) -> Option<(Incarnation, bool)> {
        Some((self.peers_incarnation, false))
    }
    fn timing(&self) -> Timing {
        self.timing
    }
    fn is_stopping(&self) -> bool {
        false
    }
    fn is_dropped(&self, _: PartitionId) -> bool {
        false
    }
    fn is_misrouted(&self, _: PartitionId, _: &[u8]) -> bool {
        false
    }
    fn tables_version(&self) -> Version {
        Version::ZERO
    }
    fn leader(&self, _: PartitionId) -> Option<NodeId> {
        self.leader
    }
    fn dedup(&self) -> &DedupLimits {
        &self.dedup
    }
    fn engine_lags(&self) -> bool {
        self.engine_lags
    }
    fn budget(&self) -> MemtableBudget {
        MemtableBudget::default()
    }
    fn retention_limits(&self) -> RetentionLimits {
        RetentionLimits::of_node(1)
    }
    fn log_written(&self) -> u64 {
        self.log_written
    }
    fn replica(&self, identity: Identity, recovered: RecoveredState) -> Result<Replica, RecoveredError> {
        Replica::new(identity, recovered, Limits::default())
    }
    fn engine(&self) -> &dyn Engine {
        self.looked();
        if self.reads_fail { &RefusingEngine } else { &self.engine }
    }
    fn row(&self, (): &mut (), placement: PlacementId, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        Ok(self.engine().get(placement, key)?)
    }
    fn forget_rows(&self, (): &mut ()) {}
    fn read_log(&self, _: PlacementId, _: Seq, _: Seq, _: usize) -> Vec<Entry> {
        Vec::new()
    }
    fn room(&self) -> Result<(), ErrorKind> {
        if self.is_full { Err(ErrorKind::Overloaded) } else { Ok(()) }
    }
    fn logged_bytes(&self, entry: &Entry) -> u64 {
        entry.bytes.len() as u64
    }
    fn log(&mut self, _: PlacementId, write: LogWrite) {
        self.writes.push(write);
    }
    fn log_token(&mut self, placement: PlacementId, token: u64) {
        self.gathered.tokens.push((placement, token));
    }
    fn log_trim(&mut self, placement: PlacementId, upto: Seq) {
        self.gathered.trims.push((placement, upto));
    }
    fn trim(&mut self, _: PlacementId, _: Seq) {}
    fn delete(&mut self, partition: PartitionId, placement: PlacementId) {
        self.gathered.deletions.push((partition, placement));
    }
    fn send(&mut self, message: Message) {
        self.sent.push(message);
    }
    fn answer(&mut self, _: CopyLocation, to: &'static str, _: Millis, outcome: Outcome) {
        self.answers.push((to, outcome));
    }
    fn refuse(&mut self, _: PartitionId, to: &'static str, _: Millis, refusal: Refusal) {
        self.refusals.push((to, refusal));
    }
    fn forward(&mut self, to: NodeId, request: Request<&'static str>) {
        self.forwarded.push((to, request));
    }
    fn report(&mut self, report: Report) -> bool {
        if !self.reports_full {
            self.reports.push(report);
        }
        !self.reports_full
    }
    fn clear(&mut self, _: PlacementId) -> Option<u64> {
        Some(1)
    }
    fn start_copy(&mut self, _: CopyJob) {}
    fn stop_copy(&mut self, _: PlacementId) {}
    fn form(&mut self, job: FormJob) -> bool {
        if !self.refuses_forms {
            self.forms.push(job);
        }
        !self.refuses_forms
    }
    fn end_form(&mut self, _: PlacementId, to: PlacementId, end: Position) {
        self.ends.push((to, end));
    }
    fn stop_form(&mut self, copy: PlacementId) {
        self.stopped.push(copy);
    }
    fn adopt(&mut self, formed: FormedCopy) {
        self.formed.push(formed);
    }
    fn limits_any(&self) -> bool {
        self.limits.is_set()
    }
    fn range_limits(&self, _: TableId) -> RangeLimits {
        self.limits
    }
    fn stored_bytes(&self, _: PlacementId) -> Option<u64> {
        self.stored_bytes
    }
    fn find_split_point(&mut self, search: SplitSearch) -> bool {
        self.searches.push(search);
        true
    }
    fn ask_right(&mut self, ask: YieldAsk) {
        self.asks.push(ask);
    }
    fn offer(&mut self, _: PlacementId, (): ()) -> OfferResult<()> {
        OfferResult::Taken
    }
    fn fail(&mut self, at: CopyLocation, error: &ViewError) {
        assert!(self.reads_fail, "{at:?}: {error}");
    }
    fn ticked(&mut self, local: &mut LocalCopy<Self>, _: Millis) {
        if local.flush_urgency == FlushUrgency::None || self.engine_busy {
            return;
        }
        local.freeze();
        let Some(frozen) = local.memtable.frozen().cloned() else { return };
        let space = local.placement;
        let changes = frozen.changes(&self.engine, space).collect::<Result<Vec<_>, _>>();
        let changes = changes.expect("windows as they were written");
        assert!(self.engine.write(&changes).is_ok(), "an engine in memory takes every row");
        local.flushing = frozen.upto;
        local.memtable.flushed(frozen.upto);
    }
    fn observe(&mut self, _: CopyLocation, observed: CopyEvent<'_>) {
        match observed {
            CopyEvent::Unsealed { sealed_ms } => self.sealed_ms.push(sealed_ms),
            CopyEvent::Serving => self.began_to_serve += 1,
            _ => {}
        }
    }
}

/// A row in which the copy here leads, alone or with others.
pub(crate) fn row(version: u64, others: &[(PlacementId, ReplicaState)]) -> Partition {
    let own = [(OWN, ReplicaState::Live)];
    let placed =
        own.iter().chain(others).map(|(id, state)| Placement { id: *id, node: NodeId::new(id.get()), state: *state });
    Partition {
        id: PARTITION,
        epoch: Epoch::new(1),
        version: Version::new(version),
        leader: Some(OWN),
        placements: placed.collect(),
        status: PartitionStatus::Online,
        min_in_sync: 1,
        range: archon_types::KeyRange::ALL,
        split: None,
        merge: None,
        absorbed: Version::ZERO,
    }
}

pub(crate) fn partitions(broken: DisabledRule) -> Partitions<TestShell> {
    let mut partitions = Partitions::new(TestShell::default(), BTreeMap::new(), ParkLimits::default(), broken);
    partitions.begin(Millis::new(1_000));
    partitions
}

/// Ends the turn, and completes all disk writes.
pub(crate) fn settle(partitions: &mut Partitions<TestShell>) {
    loop {
        partitions.settle();
        while let Some(request) = partitions.pop_unparked() {
            partitions.operate(request);
            partitions.settle();
        }
        let done = std::mem::take(&mut partitions.shell_mut().gathered);
        if done.tokens.is_empty() && done.trims.is_empty() && done.deletions.is_empty() {
            return;
        }
        partitions.durable(done);
    }
}

/// A partition that the copy here leads and serves.
pub(crate) fn serving(broken: DisabledRule, row: Partition) -> Partitions<TestShell> {
    let mut partitions = partitions(broken);
    assert!(partitions.duties(LIFE.incarnation, vec![Action::Open { partition: row, placement: OWN, fresh: true }]));
    settle(&mut partitions);
    assert_eq!(partitions.leading(), 1, "{:?}", partitions.shell().reports);
    partitions
}

/// The row of a follower: one of two in-sync copies, led by the other one.
pub(crate) fn follower_row() -> Partition {
    Partition { leader: Some(OTHER), ..row(1, &[(OTHER, ReplicaState::Live)]) }
}

pub(crate) fn follower(broken: DisabledRule, row: Partition) -> Partitions<TestShell> {
    let mut follower = partitions(broken);
    follower.duties(LIFE.incarnation, vec![Action::Open { partition: row, placement: OWN, fresh: true }]);
    settle(&mut follower);
    follower
}

/// Delivers a message of the leader.
pub(crate) fn hear(follower: &mut Partitions<TestShell>, body: Body) {
    let address = |placement, node| ReplicaAddress { placement, node, incarnation: LIFE.incarnation };
    let (from, to) = (address(OTHER, NodeId::new(OTHER.get())), address(OWN, LIFE.node));
    follower.step(OWN, Input::Message(Message { partition: PARTITION, from, to, epoch: Epoch::new(1), body }));
    settle(follower);
}

pub(crate) fn position(seq: u64) -> Position {
    Position::new(if seq == 0 { Epoch::ZERO } else { Epoch::new(1) }, Seq::new(seq))
}

pub(crate) fn request(op: Op, reply: &'static str) -> Request<&'static str> {
    let (origin, known) = (Origin::RoutingClient, Version::ZERO);
    Request {
        partition: PARTITION,
        origin,
        client: 1,
        op,
        id: None,
        known,
        parked_at: None,
        confirmed: None,
        awaited_entry: false,
        reply,
    }
}

pub(crate) fn put(key: &'static str) -> Op {
    Op::Put { key: Bytes::from_static(key.as_bytes()), value: Bytes::from_static(b"value") }
}

pub(crate) fn get(key: &'static str) -> Op {
    Op::Get { key: Bytes::from_static(key.as_bytes()) }
}

/// A copy whose log and engine hold ten entries.
pub(crate) fn held(partition: PartitionId) -> RecoveredCopy {
    let (first, seq) = (Epoch::new(1), Seq::new(10));
    let recovered = RecoveredState {
        epoch: first,
        base: archon_replica::Position::ZERO,
        runs: vec![archon_replica::Run { epoch: first, first: Seq::new(1) }],
        last: seq,
        commit: seq,
    };
    let memtable = archon_kv::Memtable::new(seq, MemtableBudget::default());
    let complete = archon_replica::Position::new(first, seq);
    RecoveredCopy {
        partition,
        recovered,
        complete,
        memtable,
        log_time: archon_kv::LogTime::default(),
        unreadable: None,
    }
}
