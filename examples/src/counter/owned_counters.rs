//! One partition while this instance owns it.

use super::protocol::Answer;
use super::stored_counters::StoredCounters;
use archon_client::{AcquireError, Client, Error, Grant, PartitionId, Revision};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::sleep;

/// Pause before retrying a store that does not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// A partition's counters in memory. Operations on them run one at a time.
pub(super) struct OwnedCounters {
    pub(super) grant: Grant,
    client: Client,
    memory: Mutex<Memory>,
}

struct Memory {
    /// As in the store.
    stored: StoredCounters,
    revision: Revision,
    /// The last write may have reached the store or not, so the value must be read again.
    in_doubt: bool,
    /// Released: operations that waited for their turn are refused.
    released: bool,
}

impl OwnedCounters {
    /// Reads the counters and adds this owner's epoch. From then on no pending write of a former owner succeeds.
    pub(super) async fn acquire(client: Client, grant: Grant) -> Result<Self, AcquireError> {
        let (key, epoch) = (key(grant.partition()), grant.epoch().get());
        loop {
            let written = async {
                let (mut stored, revision) = read(&client, &key, epoch).await?;
                stored.epoch = epoch;
                let revision = client.compare_and_set(&key, revision, encode(&stored)?).await?;
                Ok::<_, AcquireError>((stored, revision))
            };
            match written.await {
                Ok((stored, revision)) => {
                    let memory = Memory { stored, revision, in_doubt: false, released: false };
                    return Ok(Self { grant, client, memory: Mutex::new(memory) });
                }
                // This continues until the partition is lost: then the library drops it.
                Err(error) if may_work_later(&error) => sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Counts a request and returns the value of the counter; errors are returned unchanged.
    pub(super) async fn count(&self, counter: &str, user: u64, request: u64) -> Result<Answer, AcquireError> {
        self.with(counter, |stored| stored.count(counter, user, request)).await
    }

    /// Returns the value of a counter, without asking the store: no other instance can have changed it.
    pub(super) async fn value(&self, counter: &str) -> Result<Answer, AcquireError> {
        self.with(counter, |_| false).await
    }

    async fn with(
        &self,
        counter: &str,
        change: impl FnOnce(&mut StoredCounters) -> bool,
    ) -> Result<Answer, AcquireError> {
        let mut memory = self.memory.lock().await;
        if memory.released {
            return Ok(Answer::NotOwner);
        }
        let (key, epoch) = (key(self.grant.partition()), self.grant.epoch().get());
        if memory.in_doubt {
            (memory.stored, memory.revision) = read(&self.client, &key, epoch).await?;
            memory.in_doubt = false;
        }
        let mut next = memory.stored.clone();
        if change(&mut next) {
            let value = encode(&next)?;
            // Until the store has answered; also if this ends here, as when the connection breaks.
            memory.in_doubt = true;
            memory.revision = self.client.compare_and_set(&key, memory.revision, value).await?;
            (memory.stored, memory.in_doubt) = (next, false);
        }
        Ok(Answer::Count(memory.stored.value(counter)))
    }

    /// Waits for the current operation, and refuses further ones.
    pub(super) async fn release(&self) {
        self.memory.lock().await.released = true;
    }
}

/// Contains the number of the table, which is never reused: epochs of two tables are unrelated.
fn key(partition: PartitionId) -> String {
    format!("counters/{partition}")
}

/// Returns the stored value and its revision. Refused if a later owner wrote it: then this one no longer owns the
/// partition.
async fn read(client: &Client, key: &str, epoch: u64) -> Result<(StoredCounters, Revision), AcquireError> {
    let (stored, revision) = match client.get(key).await? {
        Some(found) => (serde_json::from_slice::<StoredCounters>(&found.value)?, found.revision),
        None => (StoredCounters::default(), Revision::ZERO),
    };
    if stored.epoch > epoch {
        return Err(format!("{key} was written in epoch {}, and this is epoch {epoch}", stored.epoch).into());
    }
    Ok((stored, revision))
}

fn encode(stored: &StoredCounters) -> Result<Vec<u8>, AcquireError> {
    Ok(serde_json::to_vec(stored)?)
}

/// Returns true if a conflicting write came in between, the outcome of the write is unknown, or the store does not
/// answer now.
fn may_work_later(error: &AcquireError) -> bool {
    error.downcast_ref::<Error>().is_some_and(|error| {
        matches!(error, Error::ConditionFailed { .. }) || error.outcome_unknown() || error.is_retryable()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::TableId;

    #[test]
    fn services_on_two_tables_use_separate_keys() {
        let key_of = |table| key(PartitionId::new(TableId::new(table), 3));
        assert_eq!(key_of(2), "counters/2/3");
        assert_ne!(key_of(2), key_of(4));
    }
}
