//! Changes of the quorum.

use super::ids::{request_id, uuid_bytes};
use super::{ConvertError, checked, required};
use crate::v1;
use crate::v1::change_quorum_request::Change;
use archon_types::limits::check_address;
use archon_types::{QuorumChange, RequestId};

/// Operator's request about the quorum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QuorumAsk {
    /// Change its members.
    Change(QuorumChange),
    /// Cancel the change in progress.
    Cancel,
    /// End a recovery, so that partitions continue from the reported replicas.
    Settle,
}

/// A request to change the quorum, to cancel the change in progress, or to end a recovery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeQuorum {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The requested action.
    pub ask: QuorumAsk,
    /// Accepts that no other voter may fail afterwards, or that acknowledged writes may be lost.
    pub force: bool,
}

impl TryFrom<v1::ChangeQuorumRequest> for ChangeQuorum {
    type Error = ConvertError;

    fn try_from(wire: v1::ChangeQuorumRequest) -> Result<Self, ConvertError> {
        let ask = match required(wire.change, "ChangeQuorumRequest.change")? {
            Change::Promote(id) => QuorumAsk::Change(QuorumChange::Promote { id }),
            Change::Demote(id) => QuorumAsk::Change(QuorumChange::Demote { id }),
            Change::Remove(id) => QuorumAsk::Change(QuorumChange::Remove { id }),
            Change::Replace(v1::ReplaceCoordinator { old, new }) => {
                QuorumAsk::Change(QuorumChange::Replace { old, new })
            }
            Change::SetAddress(v1::CoordinatorAddress { id, address }) => {
                checked(check_address(&address), "CoordinatorAddress.address")?;
                QuorumAsk::Change(QuorumChange::SetAddress { id, address })
            }
            Change::Settle(true) => QuorumAsk::Settle,
            Change::Cancel(true) => QuorumAsk::Cancel,
            Change::Settle(false) => {
                return Err(ConvertError::new("ChangeQuorumRequest.settle", "say true, or another change"));
            }
            Change::Cancel(false) => {
                return Err(ConvertError::new("ChangeQuorumRequest.cancel", "say true, or a change"));
            }
        };
        let request = request_id(&wire.request_id, "ChangeQuorumRequest.request_id")?;
        Ok(Self { request, ask, force: wire.force })
    }
}

impl From<ChangeQuorum> for v1::ChangeQuorumRequest {
    fn from(asked: ChangeQuorum) -> Self {
        let change = match asked.ask {
            QuorumAsk::Change(QuorumChange::Promote { id }) => Change::Promote(id),
            QuorumAsk::Change(QuorumChange::Demote { id }) => Change::Demote(id),
            QuorumAsk::Change(QuorumChange::Remove { id }) => Change::Remove(id),
            QuorumAsk::Change(QuorumChange::Replace { old, new }) => {
                Change::Replace(v1::ReplaceCoordinator { old, new })
            }
            QuorumAsk::Change(QuorumChange::SetAddress { id, address }) => {
                Change::SetAddress(v1::CoordinatorAddress { id, address })
            }
            QuorumAsk::Settle => Change::Settle(true),
            QuorumAsk::Cancel => Change::Cancel(true),
        };
        Self { cluster: None, request_id: uuid_bytes(asked.request.get()), change: Some(change), force: asked.force }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message as _;
    use uuid::Uuid;

    fn asks() -> impl Strategy<Value = QuorumAsk> {
        prop_oneof![
            Just(QuorumAsk::Cancel),
            Just(QuorumAsk::Settle),
            any::<u64>().prop_map(|id| QuorumAsk::Change(QuorumChange::Promote { id })),
            any::<u64>().prop_map(|id| QuorumAsk::Change(QuorumChange::Demote { id })),
            any::<u64>().prop_map(|id| QuorumAsk::Change(QuorumChange::Remove { id })),
            any::<(u64, u64)>().prop_map(|(old, new)| QuorumAsk::Change(QuorumChange::Replace { old, new })),
            (any::<u64>(), 1u16..).prop_map(|(id, port)| {
                QuorumAsk::Change(QuorumChange::SetAddress { id, address: format!("127.0.0.1:{port}") })
            }),
        ]
    }

    proptest! {
        #[test]
        fn quorum_request_round_trips(ask in asks(), id in any::<u128>(), force in any::<bool>()) {
            let asked = ChangeQuorum { request: RequestId::new(Uuid::from_u128(id)), ask, force };
            let bytes = v1::ChangeQuorumRequest::from(asked.clone()).encode_to_vec();
            let wire = v1::ChangeQuorumRequest::decode(bytes.as_slice()).unwrap();
            prop_assert_eq!(ChangeQuorum::try_from(wire), Ok(asked));
        }
    }

    #[test]
    fn empty_change_is_refused() {
        let wire = v1::ChangeQuorumRequest { request_id: uuid_bytes(Uuid::from_u128(1)), ..Default::default() };
        assert!(ChangeQuorum::try_from(wire.clone()).unwrap_err().to_string().contains("change"));
        let not = v1::ChangeQuorumRequest { change: Some(Change::Cancel(false)), ..wire.clone() };
        assert!(ChangeQuorum::try_from(not).unwrap_err().to_string().contains("cancel"));
        let nowhere = v1::CoordinatorAddress { id: 1, address: "nowhere".into() };
        let nowhere = v1::ChangeQuorumRequest { change: Some(Change::SetAddress(nowhere)), ..wire };
        assert!(ChangeQuorum::try_from(nowhere).unwrap_err().to_string().contains("address"));
    }
}
