//! Configuration of participants.

use archon_security::Transport;
use archon_types::{NodeTraits, Participant as Served};
use std::time::Duration;

/// Configuration of a participant.
#[derive(Clone, Debug)]
pub(super) struct Config {
    pub(super) endpoints: Vec<String>,
    pub(super) transport: Transport,
    pub(super) name: String,
    pub(super) address: String,
    pub(super) traits: NodeTraits,
    pub(super) served: Served,
    /// Time-out of the first registration.
    pub(super) timeout: Duration,
    /// Time that a loss takes to reach the service.
    pub(super) loss_delay: Duration,
}
