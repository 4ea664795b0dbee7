//! Orders of operators about partitions and members.

use super::operate::{node_of, partition_of, settable};
use super::tables::table_of;
use crate::clock::wall_now;
use crate::service::admins::{Admins, Result};
use crate::service::call::Call;
use crate::service::documents::answers;
use archon_coordinator_core::{Bar, ClusterState, Liveness, Order, check_order, refusal, still_led};
use archon_documents::{BarName, GiveOrder, Order as Asked, OrderGiven, PartitionName};

answers! {
    GiveOrder: ordered,
}

impl Admins {
    /// Commits an order, or finds that it already holds.
    pub(in crate::service) async fn ordered(&self, asked: GiveOrder, call: &Call<'_>) -> Result<OrderGiven> {
        let GiveOrder { order, why } = asked;
        let decide = |state: &ClusterState, _: &Liveness| {
            let order = order_of(state, &order)?;
            Ok(check_order(state, order, &why).map_err(|obstacles| refusal(&obstacles))?.ok_or(()))
        };
        let changed = self.commit_unless(call, decide).await?.is_ok();
        let Asked::Maintain { node, .. } = &order else { return Ok(OrderGiven { changed, partitions_still_led: 0 }) };
        self.view(call, |_, state| {
            let partitions_still_led =
                u32::try_from(still_led(state, settable(state, node)?).count()).unwrap_or(u32::MAX);
            Ok(OrderGiven { changed, partitions_still_led })
        })
        .await
    }
}

/// Returns the order, with names resolved to numbers.
fn order_of(state: &ClusterState, asked: &Asked) -> Result<Order> {
    Ok(match asked {
        Asked::Bump(name) => {
            let partition = partition_of(state, name)?;
            let epoch = state.partition(partition).map(|row| row.epoch).unwrap_or_default();
            Order::Bump { partition, epoch }
        }
        Asked::Bar(name) => Order::Bar { bar: bar_of(state, name)?, member: settable(state, &name.node)? },
        Asked::Unbar(name) => Order::Unbar { bar: bar_of(state, name)?, member: node_of(state, &name.node)? },
        Asked::Offline(name) => Order::Offline { partition: partition_of(state, name)? },
        Asked::Online(name) => Order::Online { partition: partition_of(state, name)? },
        Asked::Maintain { node, for_ms } => {
            Order::Maintain { member: settable(state, node)?, until: wall_now().plus(*for_ms) }
        }
        Asked::Resume { node } => Order::Resume { member: settable(state, node)? },
    })
}

fn bar_of(state: &ClusterState, name: &BarName) -> Result<Bar> {
    match name.partition {
        Some(index) => Ok(Bar::Partition(partition_of(state, &PartitionName::new(&name.table, index))?)),
        None => Ok(Bar::Table(table_of(state, &name.table)?.id)),
    }
}
