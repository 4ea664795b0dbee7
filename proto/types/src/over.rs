//! Lives of nodes that are over, as rows say (PROTOCOL rule 72).

use crate::error::{ErrorDetail, ErrorKind};
use crate::ids::{Incarnation, NodeId, Version};
use crate::node::{Node, NodeStatus};

/// A life is over, and whoever says so holds a row that ended it. Rows are committed, and a life that has ended does not begin
/// again: this stays true for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Over {
    /// Whose life.
    pub node: NodeId,
    /// Which one. Another one of that node is not meant.
    pub incarnation: Incarnation,
    /// Of the row: by then it was over.
    pub version: Version,
}

impl Over {
    /// The refusal of what that life asks for, for those who do not know of such words.
    pub fn refusal(&self) -> ErrorDetail {
        let Self { node, incarnation, version } = self;
        let why = format!("life {incarnation} of node {node} ended at version {version}; the node is to register anew");
        ErrorDetail::new(ErrorKind::StaleIncarnation, why).with_table_version(*version)
    }
}

impl Node {
    /// Whether a life of this node is over, as its row says: it has registered anew since, or it is failed or lost in that life, out of
    /// which only the next registration brings it, by one entry. A row from before that life says nothing of it.
    pub fn over(&self, incarnation: Incarnation) -> Option<Over> {
        let over = |version| Over { node: self.id, incarnation, version };
        if incarnation < self.incarnation {
            // The registration is an entry of the same log.
            return Some(over(Version::new(self.incarnation.get())));
        }
        let ended = incarnation == self.incarnation && self.status != NodeStatus::Alive;
        ended.then(|| over(self.version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_over_once_its_node_is_failed_or_has_registered_anew_and_a_later_one_is_not() {
        let row = |status| Node {
            incarnation: Incarnation::new(70),
            version: Version::new(81),
            status,
            ..Node::new(NodeId::new(3), "byzantium", "127.0.0.1:1")
        };
        let said = |status| {
            let row = row(status);
            [69, 70, 71].map(|life| row.over(Incarnation::new(life)).map(|over| over.version.get()))
        };
        assert_eq!(said(NodeStatus::Alive), [Some(70), None, None]);
        assert_eq!(said(NodeStatus::Failed), [Some(70), Some(81), None]);
        assert_eq!(said(NodeStatus::Lost), [Some(70), Some(81), None]);
        let over = row(NodeStatus::Failed).over(Incarnation::new(70)).unwrap();
        assert_eq!((over.node, over.incarnation), (NodeId::new(3), Incarnation::new(70)));
        assert_eq!(over.refusal().kind, ErrorKind::StaleIncarnation);
    }
}
