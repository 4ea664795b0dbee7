//! Heartbeats of a participant.

use super::load::ServiceLoad;
use super::relays::Relays;
use super::state::ParticipantState;
use archon_member::{AnsweredRound, AttemptTarget, GrantOutcome, LeaseAnswer};
use archon_proto::convert::members::beats::{Beat, ClusterNow};
use archon_proto::convert::members::load::Load;
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_session::BeatingMember;
use archon_types::{ErrorDetail, FencingProof, PushKey, RelayAddress, Version};
use tokio::time::Instant;

/// Content and consequences of the heartbeats of one incarnation.
pub(super) struct ParticipantHeartbeats<'a> {
    shared: &'a ParticipantState,
    relays: &'a Relays,
    push_key: PushKey,
    /// Begin of the last round.
    began: Instant,
    /// Number of the first heartbeat that reported that this participant stops.
    stopping_since: Option<u64>,
}

impl<'a> ParticipantHeartbeats<'a> {
    pub(super) fn new(shared: &'a ParticipantState, relays: &'a Relays, push_key: PushKey) -> Self {
        Self { shared, relays, push_key, began: Instant::now(), stopping_since: None }
    }
}

impl BeatingMember for ParticipantHeartbeats<'_> {
    fn begin_round(&mut self) -> Option<Vec<RelayAddress>> {
        self.began = Instant::now();
        Some(self.relays.current())
    }

    fn next_beat(&mut self) -> Beat {
        let stopping = self.shared.stopping.is_cancelled();
        let heartbeat = self.shared.send();
        if stopping {
            self.stopping_since.get_or_insert(heartbeat.number());
        }
        let ServiceLoad { bytes_stored, operations_per_second } = **self.shared.load.load();
        Beat {
            node: heartbeat.node(),
            incarnation: heartbeat.incarnation(),
            number: heartbeat.number(),
            table_version: Version::ZERO,
            stopping,
            push_key: self.push_key,
            load: Some(Load { bytes_stored, operations_per_second, ..Load::default() }),
            doors: None,
            proof: bytes::Bytes::new(),
        }
    }

    fn take_lease(&mut self, answer: LeaseAnswer, now: ClusterNow) -> GrantOutcome {
        let taken = self.shared.decide(|decides, now| decides.granted(answer, now));
        if taken != GrantOutcome::Foreign {
            self.relays.note_count(now.relays);
        }
        if let GrantOutcome::Granted { lapsed_ms, .. } = taken
            && lapsed_ms > 0
        {
            self.shared.counters.leases_lapsed.count();
            self.shared.measures.lapsed();
            tracing::warn!(lapsed_ms, "lease lapsed before the next grant came");
        }
        taken
    }

    fn round_answered(&mut self, round: &AnsweredRound<String>) {
        self.shared.measures.heartbeat(self.began.elapsed(), true);
        self.shared.counters.heartbeats.count();
        if let AttemptTarget::Relay(_) = round.by {
            self.shared.counters.heartbeats_relayed.count();
        }
        if self.stopping_since.is_some_and(|first| round.number >= first) {
            self.shared.end_wait_for_stop();
        }
    }

    fn round_failed(&mut self) {
        self.shared.measures.heartbeat(self.began.elapsed(), false);
        self.shared.counters.heartbeats_failed.count();
    }

    /// Nodes have no row that could fence a participant.
    fn told_over(&mut self, _: FencingProof, _: &str) -> bool {
        false
    }

    /// It has no rows to update.
    fn take_news(&mut self, _: Result<TableUpdates, ErrorDetail>) {}

    /// A stopping participant reports that at once.
    async fn hurried(&self) {
        if self.shared.stopping_heard.is_cancelled() {
            std::future::pending::<()>().await;
        }
        self.shared.stopping.cancelled().await;
    }
}
