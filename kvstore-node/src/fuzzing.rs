//! Entry points for the fuzzer: otherwise private decoders.

use crate::copies::pages;
use crate::node::identity;
use crate::peers::wire;
use crate::storage::store;
use archon_replica::Message;
use archon_types::{ClusterId, GenerationKey, Incarnation, NodeId, StorageId};
use bytes::Bytes;
use std::path::Path;
use uuid::Uuid;

/// Decodes the messages of a part from a peer.
///
/// # Errors
/// A description of the defect.
pub fn peer_messages(part: &[u8]) -> Result<Vec<Message>, String> {
    wire::unpack(Bytes::copy_from_slice(part)).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Encodes messages, the inverse of [`peer_messages`].
pub fn encode_peer_messages(messages: &[Message]) -> Vec<u8> {
    let mut packer = wire::PartPacker::default();
    messages.iter().for_each(|message| packer.push(message));
    packer.finish().into_iter().flat_map(|part| part.bytes).collect()
}

/// Returns one message of every kind.
pub fn sample_peer_messages() -> Vec<Message> {
    wire::samples()
}

/// Decodes a page of a copy.
///
/// # Errors
/// A description of the defect.
pub fn page(rows: &Bytes, checksum: u32) -> Result<Vec<(Bytes, Bytes)>, String> {
    pages::decode(rows, checksum).map_err(|error| error.to_string())
}

/// Encodes a page, the inverse of [`page`].
pub fn encode_page(rows: &[(Bytes, Bytes)]) -> Bytes {
    pages::encode(rows.iter().map(|(key, value)| (key, value))).bytes
}

/// Reads the identity in a data directory.
///
/// # Errors
/// A description of the defect, or that there is no identity.
pub fn identity(directory: &Path) -> Result<(), String> {
    match identity::read(directory) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("there is none".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Encodes a sample identity.
///
/// # Errors
/// None in practice: it can be written as JSON.
pub fn encode_identity() -> std::io::Result<Vec<u8>> {
    identity::encode(&identity::Identity {
        storage_id: StorageId::new(Uuid::from_u128(7)),
        cluster_id: ClusterId::new(Uuid::from_u128(8)),
        name: "athens".into(),
        node_id: NodeId::new(3),
        last_incarnation: Incarnation::new(12),
        generation_key: GenerationKey::new(Uuid::from_u128(9)),
        protocol: 2,
    })
}

/// Decodes a record or note of a placement's log; the first byte is its kind.
///
/// # Errors
/// A description of the defect.
pub fn log_record(bytes: &[u8]) -> Result<String, String> {
    let Some((sort, rest)) = bytes.split_first() else { return Err("empty".into()) };
    let rest = Bytes::copy_from_slice(rest);
    match sort {
        b'p' => store::read_partition(&rest).map(|_| "a partition".to_owned()),
        b's' => store::read_position(&rest).map(|_| "a position".to_owned()),
        b'e' => store::read_epoch(&rest).map(|_| "an epoch".to_owned()),
        _ => store::read_entry(1, &rest).map(|_| "an entry".to_owned()),
    }
    .map_err(|error| error.to_string())
}
