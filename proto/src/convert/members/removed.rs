//! Removed nodes.

use crate::convert::ConvertError;
use crate::v1;
use archon_types::{NodeId, RemovedNodes, Version};

/// Maximum number of runs of removed nodes in one list: above the number of nodes that can lie between them.
const RANGES_MAX: usize = 65_536;

impl From<RemovedNodes> for v1::RemovedNodes {
    fn from(removed: RemovedNodes) -> Self {
        let ranges = removed.ranges.iter().flat_map(|(first, last)| [first.get(), last.get()]);
        Self { version: removed.version.get(), ranges: ranges.collect() }
    }
}

impl TryFrom<v1::RemovedNodes> for RemovedNodes {
    type Error = ConvertError;

    fn try_from(wire: v1::RemovedNodes) -> Result<Self, ConvertError> {
        let wrong = |problem: String| Err(ConvertError::new("RemovedNodes.ranges", problem));
        let (ranges, rest) = wire.ranges.as_chunks::<2>();
        if !rest.is_empty() || ranges.len() > RANGES_MAX {
            return wrong(format!("{} numbers; pairs are wanted, at most {RANGES_MAX}", wire.ranges.len()));
        }
        let apart = ranges.windows(2).all(|pair| pair[0][1] < pair[1][0]);
        if !apart || ranges.iter().any(|[first, last]| *first == 0 || first > last) {
            return wrong("they do not ascend from 1".to_owned());
        }
        let ranges = ranges.iter().map(|[first, last]| (NodeId::new(*first), NodeId::new(*last)));
        Ok(Self { version: Version::new(wire.version), ranges: ranges.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_runs_of_removed_nodes_are_refused() {
        let read = |ranges: &[u64]| RemovedNodes::try_from(v1::RemovedNodes { version: 7, ranges: ranges.to_vec() });
        for wrong in [&[1][..], &[0, 3], &[5, 4], &[1, 3, 3, 4], &[6, 7, 1, 2]] {
            assert_eq!(read(wrong).unwrap_err().field, "RemovedNodes.ranges", "{wrong:?}");
        }
        let many: Vec<u64> = (1..=2 * RANGES_MAX as u64 + 2).collect();
        assert!(read(&many).is_err() && read(&many[2..]).is_ok());
        let list = read(&[1, 1, 4, 9]).unwrap();
        assert!(list.contains(NodeId::new(4)) && !list.contains(NodeId::new(2)));
        assert_eq!(v1::RemovedNodes::from(list).ranges, [1, 1, 4, 9]);
    }
}
