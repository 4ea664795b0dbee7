//! Holder of a lock: renewal before the lease ends, and release.

use super::row::{LockRow, remove_row};
use crate::error::Error;
use crate::kv::Client;
use crate::kv::put_options::PutOptions;
use archon_session::{BootClock, Clock};
use archon_types::{ErrorKind, Revision};
use bytes::Bytes;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Longest sleep towards the end of a lease: timers do not count suspend, and the lease does.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Attempts of a release: its condition fails if a renewal with a lost answer took effect.
const RELEASE_ATTEMPTS: u32 = 3;

/// An owned lock.
#[derive(Debug)]
pub(super) struct Holding {
    name: Bytes,
    row: LockRow,
    pub(super) token: Revision,
    state: Mutex<State>,
    /// True once another contender owns the lock, or the row was deleted.
    taken: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    /// Revision of the row.
    revision: Revision,
    /// End of the lease.
    until_ms: u64,
}

impl Holding {
    /// Starts after the row was written, by a request sent at `sent_ms`.
    pub(super) fn new(name: Bytes, row: LockRow, token: Revision, sent_ms: u64) -> Self {
        let until_ms = sent_ms.saturating_add(row.lease_ms);
        Self {
            name,
            row,
            token,
            state: Mutex::new(State { revision: token, until_ms }),
            taken: watch::Sender::new(false),
        }
    }

    /// Returns the time left of the lease; zero once the lock is lost.
    pub(super) fn remaining(&self, now_ms: u64) -> Duration {
        if self.is_taken() {
            return Duration::ZERO;
        }
        Duration::from_millis(self.state.lock().until_ms.saturating_sub(now_ms))
    }

    pub(super) fn is_taken(&self) -> bool {
        *self.taken.borrow()
    }

    /// Waits until the lock is lost.
    pub(super) async fn lost(&self, now_ms: impl Fn() -> u64) {
        let mut taken = self.taken.subscribe();
        loop {
            let left = self.remaining(now_ms());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = sleep(left.min(LOOK_AGAIN)) => {}
                // The sender is a field of this value.
                _ = taken.changed() => {}
            }
        }
    }

    /// Returns the time until the next renewal: a quarter of the lease after the newest successful write was sent.
    fn renew_in(&self, now_ms: u64) -> Duration {
        let renew_at = self.state.lock().until_ms.saturating_sub(self.row.lease_ms - self.row.lease_ms / 4);
        Duration::from_millis(renew_at.saturating_sub(now_ms))
    }

    /// Renews the lease until it is lost or `stop` is cancelled.
    pub(super) async fn renew(&self, client: &Client, stop: &CancellationToken) {
        let quarter = Duration::from_millis(self.row.lease_ms / 4);
        let mut pause = self.renew_in(BootClock.now().get());
        loop {
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => return,
            }
            // The lease counts from here, before the request is sent.
            let sent = BootClock.now().get();
            let left = self.remaining(sent);
            // The holder has stopped at the end of its lease: it must not begin again.
            if left.is_zero() {
                return;
            }
            let revision = self.state.lock().revision;
            let timely = client.with_timeout(quarter.min(left));
            let renewed = tokio::select! {
                renewed = timely.put_with(&self.name, self.row.encode(), PutOptions::default().if_revision(revision)) => renewed,
                () = stop.cancelled() => return,
            };
            pause = match renewed {
                Ok(revision) => {
                    self.extend(revision, sent, BootClock.now().get());
                    self.renew_in(BootClock.now().get())
                }
                Err(Error::ConditionFailed { .. }) => match self.adopt(&timely).await {
                    Ok(true) => Duration::ZERO,
                    Ok(false) => return,
                    Err(_) => quarter / 8,
                },
                // The table was dropped, and with it the lock.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    self.taken.send_replace(true);
                    return;
                }
                Err(error) => {
                    tracing::warn!(%error, left_ms = left.as_millis(), "a lock was not renewed; trying again");
                    quarter / 8
                }
            };
        }
    }

    /// Removes the row, unless another contender owns the lock.
    pub(super) async fn release(&self, client: &Client) -> Result<(), Error> {
        let mut last = Ok(());
        for _ in 0..RELEASE_ATTEMPTS {
            if self.is_taken() {
                return Ok(());
            }
            let revision = self.state.lock().revision;
            match remove_row(client, &self.name, revision).await {
                Ok(()) => return Ok(()),
                Err(Error::ConditionFailed { .. }) => {
                    if !self.adopt(client).await? {
                        return Ok(());
                    }
                }
                Err(error) => last = Err(error),
            }
        }
        last
    }

    /// Takes the revision of the row if this holder wrote it: a renewal with a lost answer took effect. Nothing is known
    /// of the time when it was sent, so it does not extend the lease. Returns false if the lock is lost.
    async fn adopt(&self, client: &Client) -> Result<bool, Error> {
        let found = client.get(&self.name).await?;
        let own = found.filter(|found| LockRow::decode(&found.value).is_some_and(|row| row.owner == self.row.owner));
        match own {
            Some(own) => {
                let mut state = self.state.lock();
                state.revision = state.revision.max(own.revision);
                Ok(true)
            }
            None => {
                self.taken.send_replace(true);
                Ok(false)
            }
        }
    }

    fn extend(&self, revision: Revision, sent_ms: u64, now_ms: u64) {
        let mut state = self.state.lock();
        state.revision = revision;
        // A lease that has ended stays ended: its holder may have stopped.
        if state.until_ms > now_ms {
            state.until_ms = state.until_ms.max(sent_ms.saturating_add(self.row.lease_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(sent_ms: u64) -> Holding {
        let row = LockRow { owner: "a".to_owned(), holder: String::new(), lease_ms: 60_000 };
        Holding::new(Bytes::from_static(b"k"), row, Revision::new(7), sent_ms)
    }

    #[test]
    fn lease_counts_from_the_sending() {
        let holding = holding(1_000);
        assert_eq!(holding.remaining(1_000), Duration::from_secs(60));
        assert_eq!(holding.remaining(60_999), Duration::from_millis(1));
        assert_eq!(holding.remaining(61_000), Duration::ZERO);
    }

    #[test]
    fn renewal_in_time_extends_the_lease() {
        let holding = holding(1_000);
        holding.extend(Revision::new(8), 31_000, 31_500);
        assert_eq!(holding.remaining(31_500), Duration::from_millis(59_500));
    }

    #[test]
    fn late_renewal_does_not_revive_a_lease() {
        let holding = holding(1_000);
        holding.extend(Revision::new(8), 31_000, 61_000);
        assert_eq!(holding.remaining(61_000), Duration::ZERO);
    }

    #[test]
    fn renewal_is_due_a_quarter_after_the_sending() {
        let holding = holding(1_000);
        assert_eq!(holding.renew_in(1_000), Duration::from_secs(15));
        assert_eq!(holding.renew_in(14_000), Duration::from_secs(2));
        assert_eq!(holding.renew_in(31_000), Duration::ZERO, "the answer came late");
        holding.extend(Revision::new(8), 31_000, 31_500);
        assert_eq!(holding.renew_in(31_500), Duration::from_millis(14_500));
    }

    #[test]
    fn taken_lock_has_no_time_left() {
        let holding = holding(1_000);
        holding.taken.send_replace(true);
        assert_eq!(holding.remaining(1_000), Duration::ZERO);
    }
}
