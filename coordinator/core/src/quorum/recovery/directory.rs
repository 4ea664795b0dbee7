//! Detection of older copies of nodes' data directories during a recovery (PROTOCOL rule 61).
//!
//! A node is activated in the new generation before it reports its replicas, with any directory. Judged by its last
//! activated incarnation, an older copy would pass for the right directory after one more restart, and the right one
//! would cease to count. So a directory is judged by the last incarnation that can have written data: the last one
//! before the recovery, or one of an earlier generation that was not settled according to this state. An incarnation of
//! the present generation writes none before the recovery is settled.

use crate::state::recovery::{DirectoryRecord, Recovery};
use archon_types::{Incarnation, NodeId, generation_of};
use std::collections::BTreeSet;

/// Maximum number of incarnations kept per node. A directory of a dropped incarnation counts as an older copy.
const LIVES_MAX: usize = 16;

impl DirectoryRecord {
    /// Returns true if this incarnation is no later than the last known one of its generation.
    fn knows(&self, life: Incarnation) -> bool {
        self.known.iter().any(|known| generation(*known) == generation(life) && life <= *known)
    }

    fn note_known(&mut self, life: Incarnation) {
        if !self.knows(life) {
            self.known.retain(|known| generation(*known) != generation(life));
            self.known.insert(life);
            drop_first(&mut self.known);
        }
    }

    /// Continues with a further recovery during this one; the node's last activated incarnation is `activated`. It may
    /// have written data, if this recovery was settled by a change that the state lacks.
    pub(crate) fn continue_with(&mut self, activated: Option<Incarnation>) {
        if let Some(activated) = activated.filter(|activated| self.whole.contains(activated)) {
            self.acted = Some(activated);
            self.whole.retain(|life| *life >= activated);
        }
    }
}

const fn generation(life: Incarnation) -> u64 {
    generation_of(life.get())
}

fn drop_first(lives: &mut BTreeSet<Incarnation>) {
    while lives.len() > LIVES_MAX {
        lives.pop_first();
    }
}

impl Recovery {
    /// Returns true if a directory last used in the incarnation `last` is an older copy of the one that acted last.
    pub(crate) fn is_older(&self, node: NodeId, last: Option<Incarnation>) -> bool {
        let Some(record) = self.directories.get(&node) else { return false };
        // A directory that is known to be complete stays so when its node registers again, because it missed the
        // answer.
        if last.is_some_and(|last| record.whole.contains(&last) || record.acted == Some(last)) {
            return false;
        }
        // An incarnation later than all known ones of its generation was registered by a change that this state lacks,
        // and nothing contradicts it. A later registration in a later generation does not: it may be a late request of
        // an earlier process.
        let known = last.is_some_and(|last| generation(last) >= self.unsettled_since && record.knows(last));
        known || record.acted.is_some_and(|acted| last.is_none_or(|last| last < acted))
    }

    /// Notes that a node registers this incarnation with a directory last used in the incarnation `last`: an older
    /// copy, or the right one.
    pub(crate) fn note_directory(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        last: Option<Incarnation>,
        older: bool,
    ) {
        let since = self.unsettled_since;
        let record = self.directories.entry(node).or_default();
        record.note_known(incarnation);
        if !older {
            let last = last.filter(|last| generation(*last) >= since);
            if let Some(last) = last {
                record.note_known(last);
                record.acted = record.acted.max(Some(last));
            }
            record.whole.insert(incarnation);
            record.whole.extend(last);
            drop_first(&mut record.whole);
        }
    }
}
