//! A node that is played: what it registers with, and what its heartbeats say.

use archon_proto::convert::beats::Beat;
use archon_proto::convert::session::Registered;
use archon_proto::v1::{ClusterRef, RegisterRequest};
use archon_types::{PROTOCOL_FIRST, PROTOCOL_NEWEST, PushKey, Version};
use bytes::Bytes;
use uuid::Uuid;

/// An id that nobody else has.
pub fn random_id() -> Bytes {
    Bytes::copy_from_slice(Uuid::new_v4().as_bytes())
}

/// The first registration of a node with an empty data directory of its own.
pub fn registration(number: usize, address: String) -> RegisterRequest {
    RegisterRequest {
        cluster: Some(ClusterRef::default()),
        name: format!("node-{number:05}"),
        address,
        storage_id: random_id(),
        boot_id: random_id(),
        weight: 100,
        protocol_min: PROTOCOL_FIRST,
        protocol_max: PROTOCOL_NEWEST,
        ..RegisterRequest::default()
    }
}

/// A heartbeat of a node that knows every table already, so that it is told of none.
pub fn beat(registered: &Registered, number: u64) -> Beat {
    Beat {
        node: registered.node,
        incarnation: registered.incarnation,
        number,
        table_version: Version::new(u64::MAX),
        stopping: false,
        push_key: PushKey::new(Uuid::from_u128(7)),
        load: None,
        doors: None,
        proof: bytes::Bytes::new(),
    }
}
