//! The interface of a node's partitions to a simulated machine. Effects that leave the machine are collected as
//! [`Effect`]s, since the world, which delays, loses and checks them, is not reachable from within.

use super::copying::Puller;
use super::disk::{Batch, Disk, Write};
use super::effect::Effect;
use super::forms::Forms;
use super::start::new_replica;
use crate::client::calls::ReplyTo;
use crate::coverage::Coverage;
use crate::mutant::{Mutant, ShellMutant};
use archon_host::{
    Completions, CopyEvent, CopyJob, CopyLocation, FormJob, FormedCopy, LocalCopy, LogWrite, NodeRegistration,
    OfferResult, Outcome, Refusal, Reply, Request, RetentionLimits, Shell, YieldAsk,
};
use archon_kv::engine::{Change, Engine, PageLimit, Row};
use archon_kv::{DedupLimits, EffectError, LogTime, MemtableBudget, ViewError};
use archon_member::Grants;
use archon_replica::{
    Entry, Identity, Input, Message, Output, Position, RecoveredError, RecoveredState, Replica, Timing,
};
use archon_types::{
    Answer, Epoch, ErrorDetail, ErrorKind, Incarnation, Millis, NodeId, PartitionId, PlacementId, Report, Seq,
    TableList, Version,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The oldest version cannot read one entry in this many.
const UNREAD_ENTRIES: u64 = 32;

/// Settings of a machine, fixed by the scenario.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) timing: Timing,
    pub(super) dedup: DedupLimits,
    pub(super) retention: RetentionLimits,
    pub(super) mutant: Option<Mutant>,
    pub(super) traced: bool,
    /// True if its version reads every entry; the oldest one does not.
    pub(super) reads_all: bool,
    /// Rows and bytes of a merge per log entry.
    pub(super) entry_limit: PageLimit,
}

/// A process's interface to its machine.
#[derive(Debug)]
pub(crate) struct MachineShell {
    pub(super) settings: Settings,
    /// The local clock.
    pub(super) now: Millis,
    pub(super) wall: Millis,
    pub(super) life: Option<NodeRegistration>,
    pub(crate) grants: Grants,
    /// The newest known registrations of all nodes, and whether they count as failed.
    pub(super) peers: BTreeMap<NodeId, (Incarnation, bool)>,
    /// Existing tables, as of the last reported drop.
    pub(super) tables: TableList,
    /// The machine's disk, while the process is driven.
    pub(super) disk: Disk,
    /// Log writes of this turn.
    pub(super) gathered: Batch,
    /// Entries after the engine's position, as passed to the disk.
    pub(super) entries: BTreeMap<PlacementId, VecDeque<Entry>>,
    clears: u64,
    /// Bytes that this process has logged.
    log_written: u64,
    /// Spaces to clear, by the number of their clearing.
    pub(super) clearing: BTreeMap<PlacementId, u64>,
    pub(super) pulls: BTreeMap<PlacementId, Puller>,
    pub(super) forms: Forms,
    /// Cleared spaces, not yet known to be gone from the disk.
    pub(super) deleting: BTreeMap<PlacementId, PartitionId>,
    pub(super) damaged: BTreeSet<PlacementId>,
    pub(super) effects: Vec<Effect>,
    /// Coverage; the world's, while the process is driven.
    pub(super) coverage: Box<Coverage>,
    /// Completions reported before the disk has them, by a mutant.
    pub(super) early: Completions,
    /// The next answer is that of a read.
    answers_read: bool,
}

impl MachineShell {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Millis::ZERO,
            wall: Millis::ZERO,
            life: None,
            grants: Grants::default(),
            peers: BTreeMap::new(),
            tables: TableList::default(),
            disk: Disk::new(0),
            gathered: Batch::default(),
            entries: BTreeMap::new(),
            clears: 0,
            clearing: BTreeMap::new(),
            pulls: BTreeMap::new(),
            forms: Forms::default(),
            deleting: BTreeMap::new(),
            damaged: BTreeSet::new(),
            effects: Vec::new(),
            coverage: Box::default(),
            early: Completions::default(),
            answers_read: false,
            log_written: 0,
        }
    }

    fn breaks(&self, mutant: ShellMutant) -> bool {
        self.settings.mutant == Some(Mutant::Shell(mutant))
    }

    /// Drops entries that the engine has.
    pub(super) fn given_to_engine(&mut self, placement: PlacementId, upto: Seq) {
        let Some(entries) = self.entries.get_mut(&placement) else { return };
        while entries.pop_front_if(|entry| entry.at.seq <= upto).is_some() {}
    }

    /// Returns these changes of a space, with the resulting changes for copies being formed.
    pub(super) fn mirrored(&self, changes: Vec<Change>) -> Vec<Change> {
        if self.breaks(ShellMutant::NotMirrored) {
            return changes;
        }
        let follow = |change: &Change| -> Vec<Change> {
            self.forms.forming.values().filter_map(|forming| forming.mirrored(change)).collect()
        };
        let follows: Vec<Change> = changes.iter().flat_map(follow).collect();
        changes.into_iter().chain(follows).collect()
    }

    fn note_entries(&mut self, placement: PlacementId, write: &LogWrite) {
        /// Approximate overhead of a record.
        const RECORD_BYTES: usize = 32;
        let entries = if let LogWrite::Entries(entries) = write { &entries[..] } else { &[] };
        let bytes: usize = entries.iter().map(|entry| entry.bytes.len() + RECORD_BYTES).sum();
        self.log_written += (bytes + RECORD_BYTES) as u64;
        let known = self.entries.entry(placement).or_default();
        match write {
            LogWrite::Entries(entries) => known.extend(entries.iter().cloned()),
            LogWrite::Cut { after } => while known.pop_back_if(|entry| entry.at.seq > *after).is_some() {},
            LogWrite::Begin { .. } | LogWrite::Drop => known.clear(),
            LogWrite::Open(_)
            | LogWrite::Epoch(_)
            | LogWrite::Complete(_)
            | LogWrite::Commit(_)
            | LogWrite::Base(_) => {}
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.settings.traced {
            self.effects.push(Effect::Note(line()));
        }
    }
}

/// Returns the budget of memtables, which no run fills.
pub(super) fn memtable_budget(mutant: Option<Mutant>) -> MemtableBudget {
    let budget = MemtableBudget::default();
    #[cfg(feature = "mutants")]
    if let Some(Mutant::Kv(broken)) = mutant {
        return budget.with_mutant(Some(broken));
    }
    let _ = mutant;
    budget
}

/// Returns the log time of an empty copy.
pub(super) fn new_log_time(mutant: Option<Mutant>) -> LogTime {
    #[cfg_attr(not(feature = "mutants"), allow(unused_mut))]
    let mut log_time = LogTime::default();
    #[cfg(feature = "mutants")]
    if let Some(Mutant::Kv(broken)) = mutant {
        log_time.set_mutant(Some(broken));
    }
    let _ = mutant;
    log_time
}

impl Reply for ReplyTo {
    fn room(&self) -> Result<(), ErrorDetail> {
        Ok(())
    }
}

impl Shell for MachineShell {
    type Reply = ReplyTo;
    type Guard = ();
    type Page = Vec<Row>;
    type Own = ();

    fn clock(&self) -> Millis {
        self.now
    }

    fn wall(&self) -> Millis {
        self.wall
    }

    fn life(&self) -> Option<NodeRegistration> {
        self.life
    }

    fn has_lease(&self, now: Millis) -> bool {
        self.grants.is_valid(now)
    }

    fn covers(&self, partition: PartitionId, epoch: Epoch, now: Millis) -> bool {
        self.grants.covers(partition, epoch, now)
    }

    fn peer(&self, node: NodeId) -> Option<(Incarnation, bool)> {
        self.peers.get(&node).copied()
    }

    fn timing(&self) -> Timing {
        self.settings.timing
    }

    /// As with the defaults: three times the interval of signs of life.
    fn replica_lag_ms(&self) -> u64 {
        3 * self.settings.timing.keep_alive_ms
    }

    /// A stopping process serves until it has given up its leaderships, and then ends.
    fn is_stopping(&self) -> bool {
        false
    }

    fn is_dropped(&self, partition: PartitionId) -> bool {
        self.tables.lacks(partition.table)
    }

    fn is_misrouted(&self, _: PartitionId, _: &[u8]) -> bool {
        false
    }

    fn tables_version(&self) -> Version {
        Version::ZERO
    }

    /// Clients look up the leader, and ask only it: nothing is forwarded.
    fn leader(&self, _: PartitionId) -> Option<NodeId> {
        None
    }

    fn dedup(&self) -> &DedupLimits {
        &self.settings.dedup
    }

    fn engine_lags(&self) -> bool {
        false // the engine takes everything at once
    }

    fn budget(&self) -> MemtableBudget {
        memtable_budget(self.settings.mutant)
    }

    fn retention_limits(&self) -> RetentionLimits {
        self.settings.retention
    }

    fn log_written(&self) -> u64 {
        self.log_written
    }

    fn log_time(&self) -> LogTime {
        new_log_time(self.settings.mutant)
    }

    fn replica(&self, identity: Identity, recovered: RecoveredState) -> Result<Replica, RecoveredError> {
        new_replica(identity, recovered, self.settings.mutant)
    }

    fn engine(&self) -> &dyn Engine {
        &self.disk.engine
    }

    fn row(&self, (): &mut (), placement: PlacementId, key: &[u8]) -> Result<Option<Bytes>, ViewError> {
        Ok(self.disk.engine.get(placement, key)?)
    }

    fn forget_rows(&self, (): &mut ()) {}

    fn read_log(&self, placement: PlacementId, from: Seq, upto: Seq, _: usize) -> Vec<Entry> {
        let Some(stream) = self.disk.streams.get(&placement) else { return Vec::new() };
        (from.get()..=upto.get()).take(3).map_while(|seq| stream.entry(Seq::new(seq)).cloned()).collect()
    }

    fn room(&self) -> Result<(), ErrorKind> {
        Ok(())
    }

    fn read_entry(&self, entry: &Bytes) -> Result<archon_kv::Effect, EffectError> {
        let effect = archon_kv::Effect::decode(entry)?;
        match self.settings.reads_all || !effect.at.get().is_multiple_of(UNREAD_ENTRIES) {
            true => Ok(effect),
            false => Err(EffectError::Format { found: u8::MAX }),
        }
    }

    fn page_limit(&self) -> PageLimit {
        self.settings.entry_limit
    }

    fn logged_bytes(&self, entry: &Entry) -> u64 {
        entry.bytes.len() as u64
    }

    fn log(&mut self, placement: PlacementId, write: LogWrite) {
        self.note_entries(placement, &write);
        self.gathered.writes.push(Write { placement, write });
    }

    fn log_token(&mut self, placement: PlacementId, token: u64) {
        self.gathered.completes.tokens.push((placement, token));
    }

    fn log_trim(&mut self, placement: PlacementId, upto: Seq) {
        self.gathered.completes.trims.push((placement, upto));
    }

    /// The disk removed it with the base that was written before.
    fn trim(&mut self, _: PlacementId, _: Seq) {}

    fn delete(&mut self, partition: PartitionId, placement: PlacementId) {
        self.log(placement, LogWrite::Drop);
        self.deleting.insert(placement, partition);
        if self.breaks(ShellMutant::DeletedUnsynced) {
            self.early.deletions.push((partition, placement));
        } else {
            self.gathered.completes.deletions.push((partition, placement));
        }
    }

    fn send(&mut self, message: Message) {
        self.effects.push(Effect::Send(message));
    }

    fn answer(&mut self, at: CopyLocation, to: ReplyTo, log_time: Millis, outcome: Outcome) {
        let read = std::mem::take(&mut self.answers_read);
        self.effects.push(Effect::Answer { at, to, log_time, outcome, read });
    }

    fn refuse(&mut self, partition: PartitionId, to: ReplyTo, log_time: Millis, refusal: Refusal) {
        self.effects.push(Effect::Refuse { partition, to, log_time, refusal });
    }

    fn forward(&mut self, _: NodeId, request: Request<ReplyTo>) {
        self.refuse(request.partition, request.reply, Millis::ZERO, Refusal::Elsewhere);
    }

    fn report(&mut self, report: Report) -> bool {
        self.effects.push(Effect::Report(report));
        true
    }

    fn clear(&mut self, placement: PlacementId) -> Option<u64> {
        self.forms.clear(placement);
        self.clears += 1;
        Some(*self.clearing.entry(placement).or_insert(self.clears))
    }

    fn start_copy(&mut self, job: CopyJob) {
        let (version, after) = (Version::ZERO, Bytes::new());
        let puller = Puller { job, start: None, version, after, asks: 0, asked: None, whole: false };
        self.pulls.insert(job.placement, puller);
    }

    fn stop_copy(&mut self, placement: PlacementId) {
        self.pulls.remove(&placement);
    }

    fn form(&mut self, job: FormJob) -> bool {
        self.forms.begin(job)
    }

    fn end_form(&mut self, _: PlacementId, to: PlacementId, end: Position) {
        if let Some(forming) = self.forms.forming.get_mut(&to) {
            forming.end_at(end);
        }
    }

    fn stop_form(&mut self, placement: PlacementId) {
        self.forms.forming.remove(&placement);
    }

    fn adopt(&mut self, formed: FormedCopy) {
        self.forms.adopting.push(formed);
    }

    fn ask_right(&mut self, ask: YieldAsk) {
        self.effects.push(Effect::AskRight(ask));
    }

    fn offer(&mut self, space: PlacementId, rows: Vec<Row>) -> OfferResult<Vec<Row>> {
        let change = |row: &Row| Change { space, key: row.key.clone(), value: Some(row.value.clone()) };
        match self.disk.engine.write(&rows.iter().map(change).collect::<Vec<_>>()) {
            Ok(()) => OfferResult::Taken,
            Err(_) => OfferResult::Wait(rows),
        }
    }

    fn fail(&mut self, at: CopyLocation, error: &ViewError) {
        // An engine that refuses reads for a while is no alarm.
        if !self.disk.engine.refuses() {
            self.effects.push(Effect::Alarm(at.partition, error.to_string()));
        }
    }

    fn ticked(&mut self, _: &mut LocalCopy<Self>, _: Millis) {}

    fn stepped(&mut self, placement: PlacementId, input: &Input) {
        self.note(|| format!("{placement:?} <- {input:?}"));
    }

    fn wants(&mut self, placement: PlacementId, output: &Output) {
        self.note(|| format!("{placement:?}   -> {output:?}"));
    }

    fn observe(&mut self, at: CopyLocation, observed: CopyEvent<'_>) {
        let seen = &mut self.coverage;
        match observed {
            CopyEvent::Opened { .. } => self.effects.push(Effect::Opened(at.placement)),
            CopyEvent::Serving => self.effects.push(Effect::Serving(at)),
            CopyEvent::Committed { after } => {
                let entries = self.entries.get(&at.placement).into_iter().flatten();
                let fresh = entries.filter(|entry| entry.at.seq > after && entry.at.seq <= at.commit);
                let fresh = fresh.cloned().collect();
                self.effects.push(Effect::Committed(at, fresh));
            }
            CopyEvent::Read { confirmed } => {
                self.answers_read = true;
                seen.confirm_reads += u64::from(confirmed);
                seen.lease_reads += u64::from(!confirmed);
            }
            CopyEvent::NotConfirmed => seen.unconfirmed_reads += 1,
            CopyEvent::Evaluated { effect, proved, named, answer } => {
                seen.unproven += u64::from(proved);
                seen.repeats += u64::from(!effect && named && answer.is_ok());
                match answer {
                    Ok(Answer::ConditionFailed { .. }) => seen.conditions_failed += 1,
                    Err(error) if error.kind == ErrorKind::MaybeApplied => seen.maybe_applied += 1,
                    _ => {}
                }
            }
            CopyEvent::Absorbing(_) => seen.pages_absorbed += 1,
            CopyEvent::Parked => seen.parked += 1,
            CopyEvent::Held => seen.answers_held += 1,
            CopyEvent::Abandoned(writes) => seen.abandoned += writes as u64,
            CopyEvent::Forgotten(clients) => seen.clients_forgotten += clients as u64,
            CopyEvent::Cut => seen.cuts += 1,
            CopyEvent::Expired(rows) => seen.expired += rows as u64,
            CopyEvent::Emptied => seen.emptied += 1,
            CopyEvent::Unsealed { .. } => {}
            CopyEvent::Formed | CopyEvent::Unloading => {
                seen.formed += u64::from(matches!(observed, CopyEvent::Formed));
                self.damaged.remove(&at.placement); // Leftovers of an interrupted attempt are gone.
            }
            CopyEvent::Deleted => {
                self.deleting.remove(&at.placement);
                self.effects.push(Effect::Deleted(at.placement));
            }
            CopyEvent::Damaged(_) => {
                self.damaged.insert(at.placement);
                self.effects.push(Effect::Damaged(at));
            }
            CopyEvent::Unreadable(_) => seen.unreadable += 1,
            CopyEvent::Unread => seen.unread += 1,
            CopyEvent::Pulling(_) => seen.copies += 1,
            CopyEvent::Copied(_) => seen.copies_done += 1,
            CopyEvent::LogNotKept(_) => seen.logs_not_kept += 1,
            CopyEvent::EntryRefused(error) => self.effects.push(Effect::Alarm(at.partition, error.to_string())),
            CopyEvent::Alarm(alarm) => self.effects.push(Effect::Alarm(at.partition, alarm.to_string())),
            CopyEvent::Resting
            | CopyEvent::Unheld(_)
            | CopyEvent::SetAside
            | CopyEvent::PullingAgain
            | CopyEvent::CopyStopped => {}
        }
    }
}
