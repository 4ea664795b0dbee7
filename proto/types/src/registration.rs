//! Registration of a node or participant.

use crate::admin::access::OWN_SINCE;
use crate::common::limits::WEIGHT_ORDINARY;
use crate::generation::GENERATION_KEYS_SINCE;
use crate::ids::{BootId, GenerationKey, Incarnation, PlacementId, StorageId, Version};
use crate::members::node::REDIS_SINCE;
use crate::members::node_traits::NodeTraits;
use crate::members::participant::Participant;
use crate::members::protocol::ProtocolRange;
use serde::{Deserialize, Serialize};

/// Registration of a node: as a member sends it, and as the coordinators' log stores it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Register {
    /// The operator's name for it.
    pub name: String,
    /// Its address, `host:port`.
    pub address: String,
    /// Its data directory's id.
    pub storage: StorageId,
    /// Its process: the same one gets the same answer.
    pub boot: BootId,
    /// Its failure zone, if configured.
    pub zone: Option<String>,
    /// Its share of partitions relative to other nodes, at least 1.
    pub weight: u32,
    /// Maximum number of placements, if limited.
    pub partitions_max: Option<u32>,
    /// Oldest protocol it speaks.
    pub protocol_min: u32,
    /// Newest protocol it speaks.
    pub protocol_max: u32,
    /// The placements it holds whole.
    pub held: Vec<PlacementId>,
    /// The last incarnation that it stored durably, if any; for a participant, the last one of its process.
    pub last_incarnation: Option<Incarnation>,
    /// The key of the generation of that incarnation; nil if it has none.
    #[serde(default, skip_serializing_if = "is_no_key")]
    pub generation_key: GenerationKey,
    /// The guard: the recorded incarnation of this data directory, as far as the node knows (the last one it stored, or
    /// the one named by a refusal), `None` if it was never registered. A registration that was overtaken by another one
    /// of the same directory contains outdated facts, and is refused.
    pub expects: Option<Incarnation>,
    /// The highest version of the coordinators' state that it received; zero if none.
    #[serde(default)]
    pub told: Version,
    /// Tables that it serves, if it is a participant and no node of the key-value store. Its name is its identity, and
    /// its storage id as new as its process.
    pub participant: Option<Participant>,
    /// The participant showed a certificate: it owns only partitions of lease tables that it was granted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub certified: bool,
    /// Address of its Redis listener, `host:port`, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde requires it.
const fn is_no_key(key: &GenerationKey) -> bool {
    key.is_nil()
}

impl Register {
    /// Creates the registration of a new node with an empty data directory: of ordinary weight, without zone or limit,
    /// speaking only the oldest protocol.
    pub fn new(name: impl Into<String>, address: impl Into<String>, storage: StorageId, boot: BootId) -> Self {
        Self {
            name: name.into(),
            address: address.into(),
            storage,
            boot,
            zone: None,
            weight: WEIGHT_ORDINARY,
            partitions_max: None,
            protocol_min: 1,
            protocol_max: 1,
            held: Vec::new(),
            last_incarnation: None,
            generation_key: GenerationKey::NIL,
            expects: None,
            told: Version::ZERO,
            participant: None,
            certified: false,
            redis: None,
        }
    }

    /// Returns the registration without fields that are newer than this protocol.
    #[must_use]
    pub fn by_protocol(mut self, protocol: u32) -> Self {
        if protocol < GENERATION_KEYS_SINCE {
            self.generation_key = GenerationKey::NIL;
        }
        self.certified &= protocol >= OWN_SINCE;
        self.redis = self.redis.filter(|_| protocol >= REDIS_SINCE);
        self
    }

    /// Returns the protocols that it speaks.
    pub const fn speaks(&self) -> ProtocolRange {
        ProtocolRange { oldest: self.protocol_min, newest: self.protocol_max }
    }

    /// Sets zone, weight and limit.
    #[must_use]
    pub fn with_traits(self, traits: NodeTraits) -> Self {
        let NodeTraits { zone, weight, partitions_max } = traits;
        Self { zone, weight, partitions_max, ..self }
    }

    /// Returns its zone, weight and limit.
    pub fn traits(&self) -> NodeTraits {
        NodeTraits { zone: self.zone.clone(), weight: self.weight, partitions_max: self.partitions_max }
    }
}
