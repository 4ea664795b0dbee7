//! Orders for partitions and members, and the check of a whole cluster.

use crate::admin::Admin;
use crate::admin::order_types::CheckThresholds;
use crate::error::Error;
use archon_documents::{BarName, Check, CheckCluster, GiveOrder, Order, OrderGiven, PartitionName};
use std::time::Duration;

impl Admin {
    /// Makes the leader of a partition lead in the next epoch: leadership starts over, the data stays.
    ///
    /// # Errors
    /// `NotFound` if there is no such partition, `Refused` if it has no leader; otherwise see [`Error`].
    pub async fn bump(&self, table: &str, partition: u32, why: &str) -> Result<(), Error> {
        self.order(Order::Bump(PartitionName::new(table, partition)), why).await.map(|_| ())
    }

    /// Takes a partition offline: its leader releases it, and its copies stay. Returns whether this is a change.
    ///
    /// # Errors
    /// `NotFound` if there is no such partition; otherwise see [`Error`].
    pub async fn take_offline(&self, table: &str, partition: u32, why: &str) -> Result<bool, Error> {
        self.order(Order::Offline(PartitionName::new(table, partition)), why).await
    }

    /// Brings a partition online again. Returns whether it was offline.
    ///
    /// # Errors
    /// `NotFound` if there is no such partition; otherwise see [`Error`].
    pub async fn bring_online(&self, table: &str, partition: u32) -> Result<bool, Error> {
        self.order(Order::Online(PartitionName::new(table, partition)), "").await
    }

    /// Excludes a node or participant from a partition, or (`None`) from a whole table: its copies are replaced
    /// elsewhere, its leaderships are handed over. Returns whether this is a change.
    ///
    /// # Errors
    /// `NotFound` for an unknown name; `Refused` if too few nodes would be left for the copies; otherwise see [`Error`].
    pub async fn bar(&self, member: &str, table: &str, partition: Option<u32>, why: &str) -> Result<bool, Error> {
        self.order(Order::Bar(bar(member, table, partition)), why).await
    }

    /// Removes an exclusion. Returns whether there was one.
    ///
    /// # Errors
    /// `NotFound` for an unknown name; otherwise see [`Error`].
    pub async fn unbar(&self, member: &str, table: &str, partition: Option<u32>) -> Result<bool, Error> {
        self.order(Order::Unbar(bar(member, table, partition)), "").await
    }

    /// Puts a node or participant into maintenance for 1 second to 30 days: it hands over its leaderships, and its
    /// copies stay and are not replaced while it is down. Maintenance ends by itself. Returns the number of
    /// partitions that it keeps leading because no other member can; these are unavailable once it stops.
    ///
    /// # Errors
    /// `NotFound` if no member has this name, `Refused` if it is being drained; otherwise see [`Error`].
    pub async fn maintain(&self, member: &str, lasts: Duration, why: &str) -> Result<u32, Error> {
        let for_ms = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        Ok(self.answered(Order::Maintain { node: member.to_owned(), for_ms }, why).await?.partitions_still_led)
    }

    /// Ends the maintenance of a node or participant.
    ///
    /// # Errors
    /// `NotFound` if no member has this name, `Refused` if it is in none; otherwise see [`Error`].
    pub async fn resume(&self, member: &str) -> Result<(), Error> {
        self.order(Order::Resume { node: member.to_owned() }, "").await.map(|_| ())
    }

    async fn order(&self, order: Order, why: &str) -> Result<bool, Error> {
        Ok(self.answered(order, why).await?.changed)
    }

    async fn answered(&self, order: Order, why: &str) -> Result<OrderGiven, Error> {
        self.ask(&GiveOrder { order, why: why.to_owned() }).await
    }

    /// Returns all findings about the cluster, the most severe first.
    ///
    /// # Errors
    /// `NotFound` if the table of the thresholds is unknown; otherwise see [`Error`].
    pub async fn check(&self, thresholds: &CheckThresholds) -> Result<Check, Error> {
        self.ask(&CheckCluster::from(thresholds)).await
    }
}

fn bar(member: &str, table: &str, partition: Option<u32>) -> BarName {
    BarName { node: member.to_owned(), table: table.to_owned(), partition }
}
