//! Split key of a partition, requested by the leading coordinator.

use crate::convert::{ConvertError, checked, ids, required};
use crate::v1;
use crate::v1::find_middle_response::{Indivisible, Middle as Wire, Searching};
use archon_types::limits::check_key;
use archon_types::{ClusterId, Incarnation, Middle, NodeId, PartitionId};

/// A request for the split key of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FindMiddle {
    /// The cluster.
    pub cluster: ClusterId,
    /// The recipient.
    pub node: NodeId,
    /// The recipient's incarnation.
    pub incarnation: Incarnation,
    /// The partition.
    pub partition: PartitionId,
}

impl From<FindMiddle> for v1::FindMiddleRequest {
    fn from(asked: FindMiddle) -> Self {
        Self {
            cluster: Some(asked.cluster.into()),
            node: asked.node.get(),
            incarnation: asked.incarnation.get(),
            partition: Some(asked.partition.into()),
        }
    }
}

impl TryFrom<v1::FindMiddleRequest> for FindMiddle {
    type Error = ConvertError;

    fn try_from(wire: v1::FindMiddleRequest) -> Result<Self, ConvertError> {
        Ok(Self {
            cluster: required(ids::cluster_id(wire.cluster.as_ref())?, "FindMiddleRequest.cluster")?,
            node: NodeId::new(ids::non_zero(wire.node, "FindMiddleRequest.node")?),
            incarnation: Incarnation::new(ids::non_zero(wire.incarnation, "FindMiddleRequest.incarnation")?),
            partition: required(wire.partition, "FindMiddleRequest.partition")?.try_into()?,
        })
    }
}

impl From<Middle> for v1::FindMiddleResponse {
    fn from(middle: Middle) -> Self {
        let middle = match middle {
            Middle::At(key) => Wire::Key(key),
            Middle::Searching => Wire::Searching(Searching {}),
            Middle::Indivisible => Wire::Indivisible(Indivisible {}),
        };
        Self { middle: Some(middle) }
    }
}

impl TryFrom<v1::FindMiddleResponse> for Middle {
    type Error = ConvertError;

    fn try_from(wire: v1::FindMiddleResponse) -> Result<Self, ConvertError> {
        match required(wire.middle, "FindMiddleResponse.middle")? {
            Wire::Key(key) => {
                checked(check_key(&key), "FindMiddleResponse.key")?;
                Ok(Self::At(key))
            }
            Wire::Searching(_) => Ok(Self::Searching),
            Wire::Indivisible(_) => Ok(Self::Indivisible),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::TableId;
    use bytes::Bytes;
    use uuid::Uuid;

    #[test]
    fn split_key_request_and_answer_round_trip() {
        let partition = PartitionId::new(TableId::new(3), 7);
        let cluster = ClusterId::new(Uuid::from_u128(9));
        let asked = FindMiddle { cluster, node: NodeId::new(2), incarnation: Incarnation::new(11), partition };
        assert_eq!(FindMiddle::try_from(v1::FindMiddleRequest::from(asked)), Ok(asked));
        for middle in [Middle::At(Bytes::from_static(b"m")), Middle::Searching, Middle::Indivisible] {
            assert_eq!(Middle::try_from(v1::FindMiddleResponse::from(middle.clone())), Ok(middle));
        }
    }

    #[test]
    fn invalid_split_key_messages_name_the_field() {
        let error = FindMiddle::try_from(v1::FindMiddleRequest::default()).unwrap_err();
        assert_eq!(error.field, "FindMiddleRequest.cluster");
        let error = Middle::try_from(v1::FindMiddleResponse::default()).unwrap_err();
        assert_eq!(error.field, "FindMiddleResponse.middle");
        let empty = v1::FindMiddleResponse { middle: Some(Wire::Key(Bytes::new())) };
        assert_eq!(Middle::try_from(empty).unwrap_err().field, "FindMiddleResponse.key");
    }
}
