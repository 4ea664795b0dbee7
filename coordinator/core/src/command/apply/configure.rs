//! Changes of cluster settings at run time.

use crate::command::apply::entry::Entry;
use crate::command::refusals::{refused, stale};
use crate::mutant::Mutant;
use crate::state::ClusterState;
use crate::state::events::EventKind;
use crate::state::response::Response;
use archon_types::{ErrorDetail, SettingChange, SettingStep, Settings, Version};

pub(super) fn configure(
    state: &mut ClusterState,
    entry: Entry<'_>,
    if_version: Version,
    changes: &[SettingChange],
) -> Result<Response, ErrorDetail> {
    if state.settings_version != if_version {
        return Err(stale("the settings", state.settings_version, if_version));
    }
    let mut settings = state.settings.clone();
    let mut steps = Vec::new();
    for SettingChange { setting, value } in changes {
        let from = setting.of(&settings);
        setting.put(&mut settings, *value);
        let to = setting.of(&settings);
        if from != to {
            steps.push(SettingStep { setting: *setting, from, to });
        }
    }
    if !leases_stay(&state.settings, &settings) && !state.breaks(Mutant::LeaseChanges) {
        return Err(refused(
            "leases run by the timing that the cluster has: it stays, but for a failure time-out that fits",
        ));
    }
    if !steps.is_empty() {
        state.settings = settings;
        state.settings_version = entry.version();
        entry.note(state, EventKind::SettingsChanged { changes: steps.clone() });
    }
    Ok(Response::Configured { changes: steps })
}

/// Returns true if every lease granted under one of the settings ends before the failure time-out of the other passes
/// (rule 16): lease lengths are unchanged, and both time-outs outlast them.
pub(crate) fn leases_stay(before: &Settings, after: &Settings) -> bool {
    let lease = |settings: &Settings| {
        let timing = &settings.timing;
        (timing.heartbeat_ms, timing.lease_ms, timing.margin_ms)
    };
    lease(before) == lease(after) && after.timing.check().is_ok()
}
