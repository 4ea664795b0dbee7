//! Detection of older copies of nodes' data directories during a recovery (PROTOCOL rule 61).
//!
//! A node is activated in the new generation before it reports its copies, with any directory. Judged by its last activated life, an
//! older copy would pass for the right directory after one more restart, and the right one would cease to count. So a directory is
//! judged by the last life before the recovery, and one that has lived since by what was found of it then.

use super::Recovery;
use archon_types::{Incarnation, NodeId, generation_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Most lives remembered per node. A directory of a forgotten life counts as an older copy.
const LIVES_MAX: usize = 16;

/// The lives of one node by which an older copy of its data directory is detected.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DirectoryRecord {
    /// The last life that was activated before the recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acted: Option<Incarnation>,
    /// Lives since then in which the node had a directory that lacks nothing of that life, and those in which it came with one.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub whole: BTreeSet<Incarnation>,
    /// The last life that was registered since then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<Incarnation>,
}

impl Recovery {
    /// Returns true if a directory last used in the life `last` is an older copy of the one that acted before the recovery.
    pub(crate) fn is_older(&self, node: NodeId, last: Option<Incarnation>) -> bool {
        let Some(record) = self.directories.get(&node) else { return false };
        match last.filter(|last| generation_of(last.get()) >= self.unsettled_since) {
            // A later life than any that is known was registered by a change that this state lacks, and nothing speaks against it.
            // It stays whole when its node registers again, because it missed the answer.
            Some(last) => Some(last) <= record.registered && !record.whole.contains(&last),
            None => record.acted.is_some_and(|acted| last.is_none_or(|last| last < acted)),
        }
    }

    /// Takes note that a node begins this life with a directory last used in the life `last`: an older copy, or the right one.
    pub(crate) fn note_directory(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        last: Option<Incarnation>,
        older: bool,
    ) {
        let since = self.unsettled_since;
        let record = self.directories.entry(node).or_default();
        record.registered = Some(incarnation);
        if !older {
            record.whole.insert(incarnation);
            record.whole.extend(last.filter(|last| generation_of(last.get()) >= since));
            while record.whole.len() > LIVES_MAX {
                record.whole.pop_first();
            }
        }
    }
}
