//! What a participant does with its partitions.

use super::effect::Effect;
use super::holdings::{Acquired, Holdings, acquired};
use super::tenure::{Stage, Tenure};
use super::why::Why;
use crate::grants::{Grants, Taken};
use crate::heartbeat::{Heartbeat, Heartbeats, LeaseAnswer};
use crate::mutant::{Broken, Mutant};
use crate::reports::Reports;
use archon_types::{
    Duty, Epoch, ErrorKind, Fact, Incarnation, Millis, NodeId, Partition, PartitionId, PlacementId, Report, Version,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The partitions of one participant, through all of its lives. Every input takes the time first, so that nothing outlives
/// the lease: what it does not cover any more is lost before anything else is looked at.
#[derive(Clone, Debug, Default)]
pub struct Participation {
    life: Option<Incarnation>,
    heartbeats: Heartbeats,
    holdings: Holdings,
    reports: Reports,
    /// The last epoch of each partition that duties have ended in this life.
    over: BTreeMap<PartitionId, Epoch>,
    /// Term and version of the duties that are obeyed.
    obeyed: (u64, Version),
    stopping: bool,
    /// Acquisitions so far.
    acquisitions: u64,
    effects: VecDeque<Effect>,
    broken: Broken,
}

impl Participation {
    /// It is not registered and has nothing.
    pub fn new(broken: Broken) -> Self {
        Self { holdings: Holdings::new(broken), broken, ..Self::default() }
    }

    /// It is registered from now on, as this life of this member. Whatever the one before had is lost.
    pub fn begin_life(&mut self, node: NodeId, life: Incarnation, now: Millis) {
        self.end_life(now);
        self.life = Some(life);
        self.heartbeats = Heartbeats::new(node, life);
        self.holdings.grants = Grants::new(self.broken);
    }

    /// Its life is over: the lease ends, everything is lost, and nothing more is told of it.
    pub fn end_life(&mut self, now: Millis) {
        self.life = None;
        self.holdings.grants.end();
        self.expire(now);
        self.holdings.tenures = Arc::default();
        self.reports.clear();
        self.over.clear();
        self.obeyed = (0, Version::ZERO);
    }

    /// A heartbeat is about to be sent.
    pub const fn send(&mut self, now: Millis) -> Heartbeat {
        self.heartbeats.send(now)
    }

    /// Takes in the answer to a heartbeat.
    pub fn granted(&mut self, answer: LeaseAnswer, now: Millis) -> Taken {
        self.expire(now);
        if self.life.is_none() {
            return Taken::Foreign;
        }
        let taken = self.holdings.grants.take(&self.heartbeats, answer, now);
        if let Taken::Granted { withdrawn, .. } = &taken {
            self.passed(withdrawn);
        }
        self.expire(now);
        self.proceed(now);
        taken
    }

    /// Takes in all duties of a life, as they follow from the state of this term and version. Returns whether they were news.
    pub fn duties(&mut self, life: Incarnation, term: u64, version: Version, duties: &[Duty], now: Millis) -> bool {
        self.expire(now);
        if self.life != Some(life) || (term, version) <= self.obeyed {
            return false;
        }
        self.obeyed = (term, version);
        let named: BTreeMap<PartitionId, Named<'_>> =
            duties.iter().filter_map(owner).map(|named| (named.row.id, named)).collect();
        self.end_unnamed(&named);
        for (partition, named) in named {
            self.offer(partition, &named);
        }
        for duty in duties {
            if let Duty::Unload { partition, placement } = *duty {
                self.unload(partition, placement, version);
            }
        }
        self.proceed(now);
        true
    }

    /// Term and version of the duties that are obeyed.
    pub const fn obeyed(&self) -> (u64, Version) {
        self.obeyed
    }

    /// Time has passed. [`Holdings::until`] says when this is due.
    pub fn tick(&mut self, now: Millis) {
        self.expire(now);
        self.proceed(now);
    }

    /// The service has acquired it, or could not. One that was lost meanwhile is not of interest.
    pub fn acquired(&mut self, of: Acquired, well: bool, now: Millis) {
        self.expire(now);
        let Some(Stage::Acquiring { then }) = self.stage_of(of) else { return };
        if !well {
            self.end(of.partition, Why::Declined);
            return;
        }
        self.set(of.partition, Stage::Owned);
        match then {
            Some(why) => self.give_up(of.partition, why),
            None => self.report(of.partition, Fact::Online),
        }
    }

    /// The service has released it. One that was lost meanwhile is not of interest.
    pub fn released(&mut self, of: Acquired, now: Millis) {
        self.expire(now);
        if let Some(Stage::Releasing(why)) = self.stage_of(of) {
            self.end(of.partition, why);
        }
    }

    /// The participant wants to be rid of this partition. Returns whether it had it, or was about to.
    pub fn drop(&mut self, partition: PartitionId, now: Millis) -> bool {
        self.expire(now);
        let open = |tenure: &Tenure| {
            matches!(tenure.stage, Stage::Offered { then: None } | Stage::Acquiring { then: None } | Stage::Owned)
        };
        let had = self.holdings.tenures.get(&partition).is_some_and(open);
        if had {
            if self.broken.breaks(Mutant::DropTellsFirst) {
                self.report(partition, Fact::Declined); // rule 28
            }
            self.give_up(partition, Why::Declined);
            self.proceed(now);
        }
        had
    }

    /// The participant stops: it releases everything and acquires nothing any more.
    pub fn stop(&mut self, now: Millis) {
        self.expire(now);
        self.stopping = true;
        self.proceed(now);
    }

    /// Whether the service has nothing any more and everything is told, so that it may say farewell.
    pub fn is_done(&self) -> bool {
        self.stopping && self.reports.is_empty() && !self.holdings.tenures.values().any(Tenure::is_under_way)
    }

    /// Whether the service does nothing with this partition any more, and what became of it was told.
    pub fn is_told(&self, partition: PartitionId) -> bool {
        let under_way = self.holdings.tenures.get(&partition).is_some_and(Tenure::is_under_way);
        !under_way && !self.reports.is_about(partition)
    }

    /// What the service is to do next.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// What is owned.
    pub const fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// Up to `count` facts to be told.
    pub fn reports(&self, count: usize) -> Vec<Report> {
        self.reports.peek(count)
    }

    /// A report was answered, as [`Reports::answered`].
    pub fn reported(&mut self, report: &Report, refused: Option<ErrorKind>) -> bool {
        self.reports.answered(report, refused)
    }

    /// Whatever the lease does not cover at `now` is lost.
    fn expire(&mut self, now: Millis) {
        let grants = &self.holdings.grants;
        let covered = |id: &PartitionId, epoch: Epoch| grants.covers(*id, epoch, now);
        let under_way = self.holdings.tenures.iter().filter(|(_, tenure)| tenure.is_under_way());
        let over: Vec<PartitionId> =
            under_way.filter(|(id, tenure)| !covered(id, tenure.epoch)).map(|(id, _)| *id).collect();
        for partition in over {
            self.lose(partition);
        }
    }

    /// It is over, and nothing is told of it. If the row still names this participant in the same epoch once a lease covers it
    /// again, nobody else had it, and it is acquired anew.
    fn lose(&mut self, partition: PartitionId) {
        let Some(tenure) = self.holdings.tenures.get(&partition).copied() else { return };
        if tenure.is_under_way() {
            // Duties that ask for it to be handed over are not told twice.
            let asked = matches!(
                tenure.stage,
                Stage::Acquiring { then: Some(Why::HandedOver) } | Stage::Releasing(Why::HandedOver)
            );
            self.set(partition, Stage::Offered { then: asked.then_some(Why::HandedOver) });
            self.effects.push_back(Effect::Lost(acquired(partition, &tenure)));
            self.reports.forget(tenure.placement, tenure.epoch);
            if self.broken.breaks(Mutant::LostAsReleased) {
                self.report(partition, Fact::Released); // rule 28
            }
        }
    }

    /// What duties do not name any more, or in another epoch, is over.
    fn end_unnamed(&mut self, named: &BTreeMap<PartitionId, Named<'_>>) {
        let stands = |partition: &PartitionId, tenure: &Tenure| {
            let named = named.get(partition);
            named.is_some_and(|named| (named.row.epoch, named.placement) == (tenure.epoch, tenure.placement))
        };
        let over: Vec<PartitionId> =
            self.holdings.tenures.iter().filter(|(id, tenure)| !stands(id, tenure)).map(|(id, _)| *id).collect();
        for partition in over {
            self.lose(partition);
            if let Some(tenure) = self.tenures().remove(&partition) {
                self.mark_over(partition, tenure.epoch);
                if tenure.stage != Stage::Gone {
                    self.tell_over(partition, &tenure);
                }
            }
        }
    }

    /// Duties name this participant the owner of a partition.
    fn offer(&mut self, partition: PartitionId, named: &Named<'_>) {
        let offered = Tenure::offered(named.placement, named.row.epoch, named.row.version);
        // A list of an older state, from a coordinator that leads anew, had ended it.
        if self.over.get(&partition).is_some_and(|over| offered.epoch <= *over) {
            self.tell_over(partition, &offered);
            return;
        }
        let tenure = self.tenures().entry(partition).or_insert(offered);
        tenure.version = offered.version;
        if let Stage::Offered { then: then @ Some(Why::HandedOver) } = &mut tenure.stage {
            *then = None; // Unless it is still asked for.
        }
        if named.hands_over {
            self.give_up(partition, Why::HandedOver);
        }
    }

    /// Its table was dropped, and nothing of it is to be deleted here. It is lost by now.
    fn unload(&mut self, partition: PartitionId, placement: PlacementId, version: Version) {
        if let Some(epoch) = self.over.remove(&partition) {
            self.reports.forget(placement, epoch);
        }
        let (epoch, fact) = (Epoch::ZERO, Fact::Unloaded);
        self.reports.put(Report { partition, placement, epoch, version, fact });
    }

    /// Acquires what is offered and covered, or says that it is not wanted; gives up everything if the participant stops.
    fn proceed(&mut self, now: Millis) {
        let tenures: Vec<(PartitionId, Tenure)> = self.holdings.tenures.iter().map(|(id, of)| (*id, *of)).collect();
        for (partition, tenure) in tenures {
            if self.stopping {
                self.give_up(partition, Why::Stopped);
            }
            if !self.holdings.grants.covers(partition, tenure.epoch, now) {
                continue;
            }
            match self.holdings.tenures.get(&partition).map(|tenure| tenure.stage) {
                Some(Stage::Offered { then: Some(why) }) => self.end(partition, why),
                Some(Stage::Offered { then: None }) => self.begin(partition, tenure),
                _ => {}
            }
        }
    }

    fn begin(&mut self, partition: PartitionId, offered: Tenure) {
        self.acquisitions += 1;
        let begun = Tenure { number: self.acquisitions, stage: Stage::Acquiring { then: None }, ..offered };
        self.tenures().insert(partition, begun);
        self.effects.push_back(Effect::Acquire(acquired(partition, &begun)));
    }

    /// Gives up what is owned, or will be.
    fn give_up(&mut self, partition: PartitionId, why: Why) {
        let Some(tenure) = self.holdings.tenures.get(&partition).copied() else { return };
        match tenure.stage {
            Stage::Offered { then: None } => self.set(partition, Stage::Offered { then: Some(why) }),
            Stage::Acquiring { then: None } => self.set(partition, Stage::Acquiring { then: Some(why) }),
            Stage::Owned => {
                self.set(partition, Stage::Releasing(why));
                self.effects.push_back(Effect::Release(acquired(partition, &tenure), why));
            }
            Stage::Offered { .. } | Stage::Acquiring { .. } | Stage::Releasing(_) | Stage::Gone => {}
        }
    }

    /// Epochs of what is withdrawn are over below the one in which duties name this life again, also those that it never heard of.
    fn passed(&mut self, withdrawn: &[(PartitionId, Epoch)]) {
        for (partition, epoch) in withdrawn {
            let later = self.holdings.tenures.get(partition).filter(|tenure| tenure.epoch > *epoch).copied();
            if let Some(later) = later {
                self.mark_over(*partition, *epoch);
                self.tell_over(*partition, &Tenure { epoch: *epoch, ..later });
            }
        }
    }

    /// This life begins the partition no more in this epoch, or an earlier one.
    fn mark_over(&mut self, partition: PartitionId, epoch: Epoch) {
        let over = self.over.entry(partition).or_insert(epoch);
        *over = (*over).max(epoch);
    }

    /// Duties have ended it in this epoch, and this life begins it no more. Unless that is told, each answer to a heartbeat goes
    /// on listing it as withdrawn (rule 15).
    fn tell_over(&mut self, partition: PartitionId, of: &Tenure) {
        let Tenure { placement, epoch, version, .. } = *of;
        self.reports.put(Report { partition, placement, epoch, version, fact: Fact::Released });
    }

    /// It is given up for good in this epoch. Only then is it told.
    fn end(&mut self, partition: PartitionId, why: Why) {
        self.set(partition, Stage::Gone);
        let fact = if why == Why::Declined { Fact::Declined } else { Fact::Released };
        self.report(partition, fact);
    }

    fn report(&mut self, partition: PartitionId, fact: Fact) {
        if let Some(Tenure { placement, epoch, version, .. }) = self.holdings.tenures.get(&partition).copied() {
            self.reports.put(Report { partition, placement, epoch, version, fact });
        }
    }

    fn stage_of(&self, of: Acquired) -> Option<Stage> {
        let tenure = self.holdings.tenures.get(&of.partition).filter(|tenure| tenure.number == of.number)?;
        Some(tenure.stage)
    }

    fn set(&mut self, partition: PartitionId, stage: Stage) {
        if let Some(tenure) = self.tenures().get_mut(&partition) {
            tenure.stage = stage;
        }
    }

    fn tenures(&mut self) -> &mut BTreeMap<PartitionId, Tenure> {
        Arc::make_mut(&mut self.holdings.tenures)
    }
}

/// A partition of which a duty makes this participant the owner.
struct Named<'a> {
    row: &'a Partition,
    placement: PlacementId,
    /// It is to hand it over.
    hands_over: bool,
}

/// What a duty makes this participant the owner of. The target of a move owns nothing yet.
fn owner(duty: &Duty) -> Option<Named<'_>> {
    match duty {
        Duty::Host { partition: row, placement } if row.leader == Some(*placement) => {
            Some(Named { row, placement: *placement, hands_over: false })
        }
        Duty::HandOver { partition: row, placement, .. } => {
            Some(Named { row, placement: *placement, hands_over: true })
        }
        Duty::Host { .. } | Duty::Unload { .. } | Duty::Inspect { .. } => None,
    }
}
