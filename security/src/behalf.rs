//! For whom a coordinator asks that passes on what was asked of its console.

use crate::caller::Caller;
use std::net::IpAddr;
use std::sync::Arc;

/// The name of the header, or of the metadata of gRPC, that says for whom somebody asks.
pub const ON_BEHALF_OF: &str = "archon-on-behalf-of";

impl Caller {
    /// As the text of [`ON_BEHALF_OF`]: `admin/alice 10.0.0.7`; nothing if nobody knows who it is.
    pub fn behalf(&self) -> Option<String> {
        self.identity.as_ref().map(|identity| format!("{identity} {}", self.from))
    }

    /// Reads what [`Caller::behalf`] has written. Whether whoever sent it may speak for others is not looked at here.
    pub fn of_behalf(text: &str) -> Option<Self> {
        let (identity, from) = text.split_once(' ')?;
        let from: IpAddr = from.parse().ok()?;
        Some(Self { from, identity: Some(Arc::new(identity.parse().ok()?)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn for_whom_somebody_asks_survives_the_way() {
        let identity = Some(Arc::new("admin/alice".parse().unwrap()));
        for from in ["10.0.0.7", "::1"] {
            let caller = Caller { from: from.parse().unwrap(), identity: identity.clone() };
            assert_eq!(Caller::of_behalf(&caller.behalf().unwrap()), Some(caller));
        }
        assert_eq!(Caller::NOBODY.behalf(), None);
        for text in ["", "admin/alice", "admin/alice ", "admin/alice here", "king/alice 10.0.0.7", " 10.0.0.7"] {
            assert_eq!(Caller::of_behalf(text), None, "{text:?}");
        }
    }
}
