//! Fenced incarnations of nodes, proven by rows (PROTOCOL rule 72).

use crate::error::{ErrorDetail, ErrorKind};
use crate::ids::{Incarnation, NodeId, Version};
use crate::members::node::{Node, NodeStatus};

/// Proof that an incarnation is fenced: its sender holds a row that ended the incarnation. Rows are committed, and a
/// fenced incarnation never resumes, so the proof stays valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FencingProof {
    /// Node of the incarnation.
    pub node: NodeId,
    /// The fenced incarnation; other incarnations of the node are not affected.
    pub incarnation: Incarnation,
    /// Version of the row, by which the incarnation was fenced.
    pub version: Version,
}

impl FencingProof {
    /// Returns the refusal of a request of this incarnation, for clients that do not understand the proof.
    pub fn refusal(&self) -> ErrorDetail {
        let Self { node, incarnation, version } = self;
        let why = format!(
            "incarnation {incarnation} of node {node} ended at version {version}; the node must register \
                           again"
        );
        ErrorDetail::new(ErrorKind::StaleIncarnation, why).with_table_version(*version)
    }
}

impl Node {
    /// Returns the proof that an incarnation of this node is fenced, if its row shows that: the node has registered
    /// again since, or it is failed or lost in that incarnation, which only the next registration ends, by one entry. A
    /// row from before that incarnation proves nothing.
    pub fn over(&self, incarnation: Incarnation) -> Option<FencingProof> {
        let over = |version| FencingProof { node: self.id, incarnation, version };
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
    fn incarnation_is_fenced_by_failure_or_new_registration() {
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
