//! Load of a node, from its heartbeats.

use super::session::PLACEMENTS_MAX;
use crate::convert::{ConvertError, bounded};
use crate::v1;
use archon_types::{AuthorityPrint, DiskFull, DiskLimit, LogPin, MemberCertificate, Millis, PlacementId};

/// Bytes and keys of one placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacementLoad {
    /// The placement.
    pub placement: PlacementId,
    /// Approximate number of bytes stored.
    pub bytes: u64,
    /// Approximate number of keys stored.
    pub keys: u64,
}

/// Progress of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyProgress {
    /// The loader.
    pub placement: PlacementId,
    /// Bytes that have arrived.
    pub bytes_done: u64,
    /// Approximate total number of bytes; zero while unknown.
    pub bytes_total: u64,
}

/// Load of a node; for plans and status, never for safety.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Approximate total number of bytes stored.
    pub bytes_stored: u64,
    /// Operations in the last second.
    pub operations_per_second: u64,
    /// Placements whose load changed.
    pub placements: Vec<PlacementLoad>,
    /// Copies in progress to this node.
    pub copies: Vec<CopyProgress>,
    /// Its lack of disk space, if it refuses writes because of it.
    pub disk_full: Option<DiskFull>,
    /// Its certificate, if it uses TLS.
    pub certificate: Option<MemberCertificate>,
    /// The replica that retains much of its log, if there is one.
    pub log_pin: Option<LogPin>,
}

impl From<DiskFull> for v1::DiskFull {
    fn from(lack: DiskFull) -> Self {
        let limit = match lack.limit {
            DiskLimit::Bytes => v1::DiskLimit::Bytes,
            DiskLimit::Inodes => v1::DiskLimit::Inodes,
            DiskLimit::Quota => v1::DiskLimit::Quota,
        };
        Self { free_bytes: lack.free_bytes, needed_bytes: lack.needed_bytes, limit: limit.into() }
    }
}

impl From<v1::DiskFull> for DiskFull {
    fn from(wire: v1::DiskFull) -> Self {
        let limit = match wire.limit() {
            v1::DiskLimit::Bytes => DiskLimit::Bytes,
            v1::DiskLimit::Inodes => DiskLimit::Inodes,
            v1::DiskLimit::Quota => DiskLimit::Quota,
        };
        Self { free_bytes: wire.free_bytes, needed_bytes: wire.needed_bytes, limit }
    }
}

impl From<MemberCertificate> for v1::MemberCertificate {
    fn from(certificate: MemberCertificate) -> Self {
        let MemberCertificate { begins_at, expires_at, not_taken, authority } = certificate;
        let authority = authority.map_or(0, |AuthorityPrint(print)| u64::from_be_bytes(print));
        Self { begins_at_ms: begins_at.get(), expires_at_ms: expires_at.get(), not_taken, authority }
    }
}

impl From<v1::MemberCertificate> for MemberCertificate {
    fn from(wire: v1::MemberCertificate) -> Self {
        let (begins_at, expires_at) = (Millis::new(wire.begins_at_ms), Millis::new(wire.expires_at_ms));
        let authority = (wire.authority != 0).then(|| AuthorityPrint(wire.authority.to_be_bytes()));
        Self { begins_at, expires_at, not_taken: wire.not_taken, authority }
    }
}

impl From<Load> for v1::NodeLoad {
    fn from(load: Load) -> Self {
        let placement = |load: PlacementLoad| v1::PlacementLoad {
            placement: load.placement.get(),
            bytes: load.bytes,
            keys: load.keys,
        };
        let copy = |copy: CopyProgress| v1::CopyProgress {
            placement: copy.placement.get(),
            bytes_done: copy.bytes_done,
            bytes_total: copy.bytes_total,
        };
        Self {
            bytes_stored: load.bytes_stored,
            operations_per_second: load.operations_per_second,
            placements: load.placements.into_iter().map(placement).collect(),
            copies: load.copies.into_iter().map(copy).collect(),
            disk_full: load.disk_full.map(Into::into),
            certificate: load.certificate.map(Into::into),
            log_pin: load.log_pin.map(|pin| v1::LogPin { placement: pin.placement.get(), bytes: pin.bytes }),
        }
    }
}

impl TryFrom<v1::NodeLoad> for Load {
    type Error = ConvertError;

    fn try_from(wire: v1::NodeLoad) -> Result<Self, ConvertError> {
        bounded(wire.placements.len(), PLACEMENTS_MAX, "NodeLoad.placements")?;
        bounded(wire.copies.len(), PLACEMENTS_MAX, "NodeLoad.copies")?;
        let placement = |load: v1::PlacementLoad| PlacementLoad {
            placement: PlacementId::new(load.placement),
            bytes: load.bytes,
            keys: load.keys,
        };
        let copy = |copy: v1::CopyProgress| CopyProgress {
            placement: PlacementId::new(copy.placement),
            bytes_done: copy.bytes_done,
            bytes_total: copy.bytes_total,
        };
        Ok(Self {
            bytes_stored: wire.bytes_stored,
            operations_per_second: wire.operations_per_second,
            placements: wire.placements.into_iter().map(placement).collect(),
            copies: wire.copies.into_iter().map(copy).collect(),
            disk_full: wire.disk_full.map(Into::into),
            certificate: wire.certificate.map(Into::into),
            log_pin: wire.log_pin.map(|pin| LogPin { placement: PlacementId::new(pin.placement), bytes: pin.bytes }),
        })
    }
}
