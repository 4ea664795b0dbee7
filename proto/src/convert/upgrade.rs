//! What operators ask about the protocol of the cluster.

use super::ConvertError;
use super::ids::{request_id, uuid_bytes};
use crate::v1;
use archon_types::{PROTOCOL_MAX, ProtocolRange, RequestId};

/// What is to become of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeAsk {
    /// It rises now.
    Finalize,
    /// It stays as it is.
    Hold,
    /// It rises by itself again.
    Release,
}

/// A request to change what becomes of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangeUpgrade {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// What is wanted.
    pub ask: UpgradeAsk,
}

impl TryFrom<v1::ChangeUpgradeRequest> for ChangeUpgrade {
    type Error = ConvertError;

    fn try_from(wire: v1::ChangeUpgradeRequest) -> Result<Self, ConvertError> {
        let ask = match wire.ask() {
            v1::UpgradeAsk::Finalize => UpgradeAsk::Finalize,
            v1::UpgradeAsk::Hold => UpgradeAsk::Hold,
            v1::UpgradeAsk::Release => UpgradeAsk::Release,
            v1::UpgradeAsk::Unspecified => {
                return Err(ConvertError::new("ChangeUpgradeRequest.ask", "say finalize, hold or release"));
            }
        };
        Ok(Self { request: request_id(&wire.request_id, "ChangeUpgradeRequest.request_id")?, ask })
    }
}

impl From<ChangeUpgrade> for v1::ChangeUpgradeRequest {
    fn from(ChangeUpgrade { request, ask }: ChangeUpgrade) -> Self {
        let ask = match ask {
            UpgradeAsk::Finalize => v1::UpgradeAsk::Finalize,
            UpgradeAsk::Hold => v1::UpgradeAsk::Hold,
            UpgradeAsk::Release => v1::UpgradeAsk::Release,
        };
        Self { cluster: None, request_id: uuid_bytes(request.get()), ask: ask.into() }
    }
}

/// The protocols between these two, as a coordinator says of itself: one of the first version says nothing.
///
/// # Errors
/// An empty range.
pub fn protocol_range((min, max): (u32, u32), field: &'static str) -> Result<ProtocolRange, ConvertError> {
    match (min, max) {
        (0, 0) => Ok(ProtocolRange::FIRST),
        (oldest, newest) if 0 < oldest && oldest <= newest && newest <= PROTOCOL_MAX => {
            Ok(ProtocolRange { oldest, newest })
        }
        (oldest, newest) => Err(ConvertError::new(field, format!("{oldest} to {newest} is no range of protocols"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn requests_round_trip_and_bad_ones_name_the_field() {
        let request = RequestId::new(Uuid::from_u128(7));
        for ask in [UpgradeAsk::Finalize, UpgradeAsk::Hold, UpgradeAsk::Release] {
            let change = ChangeUpgrade { request, ask };
            assert_eq!(ChangeUpgrade::try_from(v1::ChangeUpgradeRequest::from(change)), Ok(change));
        }
        let good = v1::ChangeUpgradeRequest::from(ChangeUpgrade { request, ask: UpgradeAsk::Hold });
        for ask in [0, 9] {
            let bad = v1::ChangeUpgradeRequest { ask, ..good.clone() };
            assert_eq!(ChangeUpgrade::try_from(bad).map_err(|error| error.field), Err("ChangeUpgradeRequest.ask"));
        }
        let nameless = v1::ChangeUpgradeRequest { request_id: Default::default(), ..good };
        assert!(ChangeUpgrade::try_from(nameless).is_err());
    }

    #[test]
    fn who_says_nothing_speaks_the_first_protocol_only() {
        assert_eq!(protocol_range((0, 0), "x"), Ok(ProtocolRange::FIRST));
        assert_eq!(protocol_range((1, 2), "x"), Ok(ProtocolRange { oldest: 1, newest: 2 }));
        for bad in [(0, 2), (2, 1), (1, 0), (1, u32::MAX)] {
            assert!(protocol_range(bad, "x").is_err(), "{bad:?}");
        }
    }
}
