//! Pushes of duties, from the leading coordinator to a node.

use crate::convert::{ConvertError, bounded, ids, required};
use crate::v1;
use archon_types::{
    AccessList, ClusterId, Duty, ErrorDetail, Incarnation, NodeDelta, NodeId, Partition, PartitionId, PlacementId,
    PushKey, RemovedNodes, TableId, TableList, TablePiece, Version, limits,
};
use bytes::Bytes;
use prost::Message as _;

/// Maximum number of duties in one push.
pub const DUTIES_MAX: usize = limits::NODE_REPLICAS_MAX;

/// A node's full list of duties at a version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Push {
    /// The cluster.
    pub cluster: ClusterId,
    /// Id of the sending coordinator.
    pub coordinator: u64,
    /// The term in which it leads.
    pub term: u64,
    /// The recipient.
    pub node: NodeId,
    /// The recipient's incarnation.
    pub incarnation: Incarnation,
    /// Version of the state from which they were derived.
    pub version: Version,
    /// All duties of the node; `None`: those of `version`, which it already obeys.
    pub duties: Option<Vec<Duty>>,
    /// Pieces of tables that changed.
    pub deltas: Vec<TablePiece>,
    /// The nodes that changed, if any did.
    pub nodes: Option<NodeDelta>,
    /// The list of tables, if one was dropped since the node's version.
    pub tables: Option<TableList>,
    /// The rights of clients, if they changed since the node's version.
    pub access: Option<AccessList>,
    /// With this push the node holds everything up to this version; `None`: more follows.
    pub complete: Option<Version>,
    /// Addresses of the coordinators.
    pub coordinators: Vec<String>,
    /// The key from the node's heartbeats.
    pub key: PushKey,
    /// Upper bound of all versions in the push.
    pub newest: Version,
}

/// The answer to a push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PushAnswer {
    /// The version that the node now obeys.
    pub version: Version,
    /// A delta does not match its holdings: it needs everything, from zero.
    pub gap: bool,
    /// Duties that could not be started, with the reason.
    pub refused: Vec<(PlacementId, ErrorDetail)>,
}

/// Encodes a piece as pushes carry it: once, shared by all nodes that need it.
pub fn encode_table(piece: TablePiece) -> Bytes {
    v1::TableDelta::from(piece).encode_to_vec().into()
}

/// As [`encode_table`], for nodes.
pub fn encode_nodes(delta: NodeDelta) -> Bytes {
    v1::NodeDelta::from(delta).encode_to_vec().into()
}

pub(in crate::convert) fn decode_table(bytes: &Bytes, field: &'static str) -> Result<TablePiece, ConvertError> {
    let wire = v1::TableDelta::decode(&bytes[..]).map_err(|error| ConvertError::new(field, error.to_string()))?;
    TablePiece::try_from(wire)
}

/// Decodes the nodes that changed; empty, or without any known field: none did.
pub(in crate::convert) fn decode_nodes(bytes: &Bytes, field: &'static str) -> Result<Option<NodeDelta>, ConvertError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let wire = v1::NodeDelta::decode(&bytes[..]).map_err(|error| ConvertError::new(field, error.to_string()))?;
    if wire == v1::NodeDelta::default() {
        return Ok(None);
    }
    NodeDelta::try_from(wire).map(Some)
}

impl Push {
    /// Returns the message, with encoded deltas and nodes in place of its own. No nodes: empty.
    pub fn with_encoded(mut self, deltas: Vec<Bytes>, nodes: Bytes) -> v1::PushRequest {
        self.deltas.clear();
        self.nodes = None;
        v1::PushRequest { deltas, nodes, ..v1::PushRequest::from(self) }
    }
}

impl From<Push> for v1::PushRequest {
    fn from(push: Push) -> Self {
        let duties_omitted = push.duties.is_none();
        Self {
            cluster: Some(push.cluster.into()),
            coordinator: push.coordinator,
            term: push.term,
            node: push.node.get(),
            incarnation: push.incarnation.get(),
            version: push.version.get(),
            duties: push.duties.unwrap_or_default().into_iter().map(Into::into).collect(),
            deltas: push.deltas.into_iter().map(encode_table).collect(),
            coordinators: push.coordinators,
            nodes: push.nodes.map(encode_nodes).unwrap_or_default(),
            duties_omitted,
            tables: push.tables.map(Into::into),
            access: push.access.map(Into::into),
            complete: push.complete.map_or(0, Version::get),
            key: ids::uuid_bytes(push.key.get()),
            newest: push.newest.get(),
        }
    }
}

impl TryFrom<v1::PushRequest> for Push {
    type Error = ConvertError;

    fn try_from(wire: v1::PushRequest) -> Result<Self, ConvertError> {
        if wire.duties.len() > DUTIES_MAX {
            let problem = format!("{} duties; the limit is {DUTIES_MAX}", wire.duties.len());
            return Err(ConvertError::new("PushRequest.duties", problem));
        }
        if wire.duties_omitted && !wire.duties.is_empty() {
            return Err(ConvertError::new("PushRequest.duties", "given and omitted at once"));
        }
        let table = |bytes: &Bytes| decode_table(bytes, "PushRequest.deltas");
        bounded(wire.coordinators.len(), limits::COORDINATORS_MAX, "PushRequest.coordinators")?;
        for address in &wire.coordinators {
            ids::check_address(address, "PushRequest.coordinators")?;
        }
        let push = Self {
            cluster: required(ids::cluster_id(wire.cluster.as_ref())?, "PushRequest.cluster")?,
            coordinator: wire.coordinator,
            term: wire.term,
            node: NodeId::new(ids::non_zero(wire.node, "PushRequest.node")?),
            incarnation: Incarnation::new(ids::non_zero(wire.incarnation, "PushRequest.incarnation")?),
            version: Version::new(wire.version),
            deltas: wire.deltas.iter().map(table).collect::<Result<_, _>>()?,
            nodes: decode_nodes(&wire.nodes, "PushRequest.nodes")?,
            duties: match wire.duties_omitted {
                true => None,
                false => Some(wire.duties.into_iter().map(Duty::try_from).collect::<Result<_, _>>()?),
            },
            tables: wire.tables.map(TableList::try_from).transpose()?,
            access: wire.access.map(AccessList::try_from).transpose()?,
            complete: Some(Version::new(wire.complete)).filter(|version| *version > Version::ZERO),
            coordinators: wire.coordinators,
            key: ids::push_key(&wire.key, "PushRequest.key")?,
            newest: Version::new(wire.newest),
        };
        push.check_versions()?;
        Ok(push)
    }
}

impl Push {
    fn check_versions(&self) -> Result<(), ConvertError> {
        let Self { incarnation, newest, deltas, nodes, tables, complete, .. } = self;
        let complete = complete.unwrap_or_default();
        check_versions(*incarnation, *newest, deltas, nodes.as_ref(), tables.as_ref(), complete)?;
        let below = |version: Version, field| is_below(version, *newest, field);
        below(self.version, "PushRequest.version")?;
        below(self.access.as_ref().map_or(Version::ZERO, |list| list.version), "AccessList.version")?;
        for duty in self.duties.iter().flatten() {
            if let Duty::Host { partition, .. } | Duty::HandOver { partition, .. } = duty {
                below(partition.version, "Partition.version")?;
            }
        }
        Ok(())
    }
}

/// Rejects impossible versions: a node never replaces its holdings by older ones, so such a version would stay
/// permanently.
pub(in crate::convert) fn check_versions(
    incarnation: Incarnation,
    newest: Version,
    deltas: &[TablePiece],
    nodes: Option<&NodeDelta>,
    tables: Option<&TableList>,
    complete: Version,
) -> Result<(), ConvertError> {
    let reached = incarnation.get().saturating_add(limits::VERSIONS_AHEAD_MAX);
    if newest.get() > reached {
        let problem = format!("version {newest} cannot be: the node registered at {incarnation}");
        return Err(ConvertError::new("newest", problem));
    }
    let below = |version: Version, field| is_below(version, newest, field);
    let removed_below = |removed: Option<&RemovedNodes>| {
        below(removed.map_or(Version::ZERO, |list| list.version), "RemovedNodes.version")
    };
    below(complete, "complete")?;
    below(tables.map_or(Version::ZERO, |list| list.version), "TableList.version")?;
    for delta in deltas.iter().map(|piece| &piece.delta) {
        below(delta.version.max(delta.since).max(delta.table.version), "TableDelta.version")?;
        delta.partitions.iter().try_for_each(|row| below(row.version, "Partition.version"))?;
        delta.nodes.iter().try_for_each(|node| below(node.version, "Node.version"))?;
        removed_below(delta.removed.as_ref())?;
    }
    if let Some(nodes) = nodes {
        below(nodes.version.max(nodes.since), "NodeDelta.version")?;
        nodes.nodes.iter().try_for_each(|node| below(node.version, "Node.version"))?;
        removed_below(nodes.removed.as_ref())?;
    }
    Ok(())
}

fn is_below(version: Version, newest: Version, field: &'static str) -> Result<(), ConvertError> {
    match version <= newest {
        true => Ok(()),
        false => Err(ConvertError::new(field, format!("version {version} is above the push's, {newest}"))),
    }
}

impl From<TableList> for v1::TableList {
    fn from(list: TableList) -> Self {
        let tables = list.tables.into_iter().map(TableId::get).collect();
        Self { version: list.version.get(), last: list.last.get(), tables }
    }
}

impl TryFrom<v1::TableList> for TableList {
    type Error = ConvertError;

    fn try_from(wire: v1::TableList) -> Result<Self, ConvertError> {
        bounded(wire.tables.len(), limits::TABLES_READ_MAX, "TableList.tables")?;
        let ascends = wire.tables.windows(2).all(|pair| pair[0] < pair[1]);
        let last = wire.tables.last().copied().unwrap_or(0);
        if !ascends || wire.tables.first() == Some(&0) || last > wire.last {
            let problem = format!("the numbers of tables do not ascend from 1 to {} at most", wire.last);
            return Err(ConvertError::new("TableList.tables", problem));
        }
        Ok(Self {
            version: Version::new(wire.version),
            last: TableId::new(wire.last),
            tables: wire.tables.into_iter().map(TableId::new).collect(),
        })
    }
}

impl From<PushAnswer> for v1::PushResponse {
    fn from(pushed: PushAnswer) -> Self {
        let result = |(placement, error): (PlacementId, ErrorDetail)| v1::DutyResult {
            placement: placement.get(),
            error: Some(error.into()),
        };
        Self {
            version: pushed.version.get(),
            gap: pushed.gap,
            results: pushed.refused.into_iter().map(result).collect(),
        }
    }
}

impl TryFrom<v1::PushResponse> for PushAnswer {
    type Error = ConvertError;

    fn try_from(wire: v1::PushResponse) -> Result<Self, ConvertError> {
        let result = |result: v1::DutyResult| {
            let error = required(result.error, "DutyResult.error")?;
            Ok((PlacementId::new(result.placement), error.into()))
        };
        Ok(Self {
            version: Version::new(wire.version),
            gap: wire.gap,
            refused: wire.results.into_iter().map(result).collect::<Result<_, ConvertError>>()?,
        })
    }
}

impl From<Duty> for v1::Duty {
    fn from(duty: Duty) -> Self {
        let duty = match duty {
            Duty::Host { partition, placement } => {
                v1::duty::Duty::Host(v1::DutyHost { partition: Some(partition.into()), placement: placement.get() })
            }
            Duty::HandOver { partition, placement, to } => v1::duty::Duty::HandOver(v1::DutyHandOver {
                partition: Some(partition.into()),
                placement: placement.get(),
                to: to.get(),
            }),
            Duty::Unload { partition, placement } => {
                v1::duty::Duty::Unload(v1::DutyUnload { partition: Some(partition.into()), placement: placement.get() })
            }
            Duty::Inspect { placement } => v1::duty::Duty::Inspect(v1::DutyInspect { placement: placement.get() }),
        };
        Self { duty: Some(duty) }
    }
}

impl TryFrom<v1::Duty> for Duty {
    type Error = ConvertError;

    fn try_from(wire: v1::Duty) -> Result<Self, ConvertError> {
        let placement = |id, field| Ok::<_, ConvertError>(PlacementId::new(ids::non_zero(id, field)?));
        Ok(match required(wire.duty, "Duty.duty")? {
            v1::duty::Duty::Host(host) => Self::Host {
                partition: Partition::try_from(required(host.partition, "DutyHost.partition")?)?,
                placement: placement(host.placement, "DutyHost.placement")?,
            },
            v1::duty::Duty::HandOver(over) => Self::HandOver {
                partition: Partition::try_from(required(over.partition, "DutyHandOver.partition")?)?,
                placement: placement(over.placement, "DutyHandOver.placement")?,
                to: placement(over.to, "DutyHandOver.to")?,
            },
            v1::duty::Duty::Unload(unload) => Self::Unload {
                partition: PartitionId::try_from(required(unload.partition, "DutyUnload.partition")?)?,
                placement: placement(unload.placement, "DutyUnload.placement")?,
            },
            v1::duty::Duty::Inspect(inspect) => {
                Self::Inspect { placement: placement(inspect.placement, "DutyInspect.placement")? }
            }
        })
    }
}

/// Returns the cluster and the addresses of its coordinators in a request, if any.
///
/// # Errors
/// [`ConvertError`] for too many addresses, an invalid one, or an invalid cluster id.
pub fn announced(request: v1::ConfirmBootRequest) -> Result<Option<(ClusterId, Vec<String>)>, ConvertError> {
    const FIELD: &str = "ConfirmBootRequest.coordinators";
    bounded(request.coordinators.len(), limits::COORDINATORS_MAX, FIELD)?;
    for address in &request.coordinators {
        ids::check_address(address, FIELD)?;
    }
    let cluster = ids::cluster_id(request.cluster.as_ref())?;
    Ok(cluster.filter(|_| !request.coordinators.is_empty()).map(|cluster| (cluster, request.coordinators)))
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
