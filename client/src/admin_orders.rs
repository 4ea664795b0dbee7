//! Orders for partitions and members, and the check of a whole cluster.

use crate::admin::{Admin, client, request_id};
use crate::admin_call::Effect;
use crate::error::Error;
use crate::order_types::{Check, CheckThresholds};
use archon_proto::convert::operate::PartitionName;
use archon_proto::convert::order::{BarName, LookOver, Order, Ordered};
use archon_proto::v1;
use std::time::Duration;

impl Admin {
    /// Makes the leader of a partition lead in the next epoch: leadership starts over, the data stays.
    ///
    /// # Errors
    /// `NotFound` if there is no such partition, `Refused` if it has no leader; otherwise see [`Error`].
    pub async fn bump(&self, table: &str, partition: u32, why: &str) -> Result<(), Error> {
        self.order(Order::Bump(named(table, partition)), why).await.map(|_| ())
    }

    /// Takes a partition offline: its leader releases it, and its copies stay. Returns whether this is a change.
    ///
    /// # Errors
    /// `NotFound` if there is no such partition; otherwise see [`Error`].
    pub async fn take_offline(&self, table: &str, partition: u32, why: &str) -> Result<bool, Error> {
        self.order(Order::Offline(named(table, partition)), why).await
    }

    /// Brings a partition online again. Returns whether it was offline.
    ///
    /// # Errors
    /// `NotFound` if there is no such partition; otherwise see [`Error`].
    pub async fn bring_online(&self, table: &str, partition: u32) -> Result<bool, Error> {
        self.order(Order::Online(named(table, partition)), "").await
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
        Ok(self.answered(Order::Maintain { node: member.to_owned(), for_ms }, why).await?.still_led)
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

    async fn answered(&self, order: Order, why: &str) -> Result<v1::OrderResponse, Error> {
        let ordered = Ordered { request: request_id(), order, why: why.to_owned() };
        let call = |channel, request| async move { client(channel).order(request).await };
        let request = v1::OrderRequest::from(ordered);
        self.coordinator_client().call(Effect::Writes, request, call).await
    }

    /// Returns all findings about the cluster, the most severe first.
    ///
    /// # Errors
    /// `NotFound` if the table of the thresholds is unknown; otherwise see [`Error`].
    pub async fn check(&self, thresholds: &CheckThresholds) -> Result<Check, Error> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
        let request = LookOver {
            stale_after_ms: thresholds.stale_after.map(millis),
            members_min: thresholds.members_min.map(|least| (thresholds.members_of.clone(), least)),
            held_for_ms: millis(thresholds.held_for),
        };
        let call = |channel, request| async move { client(channel).check(request).await };
        let request = v1::CheckRequest::from(request);
        let wire: v1::CheckResponse = self.coordinator_client().call(Effect::Reads, request, call).await?;
        Ok(wire.into())
    }
}

fn named(table: &str, partition: u32) -> PartitionName {
    PartitionName { table: table.to_owned(), index: partition }
}

fn bar(member: &str, table: &str, partition: Option<u32>) -> BarName {
    BarName { node: member.to_owned(), table: table.to_owned(), partition }
}
