//! Start of a world: the first coordinators, the first term, and the cluster itself.

use super::member::first_address;
use super::{Member, StartReason, batch};
use crate::coordinator::quorum::COORDINATORS;
use crate::event::{Event, Proposal};
use crate::raft::{Disk, Entry, EntryContent, Membership, Voter};
use crate::world::World;
use archon_coordinator_core::Command;
use archon_types::{ClusterId, DOORS_SINCE, StorageId};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

impl World {
    /// Creates the first term, and the cluster itself.
    pub(crate) fn found_cluster(&mut self) {
        if self.plan.changes_quorum {
            return self.found_quorum();
        }
        self.begin_term(0);
        let cluster = ClusterId::new(Uuid::from_u128(1));
        let settings = self.plan.settings.clone();
        let mut commands = vec![Command::Bootstrap { cluster, settings }];
        if self.plan.doors {
            commands.push(Command::RaiseProtocol { to: DOORS_SINCE });
        }
        self.commit(0, Proposal { term: self.quorum.term, commands, reply: None });
    }

    /// Creates the first members with identical logs: the membership, the first term, and the cluster itself.
    fn found_quorum(&mut self) {
        let ids = (0..COORDINATORS).map(|slot| (slot, slot as u64 + 1));
        let storages: Vec<StorageId> =
            (0..COORDINATORS).map(|_| StorageId::new(Uuid::from_u128(self.unique()))).collect();
        let nodes: BTreeMap<u64, (String, StorageId)> =
            ids.clone().map(|(slot, id)| (id, (first_address(slot), storages[slot]))).collect();
        let commands = vec![Command::Bootstrap {
            cluster: ClusterId::new(Uuid::from_u128(1)),
            settings: self.plan.settings.clone(),
        }];
        let batch = batch(1, 0, 1, commands);
        let entries = [
            Entry { term: 0, what: EntryContent::Members(Membership::founding(nodes)) },
            Entry { term: 1, what: EntryContent::Blank },
            Entry { term: 1, what: EntryContent::Batch(batch) },
        ]
        .map(Arc::new);
        for (slot, id) in ids {
            let mut disk = Disk::new(id, storages[slot]);
            (disk.term, disk.voted, disk.started) = (1, Some(1), true);
            entries.iter().for_each(|entry| disk.push(Arc::clone(entry)));
            let mut member = Member::new(first_address(slot), disk.clone(), StartReason::Founder);
            (member.raft, member.up, member.boots) = (Voter::founder(disk), true, 1);
            member.election_timeout = self.plan.unit_ms() * 4;
            self.quorum.coordinators[slot].member = Some(Box::new(member));
            self.after(1, Event::QuorumTick { coordinator: slot, boot: 1 });
        }
        for entry in entries {
            self.append(entry);
            self.checks.committed_in.push(1);
        }
        (0..COORDINATORS).for_each(|slot| self.apply_committed(slot));
        self.stand(0, false);
    }
}
