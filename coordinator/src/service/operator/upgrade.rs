//! The protocol of the cluster: its version, obstacles to a rise, and operators' changes.

use crate::raft::QuorumView;
use crate::service::admins::{Admins, Result};
use crate::service::call::Call;
use crate::service::documents::answers;
use crate::service::findings::reason::reason_now;
use archon_coordinator_core::{
    ClusterState, Command, CoordinatorsSpeak, HELD_SINCE, Liveness, UpgradeMember, UpgradeName, check_raise, laggards,
    newest_spoken, upgrade_members,
};
use archon_documents::{
    ChangeUpgrade, Reason, ShowUpgrade, UpgradeAction, UpgradeChanged, UpgradeMember as Summary, UpgradeSummary,
};
use archon_types::subject::Subject;
use archon_types::{ErrorDetail, ErrorKind, MemberKind, ReasonCode};

/// Maximum number of members named in a text.
const NAMED_MAX: usize = 3;

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
                    let message =
                        format!("the protocol stays {}: {}", state.protocol, waits_for(state, &members, newest));
                    Err(ErrorDetail::new(ErrorKind::Refused, message))
                }
                // There is nothing to raise, and no reason to hold it.
                _ => Ok(hold(false)),
            }
        }
    }
}

/// Reports an upgrade that waits for an operator: there is a newer protocol than the cluster's, and it does not rise
/// automatically now.
pub(in crate::service) fn reason(state: &ClusterState, view: &QuorumView) -> Option<Reason> {
    let members = upgrade_members(state, &view.coordinators_speak());
    let newest = newest_spoken(&members);
    if newest <= state.protocol {
        return None;
    }
    let (message, remedy) = match (laggards(&members, newest).next(), state.protocol_held) {
        (Some(_), _) => (
            format!(
                "the cluster uses protocol {}, and {newest} after the upgrade: {}",
                state.protocol,
                waits_for(state, &members, newest)
            ),
            "continue the upgrade, or roll back to the previous version; `archon upgrade status` shows the protocols \
             of each member",
        ),
        (None, true) => (
            format!("every member supports protocol {newest}, and the cluster is held at {}", state.protocol),
            "`archon upgrade finalize` raises it; from then on members cannot go back to the version before",
        ),
        // It rises in a moment, as in every new cluster: no action is needed.
        (None, false) => return None,
    };
    Some(reason_now(ReasonCode::Upgrading, Subject::Cluster, message, remedy))
}

/// Describes the members that keep the cluster from this protocol.
fn waits_for(state: &ClusterState, members: &[UpgradeMember], protocol: u32) -> String {
    let texts = laggards(members, protocol).map(|member| {
        let name = name_text(state, member.name);
        match (member.speaks, member.answers) {
            (None, _) => format!("{name} does not answer (start it, or `archon quorum remove` it)"),
            (Some(speaks), true) => format!("{name} supports {speaks}"),
            (Some(speaks), false) => {
                let gone = match member.name {
                    UpgradeName::Participant(_) => "`archon node remove` it if it is gone for good",
                    _ => "start it, or `archon node lost` it",
                };
                format!("{name} is not alive and supported {speaks} ({gone})")
            }
        }
    });
    let mut texts: Vec<String> = texts.collect();
    let more = texts.len().saturating_sub(NAMED_MAX);
    texts.truncate(NAMED_MAX);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    texts.join(", ")
}

fn name_text(state: &ClusterState, name: UpgradeName) -> String {
    match name {
        UpgradeName::Coordinator(id) => format!("coordinator {id}"),
        UpgradeName::Node(node) => format!("node {}", state.node_name(node)),
        UpgradeName::Participant(node) => format!("participant {}", state.node_name(node)),
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
