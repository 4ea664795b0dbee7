//! Ranges of protocols.

use crate::convert::ConvertError;
use archon_types::{PROTOCOL_MAX, ProtocolRange};

/// Returns the protocols from `min` to `max`, as reported by a coordinator: one of the first version sends none.
///
/// # Errors
/// An empty range.
pub fn protocol_range((min, max): (u32, u32), field: &'static str) -> Result<ProtocolRange, ConvertError> {
    match (min, max) {
        (0, 0) => Ok(ProtocolRange::FIRST),
        (oldest, newest) if 0 < oldest && oldest <= newest && newest <= PROTOCOL_MAX => {
            Ok(ProtocolRange { oldest, newest })
        }
        (oldest, newest) => Err(ConvertError::new(field, format!("{oldest} to {newest} is not a range of protocols"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_range_means_the_first_protocol() {
        assert_eq!(protocol_range((0, 0), "x"), Ok(ProtocolRange::FIRST));
        assert_eq!(protocol_range((1, 2), "x"), Ok(ProtocolRange { oldest: 1, newest: 2 }));
        for bad in [(0, 2), (2, 1), (1, 0), (1, u32::MAX)] {
            assert!(protocol_range(bad, "x").is_err(), "{bad:?}");
        }
    }
}
