//! Arbitrary messages of a peer to a replica: the replica does not panic, its epoch does not fall, its stored entries
//! stay contiguous, and no committed entry is cut.

use crate::target::{Target, Verdict};
use archon_replica::{
    Body, Configuration, Entry, Identity, Input, Limits, Message, Output, Peer, Position, Record, RecoveredState,
    Replica, ReplicaAddress, Timing,
};
use archon_types::limits::EPOCHS_AHEAD_MAX;
use archon_types::{
    Epoch, Incarnation, KeyRange, Millis, NodeId, Partition, PartitionId, PartitionStatus, Placement, PlacementId,
    ReplicaState, Seq, TableId, Version,
};
use bytes::Bytes;
use std::collections::BTreeSet;

const PARTITION: PartitionId = PartitionId::new(TableId::new(1), 0);
const OWN: u64 = 1;
/// Rows are in epochs up to this one.
const ROW_EPOCH_MAX: u64 = 8;

fn address(number: u64) -> ReplicaAddress {
    ReplicaAddress { placement: PlacementId::new(number), node: NodeId::new(number), incarnation: Incarnation::new(1) }
}

/// Numbers from bytes: small ones mostly, including the edges.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            255 => u64::MAX,
            254 => u64::MAX - 1,
            253 => 1 << 63,
            252 => 0,
            small => u64::from(small % 12),
        })
    }

    fn position(&mut self) -> Option<Position> {
        Some(Position::new(Epoch::new(self.number()?), Seq::new(self.number()?)))
    }

    fn body(&mut self) -> Option<Body> {
        Some(match self.byte()? % 8 {
            0 => {
                Body::Adopt { at: self.position()?, start: Seq::new(self.number()?), commit: Seq::new(self.number()?) }
            }
            1 => Body::Adopted { at: self.position()?, held: Seq::new(self.number()?) },
            2 | 3 => {
                let before = self.position()?;
                let mut entries = Vec::new();
                for _ in 0..self.byte()? % 4 {
                    // Mostly contiguous, as a sender's are; at times not.
                    let seq = before.seq.get().wrapping_add(1 + entries.len() as u64);
                    let odd = self.byte()?;
                    let at =
                        Position::new(Epoch::new(u64::from(odd % 6)), Seq::new(seq.wrapping_add(u64::from(odd / 250))));
                    entries.push(Entry { at, bytes: Bytes::copy_from_slice(&[odd]) });
                }
                Body::Append { before, entries, start: Seq::new(self.number()?), commit: Seq::new(self.number()?) }
            }
            4 => Body::Ack { held: Seq::new(self.number()?) },
            5 => Body::Nack { refused: self.position()?, hint: self.position()?, copying: self.byte()? % 2 == 1 },
            6 => Body::Behind { base: self.position()? },
            _ if self.byte()? % 2 == 0 => Body::Confirm { round: self.number()? },
            _ => Body::Confirmed { round: self.number()? },
        })
    }

    fn input(&mut self) -> Option<Input> {
        Some(match self.byte()? % 12 {
            0 => Input::Configure(self.configuration()?),
            1 => Input::Propose { ticket: self.number()?, entry: Bytes::from_static(b"entry") },
            2 => Input::Persisted { token: self.number()? },
            3 => Input::Lease(self.byte()? % 2 == 0),
            4 => Input::Confirm { ticket: self.number()? },
            5 => Input::Tick,
            _ => {
                // Placement 4 is in no row.
                let from = address(2 + u64::from(self.byte()? % 3));
                let epoch = Epoch::new(self.number()?);
                Input::Message(Message { partition: PARTITION, from, to: address(OWN), epoch, body: self.body()? })
            }
        })
    }

    fn configuration(&mut self) -> Option<Configuration> {
        let (epoch, version, leader) =
            (1 + self.number()? % ROW_EPOCH_MAX, 1 + self.number()? % 64, 1 + u64::from(self.byte()? % 3));
        let states = self.byte()?;
        let placements = (1..=3u64).map(|number| {
            let state =
                if states & (1 << number) == 0 || number == leader { ReplicaState::Live } else { ReplicaState::Load };
            Placement { id: PlacementId::new(number), node: NodeId::new(number), state }
        });
        let peer = |number: u64| {
            (
                PlacementId::new(number),
                Peer { node: NodeId::new(number), incarnation: Incarnation::new(1), failed: number == 3 },
            )
        };
        Some(Configuration {
            row: Partition {
                id: PARTITION,
                epoch: Epoch::new(epoch),
                version: Version::new(version),
                leader: Some(PlacementId::new(leader)),
                placements: placements.collect(),
                status: PartitionStatus::Assigned,
                min_in_sync: 1 + states % 2,
                range: KeyRange::ALL,
                split: None,
                merge: None,
                absorbed: Version::ZERO,
            },
            peers: (1..=3).map(peer).collect(),
            timing: Timing::default(),
        })
    }
}

/// The sum of the outputs.
#[derive(Default)]
struct DurableState {
    epoch: u64,
    last: u64,
    commit: u64,
    token: u64,
    appended: u64,
    seen: BTreeSet<&'static str>,
}

impl DurableState {
    fn take(&mut self, output: Output) {
        match output {
            Output::Persist { token, records } => {
                self.token = token;
                records.into_iter().for_each(|record| self.record(record));
            }
            Output::Commit { upto } => {
                assert!(upto.get() >= self.commit, "the commit position fell from {} to {upto}", self.commit);
                self.commit = upto.get();
            }
            Output::Serve(true) => drop(self.seen.insert("serves")),
            Output::Send(message) => drop(self.seen.insert(message.body.name())),
            Output::Report(_) => drop(self.seen.insert("reports")),
            Output::ReadLog { .. } => drop(self.seen.insert("reads its log")),
            Output::StartCopy { .. } => drop(self.seen.insert("copies")),
            Output::ConfirmDone { ok, .. } => drop(self.seen.insert(if ok { "confirmed" } else { "not confirmed" })),
            Output::Alarm(_) => drop(self.seen.insert("alarm")),
            Output::Abandon { .. } => drop(self.seen.insert("abandons")),
            _ => {}
        }
    }

    fn record(&mut self, record: Record) {
        match record {
            Record::Epoch(epoch) => {
                assert!(epoch.get() >= self.epoch, "the epoch fell from {} to {epoch}", self.epoch);
                assert!(
                    epoch.get() <= ROW_EPOCH_MAX + EPOCHS_AHEAD_MAX,
                    "epoch {epoch} is stored, beyond which nobody leads"
                );
                self.epoch = epoch.get();
            }
            Record::Entries(entries) => {
                for entry in entries {
                    assert_eq!(entry.at.seq.get(), self.last + 1, "what is stored has a gap");
                    assert!(entry.at.epoch.get() <= self.epoch, "an entry of an epoch that is not stored");
                    self.last += 1;
                    self.appended += 1;
                }
            }
            Record::Cut { after } => {
                assert!(after.get() >= self.commit, "cut to {after} below the commit position {}", self.commit);
                self.last = self.last.min(after.get());
            }
            Record::Reset { base } => self.last = base.seq.get(),
        }
    }
}

fn run(input: &[u8]) -> Verdict {
    let own = address(OWN);
    let identity =
        Identity { partition: PARTITION, placement: own.placement, node: own.node, incarnation: own.incarnation };
    let mut replica = match Replica::new(identity, RecoveredState::default(), Limits::default()) {
        Ok(replica) => replica,
        Err(error) => return Verdict::Refused(error.to_string()),
    };
    let (mut script, mut stored, mut now) = (Script(input), DurableState::default(), 1_000);
    while let Some(input) = script.input() {
        now += 7;
        // A shell names only batches that it was given.
        let input = match input {
            Input::Persisted { .. } => Input::Persisted { token: stored.token },
            other => other,
        };
        let mut out = Vec::new();
        replica.step(Millis::new(now), input, &mut out);
        replica.flush(Millis::new(now), &mut out);
        out.into_iter().for_each(|output| stored.take(output));
    }
    let entries = ["no entries", "one entry", "two entries", "entries"][stored.appended.min(3) as usize];
    let committed = if stored.commit > 0 { "committed" } else { "not committed" };
    Verdict::Accepted(format!("{entries} {committed} {:?}", stored.seen).replace('"', ""))
}

fn scripts() -> Vec<Vec<u8>> {
    // A follower of placement 2 in epoch 1 takes three entries and commits two; a leader proposes one and receives an
    // answer.
    let follow = vec![0, 0, 0, 1, 0, 6, 0, 1, 2, 252, 252, 3, 1, 1, 1, 0, 0, 5, 6, 0, 1, 2, 1, 3, 0, 0, 2, 5];
    let lead =
        vec![0, 0, 0, 0, 0, 6, 0, 1, 1, 252, 252, 0, 6, 1, 1, 1, 252, 252, 0, 3, 0, 1, 4, 2, 1, 6, 0, 1, 4, 1, 5];
    vec![follow, lead]
}

pub(super) fn targets() -> Vec<Target> {
    vec![Target::new("replica/messages", run, scripts)]
}
