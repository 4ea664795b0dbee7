//! Splits of partitions.

use super::{PLACEMENTS_MAX, enum_field};
use crate::convert::kv::bounded_part;
use crate::convert::{ConvertError, bounded, ids};
use crate::v1;
use archon_types::{Epoch, NodeId, PlacementId, Position, RightCopy, Seq, Split, Version};

impl From<Position> for v1::LogPosition {
    fn from(position: Position) -> Self {
        Self { epoch: position.epoch.get(), seq: position.seq.get() }
    }
}

impl From<v1::LogPosition> for Position {
    fn from(wire: v1::LogPosition) -> Self {
        Self::new(Epoch::new(wire.epoch), Seq::new(wire.seq))
    }
}

impl From<Split> for v1::Split {
    fn from(split: Split) -> Self {
        let copy = |copy: RightCopy| v1::RightCopy {
            id: copy.id.get(),
            node: copy.node.get(),
            stage: v1::RightStage::from(copy.stage).into(),
        };
        Self {
            attempt: split.attempt.get(),
            at: split.at,
            right: split.right,
            copies: split.copies.into_iter().map(copy).collect(),
            position: split.position.map(Into::into),
            cut: split.cut,
        }
    }
}

impl TryFrom<v1::Split> for Split {
    type Error = ConvertError;

    fn try_from(wire: v1::Split) -> Result<Self, ConvertError> {
        bounded(wire.copies.len(), PLACEMENTS_MAX, "Split.copies")?;
        bounded_part(&wire.at, "Split.at")?;
        let copy = |copy: v1::RightCopy| {
            Ok(RightCopy {
                id: PlacementId::new(ids::non_zero(copy.id, "RightCopy.id")?),
                node: NodeId::new(ids::non_zero(copy.node, "RightCopy.node")?),
                stage: enum_field::<v1::RightStage, _>(copy.stage, "RightCopy.stage")?,
            })
        };
        Ok(Self {
            attempt: Version::new(wire.attempt),
            at: wire.at,
            right: wire.right,
            copies: wire.copies.into_iter().map(copy).collect::<Result<_, ConvertError>>()?,
            position: wire.position.map(Into::into),
            cut: wire.cut,
        })
    }
}
