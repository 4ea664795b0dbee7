//! A node's session with the coordinator: registration and heartbeats.

use super::load::Load;
use super::settings::timing_of;
use super::{ConvertError, bounded, checked, ids, in_range, required};
use crate::v1;
use archon_types::{
    BootId, ClusterId, Epoch, Incarnation, NodeId, Participant, PartitionId, PlacementId, PushKey, Settings, StorageId,
    TABLES_SERVED_MAX, Version, limits,
};

/// Most placements that one registration may list as held, and most loads in one heartbeat.
pub const PLACEMENTS_MAX: usize = 65_536;

/// A node that joins or returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// The cluster that the data directory belongs to, if it ever belonged to one.
    pub cluster: Option<ClusterId>,
    /// The operator's name for the node.
    pub name: String,
    /// Where it is reached, `host:port`.
    pub address: String,
    /// Its data directory.
    pub storage: StorageId,
    /// This life of its process.
    pub boot: BootId,
    /// Its failure zone.
    pub zone: Option<String>,
    /// Its share, at least 1.
    pub weight: u32,
    /// Most placements it takes.
    pub partitions_max: Option<u32>,
    /// Lowest protocol version it speaks.
    pub protocol_min: u32,
    /// Highest protocol version it speaks.
    pub protocol_max: u32,
    /// Placements that it holds whole.
    pub held: Vec<PlacementId>,
    /// The last incarnation that it stored durably, or that a participant's process has had; zero if none.
    pub last_incarnation: Incarnation,
    /// The incarnation on record of this data directory, as far as the node knows; zero if none. Another one on record
    /// is a refusal (`StaleVersion`) that names it as `have`.
    pub expects: Incarnation,
    /// Absent: it is a node of the key-value store.
    pub participant: Option<Participant>,
}

/// What a registration gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registered {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node's number.
    pub node: NodeId,
    /// Its new life.
    pub incarnation: Incarnation,
    /// The protocol version to speak.
    pub protocol: u32,
    /// The cluster's settings.
    pub settings: Settings,
}

/// A member that sends something, in one of its lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
}

/// "I live and make progress."
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// Who sends.
    pub member: Member,
    /// Rises by one per heartbeat of an incarnation; the answer echoes it.
    pub number: u64,
    /// The table version that the node holds.
    pub table_version: Version,
    /// What it carries.
    pub load: Load,
    /// It wants to be rid of its leaderships.
    pub stopping: bool,
    /// What pushes must show for it to obey them.
    pub push_key: PushKey,
}

/// The answer to a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeartbeatAnswer {
    /// The heartbeat that is answered.
    pub number: u64,
    /// The life for which it is.
    pub incarnation: Incarnation,
    /// How long the node may serve, from sending the heartbeat.
    pub lease_ms: u64,
    /// Leaderships that the lease does not cover.
    pub withdrawn: Vec<(PartitionId, Epoch)>,
    /// The newest table version.
    pub table_version: Version,
    /// How long a follower may leave its leader without an answer, as the settings say now.
    pub replication_timeout_ms: u64,
}

impl From<Participant> for v1::Participant {
    fn from(participant: Participant) -> Self {
        Self { tables: participant.tables, timing: participant.timing.map(Into::into) }
    }
}

impl TryFrom<v1::Participant> for Participant {
    type Error = ConvertError;

    fn try_from(wire: v1::Participant) -> Result<Self, ConvertError> {
        bounded(wire.tables.len(), TABLES_SERVED_MAX, "Participant.tables")?;
        let participant = Self { tables: wire.tables, timing: wire.timing.map(timing_of) };
        checked(participant.check(), "Participant")?;
        Ok(participant)
    }
}

impl From<Registration> for v1::RegisterRequest {
    fn from(node: Registration) -> Self {
        Self {
            cluster: node.cluster.map(Into::into),
            name: node.name,
            address: node.address,
            storage_id: ids::uuid_bytes(node.storage.get()),
            boot_id: ids::uuid_bytes(node.boot.get()),
            zone: node.zone,
            weight: node.weight,
            partitions_max: node.partitions_max,
            protocol_min: node.protocol_min,
            protocol_max: node.protocol_max,
            held: node.held.into_iter().map(PlacementId::get).collect(),
            last_incarnation: node.last_incarnation.get(),
            expects: node.expects.get(),
            participant: node.participant.map(Into::into),
        }
    }
}

impl TryFrom<v1::RegisterRequest> for Registration {
    type Error = ConvertError;

    fn try_from(wire: v1::RegisterRequest) -> Result<Self, ConvertError> {
        checked(limits::check_name("node", &wire.name), "RegisterRequest.name")?;
        ids::check_address(&wire.address, "RegisterRequest.address")?;
        if let Some(zone) = &wire.zone {
            checked(limits::check_name("zone", zone), "RegisterRequest.zone")?;
        }
        if wire.protocol_min > wire.protocol_max {
            let problem = format!("the range {}..={} is empty", wire.protocol_min, wire.protocol_max);
            return Err(ConvertError::new("RegisterRequest.protocol_min", problem));
        }
        bounded(wire.held.len(), PLACEMENTS_MAX, "RegisterRequest.held")?;
        let participant = wire.participant.map(Participant::try_from).transpose()?;
        Ok(Self {
            cluster: ids::cluster_id(wire.cluster.as_ref())?,
            storage: ids::storage_id(&wire.storage_id, "RegisterRequest.storage_id")?,
            boot: ids::boot_id(&wire.boot_id, "RegisterRequest.boot_id")?,
            weight: in_range(wire.weight, 1, limits::WEIGHT_MAX, "RegisterRequest.weight")?,
            held: wire.held.into_iter().map(PlacementId::new).collect(),
            last_incarnation: Incarnation::new(wire.last_incarnation),
            expects: Incarnation::new(wire.expects),
            participant,
            name: wire.name,
            address: wire.address,
            zone: wire.zone,
            partitions_max: wire.partitions_max,
            protocol_min: wire.protocol_min,
            protocol_max: wire.protocol_max,
        })
    }
}

impl From<Registered> for v1::RegisterResponse {
    fn from(registered: Registered) -> Self {
        Self {
            cluster: Some(registered.cluster.into()),
            node: registered.node.get(),
            incarnation: registered.incarnation.get(),
            protocol: registered.protocol,
            settings: Some(registered.settings.into()),
        }
    }
}

impl TryFrom<v1::RegisterResponse> for Registered {
    type Error = ConvertError;

    fn try_from(wire: v1::RegisterResponse) -> Result<Self, ConvertError> {
        Ok(Self {
            cluster: required(ids::cluster_id(wire.cluster.as_ref())?, "RegisterResponse.cluster")?,
            node: NodeId::new(ids::non_zero(wire.node, "RegisterResponse.node")?),
            incarnation: Incarnation::new(ids::non_zero(wire.incarnation, "RegisterResponse.incarnation")?),
            protocol: wire.protocol,
            settings: required(wire.settings, "RegisterResponse.settings")?.try_into()?,
        })
    }
}

impl Member {
    pub(super) fn wire(self) -> (Option<v1::ClusterRef>, Option<v1::Sender>) {
        let sender = v1::Sender { id: self.node.get(), incarnation: self.incarnation.get() };
        (Some(self.cluster.into()), Some(sender))
    }

    /// The member named by a message's cluster and sender.
    ///
    /// # Errors
    /// [`ConvertError`] if either is missing or malformed.
    pub fn from_wire(cluster: Option<&v1::ClusterRef>, sender: Option<&v1::Sender>) -> Result<Self, ConvertError> {
        let cluster = required(ids::cluster_id(cluster)?, "ClusterRef.cluster_id")?;
        let (node, incarnation) = ids::node_sender(sender)?;
        Ok(Self { cluster, node, incarnation })
    }
}

impl From<Member> for v1::LeaveRequest {
    fn from(member: Member) -> Self {
        let (cluster, sender) = member.wire();
        Self { cluster, sender }
    }
}

impl TryFrom<v1::LeaveRequest> for Member {
    type Error = ConvertError;

    fn try_from(wire: v1::LeaveRequest) -> Result<Self, ConvertError> {
        Self::from_wire(wire.cluster.as_ref(), wire.sender.as_ref())
    }
}

impl From<Heartbeat> for v1::HeartbeatRequest {
    fn from(heartbeat: Heartbeat) -> Self {
        let (cluster, sender) = heartbeat.member.wire();
        Self {
            cluster,
            sender,
            number: heartbeat.number,
            table_version: heartbeat.table_version.get(),
            load: Some(heartbeat.load.into()),
            stopping: heartbeat.stopping,
            push_key: ids::uuid_bytes(heartbeat.push_key.get()),
        }
    }
}

impl TryFrom<v1::HeartbeatRequest> for Heartbeat {
    type Error = ConvertError;

    fn try_from(wire: v1::HeartbeatRequest) -> Result<Self, ConvertError> {
        Ok(Self {
            member: Member::from_wire(wire.cluster.as_ref(), wire.sender.as_ref())?,
            number: ids::non_zero(wire.number, "HeartbeatRequest.number")?,
            table_version: Version::new(wire.table_version),
            load: wire.load.unwrap_or_default().try_into()?,
            stopping: wire.stopping,
            push_key: ids::push_key(&wire.push_key, "HeartbeatRequest.push_key")?,
        })
    }
}

impl From<HeartbeatAnswer> for v1::HeartbeatResponse {
    fn from(answer: HeartbeatAnswer) -> Self {
        let leadership = |(partition, epoch): (PartitionId, Epoch)| v1::Leadership {
            partition: Some(partition.into()),
            epoch: epoch.get(),
        };
        Self {
            number: answer.number,
            incarnation: answer.incarnation.get(),
            lease_ms: answer.lease_ms,
            withdrawn: answer.withdrawn.into_iter().map(leadership).collect(),
            table_version: answer.table_version.get(),
            replication_timeout_ms: answer.replication_timeout_ms,
        }
    }
}

impl TryFrom<v1::HeartbeatResponse> for HeartbeatAnswer {
    type Error = ConvertError;

    fn try_from(wire: v1::HeartbeatResponse) -> Result<Self, ConvertError> {
        let leadership = |leadership: v1::Leadership| {
            let partition = required(leadership.partition, "Leadership.partition")?;
            Ok((PartitionId::try_from(partition)?, Epoch::new(leadership.epoch)))
        };
        Ok(Self {
            number: wire.number,
            incarnation: Incarnation::new(wire.incarnation),
            lease_ms: wire.lease_ms,
            withdrawn: wire.withdrawn.into_iter().map(leadership).collect::<Result<_, ConvertError>>()?,
            table_version: Version::new(wire.table_version),
            replication_timeout_ms: ids::non_zero(
                wire.replication_timeout_ms,
                "HeartbeatResponse.replication_timeout_ms",
            )?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::load::{CopyProgress, PlacementLoad};
    use archon_types::TableId;
    use proptest::prelude::*;
    use prost::Message;
    use uuid::Uuid;

    fn member() -> Member {
        Member { cluster: ClusterId::new(Uuid::from_u128(1)), node: NodeId::new(2), incarnation: Incarnation::new(3) }
    }

    fn registration() -> Registration {
        Registration {
            cluster: None,
            name: "athens".into(),
            address: "127.0.0.1:7101".into(),
            storage: StorageId::new(Uuid::from_u128(4)),
            boot: BootId::new(Uuid::from_u128(5)),
            zone: Some("eu".into()),
            weight: 100,
            partitions_max: Some(9),
            protocol_min: 1,
            protocol_max: 1,
            held: vec![PlacementId::new(8)],
            last_incarnation: Incarnation::ZERO,
            expects: Incarnation::new(3),
            participant: Some(Participant { tables: vec!["jobs".into()], timing: None }),
        }
    }

    #[test]
    fn registrations_round_trip_and_bad_ones_name_the_field() {
        assert_eq!(Registration::try_from(v1::RegisterRequest::from(registration())), Ok(registration()));
        type Spoil = fn(&mut v1::RegisterRequest);
        let cases: [(Spoil, &str); 5] = [
            (|wire| wire.name = "a b".into(), "RegisterRequest.name"),
            (|wire| wire.address = "nowhere".into(), "RegisterRequest.address"),
            (|wire| wire.storage_id = bytes::Bytes::new(), "RegisterRequest.storage_id"),
            (|wire| wire.weight = 0, "RegisterRequest.weight"),
            (|wire| wire.protocol_min = 9, "RegisterRequest.protocol_min"),
        ];
        for (spoil, field) in cases {
            let mut wire = v1::RegisterRequest::from(registration());
            spoil(&mut wire);
            assert_eq!(Registration::try_from(wire).map_err(|error| error.field), Err(field));
        }
        let registered = Registered {
            cluster: member().cluster,
            node: NodeId::new(2),
            incarnation: Incarnation::new(3),
            protocol: 1,
            settings: Settings::default(),
        };
        assert_eq!(Registered::try_from(v1::RegisterResponse::from(registered.clone())), Ok(registered));
    }

    #[test]
    fn heartbeats_and_their_answers_round_trip() {
        let placement = PlacementId::new(8);
        let heartbeat = Heartbeat {
            member: member(),
            number: 1,
            table_version: Version::new(7),
            load: Load {
                bytes_stored: 1,
                operations_per_second: 2,
                placements: vec![PlacementLoad { placement, bytes: 3, keys: 4 }],
                copies: vec![CopyProgress { placement, bytes_done: 5, bytes_total: 6 }],
                disk_full: Some(archon_types::DiskFull { free_bytes: 7, needed_bytes: 8 }),
            },
            stopping: true,
            push_key: PushKey::new(Uuid::from_u128(5)),
        };
        assert_eq!(Heartbeat::try_from(v1::HeartbeatRequest::from(heartbeat.clone())), Ok(heartbeat));
        let answer = HeartbeatAnswer {
            number: 1,
            incarnation: Incarnation::new(3),
            lease_ms: 1_000,
            withdrawn: vec![(PartitionId::new(TableId::new(1), 5), Epoch::new(2))],
            table_version: Version::new(7),
            replication_timeout_ms: 900,
        };
        let wire = v1::HeartbeatResponse::from(answer.clone());
        assert_eq!(HeartbeatAnswer::try_from(wire.clone()), Ok(answer));
        let none = v1::HeartbeatResponse { replication_timeout_ms: 0, ..wire };
        let field = HeartbeatAnswer::try_from(none).map_err(|error| error.field);
        assert_eq!(field, Err("HeartbeatResponse.replication_timeout_ms"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(wire) = v1::RegisterRequest::decode(&bytes[..]) {
                let _ = Registration::try_from(wire);
            }
            if let Ok(wire) = v1::HeartbeatRequest::decode(&bytes[..]) {
                let _ = Heartbeat::try_from(wire);
            }
        }
    }
}
