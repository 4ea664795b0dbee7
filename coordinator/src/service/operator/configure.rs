//! Settings of the cluster: list, and change at runtime.

use crate::service::admins::{Admins, Result, unexpected};
use crate::service::call::Call;
use crate::service::documents::answers;
use archon_coordinator_core::{ClusterState, Configuration, Liveness, Response as Answer, check_configure};
use archon_documents::{Configure, ListSettings, SettingSummary, SettingsChanged, SettingsSummary};
use archon_types::{Setting, Version};

answers! {
    ListSettings: settings,
    Configure: configured,
}

impl Admins {
    /// Returns every setting.
    pub(in crate::service) async fn settings(&self, _: ListSettings, call: &Call<'_>) -> Result<SettingsSummary> {
        self.view(call, |_, state| {
            let settings = Setting::ALL.iter().map(|setting| SettingSummary::of(*setting, &state.settings)).collect();
            Ok(SettingsSummary { settings_version: state.settings_version.get(), settings })
        })
        .await
    }

    /// Changes settings, or returns what would change.
    pub(super) async fn configured(&self, asked: Configure, call: &Call<'_>) -> Result<SettingsChanged> {
        let (changes, if_version) = (asked.changes()?, asked.if_version.map(Version::new));
        if asked.dry_run {
            return self
                .view(call, |_, state| {
                    let judged = check_configure(state, &changes, if_version)?;
                    Ok(SettingsChanged::new(state.settings_version, judged.changes))
                })
                .await;
        }
        let decide = |state: &ClusterState, _: &Liveness| {
            let Configuration { changes, command } = check_configure(state, &changes, if_version)?;
            Ok(command.ok_or(SettingsChanged::new(state.settings_version, changes)))
        };
        match self.commit_unless(call, decide).await? {
            Ok((session, Answer::Configured { changes })) => {
                let version = session.quorum().replicated().read(|state| state.settings_version);
                Ok(SettingsChanged::new(version, changes))
            }
            Ok((_, other)) => Err(unexpected(&other)),
            Err(as_it_is) => Ok(as_it_is),
        }
    }
}
