//! Calls that a coordinator makes for a caller of its console.

use crate::callers::caller::Caller;
use crate::callers::identity::{Identity, Role};
use crate::callers::rights::SPOKEN_FOR;
use std::net::IpAddr;
use std::sync::Arc;
use thiserror::Error;

/// Name of the gRPC metadata that names the caller of a console: `admin/alice 10.0.0.7`.
pub const ON_BEHALF_OF: &str = "archon-on-behalf-of";

/// Reason why a caller cannot be spoken for.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BehalfError {
    /// The text is no identity with an address.
    #[error("{ON_BEHALF_OF} must name an identity and an IP address, such as admin/alice 10.0.0.7")]
    Malformed,
    /// Members make their own calls.
    #[error("{0} must call itself: a coordinator forwards calls only for a {roles}", roles = roles())]
    Member(Identity),
}

fn roles() -> String {
    SPOKEN_FOR.map(Role::word).join(", ")
}

impl Caller {
    /// Returns the text of [`ON_BEHALF_OF`] for this caller: `admin/alice 10.0.0.7`; nothing without a certificate.
    pub fn behalf(&self) -> Option<String> {
        self.identity.as_ref().map(|identity| format!("{identity} {}", self.address))
    }

    /// Returns the caller that [`Caller::behalf`] named, with the identity of this one as the speaker. The right to speak for
    /// others is checked by the server.
    ///
    /// # Errors
    /// If the text does not name a caller, or names a member of the cluster.
    pub fn on_behalf_of(&self, text: &str) -> Result<Self, BehalfError> {
        let (identity, address) = text.split_once(' ').ok_or(BehalfError::Malformed)?;
        let address: IpAddr = address.parse().map_err(|_| BehalfError::Malformed)?;
        let identity: Identity = identity.parse().map_err(|_| BehalfError::Malformed)?;
        if !SPOKEN_FOR.contains(&identity.role()) {
            return Err(BehalfError::Member(identity));
        }
        let mut caller = self.clone();
        caller.via = caller.identity.replace(Arc::new(identity));
        (caller.from, caller.address) = (address, address);
        Ok(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behalf_text_round_trips() {
        for text in ["admin/alice 10.0.0.7", "operator/dashboard 10.0.0.7", "client/app ::1"] {
            let caller = Caller::NOBODY.on_behalf_of(text).unwrap();
            assert_eq!(caller.behalf().as_deref(), Some(text));
        }
        assert_eq!(Caller::NOBODY.behalf(), None);
        for text in ["", "admin/alice", "admin/alice ", "admin/alice here", "king/alice 10.0.0.7", " 10.0.0.7"] {
            assert_eq!(Caller::NOBODY.on_behalf_of(text).unwrap_err(), BehalfError::Malformed, "{text:?}");
        }
    }

    #[test]
    fn members_are_not_spoken_for() {
        for member in ["coordinator/1", "node/athens", "participant/billing-3"] {
            let refused = Caller::NOBODY.on_behalf_of(&format!("{member} 10.0.0.7")).unwrap_err();
            assert_eq!(refused, BehalfError::Member(member.parse().unwrap()));
            assert!(refused.to_string().ends_with("forwards calls only for a client, operator, admin"), "{refused}");
        }
    }

    #[test]
    fn caller_spoken_for_keeps_the_speaker() {
        let mut speaker = Caller::NOBODY;
        speaker.identity = Some(Arc::new("coordinator/2".parse().unwrap()));
        let alice = speaker.on_behalf_of("admin/alice 10.0.0.7").unwrap();
        assert_eq!(alice.identity.unwrap().to_string(), "admin/alice");
        assert_eq!(alice.via.unwrap().to_string(), "coordinator/2");
    }
}
