//! The Raft instance over the state machine.

use crate::raft::machine::Machine;
use crate::raft::types::TypeConfig;

/// The Raft instance.
pub(crate) type Raft = openraft::Raft<TypeConfig, Machine>;
