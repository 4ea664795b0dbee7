//! The first protocols with commands, fields and bounds that earlier versions lack.

/// First protocol with [`crate::Command::HoldProtocol`].
pub const HELD_SINCE: u32 = 2;
/// Protocol that introduced [`crate::Command::CheckState`].
pub const CHECKED_SINCE: u32 = 2;
/// Protocol that introduced the revocation of certificates.
pub(crate) const WITHDRAWN_SINCE: u32 = 2;
/// First protocol with [`crate::Command::RecordMaintenance`].
pub(crate) const MAINTENANCE_RECORDED_SINCE: u32 = 2;
/// The protocol that brought [`crate::Command::TakeOver`] and [`crate::Command::NoteFormerQuorum`].
pub(crate) const TAKEOVER_SINCE: u32 = 2;
/// Protocol from which on the number of tables and the bytes of split keys are bounded: earlier versions apply commands
/// beyond the bounds.
pub(crate) const WRITTEN_BOUNDS_SINCE: u32 = 2;
