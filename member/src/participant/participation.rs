//! State machine of a participant's partitions.

use super::effect::Effect;
use super::holdings::{Acquisition, Holdings, acquired};
use super::release_cause::ReleaseCause;
use super::tenure::{Stage, Tenure};
use crate::grants::{GrantOutcome, Grants};
use crate::heartbeat::{Heartbeat, Heartbeats, LeaseAnswer};
use crate::mutant::{DisabledRule, Mutant};
use crate::reports::Reports;
use archon_types::{
    Duty, Epoch, ErrorKind, Fact, Incarnation, Millis, NodeId, Partition, PartitionId, PlacementId, Report, Version,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The partitions of one participant, across its incarnations. Every input first applies the time: partitions that
/// the lease no longer covers are lost before the input is processed.
#[derive(Clone, Debug, Default)]
pub struct Participation {
    life: Option<Incarnation>,
    heartbeats: Heartbeats,
    holdings: Holdings,
    reports: Reports,
    /// The last epoch of each partition that duties have ended in this incarnation.
    over: BTreeMap<PartitionId, Epoch>,
    /// Term and version of the current duties.
    obeyed: (u64, Version),
    stopping: bool,
    /// Number of acquisitions so far.
    acquisitions: u64,
    effects: VecDeque<Effect>,
    broken: DisabledRule,
}

impl Participation {
    /// Starts unregistered and without partitions.
    pub fn new(broken: DisabledRule) -> Self {
        Self { holdings: Holdings::new(broken), broken, ..Self::default() }
    }

    /// Starts an incarnation of this member. The partitions of the previous one are lost.
    pub fn begin_life(&mut self, node: NodeId, life: Incarnation, now: Millis) {
        self.end_life(now);
        self.life = Some(life);
        self.heartbeats = Heartbeats::new(node, life);
        self.holdings.grants = Grants::new(self.broken);
    }

    /// Ends the incarnation: the lease ends, all partitions are lost, and pending reports are dropped.
    pub fn end_life(&mut self, now: Millis) {
        self.life = None;
        self.holdings.grants.end();
        self.expire(now);
        self.holdings.tenures = Arc::default();
        self.reports.clear();
        self.over.clear();
        self.obeyed = (0, Version::ZERO);
    }

    /// Creates a heartbeat that is about to be sent.
    pub const fn send(&mut self, now: Millis) -> Heartbeat {
        self.heartbeats.send(now)
    }

    /// Processes the answer to a heartbeat.
    pub fn granted(&mut self, answer: LeaseAnswer, now: Millis) -> GrantOutcome {
        self.expire(now);
        if self.life.is_none() {
            return GrantOutcome::Foreign;
        }
        let taken = self.holdings.grants.take(&self.heartbeats, answer, now);
        if let GrantOutcome::Granted { withdrawn, .. } = &taken {
            self.passed(withdrawn);
        }
        self.expire(now);
        self.proceed(now);
        taken
    }

    /// Processes the complete duties of an incarnation, as of this term and version. Returns whether they are new.
    pub fn duties(&mut self, life: Incarnation, term: u64, version: Version, duties: &[Duty], now: Millis) -> bool {
        self.expire(now);
        if self.life != Some(life) || (term, version) <= self.obeyed {
            return false;
        }
        self.obeyed = (term, version);
        let named: BTreeMap<PartitionId, AssignedPartition<'_>> =
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

    /// Returns the term and version of the current duties.
    pub const fn obeyed(&self) -> (u64, Version) {
        self.obeyed
    }

    /// Applies the time. Due at [`Holdings::until`].
    pub fn tick(&mut self, now: Millis) {
        self.expire(now);
        self.proceed(now);
    }

    /// Handles the end of the service's acquisition; `well` is its success. Ignored if the partition was lost
    /// meanwhile.
    pub fn acquired(&mut self, of: Acquisition, well: bool, now: Millis) {
        self.expire(now);
        let Some(Stage::Acquiring { then }) = self.stage_of(of) else { return };
        if !well {
            self.end(of.partition, ReleaseCause::Declined);
            return;
        }
        self.set(of.partition, Stage::Owned);
        match then {
            Some(why) => self.give_up(of.partition, why),
            None => self.report(of.partition, Fact::Online),
        }
    }

    /// Handles the end of the service's release. Ignored if the partition was lost meanwhile.
    pub fn released(&mut self, of: Acquisition, now: Millis) {
        self.expire(now);
        if let Some(Stage::Releasing(why)) = self.stage_of(of) {
            self.end(of.partition, why);
        }
    }

    /// Drops a partition at the service's request. Returns whether it was owned or going to be.
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
            self.give_up(partition, ReleaseCause::Declined);
            self.proceed(now);
        }
        had
    }

    /// Stops the participant: it releases everything and acquires nothing.
    pub fn stop(&mut self, now: Millis) {
        self.expire(now);
        self.stopping = true;
        self.proceed(now);
    }

    /// Returns whether the service has no partitions and everything is reported, so that the participant can leave.
    pub fn is_done(&self) -> bool {
        self.has_given_up() && self.reports.is_empty()
    }

    /// Returns whether the participant stops and the service has no partitions left; the outcome may not be reported.
    pub fn has_given_up(&self) -> bool {
        self.stopping && !self.holdings.tenures.values().any(Tenure::is_under_way)
    }

    /// Returns whether the service has finished with this partition and the outcome was reported.
    pub fn is_told(&self, partition: PartitionId) -> bool {
        let under_way = self.holdings.tenures.get(&partition).is_some_and(Tenure::is_under_way);
        !under_way && !self.reports.is_about(partition)
    }

    /// Returns the next request to the service.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Returns the owned partitions.
    pub const fn holdings(&self) -> &Holdings {
        &self.holdings
    }

    /// Returns up to `count` reports to send.
    pub fn reports(&self, count: usize) -> Vec<Report> {
        self.reports.peek(count)
    }

    /// Handles the answer to a report, as [`Reports::answered`].
    pub fn reported(&mut self, report: &Report, refused: Option<ErrorKind>) -> bool {
        self.reports.answered(report, refused)
    }

    /// Loses all partitions that the lease does not cover at `now`.
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

    /// Loses a partition without a report. If its row still names this participant in the same epoch once a lease
    /// covers it again, it had no other owner, and is acquired again.
    fn lose(&mut self, partition: PartitionId) {
        let Some(tenure) = self.holdings.tenures.get(&partition).copied() else { return };
        if tenure.is_under_way() {
            // A duty to hand over is not sent twice.
            let asked = matches!(
                tenure.stage,
                Stage::Acquiring { then: Some(ReleaseCause::HandedOver) } | Stage::Releasing(ReleaseCause::HandedOver)
            );
            self.set(partition, Stage::Offered { then: asked.then_some(ReleaseCause::HandedOver) });
            self.effects.push_back(Effect::Lost(acquired(partition, &tenure)));
            self.reports.forget(tenure.placement, tenure.epoch);
            if self.broken.breaks(Mutant::LostAsReleased) {
                self.report(partition, Fact::Released); // rule 28
            }
        }
    }

    /// Ends partitions that the duties no longer name, or name in another epoch.
    fn end_unnamed(&mut self, named: &BTreeMap<PartitionId, AssignedPartition<'_>>) {
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

    /// Handles a duty that names this participant as the owner.
    fn offer(&mut self, partition: PartitionId, named: &AssignedPartition<'_>) {
        let offered = Tenure::offered(named.placement, named.row.epoch, named.row.version);
        // An older list, from a new leader that is behind, cannot restore an ended epoch.
        if self.over.get(&partition).is_some_and(|over| offered.epoch <= *over) {
            self.tell_over(partition, &offered);
            return;
        }
        let tenure = self.tenures().entry(partition).or_insert(offered);
        tenure.version = offered.version;
        if let Stage::Offered { then: then @ Some(ReleaseCause::HandedOver) } = &mut tenure.stage {
            *then = None; // Unless it is requested again.
        }
        if named.hands_over {
            self.give_up(partition, ReleaseCause::HandedOver);
        }
    }

    /// Handles a dropped table: there is no data to delete here, and the partition is lost by now.
    fn unload(&mut self, partition: PartitionId, placement: PlacementId, version: Version) {
        if let Some(epoch) = self.over.remove(&partition) {
            self.reports.forget(placement, epoch);
        }
        let (epoch, fact) = (Epoch::ZERO, Fact::Unloaded);
        self.reports.put(Report { partition, placement, epoch, version, fact });
    }

    /// Acquires offered partitions that the lease covers, or reports them as unwanted; gives up everything if the
    /// participant stops.
    fn proceed(&mut self, now: Millis) {
        let tenures: Vec<(PartitionId, Tenure)> = self.holdings.tenures.iter().map(|(id, of)| (*id, *of)).collect();
        for (partition, tenure) in tenures {
            if self.stopping {
                self.give_up(partition, ReleaseCause::Stopped);
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

    /// Gives up a partition that is owned or going to be.
    fn give_up(&mut self, partition: PartitionId, why: ReleaseCause) {
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

    /// Ends withdrawn epochs below the one in which duties name this incarnation again, including epochs that it
    /// never saw.
    fn passed(&mut self, withdrawn: &[(PartitionId, Epoch)]) {
        for (partition, epoch) in withdrawn {
            let later = self.holdings.tenures.get(partition).filter(|tenure| tenure.epoch > *epoch).copied();
            if let Some(later) = later {
                self.mark_over(*partition, *epoch);
                self.tell_over(*partition, &Tenure { epoch: *epoch, ..later });
            }
        }
    }

    /// Records that this incarnation does not acquire the partition in this epoch or an earlier one.
    fn mark_over(&mut self, partition: PartitionId, epoch: Epoch) {
        let over = self.over.entry(partition).or_insert(epoch);
        *over = (*over).max(epoch);
    }

    /// Reports an epoch that duties have ended and that this incarnation does not acquire again. Without the report,
    /// each answer to a heartbeat would list it as withdrawn (rule 15).
    fn tell_over(&mut self, partition: PartitionId, of: &Tenure) {
        let Tenure { placement, epoch, version, .. } = *of;
        self.reports.put(Report { partition, placement, epoch, version, fact: Fact::Released });
    }

    /// Gives up a partition for good in this epoch, then reports it. A participant that stops declines nothing:
    /// coordinators keep a declined partition away from its name for a while, and the next process has that name.
    fn end(&mut self, partition: PartitionId, why: ReleaseCause) {
        self.set(partition, Stage::Gone);
        let declines = why == ReleaseCause::Declined && !self.stopping;
        self.report(partition, if declines { Fact::Declined } else { Fact::Released });
    }

    fn report(&mut self, partition: PartitionId, fact: Fact) {
        if let Some(Tenure { placement, epoch, version, .. }) = self.holdings.tenures.get(&partition).copied() {
            self.reports.put(Report { partition, placement, epoch, version, fact });
        }
    }

    fn stage_of(&self, of: Acquisition) -> Option<Stage> {
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

/// A partition that a duty assigns to this participant.
struct AssignedPartition<'a> {
    row: &'a Partition,
    placement: PlacementId,
    /// The participant must hand it over.
    hands_over: bool,
}

/// Returns the partition that a duty assigns to this participant. The target of a move owns nothing yet.
fn owner(duty: &Duty) -> Option<AssignedPartition<'_>> {
    match duty {
        Duty::Host { partition: row, placement } if row.leader == Some(*placement) => {
            Some(AssignedPartition { row, placement: *placement, hands_over: false })
        }
        Duty::HandOver { partition: row, placement, .. } => {
            Some(AssignedPartition { row, placement: *placement, hands_over: true })
        }
        Duty::Host { .. } | Duty::Unload { .. } | Duty::Inspect { .. } => None,
    }
}
