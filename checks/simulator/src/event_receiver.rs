//! Machine, participant or coordinator that handles an event.

use crate::event::Event;

impl Event {
    /// Returns the machine with the process that handles it, if any.
    pub(crate) const fn host(&self) -> Option<usize> {
        match self {
            Self::CoordinatorMessage { host, .. }
            | Self::PeerMessage { host, .. }
            | Self::ReadReplica { host, .. }
            | Self::Requests { host, .. }
            | Self::Tick { host, .. }
            | Self::Flush { host, .. }
            | Self::Synced { host, .. } => Some(*host),
            _ => None,
        }
    }

    /// Returns the participant with the process that handles it, if any.
    pub(crate) const fn worker(&self) -> Option<usize> {
        match self {
            Self::Work { worker, .. } => Some(*worker),
            _ => None,
        }
    }

    /// Returns the coordinator that handles it, if any.
    pub(crate) const fn coordinator(&self) -> Option<usize> {
        match self {
            Self::Turn { coordinator, .. }
            | Self::PushRound { coordinator, .. }
            | Self::Answer { coordinator, .. }
            | Self::Apply { coordinator }
            | Self::Depose { coordinator }
            | Self::RestartSession { coordinator }
            | Self::QuorumTick { coordinator, .. }
            | Self::QuorumMessage { coordinator, .. }
            | Self::MemberMessage { coordinator, .. } => Some(*coordinator),
            _ => None,
        }
    }
}
