//! Merges of partitions.

use crate::convert::kv::bounded_part;
use crate::convert::{ConvertError, required};
use crate::v1;
use archon_types::{Merge, MergeSide, Version};

impl From<Merge> for v1::Merge {
    fn from(merge: Merge) -> Self {
        use v1::merge::Side;
        let side = match merge.side {
            MergeSide::Absorbs { right, end } => Side::Absorbs(v1::Absorbs { right, end }),
            MergeSide::Yields { left } => Side::Yields(v1::Yields { left }),
        };
        Self { attempt: merge.attempt.get(), side: Some(side) }
    }
}

impl TryFrom<v1::Merge> for Merge {
    type Error = ConvertError;

    fn try_from(wire: v1::Merge) -> Result<Self, ConvertError> {
        use v1::merge::Side;
        let side = match required(wire.side, "Merge.side")? {
            Side::Absorbs(v1::Absorbs { right, end }) => {
                end.iter().try_for_each(|end| bounded_part(end, "Absorbs.end"))?;
                MergeSide::Absorbs { right, end }
            }
            Side::Yields(v1::Yields { left }) => MergeSide::Yields { left },
        };
        Ok(Self { attempt: Version::new(wire.attempt), side })
    }
}
