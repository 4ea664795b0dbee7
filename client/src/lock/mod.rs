//! Named locks: rows of a table, each written by its holder before its lease ends.
//!
//! | module | what it provides |
//! |---|---|
//! | `row` | value of a lock's row |
//! | `contender` | when a contender may take a lock (pure) |
//! | `holder` | renewal and release |

mod contender;
mod holder;
mod row;

use crate::error::Error;
use crate::kv::put_options::PutOptions;
use crate::kv::{Client, copied};
use archon_session::{BootClock, Clock};
use archon_types::{KeyText, Revision};
use bytes::Bytes;
use contender::{Contender, Step};
use holder::Holding;
use row::{HOLDER_BYTES_MAX, LockRow, remove_row};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Time limit of each request that removes the row of a contender that gives up.
const ABANDON_WITHIN: Duration = Duration::from_millis(500);
/// Shortest and longest pause between two reads of a held lock.
const POLL_MS_MIN: u64 = 20;
const POLL_MS_MAX: u64 = 500;

/// Options of [`Client::lock`].
#[derive(Clone, Debug)]
#[must_use = "options do nothing before `lock`"]
pub struct LockOptions {
    lease: Duration,
    policy: WaitPolicy,
    holder: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WaitPolicy {
    Endless,
    Until(Duration),
    DeadHoldersOnly,
}

impl Default for LockOptions {
    /// A lease of ten seconds, and no limit of the wait.
    fn default() -> Self {
        Self { lease: Duration::from_secs(10), policy: WaitPolicy::Endless, holder: String::new() }
    }
}

impl LockOptions {
    /// Shortest lease.
    pub const LEASE_MIN: Duration = Duration::from_secs(1);
    /// Longest lease.
    pub const LEASE_MAX: Duration = Duration::from_secs(3_600);

    /// Sets the lease, from a second to an hour: the time for which the holder may act without a renewal, and after
    /// which a contender takes the lock of a dead holder. It is renewed after each quarter.
    pub fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Waits for the lock for this time at most.
    pub fn wait(self, limit: Duration) -> Self {
        Self { policy: WaitPolicy::Until(limit), ..self }
    }

    /// Gives up once the holder has proven that it lives, by a renewal: after a quarter of its lease at most. The lock
    /// of a dead holder is taken after its lease.
    pub fn no_wait(self) -> Self {
        Self { policy: WaitPolicy::DeadHoldersOnly, ..self }
    }

    /// Sets the name that people and other contenders see, at most 256 bytes.
    pub fn holder(self, name: impl Into<String>) -> Self {
        Self { holder: name.into(), ..self }
    }

    fn check(&self) -> Result<(), Error> {
        if !(Self::LEASE_MIN..=Self::LEASE_MAX).contains(&self.lease) {
            return Err(Error::invalid(format!("the lease must be 1 s to 1 h, not {:?}", self.lease)));
        }
        if self.holder.len() > HOLDER_BYTES_MAX {
            let length = self.holder.len();
            return Err(Error::invalid(format!(
                "the holder's name has {length} bytes; the limit is {HOLDER_BYTES_MAX}"
            )));
        }
        Ok(())
    }
}

/// Reason why a lock was not obtained.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another contender holds it.
    #[error("the lock {name} is held by {holder} (revision {revision})")]
    Held {
        /// Name of the lock.
        name: KeyText,
        /// Name of the holder.
        holder: String,
        /// Revision of the row that was read last.
        revision: Revision,
    },
    /// The key has a value that is not of a lock.
    #[error("the key {name} has a value that is no lock; use another name, or a table for locks alone")]
    NotALock {
        /// Name of the lock.
        name: KeyText,
    },
    /// The cluster wrote the lock, but took more than half of its lease for it.
    #[error("the lock {name} was written too slowly to be used; use a longer lease")]
    Slow {
        /// Name of the lock.
        name: KeyText,
    },
    /// The cluster refused a request, or did not answer in time.
    #[error(transparent)]
    Client(#[from] Error),
}

/// An owned lock, renewed by a background task. Without [`Self::release`], other contenders wait for its lease.
#[derive(Debug)]
pub struct Lock {
    holding: Arc<Holding>,
    client: Client,
    stop: CancellationToken,
    _guard: DropGuard,
    renewing: JoinHandle<()>,
}

/// The lock is no longer owned: another contender may own it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the lock is lost: it was owned with token {token}")]
pub struct LockLost {
    /// Its fencing token.
    pub token: Revision,
}

impl Client {
    /// Waits for a named lock, a row of this table, and owns it until it is released, its lease ends without a renewal,
    /// or the row is deleted.
    ///
    /// Two owners never act at the same time, provided that each calls [`Lock::check`] right before each use, and clock
    /// rates differ by 1 % at most. If the row or the table is deleted, the owner notices at its next renewal, after a
    /// quarter of its lease at most, and another one may act before. A request of a former owner may arrive late: storage must refuse lower
    /// [tokens](Lock::token) than it has seen. Contenders are served in no particular order.
    ///
    /// ```no_run
    /// # async fn example(client: archon_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use archon_client::LockOptions;
    /// let lock = client.table("locks").await?.lock("nightly", LockOptions::default()).await?;
    /// let token = lock.check()?; // right before each use; storage refuses lower tokens
    /// println!("acts with token {token}");
    /// lock.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LockError::Held`] if the wait ends first. Waits without a limit continue while the cluster is unavailable.
    pub async fn lock(&self, name: impl AsRef<[u8]>, options: LockOptions) -> Result<Lock, LockError> {
        options.check()?;
        acquire(self, copied(name), &options).await
    }
}

impl Lock {
    /// Returns the fencing token: it rises with each owner of this lock, as revisions of a key do. Tokens of a table that
    /// was dropped and created again begin with low numbers.
    pub fn token(&self) -> Revision {
        self.holding.token
    }

    /// Returns the token if the lock is owned now.
    ///
    /// # Errors
    /// [`LockLost`]: stop acting.
    pub fn check(&self) -> Result<Revision, LockLost> {
        let token = self.holding.token;
        if self.remaining().is_zero() { Err(LockLost { token }) } else { Ok(token) }
    }

    /// Returns the time for which the lock is owned unless a renewal extends it; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        self.holding.remaining(BootClock.now().get())
    }

    /// Returns whether another contender owns the lock, or the row was deleted, before the lease ended.
    pub fn is_taken(&self) -> bool {
        self.holding.is_taken()
    }

    /// Waits until the lock is lost.
    pub async fn lost(&self) {
        self.holding.lost(|| BootClock.now().get()).await;
    }

    /// Gives the lock up, so that another contender takes it at once.
    ///
    /// # Errors
    /// The row was not removed; other contenders wait for the lease.
    pub async fn release(self) -> Result<(), Error> {
        self.stop.cancel();
        let _ = self.renewing.await;
        self.holding.release(&self.client).await
    }
}

async fn acquire(client: &Client, name: Bytes, options: &LockOptions) -> Result<Lock, LockError> {
    let lease_ms = u64::try_from(options.lease.as_millis()).unwrap_or(u64::MAX);
    let row = LockRow { owner: format!("{:032x}", rand::random::<u128>()), holder: options.holder.clone(), lease_ms };
    let shown = KeyText(name.clone());
    let begun = Instant::now();
    let limit = match options.policy {
        WaitPolicy::Until(limit) => Some(limit),
        WaitPolicy::Endless | WaitPolicy::DeadHoldersOnly => None,
    };
    let mut contender = Contender::new(row.owner.clone(), options.policy != WaitPolicy::DeadHoldersOnly);
    loop {
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        let timely = match left {
            Some(left) => client.with_timeout(client.timeout().min(left.max(Duration::from_millis(POLL_MS_MAX)))),
            None => client.clone(),
        };
        let found = match timely.get(&name).await {
            Ok(found) => found,
            Err(error) => {
                wait_out(error, options.policy, left).await?;
                continue;
            }
        };
        let now = BootClock.now().get();
        let present = match &found {
            Some(found) => match LockRow::decode(&found.value) {
                Some(row) => Some((found.revision, row)),
                None => return Err(LockError::NotALock { name: shown }),
            },
            None => None,
        };
        let expected = match contender.observe(present.as_ref().map(|(revision, row)| (*revision, row)), now) {
            Step::Write(expected) | Step::Own(expected) => expected,
            Step::Held(holder) => {
                return Err(LockError::Held { name: shown, holder: named(&holder.name), revision: holder.revision });
            }
            Step::Wait { lease_left_ms } => {
                if let (Some(left), Some((revision, row))) = (left, present)
                    && left.is_zero()
                {
                    return Err(LockError::Held { name: shown, holder: named(&row.holder), revision });
                }
                let pause = Duration::from_millis(poll_ms(lease_ms).min(lease_left_ms));
                sleep(left.map_or(pause, |left| pause.min(left))).await;
                continue;
            }
        };
        // The lease counts from here, before the write is sent.
        let sent = BootClock.now().get();
        let options_of_write = PutOptions::default().if_revision(expected);
        let timely = client.with_timeout(client.timeout().min(options.lease));
        let written = timely.put_with(&name, row.encode(), options_of_write).await;
        let is_late = BootClock.now().get().saturating_sub(sent) > lease_ms / 2;
        let gives_up = options.policy == WaitPolicy::DeadHoldersOnly || left.is_some_and(|left| left.is_zero());
        match written {
            // Too little of the lease is left: the next read finds the row, which is written again.
            Ok(_) if is_late && gives_up => {
                abandon(client, &name, &row.owner).await;
                return Err(LockError::Slow { name: shown });
            }
            Ok(_) if is_late => {}
            Ok(token) => {
                let holding = Arc::new(Holding::new(name, row, token, sent));
                return Ok(hold(client.clone(), holding));
            }
            Err(Error::ConditionFailed { .. }) => {}
            Err(error) if error.outcome_unknown() && gives_up => {
                abandon(client, &name, &row.owner).await;
                return Err(error.into());
            }
            // The next read shows whether it took effect.
            Err(error) if error.outcome_unknown() => sleep(Duration::from_millis(POLL_MS_MIN)).await,
            Err(error) => wait_out(error, options.policy, left).await?,
        }
    }
}

/// Removes the row of a contender that gives up, if its write took effect; otherwise others wait for its lease.
async fn abandon(client: &Client, name: &Bytes, owner: &str) {
    let client = client.with_timeout(ABANDON_WITHIN);
    let Ok(Some(found)) = client.get(name).await else { return };
    if LockRow::decode(&found.value).is_some_and(|row| row.owner == owner) {
        let _ = remove_row(&client, name, found.revision).await;
    }
}

/// Pauses after an error that may pass.
///
/// # Errors
/// The error, if it does not pass, or the wait has ended.
async fn wait_out(error: Error, policy: WaitPolicy, left: Option<Duration>) -> Result<(), Error> {
    let may_pass = error.is_retryable() || error.outcome_unknown();
    if !may_pass || policy == WaitPolicy::DeadHoldersOnly || left.is_some_and(|left| left.is_zero()) {
        return Err(error);
    }
    tracing::debug!(%error, "a lock could not be read or written; trying again");
    sleep(Duration::from_millis(POLL_MS_MAX)).await;
    Ok(())
}

fn hold(client: Client, holding: Arc<Holding>) -> Lock {
    let stop = CancellationToken::new();
    let renewing = {
        let (client, holding, stop) = (client.clone(), Arc::clone(&holding), stop.clone());
        tokio::spawn(async move { holding.renew(&client, &stop).await })
    };
    Lock { holding, client, _guard: stop.clone().drop_guard(), stop, renewing }
}

/// Returns the pause between two reads of a held lock, with a random part: contenders do not read in step.
fn poll_ms(lease_ms: u64) -> u64 {
    let pause = (lease_ms / 20).clamp(POLL_MS_MIN, POLL_MS_MAX);
    pause / 2 + rand::random_range(0..=pause / 2)
}

fn named(holder: &str) -> String {
    if holder.is_empty() { "a holder without a name".to_owned() } else { holder.to_owned() }
}
