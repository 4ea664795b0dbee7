//! Notice that an incarnation is fenced.

use crate::convert::{ConvertError, ids};
use crate::v1;
use archon_types::{FencingProof, Incarnation, NodeId, Version};

impl From<FencingProof> for v1::Over {
    fn from(over: FencingProof) -> Self {
        let FencingProof { node, incarnation, version } = over;
        Self { node: node.get(), incarnation: incarnation.get(), version: version.get() }
    }
}

impl TryFrom<v1::Over> for FencingProof {
    type Error = ConvertError;

    fn try_from(wire: v1::Over) -> Result<Self, ConvertError> {
        Ok(Self {
            node: NodeId::new(ids::non_zero(wire.node, "Over.node")?),
            incarnation: Incarnation::new(ids::non_zero(wire.incarnation, "Over.incarnation")?),
            version: Version::new(ids::non_zero(wire.version, "Over.version")?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notice_round_trips_and_requires_an_incarnation() {
        let over = FencingProof { node: NodeId::new(2), incarnation: Incarnation::new(3), version: Version::new(4) };
        let wire = v1::Over::from(over);
        assert_eq!(FencingProof::try_from(wire), Ok(over));
        let cases = [
            (v1::Over { node: 0, ..wire }, "Over.node"),
            (v1::Over { incarnation: 0, ..wire }, "Over.incarnation"),
            (v1::Over { version: 0, ..wire }, "Over.version"),
        ];
        for (wire, field) in cases {
            assert_eq!(FencingProof::try_from(wire).map_err(|error| error.field), Err(field));
        }
    }
}
