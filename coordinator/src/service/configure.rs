//! The settings of the cluster: looked at, and changed while it runs.

use super::admin::{Admins, Result, unexpected};
use super::call::Call;
use archon_coordinator_core::{ClusterState, Configuration, Liveness, Response as Answer, check_configure};
use archon_proto::convert::configure::{Configure, setting_value};
use archon_proto::v1;
use archon_types::{Setting, SettingStep, Version};
use std::time::Duration;

impl Admins {
    /// Every setting.
    pub(super) async fn settings(
        &self,
        request: &v1::ListSettingsRequest,
        within: Duration,
    ) -> Result<v1::ListSettingsResponse> {
        self.look(request.cluster.as_ref(), within, |_, state| {
            let settings = Setting::ALL.iter().map(|setting| setting_value(*setting, &state.settings)).collect();
            Ok(v1::ListSettingsResponse { version: state.settings_version.get(), settings })
        })
        .await
    }

    /// Changes settings, or says what would change.
    pub(super) async fn configured(
        &self,
        request: v1::ConfigureRequest,
        call: &Call<'_>,
    ) -> Result<v1::ConfigureResponse> {
        let cluster = request.cluster.clone();
        let Configure { request, changes, if_version, dry_run } = Configure::try_from(request)?;
        if dry_run {
            return self
                .look(cluster.as_ref(), call.within, |_, state| {
                    let judged = check_configure(state, &changes, if_version)?;
                    Ok(answer(state.settings_version, judged.changes))
                })
                .await;
        }
        let decide = |state: &ClusterState, _: &Liveness| {
            let Configuration { changes, command } = check_configure(state, &changes, if_version)?;
            Ok(command.ok_or(answer(state.settings_version, changes)))
        };
        match self.change_unless(cluster.as_ref(), request, call, decide).await? {
            Ok((session, Answer::Configured { changes })) => {
                let version = session.quorum().replicated().read(|state| state.settings_version);
                Ok(answer(version, changes))
            }
            Ok((_, other)) => Err(unexpected(&other)),
            Err(as_it_is) => Ok(as_it_is),
        }
    }
}

fn answer(version: Version, changes: Vec<SettingStep>) -> v1::ConfigureResponse {
    v1::ConfigureResponse { version: version.get(), changes: changes.into_iter().map(Into::into).collect() }
}
