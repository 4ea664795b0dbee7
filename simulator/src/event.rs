//! What can happen.

use crate::client::{Outcome, ReplyTo};
use crate::host::relaying::{CarriedBeat, Said};
use crate::raft;
use archon_coordinator_core::term::{Confirmed, Round};
use archon_coordinator_core::{Command, Register};
use archon_host::{Life, Request, YieldAsk, YieldPage};
use archon_kv::engine::Row;
use archon_member::{Heartbeat, LeaseAnswer, ReturnAddress};
use archon_replica::{Message, Position, ReplicaAddress};
use archon_types::{
    BootId, DoorFailure, DoorReport, Duty, Epoch, ErrorDetail, ErrorKind, GenerationKey, Incarnation, Millis, Node,
    NodeId, Over, PartitionId, PlacementId, RemovedNodes, Report, TableId, TableList, Version,
};
use bytes::Bytes;

/// From a node or participant to a coordinator. Participants' machines are numbered after those of nodes.
#[derive(Clone, Debug)]
pub(crate) enum MemberMessage {
    Register(Box<Register>),
    Heartbeat {
        heartbeat: Heartbeat,
        stopping: bool,
        /// What it finds at the doors at which it knocks.
        doors: Option<DoorReport>,
    },
    /// Heartbeats that a relay carries.
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
    /// A participant that obeys the duties of this term and version asks for others.
    Poll {
        node: NodeId,
        incarnation: Incarnation,
        obeyed: (u64, Version),
    },
    /// The answer to a push, by its number: from which version the duties are that it obeys.
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
    /// Heartbeats of a batch, one by one: a lease, or that the life is over.
    Judged {
        by: usize,
        batch: BatchId,
        answers: Vec<Answered>,
        cluster: ClusterNow,
    },
    /// Whoever was sent a batch does not lead.
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
    /// The duties of a participant, all of them.
    Duties {
        incarnation: Incarnation,
        term: u64,
        version: Version,
        duties: Vec<Duty>,
    },
    /// Where the coordinators are reached, told by one that leads.
    Coordinators {
        by: usize,
        named: Vec<String>,
    },
    /// The answer to a report: why it is refused, if it is.
    Reported {
        report: Report,
        refused: Option<ErrorKind>,
    },
}

/// What every answer to a heartbeat says of the cluster as it is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterNow {
    /// How many nodes relay.
    pub(crate) relays: usize,
    /// How often doors are knocked at, in milliseconds; zero: never.
    pub(crate) door_every_ms: u64,
}

/// What a node is pushed, as far as the world knows of it.
#[derive(Clone, Debug)]
pub(crate) struct Push {
    pub(crate) coordinator: usize,
    pub(crate) term: u64,
    pub(crate) number: u64,
    pub(crate) incarnation: Incarnation,
    pub(crate) version: Version,
    pub(crate) duties: Option<Vec<Duty>>,
    pub(crate) nodes: Option<Registrations>,
    /// Which tables there are.
    pub(crate) tables: Option<TableList>,
    /// With this the node holds everything up to here.
    pub(crate) complete: Option<Version>,
}

/// What the answer to a carried heartbeat brings of nodes and tables.
#[derive(Clone, Debug)]
pub(crate) struct News {
    pub(crate) nodes: Option<Registrations>,
    pub(crate) tables: Option<TableList>,
    pub(crate) complete: Version,
}

/// A heartbeat of a batch, its lease unless the life is over, and what its member lacks.
pub(crate) type Answered = (Heartbeat, Option<LeaseAnswer>, Option<Box<News>>);

/// The registrations of all nodes, and whether they count as failed.
#[derive(Clone, Debug)]
pub(crate) struct Registrations {
    pub(crate) version: Version,
    pub(crate) nodes: Vec<(NodeId, Incarnation, bool)>,
    /// The rows themselves, and which nodes are gone, where nodes relay or knock at doors.
    pub(crate) rows: Vec<Node>,
    pub(crate) removed: RemovedNodes,
}

/// A batch of a relay, which counts them anew in each life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BatchId {
    pub(crate) relay: Incarnation,
    pub(crate) number: u64,
}

/// Who sent which heartbeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) host: usize,
    pub(crate) heartbeat: Heartbeat,
    /// The batch in which that machine carried it, if it is another member's.
    pub(crate) batch: Option<BatchId>,
    /// Up to where its member holds everything, if that came along.
    pub(crate) holds: Version,
}

/// Between nodes.
#[derive(Clone, Debug)]
pub(crate) enum PeerMessage {
    Replica(Message),
    /// A heartbeat that is to be carried.
    Carry {
        from: ReturnAddress,
        heartbeat: Heartbeat,
        stopping: bool,
        /// Up to where its member holds everything.
        holds: Version,
        /// What its member finds at the doors at which it knocks.
        doors: Option<DoorReport>,
    },
    /// What a relay says to a member.
    Relayed {
        to: ReturnAddress,
        said: Said,
    },
    /// Somebody holds a row by which a life is over.
    Over(Over),
    /// A machine knocks where this one serves clients, the process of that number for the so many-th time.
    Ping {
        keeper: usize,
        boot: u64,
        number: u64,
    },
    /// A shard answers it, or the connection is refused.
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
        /// Attempts and requests are counted anew by each life: the page is for this one alone.
        loader: ReplicaAddress,
        attempt: u64,
        ask: u64,
        start: Position,
        /// The version of the row under which the copy is given.
        version: Version,
        after: Bytes,
        rows: Vec<Row>,
        last: bool,
    },
    /// A page of a partition that is absorbed is wanted on this node.
    YieldAsk {
        from: Life,
        ask: YieldAsk,
    },
    /// It, or that there is none yet.
    YieldPage {
        /// Questions are counted anew by each life, too.
        to: Incarnation,
        placement: PlacementId,
        ask: u64,
        page: Option<YieldPage>,
    },
}

/// A proposal of a coordinator, on its way into the log.
#[derive(Clone, Debug)]
pub(crate) struct Proposal {
    pub(crate) term: u64,
    pub(crate) commands: Vec<Command>,
    pub(crate) reply: Option<ProposalReply>,
}

/// Who waits for a proposal.
#[derive(Clone, Debug)]
pub(crate) enum ProposalReply {
    Registration { host: usize, boot: BootId },
    Report { host: usize, report: Report },
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The first proposal under way at this coordinator reaches a quorum.
    Append {
        coordinator: usize,
    },
    /// A coordinator applies what is committed.
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
    /// A quorum round for heartbeats is over. What the majority said is known if it was heard long before the end.
    RoundDone {
        coordinator: usize,
        term: u64,
        round: Round,
        heard: Option<Option<u64>>,
    },
    /// The answers of those that a round confirmed are worked out and leave.
    Answer {
        coordinator: usize,
        term: u64,
        heartbeats: Vec<(Confirmed, Asked)>,
    },
    Elect,
    /// The leading coordinator's session ends now and then.
    Restarts,
    /// A coordinator's session ends, and another one of the same Raft term begins.
    RestartSession {
        coordinator: usize,
    },
    /// A deposed coordinator hears of the newer term.
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
    },
    /// What a client sent at once.
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
        /// Under which it is answered, if it is.
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
    /// One placement's files go.
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
    /// A participant's process looks at its clocks.
    Work {
        worker: usize,
        boot: u64,
    },
    /// A participant's process starts, if none runs.
    Hire {
        worker: usize,
    },
    /// Something goes wrong with a participant, or an operator orders something of a lease.
    WorkerFault,
    /// A copy hears of a leadership that nobody granted.
    Stray,
    /// An operator looks for partitions that nobody can lead.
    Operator,
    /// These machines lose power, for so long.
    PowerOff {
        hosts: Vec<usize>,
        away: u64,
    },
    /// The coordinators are recovered from less than a majority, now and then.
    Recover,
    /// An operator looks how that goes.
    RecoveryLook,
    /// Members are replaced by other versions, and the protocol may rise.
    Upgrade,
    /// The members of the quorum are changed by an operator.
    Reorganise,
    /// Something goes wrong with a coordinator, or its directory.
    QuorumFault,
    /// Whoever leads is lost in the middle of a change.
    LoseLeader {
        coordinator: usize,
    },
    /// A coordinator's directory is lost, and whoever led is cut off.
    WipeAmid {
        coordinator: usize,
        leader: usize,
    },
    /// A coordinator's process looks at its clocks.
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
    /// A coordinator's process starts, if none runs.
    StartCoordinator {
        coordinator: usize,
    },
    /// An operator drops a table.
    Drop,
    /// The same order to drop a table arrives once more.
    DropAgain {
        table: TableId,
    },
    /// An operator makes a table, by a name that is free.
    Make,
    /// Requests for the keys that this partition just gave up are held up, and the keys are to come back.
    ReturnKeys {
        partition: PartitionId,
    },
    /// The keys are merged back.
    MergeBack {
        partition: PartitionId,
    },
    /// A directory is copied, to start its node on the copy while the coordinators are recovered.
    CopyDisk,
    /// The node that was started on an older copy of its directory is started on the right one.
    RightDirectory,
    /// An operator orders a split.
    Split,
    /// An operator orders a merge.
    Merge,
    /// An operator gives a merge up.
    CancelMerge {
        partition: PartitionId,
    },
    /// An operator gives a split up.
    CancelSplit {
        partition: PartitionId,
    },
    /// Something goes wrong around a split.
    DisturbReshape {
        partition: PartitionId,
    },
}

impl Event {
    /// The machine whose process takes it in, if it is one's.
    pub(crate) const fn host(&self) -> Option<usize> {
        match self {
            Self::CoordinatorMessage { host, .. }
            | Self::PeerMessage { host, .. }
            | Self::Requests { host, .. }
            | Self::Tick { host, .. }
            | Self::Flush { host, .. }
            | Self::Synced { host, .. } => Some(*host),
            _ => None,
        }
    }

    /// The participant whose process takes it in, if it is one's.
    pub(crate) const fn worker(&self) -> Option<usize> {
        match self {
            Self::Work { worker, .. } => Some(*worker),
            _ => None,
        }
    }

    /// The coordinator that takes it in, if it is one's.
    pub(crate) const fn coordinator(&self) -> Option<usize> {
        match self {
            Self::Turn { coordinator, .. }
            | Self::PushRound { coordinator, .. }
            | Self::Answer { coordinator, .. }
            | Self::Apply { coordinator }
            | Self::Depose { coordinator }
            | Self::RestartSession { coordinator }
            | Self::QuorumTick { coordinator, .. }
            | Self::QuorumMessage { coordinator, .. }
            | Self::MemberMessage { coordinator, .. } => Some(*coordinator),
            _ => None,
        }
    }
}
