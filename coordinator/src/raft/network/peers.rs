//! The Raft service: checks (quorum, target, sender, its data directory) and validates messages of peers, then passes
//! them to openraft.

use super::PEER_MESSAGE_BYTES_MAX;
use super::chunks::{next_chunk, readable, receive};
use super::judge::{self, PeerMessage, SnapshotHeader};
use super::peer_lookup::PeerLookup;
use super::wire::LocalVoter;
use crate::raft::identity::generations::Generations;
use crate::raft::identity::succession::{Succession, named_generations, successor_of, takeover_of};
use crate::raft::log::entries::{UnderWay, purpose};
use crate::raft::log::log_space::{LogRefusal, LogReservation, LogSpace};
use crate::raft::log::store::OwnTerm;
use crate::raft::machine::ReplicatedState;
use crate::raft::machine::raft::Raft as RaftCore;
use crate::raft::snapshot::BODY_BYTES_MAX;
use crate::raft::types::{Snapshot, SnapshotMeta, TypeConfig};
use archon_coordinator_core::{Acquaintances, CoordinatorStanding};
use archon_proto::convert::error::status_of;
use archon_proto::convert::ids::key_bytes;
use archon_proto::v1::raft_server::{Raft, RaftServer};
use archon_proto::v1::{HelloRequest, HelloResponse, RaftMessage, SnapshotChunk, Standing};
use archon_security::{Caller, Role, Transport};
use archon_types::{ClusterId, StorageId};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use openraft::async_runtime::WatchReceiver as _;
use openraft::raft::{AppendEntriesRequest, TransferLeaderRequest, VoteRequest};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};
use uuid::Uuid;

/// Longest transfer of a whole snapshot, for its sender and for its receiver.
pub(crate) const SNAPSHOT_DEADLINE: Duration = Duration::from_secs(60);
/// Maximum wait of entries for a log file that is being made; the leader waits longer for its answer.
const SPACE_DEADLINE: Duration = Duration::from_millis(500);
/// Maximum number of snapshots received at once: each may take a GiB of memory.
const SNAPSHOTS_MAX: usize = 1;

/// Serves the peers. Until Raft is set it answers only `Hello`.
#[derive(Clone)]
pub(crate) struct Peers {
    inner: Arc<Inner>,
}

struct Inner {
    local_voter: LocalVoter,
    raft: OnceLock<RaftHandles>,
    /// True if the log was empty when this process started. Otherwise nothing is answered before Raft has read it.
    fresh: bool,
    /// This incarnation of the process, sent only to itself.
    boot: Uuid,
    started: Instant,
    /// A restarted voter has lost the record of the leases it confirmed, so it elects no leader for this long.
    vote_pause: Duration,
    /// Ends the streams of peers, which would otherwise stay open.
    stop: CancellationToken,
    /// Senders that were refused, so that each is logged once.
    refused: Mutex<BTreeMap<u64, Uuid>>,
    /// Permits for snapshots in transfer.
    snapshots: Semaphore,
    /// Answers of members about coordinators that the log does not name.
    introductions: PeerLookup,
    /// Knowledge of other generations.
    generations: Generations,
}

/// Recipients of messages, once Raft runs.
pub(in crate::raft) struct RaftHandles {
    /// openraft.
    pub(in crate::raft) raft: RaftCore,
    /// The term of this voter's vote, by which messages are judged.
    pub(in crate::raft) term: OwnTerm,
    /// The space in its log, which entries reserve before openraft receives them.
    pub(in crate::raft) space: LogSpace,
    /// The destination of snapshots.
    pub(in crate::raft) replicated: Arc<ReplicatedState>,
    /// The transport to other voters.
    pub(in crate::raft) transport: Transport,
}

impl Peers {
    /// Creates a service for `local_voter`, which refuses votes for `vote_pause` from now. `fresh`: its log is empty.
    pub(crate) fn new(local_voter: LocalVoter, fresh: bool, vote_pause: Duration, stop: CancellationToken) -> Self {
        let inner = Inner {
            local_voter,
            raft: OnceLock::new(),
            fresh,
            boot: Uuid::new_v4(),
            started: Instant::now(),
            vote_pause,
            stop,
            refused: Mutex::new(BTreeMap::new()),
            snapshots: Semaphore::new(SNAPSHOTS_MAX),
            introductions: PeerLookup::default(),
            generations: Generations::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Returns this incarnation of the process.
    pub(crate) fn boot(&self) -> Uuid {
        self.inner.boot
    }

    /// Connects the service to openraft.
    pub(in crate::raft) fn set(&self, inside: RaftHandles) {
        if self.inner.raft.set(inside).is_err() {
            tracing::error!("raft was set twice; the first one stays");
        }
    }

    /// Returns the peer lookup.
    pub(in crate::raft) fn introductions(&self) -> &PeerLookup {
        &self.inner.introductions
    }

    /// Knowledge of other generations.
    pub(in crate::raft) fn generations(&self) -> &Generations {
        &self.inner.generations
    }

    /// Returns it as a tonic service.
    pub(crate) fn into_service(self) -> RaftServer<Self> {
        RaftServer::new(self)
            .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX)
    }

    fn inside(&self) -> Result<&RaftHandles, Status> {
        let waiting = || Status::unavailable("this coordinator is starting and waits for its peers");
        self.inner.raft.get().ok_or_else(waiting)
    }

    fn raft(&self) -> Result<&RaftCore, Status> {
        self.inside().map(|inside| &inside.raft)
    }

    fn known(&self) -> Acquaintances {
        let members = self.inner.raft.get().map(|inside| known_members(&inside.raft)).unwrap_or_default();
        self.inner.introductions.with_vouched(members, |id| self.is_retired(id))
    }

    /// Returns true if the number belonged to a coordinator that was removed.
    fn is_retired(&self, id: u64) -> bool {
        let retired =
            |inside: &RaftHandles| inside.replicated.read(|state| state.coordinators.retired.contains_key(&id));
        self.inner.raft.get().is_some_and(retired)
    }

    /// Returns the standing in the quorum of a coordinator with this directory.
    fn standing(&self, known: &Acquaintances, id: u64, storage: &[u8]) -> Standing {
        let storage = Uuid::from_slice(storage).ok().map(StorageId::new);
        match known.standing(id, storage, self.is_retired(id)) {
            CoordinatorStanding::Member => Standing::Member,
            CoordinatorStanding::OtherDirectory => Standing::OtherDirectory,
            CoordinatorStanding::Retired => Standing::Retired,
            CoordinatorStanding::Unknown => Standing::Unspecified,
        }
    }

    /// Answers a coordinator that lives in another generation of this cluster; `None` if it does not. `is_certified`: it
    /// showed its certificate.
    fn answer_of_generations(&self, hello: &HelloRequest, is_certified: bool) -> Option<HelloResponse> {
        let generations = &self.inner.generations;
        self.inner.raft.get()?.replicated.read(|state| {
            let succession = Succession::of(state, hello)?;
            let (later_generation, other_generation) = match succession {
                Succession::Continues(generation) => (generation, 0),
                Succession::OtherHistory(generation) => (0, generation),
                Succession::Earlier => (0, 0),
            };
            if succession != Succession::Earlier {
                generations.note_former(hello.sender, hello.generation, hello.works);
            }
            if let Some((id, address)) = successor_of(state, hello, is_certified) {
                generations.note_successor(id, address);
            }
            let takeover = takeover_of(state.stands_by(), generations.stands_by(), || self.is_only_voter());
            let (later_generation, standby_generation) = named_generations(later_generation, takeover);
            Some(HelloResponse {
                id: self.inner.local_voter.id,
                later_generation,
                standby_generation,
                other_generation,
                takeover: takeover.into(),
                works: generations.works() && !state.stands_by(),
                generation: state.generation,
                generation_key: key_bytes(state.generation_key(state.generation)),
                ..HelloResponse::default()
            })
        })
    }

    /// Returns true if no other coordinator has a vote, so that no other one can lead.
    fn is_only_voter(&self) -> bool {
        let Some(inside) = self.inner.raft.get() else { return false };
        let metrics = inside.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let mut voters = metrics.membership_config.membership().voter_ids();
        voters.next() == Some(self.inner.local_voter.id) && voters.next().is_none()
    }

    /// Returns the cluster of which this coordinator is a member.
    fn cluster(&self) -> Option<ClusterId> {
        self.inner.raft.get()?.replicated.read(|state| state.is_bootstrapped().then_some(state.cluster))
    }

    fn open<T: DeserializeOwned + PeerMessage>(
        &self,
        caller: &Caller,
        what: &'static str,
        message: &RaftMessage,
    ) -> Result<T, Status> {
        check_sender(caller, what, message.sender)?;
        let term = self.inner.raft.get().map_or(0, |inside| inside.term.get());
        let opened = self.inner.local_voter.open(what, message, term, &self.known());
        if let Err(status) = &opened {
            if status.code() == Code::PermissionDenied {
                self.inner.introductions.note_stranger(message.sender, &message.sender_storage);
            }
            self.note_refusal(message.sender, &message.sender_storage, status);
        }
        opened
    }

    fn note_refusal(&self, sender: u64, storage: &[u8], status: &Status) {
        let storage = Uuid::from_slice(storage).unwrap_or_default();
        let mut refused = self.inner.refused.lock();
        // The senders are not authenticated, so this set is bounded.
        if refused.len() < 64 && refused.insert(sender, storage).is_none() {
            tracing::warn!(sender, %storage, reason = status.message(), "refused a message of a coordinator");
        }
    }

    fn answer<T: Serialize>(&self, to: u64, what: &'static str, body: &T) -> Result<Response<RaftMessage>, Status> {
        self.answering(to, what, body).map(Response::new)
    }

    /// Wraps an answer, with this voter's lack of space for entries or a snapshot, and its certificate.
    fn answering<T: Serialize>(&self, to: u64, what: &'static str, body: &T) -> Result<RaftMessage, Status> {
        let message = self.inner.local_voter.message(to, what, body);
        let message = message.map_err(|error| Status::internal(error.to_string()))?;
        let inside = self.inner.raft.get();
        let lack = inside.and_then(|inside| inside.space.lack());
        let snapshot_waits = inside.is_some_and(|inside| inside.replicated.snapshot_waits());
        let certificate = inside.and_then(|inside| inside.transport.certificate());
        let (lack, certificate) = (lack.map(Into::into), certificate.map(Into::into));
        Ok(RaftMessage { lack, snapshot_waits, certificate, ..message })
    }

    /// Takes the entries out of a message, and reserves their space in the log. A message without entries needs none:
    /// leaders are heard on a full disk.
    async fn admit(
        &self,
        caller: &Caller,
        message: &RaftMessage,
    ) -> Result<(AppendEntriesRequest<TypeConfig>, Option<LogReservation>), Status> {
        let request: AppendEntriesRequest<TypeConfig> = self.open(caller, "append", message)?;
        let Some(purpose) = purpose(&request) else { return Ok((request, None)) };
        let (entries, bytes) = (request.entries.len(), message.body.len());
        let deadline = tokio::time::Instant::now() + SPACE_DEADLINE;
        let admitted = self.inside()?.space.admitted(purpose, entries, bytes, deadline).await;
        let id = self.inner.local_voter.id;
        let admitted = admitted.map_err(|refused| match refused {
            LogRefusal::Lack(lack) => Status::unavailable(format!("coordinator {id} accepts no entries: {lack}")),
            LogRefusal::Busy | LogRefusal::TooLarge { .. } => {
                Status::unavailable(format!("coordinator {id} accepts no entries now: its log is freeing space"))
            }
        })?;
        Ok((request, Some(admitted)))
    }

    /// Refuses a snapshot that contradicts a committed entry of this log.
    async fn may_install(&self, meta: &SnapshotMeta) -> Result<(), Status> {
        let committed =
            self.raft()?.with_raft_state(|state| state.local_committed().copied()).await.map_err(stopped)?;
        let judged = judge::continues(meta.last_log_id.as_ref(), committed.as_ref());
        judged.map_err(|why| Status::failed_precondition(format!("the snapshot is refused: {why}")))
    }

    /// Writes a snapshot to the disk: openraft, which ends if its state machine cannot, receives only a written one.
    async fn stage(&self, meta: &SnapshotMeta, body: &Bytes) -> Result<(), Status> {
        let (replicated, meta, body) = (Arc::clone(&self.inside()?.replicated), meta.clone(), body.clone());
        let staged = tokio::task::spawn_blocking(move || replicated.stage(&meta, &body)).await;
        let staged = staged.map_err(|error| Status::internal(format!("the snapshot was not put aside: {error}")))?;
        staged.map_err(|error| Status::unavailable(format!("no space for the snapshot: {error}")))
    }

    /// Refuses a candidate whose log lacks entries that it is known to have held.
    fn check_log(&self, message: &RaftMessage, vote: &VoteRequest<TypeConfig>) -> Result<(), Status> {
        let last = vote.last_log_id.map_or(0, |last| last.index);
        let marks = &self.inner.local_voter.marks;
        marks.check_log(message.sender, &message.sender_storage, last).map_err(Status::failed_precondition)
    }

    /// Refuses to vote during the vote pause, or without space for the vote.
    fn may_vote(&self) -> Result<(), Status> {
        if !self.inside()?.space.may_vote() {
            return Err(Status::unavailable(format!("coordinator {} has no space to vote", self.inner.local_voter.id)));
        }
        let left = self.inner.vote_pause.saturating_sub(self.inner.started.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        Err(Status::unavailable(format!("just started: votes again in {} ms", left.as_millis())))
    }
}

/// Returns the members in this coordinator's log, with their data directories.
fn known_members(raft: &RaftCore) -> BTreeMap<u64, StorageId> {
    let metrics = raft.server_metrics();
    let metrics = metrics.borrow_watched();
    metrics.membership_config.nodes().map(|(id, voter)| (*id, StorageId::new(voter.storage))).collect()
}

/// Refuses a message in the name of another coordinator.
fn check_sender(caller: &Caller, what: &str, sender: u64) -> Result<(), Status> {
    caller.check_name(what, Role::Coordinator, &sender.to_string()).map_err(|detail| status_of(&detail))
}

fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("raft stopped: {error}"))
}

type Answers = Pin<Box<dyn Stream<Item = Result<RaftMessage, Status>> + Send>>;

#[tonic::async_trait]
impl Raft for Peers {
    type AppendStream = Answers;

    async fn append(&self, request: Request<Streaming<RaftMessage>>) -> Result<Response<Answers>, Status> {
        let raft = self.raft()?.clone();
        let (this, caller) = (self.clone(), Caller::of(&request));
        let sender = Arc::new(Mutex::new(0));
        let heard = Arc::clone(&sender);
        // The first bad message ends the stream; the last answer contains the reason.
        let refusal: Arc<Mutex<Option<Status>>> = Arc::default();
        let reason = Arc::clone(&refusal);
        let under_way = Arc::new(UnderWay::new(raft.clone()));
        let taken = Arc::clone(&under_way);
        let requests = request.into_inner().scan((), move |(), message| {
            let (this, caller) = (this.clone(), caller.clone());
            let (heard, taken, reason) = (Arc::clone(&heard), Arc::clone(&taken), Arc::clone(&reason));
            async move {
                let opened = async {
                    let message = message?;
                    *heard.lock() = message.sender;
                    let admitted = this.admit(&caller, &message).await?;
                    this.inner.introductions.note_leader();
                    Ok(admitted)
                };
                match opened.await {
                    Ok((request, admitted)) => {
                        taken.hold(admitted);
                        Some(request)
                    }
                    Err(status) => {
                        *reason.lock() = Some(status);
                        None
                    }
                }
            }
        });
        // openraft holds this end in its own task until it ends.
        let requests = requests.take_until(self.inner.stop.clone().cancelled_owned());
        let this = self.clone();
        let answers = raft.stream_append(requests).map(move |result| {
            // Answers come in the order of the requests, each once its entries are durable.
            under_way.answered();
            let answer = result.map_err(stopped)?;
            let to = *sender.lock();
            this.answering(to, "append answer", &answer)
        });
        let ending = futures::stream::once(async move { refusal.lock().take() })
            .filter_map(|status| std::future::ready(status.map(Err)));
        let answers = answers.take_until(self.inner.stop.clone().cancelled_owned());
        Ok(Response::new(Box::pin(answers.chain(ending))))
    }

    async fn vote(&self, request: Request<RaftMessage>) -> Result<Response<RaftMessage>, Status> {
        let (caller, message) = (Caller::of(&request), request.into_inner());
        let vote: VoteRequest<TypeConfig> = self.open(&caller, "vote request", &message)?;
        self.check_log(&message, &vote)?;
        self.may_vote()?;
        let answer = self.raft()?.vote(vote).await.map_err(stopped)?;
        self.answer(message.sender, "vote answer", &answer)
    }

    async fn pre_vote(&self, request: Request<RaftMessage>) -> Result<Response<RaftMessage>, Status> {
        let (caller, message) = (Caller::of(&request), request.into_inner());
        let vote: VoteRequest<TypeConfig> = self.open(&caller, "pre-vote request", &message)?;
        self.check_log(&message, &vote)?;
        self.may_vote()?;
        let answer = self.raft()?.pre_vote(vote).await.map_err(stopped)?;
        self.answer(message.sender, "pre-vote answer", &answer)
    }

    async fn transfer(&self, request: Request<RaftMessage>) -> Result<Response<RaftMessage>, Status> {
        let (caller, message) = (Caller::of(&request), request.into_inner());
        let transfer: TransferLeaderRequest<TypeConfig> = self.open(&caller, "transfer request", &message)?;
        let answer = self.raft()?.handle_transfer_leader(transfer).await.map_err(stopped)?;
        self.answer(message.sender, "transfer answer", &answer)
    }

    async fn snapshot(&self, request: Request<Streaming<SnapshotChunk>>) -> Result<Response<RaftMessage>, Status> {
        let (caller, mut chunks) = (Caller::of(&request), request.into_inner());
        let first = next_chunk(&mut chunks).await?;
        let header = first.and_then(|chunk| chunk.header);
        let header = header.ok_or_else(|| Status::invalid_argument("the first chunk must hold the header"))?;
        let (vote, meta, length): SnapshotHeader = self.open(&caller, "snapshot header", &header)?;
        if length > BODY_BYTES_MAX {
            return Err(Status::invalid_argument(format!("snapshot of {length} bytes is above {BODY_BYTES_MAX}")));
        }
        self.may_install(&meta).await?;
        let _place =
            self.inner.snapshots.try_acquire().map_err(|_| {
                Status::unavailable("this coordinator is receiving another snapshot; only one at a time")
            })?;
        let body = tokio::time::timeout(SNAPSHOT_DEADLINE, receive(&mut chunks, length)).await;
        let body = body.map_err(|_| Status::deadline_exceeded("the snapshot took too long"))??;
        let body = readable(body, self.inner.local_voter.spoken.clone()).await?;
        self.stage(&meta, &body).await?;
        // The log may have grown meanwhile.
        let installed = match self.may_install(&meta).await {
            Ok(()) => {
                let snapshot = Snapshot { meta, snapshot: body };
                self.raft()?.install_full_snapshot(vote, snapshot).await.map_err(stopped)
            }
            Err(status) => Err(status),
        };
        let replicated = Arc::clone(&self.inside()?.replicated);
        if let Err(error) = tokio::task::spawn_blocking(move || replicated.unstage()).await {
            tracing::warn!(%error, "a snapshot that is not needed was not removed");
        }
        self.answer(header.sender, "snapshot answer", &installed?)
    }

    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloResponse>, Status> {
        let (caller, hello) = (Caller::of(&request), request.into_inner());
        check_sender(&caller, "/archon.v1.Raft/Hello", hello.sender)?;
        let local_voter = &self.inner.local_voter;
        if hello.sender == local_voter.id && hello.sender_storage == local_voter.storage.as_bytes()[..] {
            // It checks for another process with a copy of its directory.
            let boot = Bytes::copy_from_slice(self.inner.boot.as_bytes());
            return Ok(Response::new(HelloResponse { id: local_voter.id, boot, ..HelloResponse::default() }));
        }
        if let Some(answer) = self.answer_of_generations(&hello, caller.identity.is_some()) {
            return Ok(Response::new(answer));
        }
        let known = self.known();
        let standing = self.standing(&known, hello.sender, &hello.sender_storage);
        // A coordinator that was wiped or removed must learn it.
        let checked = match standing {
            Standing::Unspecified => {
                local_voter.check(&hello.cluster_id, hello.target, hello.sender, &hello.sender_storage, &known)
            }
            _ => local_voter.check_target(&hello.cluster_id, hello.target, hello.sender),
        };
        if let Err(status) = checked {
            let status = self.cluster().and_then(|own| local_voter.of_another_cluster(own, &hello)).unwrap_or(status);
            self.note_refusal(hello.sender, &hello.sender_storage, &status);
            return Err(status);
        }
        if !self.inner.fresh {
            // "No voter set" would be wrong while the log is still being read.
            self.raft()?;
        }
        let subject = hello.subject.map(|subject| self.standing(&known, subject.id, &subject.storage));
        Ok(Response::new(HelloResponse {
            id: local_voter.id,
            // The key of a quorum is made of all directories; afterwards each compares only its own.
            storage: if known.names_nobody() {
                Bytes::copy_from_slice(local_voter.storage.as_bytes())
            } else {
                Bytes::new()
            },
            initialized: !known.names_nobody(),
            standing: standing.into(),
            subject_standing: subject.unwrap_or_default().into(),
            // Sent to a member: a follower accepts its leader's word for a majority.
            works: standing == Standing::Member && self.inner.generations.works(),
            ..HelloResponse::default()
        }))
    }
}
