//! Growth trend of a partition: at the end of its keys, as a time series, or anywhere.

use bytes::Bytes;

/// Minimum growth for a verdict, in bytes.
const TELLING_BYTES: i64 = 256 * 1024;

/// Growth of user rows beyond a reference row, which was the last one when the trend began.
#[derive(Debug, Default)]
pub(crate) struct Trend {
    /// The reference row. Before there is one, the greatest row since, until enough has arrived.
    last: Option<Bytes>,
    /// The reference row is settled.
    settled: bool,
    /// Growth in bytes since then, of all rows and of those beyond it.
    lately: i64,
    beyond: i64,
    /// Previous verdict, used until enough has arrived since.
    before: bool,
}

impl Trend {
    /// Records the change of a row.
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

    /// Restarts the trend from this row, if there is one.
    pub(crate) fn look_from(&mut self, last: Option<Bytes>) {
        let before = self.is_at_the_end();
        *self = Self { settled: last.is_some(), last, lately: 0, beyond: 0, before };
    }

    /// Returns whether nearly all growth is at the end: seven eighths.
    pub(crate) const fn is_at_the_end(&self) -> bool {
        if self.settled && self.lately >= TELLING_BYTES { self.beyond >= self.lately / 8 * 7 } else { self.before }
    }
}
