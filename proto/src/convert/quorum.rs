//! Changes of the quorum.

use super::ids::{request_id, uuid_bytes};
use super::{ConvertError, checked, required};
use crate::v1;
use crate::v1::change_quorum_request::Change;
use archon_types::limits::check_address;
use archon_types::{QuorumChange, RequestId};

/// A request to change the quorum, or to take back the change under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeQuorum {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// What is wanted; `None`: what is under way is not wanted any more.
    pub change: Option<QuorumChange>,
    /// Also if no other voter may fail afterwards.
    pub force: bool,
}

impl TryFrom<v1::ChangeQuorumRequest> for ChangeQuorum {
    type Error = ConvertError;

    fn try_from(wire: v1::ChangeQuorumRequest) -> Result<Self, ConvertError> {
        let change = match required(wire.change, "ChangeQuorumRequest.change")? {
            Change::Promote(id) => Some(QuorumChange::Promote { id }),
            Change::Demote(id) => Some(QuorumChange::Demote { id }),
            Change::Remove(id) => Some(QuorumChange::Remove { id }),
            Change::Replace(v1::ReplaceCoordinator { old, new }) => Some(QuorumChange::Replace { old, new }),
            Change::SetAddress(v1::CoordinatorAddress { id, address }) => {
                checked(check_address(&address), "CoordinatorAddress.address")?;
                Some(QuorumChange::SetAddress { id, address })
            }
            Change::Cancel(true) => None,
            Change::Cancel(false) => {
                return Err(ConvertError::new("ChangeQuorumRequest.cancel", "say true, or a change"));
            }
        };
        let request = request_id(&wire.request_id, "ChangeQuorumRequest.request_id")?;
        Ok(Self { request, change, force: wire.force })
    }
}

impl From<ChangeQuorum> for v1::ChangeQuorumRequest {
    fn from(asked: ChangeQuorum) -> Self {
        let change = match asked.change {
            Some(QuorumChange::Promote { id }) => Change::Promote(id),
            Some(QuorumChange::Demote { id }) => Change::Demote(id),
            Some(QuorumChange::Remove { id }) => Change::Remove(id),
            Some(QuorumChange::Replace { old, new }) => Change::Replace(v1::ReplaceCoordinator { old, new }),
            Some(QuorumChange::SetAddress { id, address }) => {
                Change::SetAddress(v1::CoordinatorAddress { id, address })
            }
            None => Change::Cancel(true),
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

    fn changes() -> impl Strategy<Value = Option<QuorumChange>> {
        prop_oneof![
            Just(None),
            any::<u64>().prop_map(|id| Some(QuorumChange::Promote { id })),
            any::<u64>().prop_map(|id| Some(QuorumChange::Demote { id })),
            any::<u64>().prop_map(|id| Some(QuorumChange::Remove { id })),
            any::<(u64, u64)>().prop_map(|(old, new)| Some(QuorumChange::Replace { old, new })),
            (any::<u64>(), 1u16..)
                .prop_map(|(id, port)| { Some(QuorumChange::SetAddress { id, address: format!("127.0.0.1:{port}") }) }),
        ]
    }

    proptest! {
        #[test]
        fn a_request_survives_the_wire(change in changes(), id in any::<u128>(), force in any::<bool>()) {
            let asked = ChangeQuorum { request: RequestId::new(Uuid::from_u128(id)), change, force };
            let bytes = v1::ChangeQuorumRequest::from(asked.clone()).encode_to_vec();
            let wire = v1::ChangeQuorumRequest::decode(bytes.as_slice()).unwrap();
            prop_assert_eq!(ChangeQuorum::try_from(wire), Ok(asked));
        }
    }

    #[test]
    fn an_empty_change_took_the_one_under_way_back() {
        let wire = v1::ChangeQuorumRequest { request_id: uuid_bytes(Uuid::from_u128(1)), ..Default::default() };
        assert!(ChangeQuorum::try_from(wire.clone()).unwrap_err().to_string().contains("change"));
        let not = v1::ChangeQuorumRequest { change: Some(Change::Cancel(false)), ..wire.clone() };
        assert!(ChangeQuorum::try_from(not).unwrap_err().to_string().contains("cancel"));
        let nowhere = v1::CoordinatorAddress { id: 1, address: "nowhere".into() };
        let nowhere = v1::ChangeQuorumRequest { change: Some(Change::SetAddress(nowhere)), ..wire };
        assert!(ChangeQuorum::try_from(nowhere).unwrap_err().to_string().contains("address"));
    }
}
