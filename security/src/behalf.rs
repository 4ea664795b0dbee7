//! For whom a coordinator asks that passes on what was asked of its console.

use crate::caller::Caller;
use std::net::IpAddr;
use std::sync::Arc;

/// The name of the header, or of the metadata of gRPC, that says for whom somebody asks.
pub const ON_BEHALF_OF: &str = "archon-on-behalf-of";

impl Caller {
    /// As the text of [`ON_BEHALF_OF`]: `admin/alice 10.0.0.7`; nothing if nobody knows who it is.
    pub fn behalf(&self) -> Option<String> {
        self.identity.as_ref().map(|identity| format!("{identity} {}", self.address))
    }

    /// Whoever this caller speaks for, by what [`Caller::behalf`] has written. Whether it may is not looked at here.
    pub fn on_behalf_of(&self, text: &str) -> Option<Self> {
        let (identity, address) = text.split_once(' ')?;
        let address: IpAddr = address.parse().ok()?;
        let mut caller = self.clone();
        (caller.from, caller.address, caller.identity) = (address, address, Some(Arc::new(identity.parse().ok()?)));
        Some(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_whom_somebody_asks_survives_the_way() {
        for text in ["admin/alice 10.0.0.7", "client/app ::1"] {
            let caller = Caller::NOBODY.on_behalf_of(text).unwrap();
            assert_eq!(caller.behalf().as_deref(), Some(text));
        }
        assert_eq!(Caller::NOBODY.behalf(), None);
        for text in ["", "admin/alice", "admin/alice ", "admin/alice here", "king/alice 10.0.0.7", " 10.0.0.7"] {
            assert!(Caller::NOBODY.on_behalf_of(text).is_none(), "{text:?}");
        }
    }
}
