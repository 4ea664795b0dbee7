//! Connections of openraft to its peers: one channel per peer and class of traffic, with deadlines of our own.

pub(super) mod addresses;
pub(crate) mod check_answers;
mod chunks;
pub(super) mod distances;
pub(super) mod hello;
pub(super) mod hints;
pub(super) mod judge;
pub(crate) mod measure_distances;
pub(super) mod peer_lookup;
pub(super) mod peers;
pub(super) mod wire;

use super::log::store::OwnTerm;
use super::network::addresses::Addresses;
use super::network::judge::PeerMessage;
use super::network::wire::LocalVoter;
use super::quorum::voter_reports::VoterReports;
use super::types::{Snapshot, TypeConfig, Vote, Voter};
use archon_proto::v1::raft_client::RaftClient;
use archon_proto::v1::{RaftMessage, SnapshotChunk};
use archon_security::{CONNECT_TIMEOUT, ExpectedPeer, Transport};
use archon_types::Backoff as Pauses;
use archon_types::limits::MESSAGE_BYTES_MAX;
use crc32c::crc32c;
use futures::{Stream, StreamExt as _};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption, RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RPCTypes};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use uuid::Uuid;

/// Deadline for opening a replication stream, including a connection, which takes four round trips.
const OPEN_DEADLINE: Duration = Duration::from_secs(3);
/// Longest silence of a peer with a pending answer, unless the quorum's timing requires a longer one.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);
/// Interval of checks of a silent stream.
const ANSWER_CHECK: Duration = Duration::from_millis(100);
/// Pause after a replication stream could not be opened; doubled up to the maximum. openraft waits for its own back-off
/// only when the stream asks for the first request, which never happens without a connection.
const REOPEN_MIN: Duration = Duration::from_millis(25);
const REOPEN_MAX: Duration = Duration::from_millis(200);
const SNAPSHOT_CHUNK_BYTES: usize = 1024 * 1024;
/// Maximum size of a replication message: a batch of entries and its envelope.
pub(crate) const PEER_MESSAGE_BYTES_MAX: usize = 8 * MESSAGE_BYTES_MAX;

/// Classes of traffic; each has its own connection so that it does not wait for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Log,
    Heartbeat,
    Snapshot,
}

/// Creates clients that share connections.
pub(crate) struct Network {
    transport: Transport,
    local_voter: LocalVoter,
    term: OwnTerm,
    voter_reports: VoterReports,
    addresses: Addresses,
    channels: BTreeMap<(u64, Class), (String, Channel)>,
}

impl Network {
    /// Creates a network for `local_voter`, whose vote is of `term`. Reports of peers about their space go to
    /// `voter_reports`.
    pub(crate) fn new(
        transport: Transport,
        local_voter: LocalVoter,
        term: OwnTerm,
        voter_reports: VoterReports,
        addresses: Addresses,
    ) -> Self {
        Self { transport, local_voter, term, voter_reports, addresses, channels: BTreeMap::new() }
    }

    fn client(&mut self, target: u64, voter: &Voter, class: Class) -> Link {
        let (address, storage) = (voter.address.clone(), voter.storage);
        let address = self.addresses.other_than(target, &address).unwrap_or(address);
        let cached = self.channels.get(&(target, class)).filter(|(known, _)| *known == address);
        let channel = match cached {
            Some((_, channel)) => Some(channel.clone()),
            None => connect(&self.transport, &address, ExpectedPeer::Coordinator(target)),
        };
        if let Some(channel) = &channel {
            self.channels.insert((target, class), (address.clone(), channel.clone()));
        }
        Link {
            local_voter: self.local_voter.clone(),
            term: self.term.clone(),
            voter_reports: self.voter_reports.clone(),
            transport: self.transport.clone(),
            addresses: self.addresses.clone(),
            target,
            address,
            storage,
            class,
            channel,
            reopen: Pauses::new(REOPEN_MIN, REOPEN_MAX),
        }
    }
}

/// Returns a channel that connects on first use; `None` for an invalid address.
pub(crate) fn connect(transport: &Transport, address: &str, expected: ExpectedPeer) -> Option<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
    let endpoint =
        endpoint.http2_keep_alive_interval(Duration::from_secs(2)).keep_alive_timeout(Duration::from_secs(2));
    Some(transport.channel(&endpoint, address, expected, CONNECT_TIMEOUT))
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: u64, node: &Voter) -> Link {
        self.client(target, node, Class::Log)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Voter) -> Link {
        self.client(target, node, Class::Heartbeat)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &Voter) -> Link {
        self.client(target, node, Class::Snapshot)
    }
}

/// Connection to one peer.
pub(crate) struct Link {
    local_voter: LocalVoter,
    term: OwnTerm,
    voter_reports: VoterReports,
    transport: Transport,
    addresses: Addresses,
    target: u64,
    address: String,
    /// The data directory with which the peer became a voter.
    storage: Uuid,
    class: Class,
    channel: Option<Channel>,
    /// Pauses while streams cannot be opened.
    reopen: Pauses,
}

type Rpc<T> = Result<T, RPCError<TypeConfig>>;

/// Number of answers that the peer owes, and the start of its silence while it owed one.
#[derive(Default)]
struct OwedAnswers {
    sent: u64,
    received: u64,
    since: Option<Instant>,
}

impl Link {
    /// Follows the peer to its current address.
    fn follow(&mut self) {
        if let Some(address) = self.addresses.other_than(self.target, &self.address) {
            tracing::info!(id = self.target, was = self.address, is = address, "a coordinator is reached elsewhere");
            self.channel = connect(&self.transport, &address, ExpectedPeer::Coordinator(self.target));
            self.address = address;
        }
    }

    fn client(&self) -> Result<RaftClient<Channel>, RPCError<TypeConfig>> {
        let Some(channel) = self.channel.clone() else {
            let what = format!("the address {:?} of coordinator {} is not host:port", self.address, self.target);
            return Err(Unreachable::from_string(what).into());
        };
        Ok(RaftClient::new(channel)
            .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX))
    }

    /// Delays the next attempt to open a stream. Heartbeats are paced by openraft itself.
    async fn pause(&mut self) {
        if self.class == Class::Log {
            tokio::time::sleep(self.reopen.next(rand::random())).await;
        }
    }

    fn timeout(&self, action: RPCTypes, timeout: Duration) -> Timeout<TypeConfig> {
        Timeout { action, id: self.local_voter.id, target: self.target, timeout }
    }

    /// Returns the answer, if the voter's log contains everything it is known to have held: its vote could lose it.
    fn with_whole_log(&self, answer: VoteResponse<TypeConfig>) -> Rpc<VoteResponse<TypeConfig>> {
        let last = answer.last_log_id.map_or(0, |last| last.index);
        let checked = self.local_voter.marks.check_log(self.target, self.storage.as_bytes(), last);
        checked.map_err(|why| Unreachable::from_string(why).into()).map(|()| answer)
    }

    fn message<T: Serialize>(&self, what: &'static str, body: &T) -> Rpc<RaftMessage> {
        self.local_voter.message(self.target, what, body).map_err(|error| NetworkError::new(&error).into())
    }

    async fn unary<T, F, A>(
        &self,
        action: RPCTypes,
        deadline: Duration,
        what: &'static str,
        call: impl FnOnce(RaftClient<Channel>) -> F,
    ) -> Rpc<A>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
        T: Into<RaftMessage>,
        A: DeserializeOwned + PeerMessage,
    {
        let answer = tokio::time::timeout(deadline, call(self.client()?)).await;
        let answer = answer.map_err(|_| self.timeout(action, deadline))?;
        let message = answer.map_err(|status| failed(&status))?.into_inner().into();
        let opened = self.local_voter.open_answer(what, &message, (self.target, self.storage), self.term.get());
        if opened.is_ok() {
            self.voter_reports.note(self.target, &message);
        }
        opened.map_err(|error| Unreachable::new(&error).into())
    }
}

/// A refused connection backs off at once; other failures may be transient.
fn failed(status: &Status) -> RPCError<TypeConfig> {
    match status.code() {
        Code::Unavailable | Code::FailedPrecondition => Unreachable::new(status).into(),
        _ => NetworkError::new(status).into(),
    }
}

impl NetBackoff<TypeConfig> for Link {
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}

impl NetStreamAppend<TypeConfig> for Link {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Rpc<BoxStream<'s, Rpc<StreamAppendResult<TypeConfig>>>>>
    where
        S: Stream<Item = AppendEntriesRequest<TypeConfig>> + OptionalSend + Unpin + 'static,
    {
        self.follow();
        Box::pin(async move {
            let silence = self.local_voter.timing.silence(ANSWER_DEADLINE);
            let owed = Arc::new(Mutex::new(OwedAnswers::default()));
            let requests = {
                let (owed, local_voter, target) = (Arc::clone(&owed), self.local_voter.clone(), self.target);
                input
                    .map(move |request| {
                        let mut owed = owed.lock();
                        if owed.sent == owed.received {
                            owed.since = Some(Instant::now());
                        }
                        owed.sent += 1;
                        local_voter.message(target, "append", &request)
                    })
                    // An entry that cannot be encoded ends the stream; the peer then sees a closed request.
                    .take_while(|message| std::future::ready(message.is_ok()))
                    .filter_map(|message: io::Result<RaftMessage>| std::future::ready(message.ok()))
            };
            let opened = tokio::time::timeout(OPEN_DEADLINE, async {
                self.client()?.append(requests).await.map_err(|status| failed(&status))
            });
            let opened =
                opened.await.unwrap_or_else(|_| Err(self.timeout(RPCTypes::AppendEntries, OPEN_DEADLINE).into()));
            let answers = match opened {
                Ok(answers) => answers.into_inner(),
                Err(error) => {
                    self.pause().await;
                    return Err(error);
                }
            };
            self.reopen.reset();
            let (local_voter, own, peer) = (self.local_voter.clone(), self.term.clone(), (self.target, self.storage));
            let voter_reports = self.voter_reports.clone();
            let stream = futures::stream::unfold(
                Some((answers, owed, local_voter, own, voter_reports)),
                move |state| async move {
                    let (mut answers, owed, local_voter, own, voter_reports) = state?;
                    let outcome = loop {
                        match tokio::time::timeout(ANSWER_CHECK, answers.next()).await {
                            Ok(outcome) => break outcome?,
                            Err(_) => {
                                let silent = owed.lock().since.is_some_and(|since| since.elapsed() > silence);
                                if silent {
                                    let (action, timeout) = (RPCTypes::AppendEntries, silence);
                                    let timeout = Timeout { action, id: local_voter.id, target: peer.0, timeout };
                                    return Some((Err(timeout.into()), None));
                                }
                            }
                        }
                    };
                    {
                        let mut owed = owed.lock();
                        owed.received += 1;
                        owed.since = (owed.sent > owed.received).then(Instant::now);
                    }
                    let answer = outcome.map_err(|status| failed(&status)).and_then(|message| {
                        let answer: io::Result<StreamAppendResult<TypeConfig>> =
                            local_voter.open_answer("append answer", &message, peer, own.get());
                        if answer.is_ok() {
                            voter_reports.note(peer.0, &message);
                        }
                        Ok(answer.map_err(|error| Unreachable::new(&error))?)
                    });
                    let more = matches!(answer, Ok(Ok(_))).then_some((answers, owed, local_voter, own, voter_reports));
                    Some((answer, more))
                },
            );
            let stream: BoxStream<'s, Rpc<StreamAppendResult<TypeConfig>>> = Box::pin(stream);
            Ok(stream)
        })
    }
}

impl NetVote<TypeConfig> for Link {
    async fn vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.follow();
        let message = self.message("vote request", &rpc)?;
        let call = |mut client: RaftClient<Channel>| async move { client.vote(message).await };
        let answer = self.unary(RPCTypes::Vote, option.hard_ttl(), "vote answer", call).await?;
        self.with_whole_log(answer)
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<TypeConfig>,
        option: RPCOption,
    ) -> Result<VoteResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.follow();
        let message = self.message("pre-vote request", &rpc)?;
        let call = |mut client: RaftClient<Channel>| async move { client.pre_vote(message).await };
        let answer = self.unary(RPCTypes::Vote, option.hard_ttl(), "pre-vote answer", call).await?;
        self.with_whole_log(answer)
    }
}

impl NetTransferLeader<TypeConfig> for Link {
    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Result<TransferLeaderResponse<TypeConfig>, RPCError<TypeConfig>> {
        self.follow();
        let message = self.message("transfer request", &req)?;
        let call = |mut client: RaftClient<Channel>| async move { client.transfer(message).await };
        let deadline = self.local_voter.timing.silence(ANSWER_DEADLINE);
        self.unary(RPCTypes::TransferLeader, deadline, "transfer answer", call).await
    }
}

impl NetSnapshot<TypeConfig> for Link {
    type SnapshotData = bytes::Bytes;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<TypeConfig>, StreamingError<TypeConfig>> {
        self.follow();
        let header = self
            .local_voter
            .message(self.target, "snapshot header", &(vote, &snapshot.meta, snapshot.snapshot.len() as u64))
            .map_err(|error| NetworkError::new(&error))?;
        let body = snapshot.snapshot;
        let pieces = body.len().div_ceil(SNAPSHOT_CHUNK_BYTES);
        let chunks = (0..=pieces).map(move |piece| match piece.checked_sub(1) {
            None => SnapshotChunk { header: Some(header.clone()), ..SnapshotChunk::default() },
            Some(number) => {
                let start = number * SNAPSHOT_CHUNK_BYTES;
                let data = body.slice(start..body.len().min(start + SNAPSHOT_CHUNK_BYTES));
                SnapshotChunk { header: None, crc32c: crc32c(&data), data }
            }
        });
        let deadline = option.hard_ttl();
        let call =
            |mut client: RaftClient<Channel>| async move { client.snapshot(futures::stream::iter(chunks)).await };
        let sent = self.unary(RPCTypes::InstallSnapshot, deadline, "snapshot answer", call);
        tokio::select! {
            answer = sent => answer.map_err(|error| match error {
                RPCError::Timeout(error) => error.into(),
                RPCError::Unreachable(error) => error.into(),
                RPCError::Network(error) => error.into(),
                RPCError::RemoteError(error) => match error.source {},
            }),
            closed = cancel => Err(closed.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::store::LogStore;
    use super::*;
    use crate::raft::KeptMarks;
    use crate::raft::ProtocolSupport;
    use archon_wal::WalConfig;
    use archon_wal::disk::MemoryDisk;

    /// Returns the network of the first of two coordinators.
    fn network(addresses: Addresses) -> Network {
        let term = LogStore::open(Arc::new(MemoryDisk::new()), WalConfig::default(), || Ok(None)).unwrap().own_term();
        let expected = Arc::new([1, 2].into());
        let local_voter = LocalVoter {
            id: 1,
            storage: Uuid::nil(),
            quorum: Uuid::nil(),
            expected,
            spoken: ProtocolSupport::default(),
            timing: Default::default(),
            marks: KeptMarks::none(1, Uuid::nil()),
            checksums: crate::raft::Checksums::new(1),
        };
        Network::new(Transport::default(), local_voter, term, VoterReports::default(), addresses)
    }

    #[tokio::test]
    async fn refused_connection_is_not_retried_in_a_tight_loop() {
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap().to_string();
        drop(free);
        let mut network = network(Addresses::default());
        let mut link = network.new_client(2, &Voter { address, storage: Uuid::nil() }).await;
        let begun = Instant::now();
        let mut attempts = 0;
        while begun.elapsed() < Duration::from_millis(500) {
            let opened =
                link.stream_append(futures::stream::pending(), RPCOption::new(Duration::from_millis(50))).await;
            assert!(matches!(opened.map(|_| ()), Err(RPCError::Unreachable(_))));
            attempts += 1;
        }
        assert!((2..10).contains(&attempts), "{attempts} attempts in half a second");
    }

    #[tokio::test]
    async fn moved_member_is_called_at_its_new_address() {
        let addresses = Addresses::default();
        let mut network = network(addresses.clone());
        let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let old = free.local_addr().unwrap().to_string();
        drop(free);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = |address: String| Voter { address, storage: Uuid::nil() };
        let mut link = network.new_client(2, &at(old)).await;
        let nodes = BTreeMap::from([(2, at(listener.local_addr().unwrap().to_string()))]);
        addresses.set(&openraft::Membership::new(vec![[2].into()], nodes).unwrap());
        let open = async {
            let _ = link.stream_append(futures::stream::pending(), RPCOption::new(Duration::from_millis(50))).await;
        };
        let called = tokio::time::timeout(Duration::from_secs(60), async {
            tokio::select! {
                () = open => listener.accept().await,
                called = listener.accept() => called,
            }
        });
        called.await.expect("nobody called there").unwrap();
    }
}
