//! `Control`: pushes of duties from the leading coordinator.

use super::{overloaded, refuse};
use crate::node::state::{NodeState, shutting_down};
use crate::session::holdings::Holdings;
use crate::shard::inbox::PushError;
use crate::shard::{ShardMessage, Shards};
use crate::tables::PushedUpdates;
use archon_host::{Action, AppliedPush, DisabledRule, HeldPlacement, HeldState, reconcile};
use archon_proto::convert::ids::boot_id;
use archon_proto::convert::members::control::{Push, PushAnswer, announced};
use archon_proto::convert::tables::middle::FindMiddle;
use archon_proto::v1::control_server::Control;
use archon_proto::v1::{
    ConfirmBootRequest, ConfirmBootResponse, FindMiddleRequest, FindMiddleResponse, PushRequest, PushResponse,
};
use archon_security::{Caller, Role};
use archon_types::{ErrorDetail, ErrorKind, Incarnation, Middle, PlacementId};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{Mutex, oneshot};
use tonic::{Request, Response, Status};

/// The service.
#[derive(Clone)]
pub(crate) struct ControlService(Arc<Inner>);

struct Inner {
    shared: Arc<NodeState>,
    holdings: Arc<Holdings>,
    shards: Shards,
    /// Held while a push is carried out, so that pushes take effect one after the other.
    applied: Mutex<AppliedPush>,
}

impl ControlService {
    pub(crate) fn new(shared: Arc<NodeState>, holdings: Arc<Holdings>, shards: Shards) -> Self {
        Self(Arc::new(Inner { shared, holdings, shards, applied: Mutex::new(AppliedPush::default()) }))
    }
}

impl Inner {
    async fn apply(&self, push: Push) -> Result<PushAnswer, ErrorDetail> {
        let shared = &self.shared;
        let mut applied = self.applied.lock().await;
        // Checked under the lock: a registration may have come while this push waited.
        shared.membership.addressed(push.cluster, push.node, Some(push.incarnation))?;
        if push.key != shared.push_key {
            let why = format!(
                "coordinator {} does not repeat the content of this node's heartbeats: this node has not called it",
                push.coordinator
            );
            return Err(ErrorDetail::new(ErrorKind::Refused, why));
        }
        let taken = applied.take(push.incarnation, push.term, push.version, push.duties.is_some());
        if let archon_host::PushVerdict::Succeeded { applied } = taken {
            let why = format!(
                "coordinator {} pushes in term {}, but one of term {applied} was applied",
                push.coordinator, push.term
            );
            return Err(ErrorDetail::new(ErrorKind::StaleVersion, why).with_have_need(applied, push.term));
        }
        shared.tables.note_told(push.newest.max(push.version));
        let news = PushedUpdates {
            pieces: push.deltas,
            nodes: push.nodes,
            tables: push.tables,
            complete: push.complete,
            coordinators: push.coordinators,
        };
        let any = news.any();
        let gap = !shared.tables.merge(news);
        // After the tables: the rights to a dropped table are gone, and the error has to say that it was dropped.
        if let Some(list) = push.access {
            shared.access.take(list);
            shared.refuse_withdrawn();
        }
        // Table updates apply whatever becomes of the duties that came with them.
        if any {
            self.shards.send_all(|| ShardMessage::Peers);
        }
        if taken == archon_host::PushVerdict::Older {
            shared.metrics.pushes_refused.add(1);
            return Ok(PushAnswer { version: applied.version(), gap, refused: Vec::new() });
        }
        let Some(duties) = push.duties else {
            // The version shows the coordinator whether the node applies its duties.
            shared.metrics.pushes.add(1);
            return Ok(PushAnswer { version: applied.version(), gap, refused: Vec::new() });
        };
        let held = self.holdings.all();
        let found = reconcile(push.node, &held, &duties, DisabledRule::default());
        self.carry_out(push.incarnation, found.actions, &held).await?;
        applied.note(push.term, push.version);
        shared.metrics.pushes.add(1);
        Ok(PushAnswer { version: push.version, gap, refused: found.refused })
    }

    /// Passes the shards their parts, records the state of each placement, and returns once all is carried out. `held`
    /// is the state before.
    async fn carry_out(
        &self,
        incarnation: Incarnation,
        actions: Vec<Action>,
        held: &BTreeMap<PlacementId, HeldPlacement>,
    ) -> Result<(), ErrorDetail> {
        let mut per_shard: BTreeMap<usize, Part> = BTreeMap::new();
        for action in actions {
            let (partition, placement, state) = match &action {
                Action::Open { partition, placement, .. } => (partition.id, *placement, Some(HeldState::Active)),
                Action::Configure { partition, placement }
                | Action::HandOver { partition, placement, .. }
                | Action::ReportDamaged { partition, placement } => (partition.id, *placement, None),
                Action::Unload { partition, placement } => (*partition, *placement, Some(HeldState::Unloading)),
                Action::SetAside { partition, placement } | Action::Inspect { partition, placement } => {
                    (*partition, *placement, Some(HeldState::SetAside))
                }
            };
            let part = per_shard.entry(self.shards.number_of(partition)).or_default();
            if let Some(state) = state {
                self.holdings.set(placement, partition, state);
                part.noted.push((placement, state));
            }
            part.actions.push(action);
        }
        let mut waiting = Vec::new();
        for (number, part) in per_shard {
            let (done, carried_out) = oneshot::channel();
            if let Some(inbox) = self.shards.inbox(number) {
                // A stopped shard answers nothing.
                let _ = inbox.push(ShardMessage::Duties { incarnation, actions: part.actions, done }).await;
            }
            waiting.push((part.noted, carried_out));
        }
        let mut refused = None;
        for (noted, carried_out) in waiting {
            let error = match carried_out.await {
                Ok(true) => continue,
                Ok(false) => {
                    let why = format!("incarnation {incarnation} ended before its duties were carried out");
                    ErrorDetail::new(ErrorKind::StaleIncarnation, why)
                }
                Err(_) => shutting_down(),
            };
            refused = Some(error);
            // Recorded as done, the next incarnation would configure placements that were never opened.
            for (placement, state) in noted {
                self.holdings.take_back(placement, state, held.get(&placement));
            }
        }
        refused.map_or(Ok(()), Err)
    }
}

impl Inner {
    /// Returns the split key of a partition that is led here, as far as known.
    async fn middle(&self, asked: FindMiddle) -> Result<Middle, ErrorDetail> {
        self.shared.membership.addressed(asked.cluster, asked.node, Some(asked.incarnation))?;
        let (answer, told) = oneshot::channel();
        let message = ShardMessage::MiddleAsked { partition: asked.partition, answer };
        match self.shards.of(asked.partition).try_push(message) {
            Ok(()) => told.await.unwrap_or_else(|_| Err(shutting_down())),
            Err(PushError::Full(_)) => Err(overloaded()),
            Err(PushError::Closed(_)) => Err(shutting_down()),
        }
    }
}

/// One shard's part of a push.
#[derive(Default)]
struct Part {
    actions: Vec<Action>,
    /// States recorded for its placements.
    noted: Vec<(PlacementId, HeldState)>,
}

#[tonic::async_trait]
impl Control for ControlService {
    async fn push(&self, request: Request<PushRequest>) -> Result<Response<PushResponse>, Status> {
        let caller = Caller::of(&request);
        let push = Push::try_from(request.into_inner())?;
        let proposer = push.coordinator.to_string();
        caller.check_name("/archon.v1.Control/Push", Role::Coordinator, &proposer).map_err(refuse)?;
        let inner = Arc::clone(&self.0);
        // A task of its own: a caller that hangs up must not leave a push half carried out.
        let applied = tokio::spawn(async move { inner.apply(push).await }).await;
        let failed = |_| Err(ErrorDetail::new(ErrorKind::Internal, "carrying out the push failed"));
        match applied.unwrap_or_else(failed) {
            Ok(pushed) => Ok(Response::new(pushed.into())),
            Err(detail) => {
                self.0.shared.metrics.pushes_refused.add(1);
                Err(refuse(detail))
            }
        }
    }

    async fn confirm_boot(
        &self,
        request: Request<ConfirmBootRequest>,
    ) -> Result<Response<ConfirmBootResponse>, Status> {
        let request = request.into_inner();
        let asked = boot_id(&request.boot_id, "ConfirmBootRequest.boot_id")?;
        let announced = announced(request)?;
        // Coordinators of another cluster are ignored.
        let life = self.0.shared.life();
        if let Some((cluster, coordinators)) = announced
            && life.is_none_or(|life| life.member.cluster == cluster)
        {
            self.0.shared.tables.announce(coordinators);
        }
        Ok(Response::new(ConfirmBootResponse { confirmed: self.0.shared.membership.boot() == Some(asked) }))
    }

    async fn find_middle(&self, request: Request<FindMiddleRequest>) -> Result<Response<FindMiddleResponse>, Status> {
        let middle = self.0.middle(FindMiddle::try_from(request.into_inner())?).await.map_err(refuse)?;
        Ok(Response::new(middle.into()))
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
