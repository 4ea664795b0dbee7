//! Outcome of a request, with its share of admission.

use crate::server::admit::Permit;
use crate::service::redis::refusal::{CommandResult, Refusal};
use archon_resp::Reply;
use archon_types::PartitionId;

/// Outcome of a request.
pub(super) struct Outcome {
    pub(super) executed: CommandResult,
    /// Partition that it wrote.
    pub(super) written: Option<PartitionId>,
    /// Share of admission, held until its reply is sent.
    pub(super) permit: Option<Permit>,
}

impl Outcome {
    /// Creates the outcome of a request that no shard got.
    pub(super) const fn refused(refusal: Refusal) -> Self {
        Self { executed: Err(refusal), written: None, permit: None }
    }

    /// Returns the bytes of its reply, as far as they may be many.
    pub(super) fn reply_bytes(&self) -> usize {
        self.executed.as_ref().map_or(0, Reply::bytes)
    }

    /// Returns whether nothing was done for lack of room.
    pub(super) fn is_overloaded(&self) -> bool {
        matches!(&self.executed, Err(Refusal::Error(text)) if text.starts_with("TRYAGAIN"))
    }

    /// Returns whether it is not known if a write was done.
    pub(super) const fn is_unknown(&self) -> bool {
        matches!(&self.executed, Err(Refusal::Unknown(_)))
    }
}
