//! Options of a put: an expiry, and a condition.

use archon_types::{Expiry, Millis, Op, Revision};
use bytes::Bytes;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Options of [`Client::put_with`](crate::Client::put_with). Without any, it is a [`Client::put`](crate::Client::put).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use = "options do nothing before `put_with`"]
pub struct PutOptions {
    expiry: Option<Expiry>,
    expected: Option<Revision>,
}

impl PutOptions {
    /// Has the value expire so long after the write, by the time of the leader that carries it out: at least one
    /// millisecond, in whole ones.
    pub fn ttl(self, ttl: Duration) -> Self {
        let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        Self { expiry: Some(Expiry::After(millis.max(1))), ..self }
    }

    /// Has the value expire at this time. If it has passed already, the key is absent after the write.
    pub fn expires_at(self, time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.expires_at_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// As [`Self::expires_at`], in milliseconds since the begin of 1970 (UTC).
    pub const fn expires_at_ms(mut self, millis: u64) -> Self {
        self.expiry = Some(Expiry::At(Millis::new(millis)));
        self
    }

    /// Has the value expire when the value that it overwrites would have; not at all, if the key is absent.
    pub const fn keep_expiry(mut self) -> Self {
        self.expiry = Some(Expiry::Keep);
        self
    }

    /// Writes only if the key has this revision ([`Revision::ZERO`]: if it is absent), as
    /// [`Client::compare_and_set`](crate::Client::compare_and_set) does.
    pub const fn if_revision(mut self, expected: Revision) -> Self {
        self.expected = Some(expected);
        self
    }

    /// Writes only if the key is absent.
    pub const fn if_absent(self) -> Self {
        self.if_revision(Revision::ZERO)
    }

    pub(crate) const fn op(self, key: Bytes, value: Bytes) -> Op {
        Op::write(key, value, self.expected, self.expiry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_choose_the_operation() {
        let (key, value) = (Bytes::from_static(b"k"), Bytes::from_static(b"v"));
        let op = |options: PutOptions| options.op(key.clone(), value.clone());
        let expiring = |expected, expiry| Op::PutExpiring { key: key.clone(), value: value.clone(), expected, expiry };
        assert_eq!(op(PutOptions::default()), Op::Put { key: key.clone(), value: value.clone() });
        let conditional = Op::CompareAndSet { key: key.clone(), expected: Revision::ZERO, value: value.clone() };
        assert_eq!(op(PutOptions::default().if_absent()), conditional);
        assert_eq!(op(PutOptions::default().ttl(Duration::ZERO)), expiring(None, Expiry::After(1)));
        let lock = PutOptions::default().ttl(Duration::from_secs(2)).if_absent();
        assert_eq!(op(lock), expiring(Some(Revision::ZERO), Expiry::After(2_000)));
        let at = UNIX_EPOCH + Duration::from_millis(7);
        assert_eq!(op(PutOptions::default().expires_at(at)), expiring(None, Expiry::At(Millis::new(7))));
        assert_eq!(op(PutOptions::default().keep_expiry()), expiring(None, Expiry::Keep));
    }
}
