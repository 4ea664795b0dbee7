//! Orders about partitions and members, and the request to look a cluster over, checked.

use super::ids::{request_id, uuid_bytes};
use super::operate::PartitionName;
use super::{ConvertError, checked, required};
use crate::v1;
use archon_types::RequestId;
use archon_types::limits::{check_name, check_why};
use std::ops::RangeInclusive;

/// How long a maintenance may be ordered for, in milliseconds: a second to thirty days.
pub const MAINTENANCE_MS: RangeInclusive<u64> = 1_000..=30 * 24 * 3_600_000;

/// From what a member is barred.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BarName {
    /// The member's name.
    pub node: String,
    /// The table's name.
    pub table: String,
    /// The partition's number; `None`: the whole table.
    pub partition: Option<u32>,
}

/// An order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// The same leader in the next epoch.
    Bump(PartitionName),
    /// A member gets and leads nothing of a partition or table.
    Bar(BarName),
    /// The bar is taken back.
    Unbar(BarName),
    /// Nobody leads the partition.
    Offline(PartitionName),
    /// The partition is led again.
    Online(PartitionName),
    /// A member leads nothing for a while.
    Maintain {
        /// The member's name.
        node: String,
        /// For how long, in milliseconds, within [`MAINTENANCE_MS`].
        for_ms: u64,
    },
    /// The maintenance of a member ends.
    Resume {
        /// The member's name.
        node: String,
    },
}

/// A request to take an order in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ordered {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// The order.
    pub order: Order,
    /// Why, for the events; may be empty.
    pub why: String,
}

/// For how long an order stands before it may have been forgotten, unless somebody says otherwise.
pub const HELD_FOR_MS: u64 = 24 * 60 * 60 * 1_000;

/// A request to look a cluster over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookOver {
    /// Alert on leases that were not extended for so long, in milliseconds; `None`: by each member's own timing.
    pub stale_after_ms: Option<u64>,
    /// Alert if fewer members take partitions: of this table, or nodes.
    pub members_min: Option<(Option<String>, u32)>,
    /// Alert on orders that stand for so long, in milliseconds, at least 1.
    pub held_for_ms: u64,
}

fn partition(of: v1::PartitionOf) -> Result<PartitionName, ConvertError> {
    PartitionName::new(of.table, of.partition, "PartitionOf.table")
}

fn bar(of: v1::BarOf) -> Result<BarName, ConvertError> {
    let PartitionName { table, .. } = PartitionName::new(of.table, 0, "BarOf.table")?;
    Ok(BarName { node: node(of.node, "BarOf.node")?, table, partition: of.partition })
}

fn node(name: String, field: &'static str) -> Result<String, ConvertError> {
    checked(check_name("node", &name), field)?;
    Ok(name)
}

impl TryFrom<v1::OrderRequest> for Ordered {
    type Error = ConvertError;

    fn try_from(wire: v1::OrderRequest) -> Result<Self, ConvertError> {
        use v1::order_request::Order as Wire;
        checked(check_why(&wire.why), "OrderRequest.why")?;
        let order = match required(wire.order, "OrderRequest.order")? {
            Wire::Bump(of) => Order::Bump(partition(of)?),
            Wire::Bar(of) => Order::Bar(bar(of)?),
            Wire::Unbar(of) => Order::Unbar(bar(of)?),
            Wire::Offline(of) => Order::Offline(partition(of)?),
            Wire::Online(of) => Order::Online(partition(of)?),
            Wire::Maintain(of) if MAINTENANCE_MS.contains(&of.for_ms) => {
                Order::Maintain { node: node(of.node, "MaintainFor.node")?, for_ms: of.for_ms }
            }
            Wire::Maintain(of) => {
                let problem = format!("{} ms is not between 1 second and 30 days", of.for_ms);
                return Err(ConvertError::new("MaintainFor.for_ms", problem));
            }
            Wire::Resume(name) => Order::Resume { node: node(name, "OrderRequest.resume")? },
        };
        Ok(Self { request: request_id(&wire.request_id, "OrderRequest.request_id")?, order, why: wire.why })
    }
}

impl From<PartitionName> for v1::PartitionOf {
    fn from(name: PartitionName) -> Self {
        Self { table: name.table, partition: name.index }
    }
}

impl From<BarName> for v1::BarOf {
    fn from(bar: BarName) -> Self {
        Self { node: bar.node, table: bar.table, partition: bar.partition }
    }
}

impl From<Ordered> for v1::OrderRequest {
    fn from(request: Ordered) -> Self {
        use v1::order_request::Order as Wire;
        let order = match request.order {
            Order::Bump(of) => Wire::Bump(of.into()),
            Order::Bar(bar) => Wire::Bar(bar.into()),
            Order::Unbar(bar) => Wire::Unbar(bar.into()),
            Order::Offline(of) => Wire::Offline(of.into()),
            Order::Online(of) => Wire::Online(of.into()),
            Order::Maintain { node, for_ms } => Wire::Maintain(v1::MaintainFor { node, for_ms }),
            Order::Resume { node } => Wire::Resume(node),
        };
        let request_id = uuid_bytes(request.request.get());
        Self { cluster: None, request_id, why: request.why, order: Some(order) }
    }
}

impl Default for LookOver {
    /// Leases by the timing of each member, any number of members, orders after a day.
    fn default() -> Self {
        Self { stale_after_ms: None, members_min: None, held_for_ms: HELD_FOR_MS }
    }
}

impl TryFrom<v1::CheckRequest> for LookOver {
    type Error = ConvertError;

    fn try_from(wire: v1::CheckRequest) -> Result<Self, ConvertError> {
        if wire.held_for_ms == 0 {
            return Err(ConvertError::new("CheckRequest.held_for_ms", "0 ms; it must be at least 1"));
        }
        let table = Some(wire.members_of).filter(|table| !table.is_empty());
        if let Some(table) = &table {
            checked(check_name("table", table), "CheckRequest.members_of")?;
        }
        Ok(Self {
            stale_after_ms: Some(wire.stale_after_ms).filter(|millis| *millis > 0),
            members_min: wire.members_min.map(|least| (table, least)),
            held_for_ms: wire.held_for_ms,
        })
    }
}

impl From<LookOver> for v1::CheckRequest {
    fn from(request: LookOver) -> Self {
        let (table, members_min) = request.members_min.map_or((None, None), |(table, least)| (table, Some(least)));
        Self {
            cluster: None,
            stale_after_ms: request.stale_after_ms.unwrap_or(0),
            members_min,
            members_of: table.unwrap_or_default(),
            held_for_ms: request.held_for_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::DEFAULT_TABLE;
    use proptest::prelude::*;
    use prost::Message;
    use uuid::Uuid;

    fn order() -> impl Strategy<Value = Order> {
        let name = || "[a-z][a-z0-9.-]{0,20}";
        let partition = || (name(), any::<u32>()).prop_map(|(table, index)| PartitionName { table, index });
        let bar = || {
            (name(), name(), any::<Option<u32>>()).prop_map(|(node, table, partition)| BarName {
                node,
                table,
                partition,
            })
        };
        prop_oneof![
            partition().prop_map(Order::Bump),
            bar().prop_map(Order::Bar),
            bar().prop_map(Order::Unbar),
            partition().prop_map(Order::Offline),
            partition().prop_map(Order::Online),
            (name(), MAINTENANCE_MS).prop_map(|(node, for_ms)| Order::Maintain { node, for_ms }),
            name().prop_map(|node| Order::Resume { node }),
        ]
    }

    proptest! {
        #[test]
        fn requests_round_trip_through_bytes(id in 1u128.., order in order(), why in "[ -~é]{0,200}", least in any::<Option<u32>>()) {
            let ordered = Ordered { request: RequestId::new(Uuid::from_u128(id)), order, why };
            let bytes = v1::OrderRequest::from(ordered.clone()).encode_to_vec();
            prop_assert_eq!(Ordered::try_from(v1::OrderRequest::decode(bytes.as_slice()).unwrap()), Ok(ordered));
            let members_min = least.map(|least| ((least % 2 == 0).then(|| "jobs".to_owned()), least));
            let stale_after_ms = least.map(|least| u64::from(least) + 1);
            let look = LookOver { stale_after_ms, members_min, held_for_ms: u64::MAX };
            prop_assert_eq!(LookOver::try_from(v1::CheckRequest::from(look.clone())), Ok(look));
        }

        #[test]
        fn any_bytes_are_handled_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(wire) = v1::OrderRequest::decode(bytes.as_slice()) {
                let _ = Ordered::try_from(wire);
            }
            if let Ok(wire) = v1::CheckRequest::decode(bytes.as_slice()) {
                let _ = LookOver::try_from(wire);
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        use v1::order_request::Order as Wire;
        let request_id = uuid_bytes(Uuid::from_u128(5));
        let with =
            |order: Wire| v1::OrderRequest { request_id: request_id.clone(), order: Some(order), ..Default::default() };
        let field = |wire: v1::OrderRequest| Ordered::try_from(wire).unwrap_err().field;
        let good = with(Wire::Bump(v1::PartitionOf { table: String::new(), partition: 3 }));
        assert_eq!(
            Ordered::try_from(good.clone()).unwrap().order,
            Order::Bump(PartitionName { table: DEFAULT_TABLE.to_owned(), index: 3 })
        );
        assert_eq!(field(v1::OrderRequest { order: None, ..good.clone() }), "OrderRequest.order");
        assert_eq!(field(v1::OrderRequest { why: "x".repeat(201), ..good.clone() }), "OrderRequest.why");
        assert_eq!(field(v1::OrderRequest { why: "a\nb".into(), ..good.clone() }), "OrderRequest.why");
        assert_eq!(field(v1::OrderRequest { request_id: Default::default(), ..good }), "OrderRequest.request_id");
        assert_eq!(field(with(Wire::Resume("a b".into()))), "OrderRequest.resume");
        let short = v1::MaintainFor { node: "athens".into(), for_ms: 999 };
        assert_eq!(field(with(Wire::Maintain(short))), "MaintainFor.for_ms");
        let nobody = v1::BarOf { table: "orders".into(), ..Default::default() };
        assert_eq!(field(with(Wire::Bar(nobody))), "BarOf.node");
        let check = v1::CheckRequest { stale_after_ms: 1, held_for_ms: 0, ..Default::default() };
        assert_eq!(LookOver::try_from(check).unwrap_err().field, "CheckRequest.held_for_ms");
    }
}
