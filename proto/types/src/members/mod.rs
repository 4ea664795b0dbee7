//! Members: nodes, participants and coordinators, with their duties, reports, relays and protocols.

pub(crate) mod doors;
pub(crate) mod duty;
pub(crate) mod failover;
pub(crate) mod fencing_proof;
pub(crate) mod member_certificate;
pub(crate) mod node;
pub(crate) mod node_traits;
pub(crate) mod participant;
pub(crate) mod plaintext;
pub(crate) mod protocol;
pub(crate) mod relays;
pub(crate) mod transport_kind;
