//! Every node and participant speaks the protocol of the cluster (PROTOCOL rules 63 and 64), which never falls.

use crate::invariants::violation::{Violation, violated};
use crate::quorum::upgrade::registered_laggard;
use crate::state::ClusterState;

const NAME: &str = "spoken";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    match registered_laggard(state, state.protocol) {
        Some(row) => {
            let (name, speaks) = (&row.node.name, row.speaks());
            violated(NAME, format!("the cluster speaks protocol {}, and {name} speaks {speaks}", state.protocol))
        }
        None => Ok(()),
    }
}

pub(super) fn check_step(before: &ClusterState, after: &ClusterState) -> Result<(), Violation> {
    if after.protocol < before.protocol {
        return violated(NAME, format!("the protocol fell from {} to {}", before.protocol, after.protocol));
    }
    Ok(())
}
