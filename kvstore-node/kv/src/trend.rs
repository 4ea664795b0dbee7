//! Where a partition grows: at the end of its keys, as a time series does, or anywhere.

use bytes::Bytes;

/// Less growth than this says nothing of where a partition grows, in bytes.
const TELLING_BYTES: i64 = 256 * 1024;

/// Whether users' rows grow at their end: how much has come beyond a row that was the last one when it was looked from.
#[derive(Debug, Default)]
pub(crate) struct Trend {
    /// That row. Before there was one, the greatest that has come since, until enough has come.
    last: Option<Bytes>,
    /// That row is one to look from.
    settled: bool,
    /// By how many bytes they have grown since then, and those beyond it alone.
    lately: i64,
    beyond: i64,
    /// What was seen before that, until enough has come since.
    before: bool,
}

impl Trend {
    /// A row changed by that much.
    pub(crate) fn note(&mut self, key: &[u8], bytes: i64) {
        let beyond = self.last.as_ref().is_none_or(|last| key > &last[..]);
        self.lately = self.lately.saturating_add(bytes);
        if beyond && self.settled {
            self.beyond = self.beyond.saturating_add(bytes);
        } else if beyond {
            self.last = Some(Bytes::copy_from_slice(key));
        }
        if !self.settled && self.lately >= TELLING_BYTES {
            (self.settled, self.lately) = (true, 0);
        }
    }

    /// It is looked anew from this row on, if there is one.
    pub(crate) fn look_from(&mut self, last: Option<Bytes>) {
        let before = self.is_at_the_end();
        *self = Self { settled: last.is_some(), last, lately: 0, beyond: 0, before };
    }

    /// Whether nearly all that comes comes at the end: seven parts in eight.
    pub(crate) const fn is_at_the_end(&self) -> bool {
        if self.settled && self.lately >= TELLING_BYTES { self.beyond >= self.lately / 8 * 7 } else { self.before }
    }
}
