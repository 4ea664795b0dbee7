//! Identifiers.

use super::{ConvertError, checked, required};
use crate::v1;
use archon_types::{
    BootId, ClientId, ClusterId, ErrorDetail, ErrorKind, GenerationKey, Incarnation, NodeId, PartitionId, PushKey,
    RequestId, StorageId, TableId, limits,
};
use bytes::Bytes;
use uuid::Uuid;

/// Reads a UUID of exactly 16 bytes that is not the nil one.
///
/// # Errors
/// [`ConvertError`] naming `field` and the length found.
pub fn unique_id(bytes: &[u8], field: &'static str) -> Result<Uuid, ConvertError> {
    let id = Uuid::from_slice(bytes)
        .map_err(|_| ConvertError::new(field, format!("has {} bytes; a UUID has 16", bytes.len())))?;
    if id.is_nil() {
        return Err(ConvertError::new(field, "is the nil UUID, which names nothing"));
    }
    Ok(id)
}

/// Reads a [`RequestId`] from the wire.
///
/// # Errors
/// [`ConvertError`] naming `field`.
pub fn request_id(bytes: &[u8], field: &'static str) -> Result<RequestId, ConvertError> {
    unique_id(bytes, field).map(RequestId::new)
}

/// Reads a [`StorageId`] from the wire.
///
/// # Errors
/// [`ConvertError`] naming `field`.
pub fn storage_id(bytes: &[u8], field: &'static str) -> Result<StorageId, ConvertError> {
    unique_id(bytes, field).map(StorageId::new)
}

/// Reads a [`BootId`] from the wire.
///
/// # Errors
/// [`ConvertError`] naming `field`.
pub fn boot_id(bytes: &[u8], field: &'static str) -> Result<BootId, ConvertError> {
    unique_id(bytes, field).map(BootId::new)
}

/// Reads a [`PushKey`] from the wire.
///
/// # Errors
/// [`ConvertError`] naming `field`.
pub fn push_key(bytes: &[u8], field: &'static str) -> Result<PushKey, ConvertError> {
    unique_id(bytes, field).map(PushKey::new)
}

/// Reads a [`ClientId`] from the wire.
///
/// # Errors
/// [`ConvertError`] naming `field`.
pub fn client_id(bytes: &[u8], field: &'static str) -> Result<ClientId, ConvertError> {
    unique_id(bytes, field).map(ClientId::new)
}

/// Reads the key of a generation; nil if the field is empty.
///
/// # Errors
/// [`ConvertError`] naming `field`.
pub fn generation_key(bytes: &[u8], field: &'static str) -> Result<GenerationKey, ConvertError> {
    if bytes.is_empty() { Ok(GenerationKey::NIL) } else { unique_id(bytes, field).map(GenerationKey::new) }
}

/// Returns the key of a generation in wire format: empty if there is none.
pub fn key_bytes(key: GenerationKey) -> Bytes {
    if key.is_nil() { Bytes::new() } else { uuid_bytes(key.get()) }
}

/// Returns a UUID in wire format.
pub fn uuid_bytes(id: Uuid) -> Bytes {
    Bytes::copy_from_slice(id.as_bytes())
}

/// Returns the cluster named by a message; `None` if it asks "which cluster are you?".
///
/// # Errors
/// [`ConvertError`] if the id is neither empty nor a UUID.
pub fn cluster_id(cluster: Option<&v1::ClusterRef>) -> Result<Option<ClusterId>, ConvertError> {
    match cluster {
        Some(cluster) if !cluster.cluster_id.is_empty() => {
            Ok(Some(ClusterId::new(unique_id(&cluster.cluster_id, "ClusterRef.cluster_id")?)))
        }
        _ => Ok(None),
    }
}

/// Refuses a message that names no cluster or another one than `mine`.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a missing or malformed id, [`ErrorKind::WrongCluster`] for another cluster's.
pub fn check_cluster(cluster: Option<&v1::ClusterRef>, mine: ClusterId) -> Result<(), ErrorDetail> {
    match cluster_id(cluster)? {
        Some(_) => check_cluster_if_named(cluster, mine),
        None => Err(ConvertError::new("ClusterRef.cluster_id", "missing, but required").into()),
    }
}

/// Like [`check_cluster`], but accepts a message that names no cluster (table and admin services only).
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for a malformed id, [`ErrorKind::WrongCluster`] for another cluster's.
pub fn check_cluster_if_named(cluster: Option<&v1::ClusterRef>, mine: ClusterId) -> Result<(), ErrorDetail> {
    match cluster_id(cluster)? {
        Some(theirs) if theirs != mine => Err(ErrorDetail::new(
            ErrorKind::WrongCluster,
            format!("the request is for cluster {theirs}, but this is cluster {mine}; check the addresses"),
        )),
        _ => Ok(()),
    }
}

/// Returns the sender of a message between members.
///
/// # Errors
/// [`ConvertError`] if it is missing or its id is zero.
pub fn node_sender(sender: Option<&v1::Sender>) -> Result<(NodeId, Incarnation), ConvertError> {
    let sender = required(sender, "Sender")?;
    Ok((NodeId::new(non_zero(sender.id, "Sender.id")?), Incarnation::new(sender.incarnation)))
}

/// Returns `value` if it is not zero: numbers start at 1, so zero means that the field was left out.
///
/// # Errors
/// [`ConvertError`] naming `field`.
pub fn non_zero(value: u64, field: &'static str) -> Result<u64, ConvertError> {
    if value == 0 { Err(ConvertError::new(field, "is 0; numbers start at 1")) } else { Ok(value) }
}

/// Checks an address `host:port`: bounded, a host, a port in `1..=65535`, no white space.
///
/// # Errors
/// [`ConvertError`] naming `field` and quoting the address.
pub fn check_address(address: &str, field: &'static str) -> Result<(), ConvertError> {
    checked(limits::check_address(address), field)
}

impl From<ClusterId> for v1::ClusterRef {
    fn from(id: ClusterId) -> Self {
        let cluster_id = if id.is_nil() { Bytes::new() } else { uuid_bytes(id.get()) };
        Self { cluster_id }
    }
}

impl From<PartitionId> for v1::PartitionId {
    fn from(id: PartitionId) -> Self {
        Self { table: id.table.get(), index: id.index }
    }
}

impl TryFrom<v1::PartitionId> for PartitionId {
    type Error = ConvertError;

    fn try_from(wire: v1::PartitionId) -> Result<Self, ConvertError> {
        Ok(Self { table: TableId::new(non_zero(wire.table, "PartitionId.table")?), index: wire.index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reference(bytes: &'static [u8]) -> v1::ClusterRef {
        v1::ClusterRef { cluster_id: Bytes::from_static(bytes) }
    }

    #[test]
    fn cluster_is_named_asked_for_or_malformed() {
        let mine = ClusterId::new(Uuid::from_u128(7));
        assert_eq!(cluster_id(Some(&mine.into())), Ok(Some(mine)));
        assert_eq!(cluster_id(None), Ok(None));
        assert_eq!(cluster_id(Some(&reference(b""))), Ok(None));
        assert_eq!(cluster_id(Some(&ClusterId::NIL.into())), Ok(None));
        assert!(cluster_id(Some(&reference(b"short"))).is_err());
        assert!(cluster_id(Some(&reference(&[0; 16]))).is_err());
    }

    #[test]
    fn foreign_cluster_is_refused_missing_one_if_required() {
        let mine = ClusterId::new(Uuid::from_u128(7));
        let other = v1::ClusterRef::from(ClusterId::new(Uuid::from_u128(8)));
        assert_eq!(check_cluster(Some(&other), mine).unwrap_err().kind, ErrorKind::WrongCluster);
        assert_eq!(check_cluster_if_named(Some(&other), mine).unwrap_err().kind, ErrorKind::WrongCluster);
        assert_eq!(check_cluster(None, mine).unwrap_err().kind, ErrorKind::InvalidArgument);
        assert!(check_cluster_if_named(None, mine).is_ok());
        assert!(check_cluster(Some(&mine.into()), mine).is_ok());
    }

    proptest! {
        #[test]
        fn partition_ids_round_trip_or_are_refused(table in any::<u64>(), index in any::<u32>()) {
            let wire = v1::PartitionId { table, index };
            match PartitionId::try_from(wire) {
                Ok(id) => prop_assert_eq!(v1::PartitionId::from(id), wire),
                Err(error) => {
                    prop_assert_eq!(table, 0, "{}", error);
                }
            }
        }

        #[test]
        fn any_bytes_are_an_id_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let parsed = unique_id(&bytes, "Test.id");
            prop_assert_eq!(parsed.is_ok(), bytes.len() == 16 && bytes.iter().any(|byte| *byte != 0));
        }

        #[test]
        fn any_text_as_address_is_checked_without_panic(text in ".*") {
            let _ = check_address(&text, "Test.address");
        }
    }
}
