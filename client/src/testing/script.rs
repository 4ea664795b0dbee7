//! State and decisions of a fake coordinator: no network, no clock.

use super::participant_report::ParticipantReport;
use archon_proto::convert::members::beats::{Beat, LeaseGrant};
use archon_proto::convert::members::duties::{Duties, DutiesQuery};
use archon_proto::convert::members::session::{Member, Registration, RegistrationResult};
use archon_types::{
    BootId, ClusterId, Duty, Epoch, ErrorDetail, ErrorKind, Fact, GenerationKey, Incarnation, KeyRange, LeaseTiming,
    NodeId, Partition, PartitionId, PartitionStatus, Placement, PlacementId, Register, ReplicaState, Report, Settings,
    StorageId, TableId, Version,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use uuid::Uuid;

/// The coordinator's only term.
const TERM: u64 = 1;

/// Rules for the answers to a participant.
#[derive(Clone, Debug, Default)]
pub(super) struct Behaviour {
    pub(super) silent: bool,
    pub(super) delay: Duration,
    pub(super) refused: Option<ErrorDetail>,
    /// Number of further requests with reports that are accepted but not answered.
    pub(super) answers_lost: u32,
}

/// A registered participant.
#[derive(Clone, Debug)]
struct RegisteredParticipant {
    name: String,
    storage: StorageId,
    boot: BootId,
    incarnation: Incarnation,
    timing: LeaseTiming,
    /// Set once the incarnation has ended.
    ended: bool,
    stopping: bool,
    /// The last two answers with duties sent to it.
    told: VecDeque<Duties>,
    /// Answers to its next polls, sent immediately.
    again: VecDeque<Duties>,
    /// Version from which its duties are new to it.
    version: Version,
}

/// A partition that has had an owner.
#[derive(Clone, Debug)]
struct Row {
    owner: Option<NodeId>,
    placement: PlacementId,
    epoch: Epoch,
    version: Version,
    /// Requested release: `Some` while the owner is to release the partition, with the name of the next owner, if
    /// any.
    hands_over: Option<Option<String>>,
}

/// State of the coordinator, and its rules for answers.
#[derive(Debug)]
pub(super) struct Script {
    cluster: ClusterId,
    tables: Vec<String>,
    manners: BTreeMap<String, Behaviour>,
    known: BTreeMap<NodeId, RegisteredParticipant>,
    rows: BTreeMap<PartitionId, Row>,
    /// Partitions granted to participants that are not registered.
    waiting: BTreeMap<PartitionId, String>,
    /// Partitions that no lease includes until their end is reported.
    withdrawn: BTreeMap<(NodeId, PartitionId), Epoch>,
    version: u64,
    pub(super) reported: Vec<ParticipantReport>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            cluster: ClusterId::new(Uuid::new_v4()),
            tables: Vec::new(),
            manners: BTreeMap::new(),
            known: BTreeMap::new(),
            rows: BTreeMap::new(),
            waiting: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            version: 1,
            reported: Vec::new(),
        }
    }
}

impl Script {
    pub(super) fn partition(&mut self, table: &str, index: u32) -> PartitionId {
        let known = self.tables.iter().position(|name| name == table);
        let place = known.unwrap_or_else(|| {
            self.tables.push(table.to_owned());
            self.tables.len() - 1
        });
        PartitionId::new(TableId::new(place as u64 + 1), index)
    }

    pub(super) fn behaviour(&mut self, participant: &str) -> &mut Behaviour {
        self.manners.entry(participant.to_owned()).or_default()
    }

    /// Returns the rules for the answers to a member.
    pub(super) fn behaviour_of(&mut self, member: &Member) -> Behaviour {
        let name = self.known.get(&member.node).map(|known| known.name.clone());
        name.map_or_else(Behaviour::default, |name| self.behaviour(&name).clone())
    }

    pub(super) fn grant(&mut self, participant: &str, partition: PartitionId) -> Epoch {
        self.withdraw(partition);
        self.version += 1;
        let (version, owner) = (Version::new(self.version), self.named(participant));
        let row = self.rows.entry(partition).or_insert_with(|| Row {
            owner,
            placement: PlacementId::new(version.get()),
            epoch: Epoch::ZERO,
            version,
            hands_over: None,
        });
        row.epoch = Epoch::new(row.epoch.get() + 1);
        (row.owner, row.placement, row.version) = (owner, PlacementId::new(version.get()), version);
        let epoch = row.epoch;
        match owner {
            Some(owner) => self.news(owner),
            None => drop(self.waiting.insert(partition, participant.to_owned())),
        }
        epoch
    }

    pub(super) fn hand_over(&mut self, partition: PartitionId, to: Option<&str>) -> bool {
        let row = self.rows.get_mut(&partition);
        let Some((row, owner)) = row.and_then(|row| row.owner.map(|owner| (row, owner))) else { return false };
        row.hands_over = Some(to.map(str::to_owned));
        self.news(owner);
        true
    }

    pub(super) fn withdraw(&mut self, partition: PartitionId) -> bool {
        self.waiting.remove(&partition);
        let Some(row) = self.rows.get_mut(&partition) else { return false };
        row.hands_over = None;
        let Some(owner) = row.owner.take() else { return false };
        self.withdrawn.insert((owner, partition), row.epoch);
        self.news(owner);
        true
    }

    pub(super) fn withdraw_by_heartbeat(&mut self, partition: PartitionId) -> bool {
        let Some((row, owner)) = self.rows.get(&partition).and_then(|row| Some((row, row.owner?))) else {
            return false;
        };
        self.withdrawn.insert((owner, partition), row.epoch);
        true
    }

    pub(super) fn end_life(&mut self, participant: &str) {
        let Some(node) = self.named(participant) else { return };
        self.forget(node);
        if let Some(known) = self.known.get_mut(&node) {
            known.ended = true;
        }
    }

    pub(super) fn repeat(&mut self, participant: &str) {
        let Some(node) = self.named(participant) else { return };
        if let Some(known) = self.known.get_mut(&node) {
            known.again.extend(known.told.iter().cloned());
        }
        self.news(node);
    }

    pub(super) fn owner(&self, partition: PartitionId) -> Option<(String, Epoch)> {
        let row = self.rows.get(&partition)?;
        let known = self.known.get(&row.owner?)?;
        Some((known.name.clone(), row.epoch))
    }

    pub(super) fn register(&mut self, registration: Registration) -> Result<RegistrationResult, ErrorDetail> {
        let Register { name: participant, storage, boot, last_incarnation, participant: served, .. } =
            registration.register;
        let Some(served) = served else {
            let message = "the fake coordinator takes participants alone";
            return Err(ErrorDetail::new(ErrorKind::InvalidArgument, message));
        };
        if let Some(detail) = self.behaviour(&participant).refused.clone() {
            self.reported.push(ParticipantReport::Refused { participant });
            return Err(detail);
        }
        let timing = served.timing.unwrap_or_default();
        let node = self.named(&participant).unwrap_or_else(|| NodeId::new(self.known.len() as u64 + 1));
        let mut incarnation = Incarnation::new(1);
        if let Some(known) = self.known.get(&node) {
            if known.boot == boot {
                return Ok(self.registered(node, known.incarnation, timing));
            }
            if known.storage != storage && last_incarnation.is_some() {
                let message = format!("another process has taken the name {participant} and runs under it");
                return Err(ErrorDetail::new(ErrorKind::Refused, message));
            }
            incarnation = Incarnation::new(known.incarnation.get() + 1);
        }
        self.forget(node);
        let known = RegisteredParticipant {
            name: participant.clone(),
            storage,
            boot,
            incarnation,
            timing,
            ended: false,
            stopping: false,
            told: VecDeque::new(),
            again: VecDeque::new(),
            version: Version::new(self.version),
        };
        self.known.insert(node, known);
        for partition in
            self.waiting.iter().filter(|(_, name)| **name == participant).map(|(of, _)| *of).collect::<Vec<_>>()
        {
            self.waiting.remove(&partition);
            if let Some(row) = self.rows.get_mut(&partition) {
                row.owner = Some(node);
            }
        }
        self.news(node);
        self.reported.push(ParticipantReport::Registered { participant });
        Ok(self.registered(node, incarnation, timing))
    }

    pub(super) fn heartbeat(&mut self, member: &Member, beat: &Beat) -> Result<LeaseGrant, ErrorDetail> {
        let known = self.alive(member)?;
        let lease_ms = known.timing.lease_ms;
        if beat.stopping && !std::mem::replace(&mut known.stopping, true) {
            let participant = known.name.clone();
            self.reported.push(ParticipantReport::Stopping { participant });
        }
        let withdrawn = self.withdrawn.iter().filter(|((of, _), _)| *of == member.node);
        Ok(LeaseGrant { lease_ms, withdrawn: withdrawn.map(|((_, partition), epoch)| (*partition, *epoch)).collect() })
    }

    /// Returns the answer to a poll, if there is one now.
    pub(super) fn poll(&mut self, asked: &DutiesQuery, coordinators: &[String]) -> Result<Option<Duties>, ErrorDetail> {
        let node = asked.member.node;
        let known = self.alive(&asked.member)?;
        if let Some(again) = known.again.pop_front() {
            return Ok(Some(again));
        }
        if (asked.term, asked.version) == (TERM, known.version) {
            return Ok(None);
        }
        let version = known.version;
        let tables = self.tables.iter().zip(1..).map(|(name, id)| (TableId::new(id), name.clone())).collect();
        let answer = Duties {
            term: TERM,
            version,
            duties: Some(self.duties(node)),
            coordinators: coordinators.to_vec(),
            tables_not_leased: Vec::new(),
            tables_not_granted: Vec::new(),
            tables,
            relays: Vec::new(),
        };
        if let Some(known) = self.known.get_mut(&node) {
            known.told.push_back(answer.clone());
            while known.told.len() > 2 {
                known.told.pop_front();
            }
        }
        Ok(Some(answer))
    }

    /// Records a report and applies its consequences.
    pub(super) fn report(&mut self, member: &Member, report: &Report) -> Result<(), ErrorDetail> {
        let Report { partition, epoch, .. } = *report;
        let known = self.alive(member)?;
        let participant = known.name.clone();
        let ends = matches!(report.fact, Fact::Released | Fact::Declined);
        self.reported.push(match &report.fact {
            Fact::Online => ParticipantReport::Acquired { participant, partition, epoch },
            Fact::Released => ParticipantReport::Released { participant, partition, epoch },
            Fact::Declined => ParticipantReport::Declined { participant, partition, epoch },
            other => {
                let message = format!("the fake coordinator gave no cause for {other:?}");
                return Err(ErrorDetail::new(ErrorKind::InvalidArgument, message));
            }
        });
        if !ends {
            return Ok(());
        }
        if self.withdrawn.get(&(member.node, partition)) == Some(&epoch) {
            self.withdrawn.remove(&(member.node, partition));
        }
        let row = self.rows.get_mut(&partition);
        if let Some(row) = row.filter(|row| row.owner == Some(member.node) && row.epoch == epoch) {
            row.owner = None;
            let next = row.hands_over.take().flatten();
            self.news(member.node);
            if let Some(next) = next {
                self.grant(&next, partition);
            }
        }
        Ok(())
    }

    /// Returns `true` if the answer to this request with reports is to be lost.
    pub(super) fn loses_answer(&mut self, member: &Member) -> bool {
        let Some(name) = self.known.get(&member.node).map(|known| known.name.clone()) else { return false };
        let left = &mut self.behaviour(&name).answers_lost;
        let loses = *left > 0;
        *left = left.saturating_sub(1);
        loses
    }

    pub(super) fn leave(&mut self, member: &Member) -> Result<(), ErrorDetail> {
        let participant = self.alive(member)?.name.clone();
        self.forget(member.node);
        if let Some(known) = self.known.get_mut(&member.node) {
            known.ended = true;
        }
        self.reported.push(ParticipantReport::Left { participant });
        Ok(())
    }

    fn registered(&self, node: NodeId, incarnation: Incarnation, timing: LeaseTiming) -> RegistrationResult {
        let settings = Settings { timing, ..Settings::default() };
        let generation_key = GenerationKey::NIL;
        RegistrationResult { cluster: self.cluster, node, generation_key, incarnation, protocol: 1, settings }
    }

    fn named(&self, participant: &str) -> Option<NodeId> {
        self.known.iter().find(|(_, known)| known.name == participant).map(|(node, _)| *node)
    }

    fn alive(&mut self, member: &Member) -> Result<&mut RegisteredParticipant, ErrorDetail> {
        if member.cluster != self.cluster {
            return Err(ErrorDetail::new(ErrorKind::WrongCluster, "this is the cluster of another fake coordinator"));
        }
        let known = self.known.get_mut(&member.node);
        let known = known.filter(|known| known.incarnation == member.incarnation && !known.ended);
        known.ok_or_else(|| ErrorDetail::new(ErrorKind::StaleIncarnation, "that life is over; register anew"))
    }

    /// Ends a participant's incarnation: it owns nothing afterwards.
    fn forget(&mut self, node: NodeId) {
        for row in self.rows.values_mut().filter(|row| row.owner == Some(node)) {
            (row.owner, row.hands_over) = (None, None);
        }
        self.withdrawn.retain(|(of, _), _| *of != node);
    }

    /// Records that a participant's duties have changed.
    fn news(&mut self, node: NodeId) {
        self.version += 1;
        if let Some(known) = self.known.get_mut(&node) {
            known.version = Version::new(self.version);
        }
    }

    fn duties(&self, node: NodeId) -> Vec<Duty> {
        let owned = self.rows.iter().filter(|(_, row)| row.owner == Some(node));
        owned.map(|(id, row)| duty(*id, node, row)).collect()
    }
}

fn duty(id: PartitionId, node: NodeId, row: &Row) -> Duty {
    let placement = Placement { id: row.placement, node, state: ReplicaState::Live };
    let partition = Partition {
        id,
        epoch: row.epoch,
        version: row.version,
        leader: Some(row.placement),
        placements: vec![placement],
        status: PartitionStatus::Assigned,
        min_in_sync: 1,
        range: KeyRange::ALL,
        split: None,
        merge: None,
        absorbed: Version::ZERO,
    };
    match &row.hands_over {
        None => Duty::Host { partition, placement: row.placement },
        // The placement of the next copy is irrelevant to the participant that releases.
        Some(_) => {
            let to = PlacementId::new(row.placement.get().saturating_add(1));
            Duty::HandOver { partition, placement: row.placement, to }
        }
    }
}
