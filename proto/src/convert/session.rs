//! A member's session with the coordinator: its identity, and registration.

use super::settings::timing_of;
use super::{ConvertError, bounded, checked, ids, required};
use crate::v1;
use archon_types::{
    BootId, ClusterId, GenerationKey, Incarnation, NodeId, NodeTraits, PROTOCOL_FIRST, PROTOCOL_MAX, Participant,
    PlacementId, Settings, StorageId, TABLES_SERVED_MAX, Version, limits,
};

/// Maximum number of placements in one registration, and of loads in one heartbeat.
pub const PLACEMENTS_MAX: usize = limits::NODE_REPLICAS_MAX;

/// A node that joins or returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// The cluster that the data directory belongs to, if it ever belonged to one.
    pub cluster: Option<ClusterId>,
    /// The operator's name for the node.
    pub name: String,
    /// Its address, `host:port`.
    pub address: String,
    /// Its data directory.
    pub storage: StorageId,
    /// This incarnation of its process.
    pub boot: BootId,
    /// Its zone, weight and limit.
    pub traits: NodeTraits,
    /// Lowest protocol version it supports.
    pub protocol_min: u32,
    /// Highest protocol version it supports.
    pub protocol_max: u32,
    /// Placements that it holds completely.
    pub held: Vec<PlacementId>,
    /// The last incarnation that it stored durably, or that a participant's process had; zero if none.
    pub last_incarnation: Incarnation,
    /// The key of the generation of that incarnation; nil if the generation has none.
    pub generation_key: GenerationKey,
    /// The incarnation on record of this data directory, as far as the node knows; zero if none. Another one on record
    /// is a refusal (`StaleVersion`) that names it as `have`.
    pub expects: Incarnation,
    /// Absent for a node of the key-value store.
    pub participant: Option<Participant>,
    /// The highest known version of the coordinators' state; zero if none.
    pub told: Version,
}

/// Result of a registration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registered {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node's number.
    pub node: NodeId,
    /// The key of its generation; nil if that has none.
    pub generation_key: GenerationKey,
    /// Its new incarnation.
    pub incarnation: Incarnation,
    /// The protocol of the cluster.
    pub protocol: u32,
    /// The cluster's settings.
    pub settings: Settings,
}

/// The sender of a message, in one of its incarnations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Its incarnation.
    pub incarnation: Incarnation,
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
            zone: node.traits.zone,
            weight: node.traits.weight,
            partitions_max: node.traits.partitions_max,
            protocol_min: node.protocol_min,
            protocol_max: node.protocol_max,
            held: node.held.into_iter().map(PlacementId::get).collect(),
            last_incarnation: node.last_incarnation.get(),
            expects: node.expects.get(),
            participant: node.participant.map(Into::into),
            told: node.told.get(),
            generation_key: ids::key_bytes(node.generation_key),
        }
    }
}

impl TryFrom<v1::RegisterRequest> for Registration {
    type Error = ConvertError;

    fn try_from(wire: v1::RegisterRequest) -> Result<Self, ConvertError> {
        checked(limits::check_name("node", &wire.name), "RegisterRequest.name")?;
        ids::check_address(&wire.address, "RegisterRequest.address")?;
        let traits = NodeTraits { zone: wire.zone, weight: wire.weight, partitions_max: wire.partitions_max };
        checked(traits.check(), "RegisterRequest")?;
        if wire.protocol_min > wire.protocol_max {
            let problem = format!("the range {}..={} is empty", wire.protocol_min, wire.protocol_max);
            return Err(ConvertError::new("RegisterRequest.protocol_min", problem));
        }
        // The core refuses an unsupported range, with the names of both.
        let [protocol_min, protocol_max] = [wire.protocol_min, wire.protocol_max].map(|end| end.min(PROTOCOL_MAX));
        bounded(wire.held.len(), PLACEMENTS_MAX, "RegisterRequest.held")?;
        let participant = wire.participant.map(Participant::try_from).transpose()?;
        Ok(Self {
            cluster: ids::cluster_id(wire.cluster.as_ref())?,
            storage: ids::storage_id(&wire.storage_id, "RegisterRequest.storage_id")?,
            boot: ids::boot_id(&wire.boot_id, "RegisterRequest.boot_id")?,
            held: wire.held.into_iter().map(PlacementId::new).collect(),
            last_incarnation: Incarnation::new(wire.last_incarnation),
            expects: Incarnation::new(wire.expects),
            participant,
            told: Version::new(wire.told),
            generation_key: ids::generation_key(&wire.generation_key, "RegisterRequest.generation_key")?,
            name: wire.name,
            address: wire.address,
            traits,
            protocol_min,
            protocol_max,
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
            generation_key: ids::key_bytes(registered.generation_key),
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
            protocol: wire.protocol.max(PROTOCOL_FIRST),
            settings: required(wire.settings, "RegisterResponse.settings")?.try_into()?,
            generation_key: ids::generation_key(&wire.generation_key, "RegisterResponse.generation_key")?,
        })
    }
}

impl Member {
    pub(super) fn wire(self) -> (Option<v1::ClusterRef>, Option<v1::Sender>) {
        let sender = v1::Sender { id: self.node.get(), incarnation: self.incarnation.get() };
        (Some(self.cluster.into()), Some(sender))
    }

    /// Reads the member named by a message's cluster and sender.
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

#[cfg(test)]
mod tests {
    use super::*;
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
            traits: NodeTraits { zone: Some("eu".into()), weight: 100, partitions_max: Some(9) },
            protocol_min: 1,
            protocol_max: 1,
            held: vec![PlacementId::new(8)],
            last_incarnation: Incarnation::ZERO,
            expects: Incarnation::new(3),
            participant: Some(Participant { tables: vec!["jobs".into()], timing: None }),
            told: Version::new(77),
            generation_key: GenerationKey::new(Uuid::from_u128(6)),
        }
    }

    #[test]
    fn registrations_round_trip_and_invalid_ones_name_the_field() {
        assert_eq!(Registration::try_from(v1::RegisterRequest::from(registration())), Ok(registration()));
        type Spoil = fn(&mut v1::RegisterRequest);
        let cases: [(Spoil, &str); 6] = [
            (|wire| wire.generation_key = bytes::Bytes::from_static(b"half"), "RegisterRequest.generation_key"),
            (|wire| wire.name = "a b".into(), "RegisterRequest.name"),
            (|wire| wire.address = "nowhere".into(), "RegisterRequest.address"),
            (|wire| wire.storage_id = bytes::Bytes::new(), "RegisterRequest.storage_id"),
            (|wire| wire.weight = 0, "RegisterRequest"),
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
            generation_key: GenerationKey::new(Uuid::from_u128(6)),
        };
        assert_eq!(Registered::try_from(v1::RegisterResponse::from(registered.clone())), Ok(registered));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(wire) = v1::RegisterRequest::decode(&bytes[..]) {
                let _ = Registration::try_from(wire);
            }
        }
    }
}
