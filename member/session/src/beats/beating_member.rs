//! A member as the sender of heartbeats sees it.

use archon_member::{AnsweredRound, GrantOutcome, LeaseAnswer};
use archon_proto::convert::members::beats::{Beat, ClusterNow};
use archon_proto::convert::tables::table_updates::TableUpdates;
use archon_types::{ErrorDetail, FencingProof, RelayAddress};

/// A member that sends heartbeats: their content, and the consequences of their answers.
pub trait BeatingMember {
    /// Begins a round. Returns the relays of this member, or `None` if it must send no heartbeat now.
    fn begin_round(&mut self) -> Option<Vec<RelayAddress>>;

    /// Creates a heartbeat that is about to be sent. Its number rises, and its proof is empty.
    fn next_beat(&mut self) -> Beat;

    /// Processes a lease, which may answer an old heartbeat, with the cluster data of the answer.
    fn take_lease(&mut self, answer: LeaseAnswer, now: ClusterNow) -> GrantOutcome;

    /// Handles the end of a round by an answer.
    fn round_answered(&mut self, round: &AnsweredRound<String>);

    /// Handles the end of a round without an answer.
    fn round_failed(&mut self);

    /// Processes a notice of the process at the address `sender` that an incarnation is fenced. Returns whether it is
    /// this one.
    fn told_over(&mut self, over: FencingProof, sender: &str) -> bool;

    /// Applies table updates that came with an answer, or handles the error in them.
    fn take_news(&mut self, news: Result<TableUpdates, ErrorDetail>);

    /// Waits until a heartbeat should be sent at once.
    fn hurried(&self) -> impl Future<Output = ()>;
}
