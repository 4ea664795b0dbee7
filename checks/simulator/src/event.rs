//! Events of the world.

use crate::client::calls::{Outcome, ReplyTo};
use crate::host::carried::{CarriedBeat, RelayMessage};
use crate::raft;
use archon_coordinator_core::term::{ConfirmedHeartbeat, Round};
use archon_coordinator_core::{Command, Register};
use archon_host::{NodeRegistration, Request, YieldAsk, YieldPage};
use archon_kv::engine::Row;
use archon_member::{Heartbeat, LeaseAnswer, ReturnAddress};
use archon_replica::{Message, Position, ReplicaAddress};
use archon_types::{
    BootId, DoorFailure, DoorReport, Duty, Epoch, ErrorDetail, ErrorKind, FencingProof, GenerationKey, Incarnation,
    Millis, Node, NodeId, PartitionId, PlacementId, RemovedNodes, Report, TableId, TableList, Version,
};
use bytes::Bytes;

/// From a node or participant to a coordinator. Participants' machines are numbered after those of nodes.
#[derive(Clone, Debug)]
pub(crate) enum MemberMessage {
    Register(Box<Register>),
    Heartbeat {
        heartbeat: Heartbeat,
        stopping: bool,
        /// Results of its probes.
        doors: Option<DoorReport>,
    },
    /// Relayed heartbeats.
    Beats {
        batch: BatchId,
        beats: Vec<CarriedBeat>,
    },
    Report {
        node: NodeId,
        incarnation: Incarnation,
        report: Report,
    },
    Leave {
        node: NodeId,
        incarnation: Incarnation,
    },
    /// A participant that follows duties of this term and version asks for later ones.
    Poll {
        node: NodeId,
        incarnation: Incarnation,
        obeyed: (u64, Version),
    },
    /// Answer to a push, by its number: the version of the duties it follows.
    Pushed {
        node: NodeId,
        number: u64,
        version: Version,
    },
}

/// From a coordinator to a node.
#[derive(Clone, Debug)]
pub(crate) enum CoordinatorMessage {
    Registered {
        boot: BootId,
        node: NodeId,
        generation_key: GenerationKey,
        incarnation: Incarnation,
        protocol: u32,
    },
    NotRegistered {
        boot: BootId,
        error: ErrorDetail,
    },
    Lease {
        answer: LeaseAnswer,
        cluster: ClusterNow,
    },
    /// Results for the heartbeats of a batch: a lease each, or a fencing.
    Judged {
        by: usize,
        batch: BatchId,
        answers: Vec<HeartbeatAnswer>,
        cluster: ClusterNow,
    },
    /// The receiver of a batch does not lead.
    BatchRefused {
        batch: BatchId,
        leader: Option<usize>,
    },
    Stale {
        incarnation: Incarnation,
    },
    NotLeader {
        leader: Option<usize>,
    },
    Push(Box<Push>),
    /// All duties of a participant.
    Duties {
        incarnation: Incarnation,
        term: u64,
        version: Version,
        duties: Vec<Duty>,
    },
    /// Coordinator addresses, sent by a leader.
    Coordinators {
        by: usize,
        named: Vec<String>,
    },
    /// Answer to a report: the reason of a refusal, if refused.
    Reported {
        report: Report,
        refused: Option<ErrorKind>,
    },
}

/// Cluster description in every heartbeat answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterNow {
    /// Number of relays.
    pub(crate) relays: usize,
    /// Probe interval, in milliseconds; zero: no probes.
    pub(crate) door_every_ms: u64,
}

/// Content of a push, as far as the world models it.
#[derive(Clone, Debug)]
pub(crate) struct Push {
    pub(crate) coordinator: usize,
    pub(crate) term: u64,
    pub(crate) number: u64,
    pub(crate) incarnation: Incarnation,
    pub(crate) version: Version,
    pub(crate) duties: Option<Vec<Duty>>,
    pub(crate) nodes: Option<Registrations>,
    /// Existing tables.
    pub(crate) tables: Option<TableList>,
    /// Version up to which the node holds everything with this push.
    pub(crate) complete: Option<Version>,
}

/// Updates of nodes and tables in the answer to a relayed heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct TableUpdates {
    pub(crate) nodes: Option<Registrations>,
    pub(crate) tables: Option<TableList>,
    pub(crate) complete: Version,
}

/// A heartbeat of a batch, its lease unless fenced, and its member's updates.
pub(crate) type HeartbeatAnswer = (Heartbeat, Option<LeaseAnswer>, Option<Box<TableUpdates>>);

/// Registrations of all nodes, and whether they count as failed.
#[derive(Clone, Debug)]
pub(crate) struct Registrations {
    pub(crate) version: Version,
    pub(crate) nodes: Vec<(NodeId, Incarnation, bool)>,
    /// The rows themselves, and the removed nodes, where nodes relay or probe.
    pub(crate) rows: Vec<Node>,
    pub(crate) removed: RemovedNodes,
}

/// A relay's batch, numbered per incarnation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BatchId {
    pub(crate) relay: Incarnation,
    pub(crate) number: u64,
}

/// Sender and number of a heartbeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeartbeatRequest {
    pub(crate) host: usize,
    pub(crate) heartbeat: Heartbeat,
    /// The batch in which that machine carried it, if it is another member's.
    pub(crate) batch: Option<BatchId>,
    /// Version up to which its member holds everything, if included.
    pub(crate) holds: Version,
}

/// Between nodes.
#[derive(Clone, Debug)]
pub(crate) enum PeerMessage {
    Replica(Message),
    /// A heartbeat to relay.
    Carry {
        from: ReturnAddress,
        heartbeat: Heartbeat,
        stopping: bool,
        /// Version up to which its member holds everything.
        holds: Version,
        /// Its member's probe results.
        doors: Option<DoorReport>,
    },
    /// A relay's message to a member.
    Relayed {
        to: ReturnAddress,
        said: RelayMessage,
    },
    /// Notification that an incarnation is fenced.
    Over(FencingProof),
    /// A machine probes this one's client port: process number, and probe number.
    Ping {
        keeper: usize,
        boot: u64,
        number: u64,
    },
    /// A shard answers, or the connection is refused.
    Pong {
        boot: u64,
        number: u64,
        outcome: Result<(), DoorFailure>,
    },
    CopyAsk {
        partition: PartitionId,
        loader: ReplicaAddress,
        attempt: u64,
        ask: u64,
        source: ReplicaAddress,
        epoch: Epoch,
        start: Option<Position>,
        after: Bytes,
    },
    CopyPage {
        /// Attempts and requests are numbered per incarnation: the page is for this one only.
        loader: ReplicaAddress,
        attempt: u64,
        ask: u64,
        start: Position,
        /// Version of the row under which the copy is sent.
        version: Version,
        after: Bytes,
        rows: Vec<Row>,
        last: bool,
    },
    /// Request for a page of a merge source on this node.
    YieldAsk {
        from: NodeRegistration,
        ask: YieldAsk,
    },
    /// The page, or the answer that there is none yet.
    YieldPage {
        /// Requests are numbered per incarnation, too.
        to: Incarnation,
        placement: PlacementId,
        ask: u64,
        page: Option<YieldPage>,
    },
}

/// A coordinator's proposal, in flight to the log.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    pub(crate) term: u64,
    pub(crate) commands: Vec<Command>,
    pub(crate) reply: Option<ProposalReply>,
}

/// Caller of a proposal.
#[derive(Clone, Debug)]
pub(crate) enum ProposalReply {
    Registration { host: usize, boot: BootId },
    Report { host: usize, report: Report },
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The first pending proposal of this coordinator reaches a quorum.
    Append {
        coordinator: usize,
    },
    /// A coordinator applies committed entries.
    Apply {
        coordinator: usize,
    },
    Turn {
        coordinator: usize,
        term: u64,
    },
    PushRound {
        coordinator: usize,
        term: u64,
    },
    /// A quorum round for heartbeats ended. The majority's answer is known if it arrived long before the end.
    RoundDone {
        coordinator: usize,
        term: u64,
        round: Round,
        heard: Option<Option<u64>>,
    },
    /// Computes and sends the answers confirmed by a round.
    Answer {
        coordinator: usize,
        term: u64,
        heartbeats: Vec<(ConfirmedHeartbeat, HeartbeatRequest)>,
    },
    Elect,
    /// The leading coordinator's sessions end at times.
    Restarts,
    /// A coordinator's session ends, and another one of the same Raft term begins.
    RestartSession {
        coordinator: usize,
    },
    /// A machine's engine begins to refuse accesses, at times.
    RefuseReads,
    /// The process opens its engine again, in another incarnation.
    OpenEngine {
        host: usize,
        boot: u64,
    },
    /// A deposed coordinator learns of the newer term.
    Depose {
        coordinator: usize,
    },
    MemberMessage {
        coordinator: usize,
        host: usize,
        message: MemberMessage,
    },
    CoordinatorMessage {
        host: usize,
        message: CoordinatorMessage,
    },
    PeerMessage {
        host: usize,
        message: Box<PeerMessage>,
        /// True time at which it was sent.
        sent: u64,
    },
    /// A client reads at a replica of this machine; `again` if it goes on with another one.
    ReadReplica {
        host: usize,
        again: bool,
    },
    /// Operations that a client sent together.
    Requests {
        host: usize,
        requests: Vec<Request<ReplyTo>>,
    },
    Reply {
        client: usize,
        to: ReplyTo,
        log_time: Millis,
        outcome: Box<Outcome>,
        leader: Option<usize>,
        /// Epoch of the answer, if answered.
        epoch: Epoch,
    },
    Tick {
        host: usize,
        boot: u64,
    },
    Flush {
        host: usize,
        boot: u64,
    },
    Synced {
        host: usize,
        boot: u64,
    },
    Restart {
        host: usize,
    },
    /// The files of one placement are lost.
    LosePlacement {
        host: usize,
    },
    /// No duties reach this machine for a while.
    Deafen {
        host: usize,
        until: u64,
    },
    Client {
        client: usize,
        worker: usize,
        token: u64,
    },
    Fault,
    /// Timer tick of a participant's process.
    Work {
        worker: usize,
        boot: u64,
    },
    /// Starts a participant's process, if none runs.
    Hire {
        worker: usize,
    },
    /// A fault of a participant, or an operator's order on a lease.
    WorkerFault,
    /// A copy hears of a leadership that was never granted.
    Stray,
    /// An operator looks for partitions without a possible leader.
    Operator,
    /// These machines lose power, for this time.
    PowerOff {
        hosts: Vec<usize>,
        away: u64,
    },
    /// The coordinators are recovered from less than a majority, at times.
    Recover,
    /// An operator checks the recovery's progress.
    RecoveryLook,
    /// Members are replaced by other versions, and the protocol may rise.
    Upgrade,
    /// An operator changes the members of the quorum.
    Reorganise,
    /// A fault of a coordinator, or of its directory.
    QuorumFault,
    /// The leader is lost during a change.
    LoseLeader {
        coordinator: usize,
    },
    /// A coordinator's directory is lost, and the former leader is cut off.
    WipeAmid {
        coordinator: usize,
        leader: usize,
    },
    /// Timer tick of a coordinator's process.
    QuorumTick {
        coordinator: usize,
        boot: u64,
    },
    /// From one coordinator to another.
    QuorumMessage {
        coordinator: usize,
        from: usize,
        message: Box<raft::Message>,
    },
    /// Starts a coordinator's process, if none runs.
    StartCoordinator {
        coordinator: usize,
    },
    /// An operator drops a table.
    Drop,
    /// The same drop order arrives again.
    DropAgain {
        table: TableId,
    },
    /// An operator creates a table with a free name.
    Make,
    /// Requests for the keys that this partition just gave up are delayed, and the keys are to come back.
    ReturnKeys {
        partition: PartitionId,
    },
    /// The keys are merged back.
    MergeBack {
        partition: PartitionId,
    },
    /// A directory is copied, to start its node on the copy during a recovery.
    CopyDisk,
    /// The node that runs on an older copy of its directory is started on the right one.
    RightDirectory,
    /// An operator orders a split.
    Split,
    /// An operator orders a merge.
    Merge,
    /// An operator cancels a merge.
    CancelMerge {
        partition: PartitionId,
    },
    /// An operator cancels a split.
    CancelSplit {
        partition: PartitionId,
    },
    /// A fault during a split.
    DisturbReshape {
        partition: PartitionId,
    },
}
