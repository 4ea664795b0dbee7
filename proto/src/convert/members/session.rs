//! A member's session with the coordinator: its identity, and registration.

use crate::convert::admin::settings::timing_of;
use crate::convert::{ConvertError, bounded, checked, ids, required};
use crate::v1;
use archon_types::{
    ClusterId, GenerationKey, Incarnation, NodeId, PROTOCOL_FIRST, PROTOCOL_MAX, Participant, PlacementId, Register,
    Settings, TABLES_SERVED_MAX, Version, limits,
};

/// Maximum number of placements in one registration, and of loads in one heartbeat.
pub const PLACEMENTS_MAX: usize = limits::NODE_REPLICAS_MAX;

/// A node that joins or returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    /// The cluster that the data directory belongs to, if it ever belonged to one.
    pub cluster: Option<ClusterId>,
    /// The node. Its certificate is no part of the message: `certified` is false.
    pub register: Register,
}

/// Result of a registration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegistrationResult {
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
    fn from(registration: Registration) -> Self {
        let Registration { cluster, register } = registration;
        let number = |incarnation: Option<Incarnation>| incarnation.map_or(0, Incarnation::get);
        Self {
            cluster: cluster.map(Into::into),
            name: register.name,
            address: register.address,
            storage_id: ids::uuid_bytes(register.storage.get()),
            boot_id: ids::uuid_bytes(register.boot.get()),
            zone: register.zone,
            weight: register.weight,
            partitions_max: register.partitions_max,
            protocol_min: register.protocol_min,
            protocol_max: register.protocol_max,
            held: register.held.into_iter().map(PlacementId::get).collect(),
            last_incarnation: number(register.last_incarnation),
            expects: number(register.expects),
            participant: register.participant.map(Into::into),
            told: register.told.get(),
            generation_key: ids::key_bytes(register.generation_key),
            redis: register.redis,
        }
    }
}

impl TryFrom<v1::RegisterRequest> for Registration {
    type Error = ConvertError;

    fn try_from(wire: v1::RegisterRequest) -> Result<Self, ConvertError> {
        checked(limits::check_name("node", &wire.name), "RegisterRequest.name")?;
        ids::check_address(&wire.address, "RegisterRequest.address")?;
        wire.redis.iter().try_for_each(|address| ids::check_address(address, "RegisterRequest.redis"))?;
        if wire.protocol_min > wire.protocol_max {
            let problem = format!("the range {}..={} is empty", wire.protocol_min, wire.protocol_max);
            return Err(ConvertError::new("RegisterRequest.protocol_min", problem));
        }
        // The core refuses an unsupported range, with the names of both.
        let [protocol_min, protocol_max] = [wire.protocol_min, wire.protocol_max].map(|end| end.min(PROTOCOL_MAX));
        bounded(wire.held.len(), PLACEMENTS_MAX, "RegisterRequest.held")?;
        let incarnation = |number: u64| (number > 0).then(|| Incarnation::new(number));
        let register = Register {
            storage: ids::storage_id(&wire.storage_id, "RegisterRequest.storage_id")?,
            boot: ids::boot_id(&wire.boot_id, "RegisterRequest.boot_id")?,
            zone: wire.zone,
            weight: wire.weight,
            partitions_max: wire.partitions_max,
            held: wire.held.into_iter().map(PlacementId::new).collect(),
            last_incarnation: incarnation(wire.last_incarnation),
            expects: incarnation(wire.expects),
            participant: wire.participant.map(Participant::try_from).transpose()?,
            told: Version::new(wire.told),
            generation_key: ids::generation_key(&wire.generation_key, "RegisterRequest.generation_key")?,
            name: wire.name,
            address: wire.address,
            protocol_min,
            protocol_max,
            certified: false,
            redis: wire.redis,
        };
        checked(register.traits().check(), "RegisterRequest")?;
        Ok(Self { cluster: ids::cluster_id(wire.cluster.as_ref())?, register })
    }
}

impl From<RegistrationResult> for v1::RegisterResponse {
    fn from(registered: RegistrationResult) -> Self {
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

impl TryFrom<v1::RegisterResponse> for RegistrationResult {
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
    pub(in crate::convert) fn wire(self) -> (Option<v1::ClusterRef>, Option<v1::Sender>) {
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
    use archon_types::{BootId, NodeTraits, StorageId};
    use proptest::prelude::*;
    use prost::Message;
    use uuid::Uuid;

    fn member() -> Member {
        Member { cluster: ClusterId::new(Uuid::from_u128(1)), node: NodeId::new(2), incarnation: Incarnation::new(3) }
    }

    fn registration() -> Registration {
        let (storage, boot) = (StorageId::new(Uuid::from_u128(4)), BootId::new(Uuid::from_u128(5)));
        let traits = NodeTraits { zone: Some("eu".into()), weight: 100, partitions_max: Some(9) };
        let register = Register {
            held: vec![PlacementId::new(8)],
            expects: Some(Incarnation::new(3)),
            participant: Some(Participant { tables: vec!["jobs".into()], timing: None }),
            told: Version::new(77),
            generation_key: GenerationKey::new(Uuid::from_u128(6)),
            redis: Some("127.0.0.1:6379".into()),
            ..Register::new("athens", "127.0.0.1:7101", storage, boot).with_traits(traits)
        };
        Registration { cluster: None, register }
    }

    #[test]
    fn registrations_round_trip_and_invalid_ones_name_the_field() {
        assert_eq!(Registration::try_from(v1::RegisterRequest::from(registration())), Ok(registration()));
        type Spoil = fn(&mut v1::RegisterRequest);
        let cases: [(Spoil, &str); 7] = [
            (|wire| wire.generation_key = bytes::Bytes::from_static(b"half"), "RegisterRequest.generation_key"),
            (|wire| wire.name = "a b".into(), "RegisterRequest.name"),
            (|wire| wire.address = "nowhere".into(), "RegisterRequest.address"),
            (|wire| wire.redis = Some("nowhere".into()), "RegisterRequest.redis"),
            (|wire| wire.storage_id = bytes::Bytes::new(), "RegisterRequest.storage_id"),
            (|wire| wire.weight = 0, "RegisterRequest"),
            (|wire| wire.protocol_min = 9, "RegisterRequest.protocol_min"),
        ];
        for (spoil, field) in cases {
            let mut wire = v1::RegisterRequest::from(registration());
            spoil(&mut wire);
            assert_eq!(Registration::try_from(wire).map_err(|error| error.field), Err(field));
        }
        let registered = RegistrationResult {
            cluster: member().cluster,
            node: NodeId::new(2),
            incarnation: Incarnation::new(3),
            protocol: 1,
            settings: Settings::default(),
            generation_key: GenerationKey::new(Uuid::from_u128(6)),
        };
        assert_eq!(RegistrationResult::try_from(v1::RegisterResponse::from(registered.clone())), Ok(registered));
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
