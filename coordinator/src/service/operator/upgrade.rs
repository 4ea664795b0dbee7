//! The protocol of the cluster: its version, obstacles to a rise, and operators' changes.

use crate::service::admins::{Admins, Result};
use crate::service::call::Call;
use crate::service::documents::answers;
use archon_coordinator_core::{
    ClusterState, Command, CoordinatorsSpeak, HELD_SINCE, Liveness, UpgradeMember, UpgradeName, check_raise,
    newest_spoken, outdated_members, upgrade_members,
};
use archon_documents::{
    ChangeUpgrade, ShowUpgrade, UpgradeAction, UpgradeChanged, UpgradeMember as Summary, UpgradeSummary, waits_for,
};
use archon_types::{ErrorDetail, ErrorKind, MemberKind};

answers! {
    ShowUpgrade: shown_upgrade,
    ChangeUpgrade: changed_upgrade,
}

impl Admins {
    /// Returns the protocol of the cluster and of each member.
    pub(super) async fn shown_upgrade(&self, _: ShowUpgrade, call: &Call<'_>) -> Result<UpgradeSummary> {
        self.view(call, |session, state| {
            let members = upgrade_members(state, &session.quorum().view().coordinators_speak());
            Ok(UpgradeSummary {
                protocol: state.protocol,
                protocol_newest: newest_spoken(&members),
                held: state.protocol_held,
                spoken_by: members.iter().map(|member| summary(state, member)).collect(),
            })
        })
        .await
    }

    /// Raises the protocol, holds it, or lets it rise automatically again.
    pub(super) async fn changed_upgrade(&self, asked: ChangeUpgrade, call: &Call<'_>) -> Result<UpgradeChanged> {
        let session = self.context().leader(call.within).await?;
        let before = session.quorum().replicated().read(|state| state.protocol);
        let speak = session.quorum().view().coordinators_speak();
        let decide =
            |state: &ClusterState, _: &Liveness| decide(state, &speak, asked.action).map(|command| command.ok_or(()));
        let changed = self.commit_unless(call, decide).await?.is_ok();
        let session = self.context().leader(call.within).await?;
        let protocol = session.quorum().replicated().read(|state| state.protocol);
        Ok(UpgradeChanged { changed, protocol, raised: changed && protocol > before })
    }
}

/// Returns the command for the request; `None` if it already holds.
fn decide(
    state: &ClusterState,
    speak: &CoordinatorsSpeak,
    action: UpgradeAction,
) -> Result<Option<Command>, ErrorDetail> {
    let hold = |held: bool| (state.protocol_held != held).then_some(Command::HoldProtocol { held });
    match action {
        UpgradeAction::Hold if state.protocol < HELD_SINCE => {
            let message = "the cluster uses protocol 1, which cannot be held; to keep it there, start one of the \
                           coordinators with --protocol-max 1";
            Err(ErrorDetail::new(ErrorKind::Refused, message))
        }
        UpgradeAction::Hold => Ok(hold(true)),
        UpgradeAction::Release => Ok(hold(false)),
        UpgradeAction::Finalize => {
            if let Some(raise) = check_raise(state, speak)? {
                return Ok(Some(raise));
            }
            let members = upgrade_members(state, speak);
            match newest_spoken(&members) {
                newest if newest > state.protocol => {
                    let (outdated, others) = outdated_members(state, &members, newest);
                    let message = format!("the protocol stays {}: {}", state.protocol, waits_for(&outdated, others));
                    Err(ErrorDetail::new(ErrorKind::Refused, message))
                }
                // There is nothing to raise, and no reason to hold it.
                _ => Ok(hold(false)),
            }
        }
    }
}

fn summary(state: &ClusterState, member: &UpgradeMember) -> Summary {
    let (kind, id, name) = match member.name {
        UpgradeName::Coordinator(id) => {
            let address = state.coordinators.members.get(&id).map(|coordinator| coordinator.address.clone());
            (MemberKind::Coordinator, id, address.unwrap_or_default())
        }
        UpgradeName::Node(node) => (MemberKind::Node, node.get(), state.node_name(node)),
        UpgradeName::Participant(node) => (MemberKind::Participant, node.get(), state.node_name(node)),
    };
    let (protocol_min, protocol_max) = member.speaks.map(|speaks| (speaks.oldest, speaks.newest)).unzip();
    Summary { kind: kind.into(), id, name, protocol_min, protocol_max, answers: member.answers }
}
