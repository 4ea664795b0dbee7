//! One partition while this instance owns it.

use super::protocol::Answer;
use super::stored::Stored;
use archon_client::{AcquireError, Client, Error, Grant, PartitionId, Revision};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::sleep;

/// How long a store that does not answer is left alone.
const PAUSE: Duration = Duration::from_millis(50);

/// A partition's counters in memory. All that is done with them is done in turn.
pub(super) struct Owned {
    pub(super) grant: Grant,
    client: Client,
    memory: Mutex<Memory>,
}

struct Memory {
    /// As the store holds them.
    stored: Stored,
    revision: Revision,
    /// The last write may have reached the store or not, so it has to be read again.
    in_doubt: bool,
    /// It was released: whoever waited for their turn come too late.
    released: bool,
}

impl Owned {
    /// Reads the counters and puts this owner's epoch to them. From then on nothing that a former owner has under way is
    /// written any more.
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
                // This goes on until the partition is lost: then the library drops it.
                Err(error) if may_work_later(&error) => sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Counts a request and says the value of the counter; an error is told as what it is.
    pub(super) async fn count(&self, counter: &str, user: u64, request: u64) -> Result<Answer, AcquireError> {
        self.with(counter, |stored| stored.count(counter, user, request)).await
    }

    /// Says the value of a counter. No store is asked: nobody else can have changed it.
    pub(super) async fn value(&self, counter: &str) -> Result<Answer, AcquireError> {
        self.with(counter, |_| false).await
    }

    async fn with(&self, counter: &str, change: impl FnOnce(&mut Stored) -> bool) -> Result<Answer, AcquireError> {
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

    /// Waits for whatever is done with it, and lets nothing more begin.
    pub(super) async fn release(&self) {
        self.memory.lock().await.released = true;
    }
}

/// With the number of the table, which no later one has: epochs of two tables have nothing to do with each other.
fn key(partition: PartitionId) -> String {
    format!("counters/{partition}")
}

/// What the store holds, and its revision. Refused if a later owner wrote it: then this one is none any more.
async fn read(client: &Client, key: &str, epoch: u64) -> Result<(Stored, Revision), AcquireError> {
    let (stored, revision) = match client.get(key).await? {
        Some(found) => (serde_json::from_slice::<Stored>(&found.value)?, found.revision),
        None => (Stored::default(), Revision::ZERO),
    };
    if stored.epoch > epoch {
        return Err(format!("{key} was written in epoch {}, and this is epoch {epoch}", stored.epoch).into());
    }
    Ok((stored, revision))
}

fn encode(stored: &Stored) -> Result<Vec<u8>, AcquireError> {
    Ok(serde_json::to_vec(stored)?)
}

/// Somebody else wrote in between, nobody can tell whether this was written, or the store does not answer now.
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
    fn services_on_two_tables_shared_their_keys() {
        let key_of = |table| key(PartitionId::new(TableId::new(table), 3));
        assert_eq!(key_of(2), "counters/2/3");
        assert_ne!(key_of(2), key_of(4));
    }
}
