//! An instance's reaction to gains and losses of partitions, and to requests.

use super::log::{Line, OwnerLog, boot_clock_ns};
use super::owned_counters::OwnedCounters;
use super::protocol::{Answer, Request};
use archon_client::{AcquireError, Callbacks, Client, Epoch, Grant, PartitionId, ReleaseCause, Routes};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The state of an instance. Clones share it.
#[derive(Clone)]
pub(super) struct Service {
    client: Client,
    routes: Routes,
    log: Arc<OwnerLog>,
    owned: Arc<Mutex<BTreeMap<PartitionId, Arc<OwnedCounters>>>>,
}

impl Service {
    pub(super) fn new(client: Client, routes: Routes, log: Arc<OwnerLog>) -> Self {
        Self { client, routes, log, owned: Arc::default() }
    }

    /// Answers a request.
    pub(super) async fn answer(&self, request: &Request) -> Answer {
        let partition = self.routes.partition_of(request.counter());
        let found = self.with_owned(|owned| owned.get(&partition).cloned());
        let Some(owned) = found else { return Answer::NotOwner };
        let answer = match request {
            Request::Count { counter, user, request } => owned.count(counter, *user, *request).await,
            Request::Read { counter } => owned.value(counter).await,
        };
        // Checked right before the answer, not when the request came: the partition may have been lost meanwhile, and
        // the answer is given as the only owner.
        if self.log.check(&owned.grant).is_err() {
            return Answer::NotOwner;
        }
        answer.unwrap_or_else(|error| Answer::Failed(error.to_string()))
    }

    fn with_owned<T>(&self, with: impl FnOnce(&mut BTreeMap<PartitionId, Arc<OwnedCounters>>) -> T) -> T {
        with(&mut self.owned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Callbacks for Service {
    async fn acquire(&self, grant: Grant) -> Result<(), AcquireError> {
        let owned = OwnedCounters::acquire(self.client.clone(), grant.clone()).await?;
        let (partition, epoch) = (grant.partition().index, grant.epoch().get());
        self.log.acquired(grant.clone());
        self.log.write(&Line::Acquired { partition, epoch, at_ns: boot_clock_ns() });
        self.with_owned(|all| all.insert(grant.partition(), Arc::new(owned)));
        Ok(())
    }

    async fn release(&self, grant: Grant, why: ReleaseCause) {
        let owned = self.with_owned(|all| all.remove(&grant.partition()));
        if let Some(owned) = owned {
            owned.release().await;
        }
        let (partition, epoch, why) = (grant.partition().index, grant.epoch().get(), format!("{why:?}"));
        self.log.write(&Line::Released { partition, epoch, why, at_ns: boot_clock_ns() });
    }

    fn lost(&self, partition: PartitionId, epoch: Epoch) {
        // Operations in progress notice this before they answer.
        self.with_owned(|all| all.remove(&partition));
        let (partition, epoch) = (partition.index, epoch.get());
        self.log.write(&Line::Lost { partition, epoch, at_ns: boot_clock_ns() });
    }
}
