//! A participant's long poll for its duties.

use super::session::Member;
use crate::convert::ids::{check_address, non_zero};
use crate::convert::{ConvertError, bounded, checked};
use crate::v1;
use archon_types::limits::PARTITIONS_MAX;
use archon_types::limits::check_name;
use archon_types::{Duty, NodeId, RelayAddress, TABLES_SERVED_MAX, TableId, Version};

/// Maximum wait of a poll, in milliseconds.
pub const WAIT_MS_MAX: u32 = 30_000;
/// Maximum number of duties of one participant: it owns each partition of its tables at most once.
const DUTIES_MAX: usize = PARTITIONS_MAX;
/// Maximum number of relays of one member.
const RELAYS_MAX: usize = 2;
/// Maximum number of coordinators named.
const COORDINATORS_MAX: usize = 16;

/// A request for duties other than those of a version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DutiesQuery {
    /// The caller.
    pub member: Member,
    /// The term of the answer in effect; zero before the first.
    pub term: u64,
    /// The version of that answer.
    pub version: Version,
    /// Maximum wait for others, up to [`WAIT_MS_MAX`].
    pub wait_ms: u32,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Duties {
    /// The term of the leading coordinator. An answer of an older term, or of an older version of the same, is not
    /// obeyed.
    pub term: u64,
    /// The version of the state from which they were derived.
    pub version: Version,
    /// All of them; absent: those of the request remain in effect.
    pub duties: Option<Vec<Duty>>,
    /// Addresses of the coordinators.
    pub coordinators: Vec<String>,
    /// Tables that it serves and that are no lease tables, or do not exist.
    pub tables_not_leased: Vec<String>,
    /// Lease tables that it serves and was not granted.
    pub tables_not_granted: Vec<String>,
    /// Lease tables that it serves, each with its number; empty from an older coordinator.
    pub tables: Vec<(TableId, String)>,
    /// The nodes that relay its heartbeats, the first choice first; empty: it sends to the coordinators.
    pub relays: Vec<RelayAddress>,
}

/// Refuses a wait of more than [`WAIT_MS_MAX`].
pub(super) fn check_wait(wait_ms: u32, field: &'static str) -> Result<(), ConvertError> {
    match wait_ms > WAIT_MS_MAX {
        true => Err(ConvertError::new(field, format!("{wait_ms} ms is too long; the limit is {WAIT_MS_MAX}"))),
        false => Ok(()),
    }
}

impl From<DutiesQuery> for v1::DutiesRequest {
    fn from(asked: DutiesQuery) -> Self {
        let (cluster, sender) = asked.member.wire();
        Self { cluster, sender, term: asked.term, version: asked.version.get(), wait_ms: asked.wait_ms }
    }
}

impl TryFrom<v1::DutiesRequest> for DutiesQuery {
    type Error = ConvertError;

    fn try_from(wire: v1::DutiesRequest) -> Result<Self, ConvertError> {
        check_wait(wire.wait_ms, "DutiesRequest.wait_ms")?;
        Ok(Self {
            member: Member::from_wire(wire.cluster.as_ref(), wire.sender.as_ref())?,
            term: wire.term,
            version: Version::new(wire.version),
            wait_ms: wire.wait_ms,
        })
    }
}

impl From<Duties> for v1::DutiesResponse {
    fn from(answer: Duties) -> Self {
        Self {
            term: answer.term,
            version: answer.version.get(),
            unchanged: answer.duties.is_none(),
            duties: answer.duties.into_iter().flatten().map(Into::into).collect(),
            coordinators: answer.coordinators,
            tables_not_leased: answer.tables_not_leased,
            tables_not_granted: answer.tables_not_granted,
            tables: answer.tables.into_iter().map(|(id, name)| v1::LeaseTable { id: id.get(), name }).collect(),
            relays: answer.relays.into_iter().map(relay_to_wire).collect(),
        }
    }
}

impl TryFrom<v1::DutiesResponse> for Duties {
    type Error = ConvertError;

    fn try_from(wire: v1::DutiesResponse) -> Result<Self, ConvertError> {
        bounded(wire.duties.len(), DUTIES_MAX, "DutiesResponse.duties")?;
        bounded(wire.coordinators.len(), COORDINATORS_MAX, "DutiesResponse.coordinators")?;
        let duties = match wire.unchanged {
            true => None,
            false => Some(wire.duties.into_iter().map(Duty::try_from).collect::<Result<_, _>>()?),
        };
        bounded(wire.tables_not_leased.len(), TABLES_SERVED_MAX, "DutiesResponse.tables_not_leased")?;
        for table in &wire.tables_not_leased {
            checked(check_name("table", table), "DutiesResponse.tables_not_leased")?;
        }
        bounded(wire.tables_not_granted.len(), TABLES_SERVED_MAX, "DutiesResponse.tables_not_granted")?;
        for table in &wire.tables_not_granted {
            checked(check_name("table", table), "DutiesResponse.tables_not_granted")?;
        }
        bounded(wire.tables.len(), TABLES_SERVED_MAX, "DutiesResponse.tables")?;
        bounded(wire.relays.len(), RELAYS_MAX, "DutiesResponse.relays")?;
        Ok(Self {
            term: wire.term,
            version: Version::new(wire.version),
            duties,
            coordinators: wire.coordinators,
            tables_not_leased: wire.tables_not_leased,
            tables_not_granted: wire.tables_not_granted,
            tables: wire.tables.into_iter().map(table_of_wire).collect::<Result<_, _>>()?,
            relays: wire.relays.into_iter().map(relay_of_wire).collect::<Result<_, _>>()?,
        })
    }
}

fn table_of_wire(wire: v1::LeaseTable) -> Result<(TableId, String), ConvertError> {
    checked(check_name("table", &wire.name), "LeaseTable.name")?;
    Ok((TableId::new(non_zero(wire.id, "LeaseTable.id")?), wire.name))
}

fn relay_to_wire(relay: RelayAddress) -> v1::RelayAddress {
    v1::RelayAddress { node: relay.node.get(), name: relay.name, address: relay.address }
}

fn relay_of_wire(wire: v1::RelayAddress) -> Result<RelayAddress, ConvertError> {
    let v1::RelayAddress { node, name, address } = wire;
    checked(check_name("node", &name), "RelayAddress.name")?;
    check_address(&address, "RelayAddress.address")?;
    Ok(RelayAddress { node: NodeId::new(non_zero(node, "RelayAddress.node")?), name, address })
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{ClusterId, Incarnation, PartitionId, PlacementId};
    use uuid::Uuid;

    #[test]
    fn duty_polls_and_answers_round_trip() {
        let cluster = ClusterId::new(Uuid::from_u128(1));
        let member = Member { cluster, node: NodeId::new(2), incarnation: Incarnation::new(3) };
        let asked = DutiesQuery { member, term: 4, version: Version::new(5), wait_ms: WAIT_MS_MAX };
        assert_eq!(DutiesQuery::try_from(v1::DutiesRequest::from(asked.clone())), Ok(asked.clone()));
        let too_long = v1::DutiesRequest { wait_ms: WAIT_MS_MAX + 1, ..asked.into() };
        assert!(DutiesQuery::try_from(too_long).is_err());
        let unload = Duty::Unload { partition: PartitionId::new(TableId::new(1), 0), placement: PlacementId::new(9) };
        for duties in [None, Some(vec![]), Some(vec![unload])] {
            let coordinators = vec!["127.0.0.1:1".to_owned()];
            let (tables_not_leased, tables_not_granted) = (vec!["jobs".to_owned()], vec!["payments".to_owned()]);
            let relays = vec![relay(3, "athens", "127.0.0.1:7201"), relay(4, "byzantium", "10.0.0.2:7201")];
            let tables = vec![(TableId::new(5), "mails".to_owned())];
            let version = Version::new(6);
            let answer = Duties {
                term: 4,
                version,
                duties,
                coordinators,
                tables_not_leased,
                tables_not_granted,
                tables,
                relays,
            };
            assert_eq!(Duties::try_from(v1::DutiesResponse::from(answer.clone())), Ok(answer));
        }
    }

    fn relay(node: u64, name: &str, address: &str) -> RelayAddress {
        RelayAddress { node: NodeId::new(node), name: name.to_owned(), address: address.to_owned() }
    }

    #[test]
    fn lease_tables_without_number_or_name_are_refused() {
        let read = |id, name: &str| {
            let tables = vec![v1::LeaseTable { id, name: name.to_owned() }];
            Duties::try_from(v1::DutiesResponse { tables, ..v1::DutiesResponse::default() })
        };
        assert!(read(5, "jobs").is_ok() && read(0, "jobs").is_err() && read(5, "").is_err());
    }

    #[test]
    fn invalid_relays_are_refused() {
        let read = |relays: Vec<RelayAddress>| {
            let relays = relays.into_iter().map(relay_to_wire).collect();
            Duties::try_from(v1::DutiesResponse { relays, ..v1::DutiesResponse::default() })
        };
        let fine = relay(3, "athens", "127.0.0.1:7201");
        assert!(read(vec![fine.clone(); 2]).is_ok() && read(vec![fine; 3]).is_err());
        for wrong in
            [relay(0, "athens", "127.0.0.1:7201"), relay(3, "", "127.0.0.1:7201"), relay(3, "athens", "nowhere")]
        {
            assert!(read(vec![wrong.clone()]).is_err(), "{wrong:?}");
        }
    }
}
