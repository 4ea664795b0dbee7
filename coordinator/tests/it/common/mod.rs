//! Quorums in this process, on free ports and in temporary directories; and nodes that exist only on the wire.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use archon_coordinator::{Coordinator, CoordinatorConfig, FirstStart};
use archon_documents::{
    ChangeQuorum, CoordinatorStatus, CreateTable, MethodCall, Quorum as QuorumView, QuorumAction, ShowQuorum,
    ShowStatus, Status as ClusterStatus, read_answer, write,
};
use archon_frames::testing::FakeServer;
use archon_frames::{FrameError, FrameReader, FrameWriter, StreamKind, connect};
use archon_proto::convert::error::detail_of;
use archon_proto::convert::members::beats::{BeatAnswers, LeaseGrant};
use archon_proto::documents;
use archon_proto::v1;
use archon_proto::v1::control_server::{Control, ControlServer};
use archon_proto::v1::session_client::SessionClient;
use archon_proto::v1::table_client::TableClient;
use archon_security::{ExpectedPeer, Transport};
use archon_testkit::{ScratchDirectory, wait_for_async};
use archon_types::{
    Assembly, AssemblyResult, ErrorDetail, ErrorKind, PROTOCOL_NEWEST, PartitionTable, Partitioning, ProtocolRange,
    Settings, TableContent, TablePiece,
};
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use uuid::Uuid;

pub struct Quorum {
    pub dirs: BTreeMap<u64, ScratchDirectory>,
    pub peers: BTreeMap<u64, String>,
    pub running: BTreeMap<u64, Coordinator>,
    pub settings: Settings,
}

impl Quorum {
    pub async fn start(count: u64, settings: Settings) -> Self {
        // `RUST_LOG=archon_coordinator=debug` shows the log of a test.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let mut listeners = BTreeMap::new();
        let mut quorum = Self { dirs: BTreeMap::new(), peers: BTreeMap::new(), running: BTreeMap::new(), settings };
        for id in 1..=count {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            quorum.peers.insert(id, listener.local_addr().unwrap().to_string());
            quorum.dirs.insert(id, ScratchDirectory::in_memory().unwrap());
            listeners.insert(id, listener);
        }
        for (id, listener) in listeners {
            let coordinator = Coordinator::start(listener, quorum.config(id)).await.unwrap();
            quorum.running.insert(id, coordinator);
        }
        quorum
    }

    pub fn config(&self, id: u64) -> CoordinatorConfig {
        CoordinatorConfig {
            id,
            listen: self.peers[&id].parse().unwrap(),
            metrics_listen: None,
            transport: Transport::default(),
            advertise: None,
            start: Some(FirstStart::Found { peers: self.peers.clone() }),
            data_dir: self.dirs[&id].path().to_path_buf(),
            speaks: ProtocolRange::SPOKEN,
            timing: archon_coordinator::QuorumTiming::default(),
            settings: self.settings.clone(),
            settings_said: BTreeSet::new(),
        }
    }

    /// Returns the listener and configuration of a newcomer that joins through these, on a port and in a directory of
    /// its own.
    pub async fn newcomer(&mut self, id: u64, through: &[u64], learner: bool) -> (TcpListener, CoordinatorConfig) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let through = through.iter().map(|id| self.peers[id].clone()).collect();
        self.peers.insert(id, listener.local_addr().unwrap().to_string());
        self.dirs.insert(id, ScratchDirectory::in_memory().unwrap());
        let config = CoordinatorConfig { start: Some(FirstStart::Join { through, learner }), ..self.config(id) };
        (listener, config)
    }

    /// Starts a newcomer that joins through these, and waits until its admission is complete.
    pub async fn join(&mut self, id: u64, through: &[u64], learner: bool) {
        let (listener, config) = self.newcomer(id, through, learner).await;
        self.running.insert(id, Coordinator::start(listener, config).await.unwrap());
        self.changed().await;
    }

    /// Returns the quorum in the leading coordinator's view.
    pub async fn view(&self) -> Result<QuorumView, ErrorDetail> {
        ask(&self.leader_address().await, &ShowQuorum {}).await
    }

    /// As `view`, from a leader that the others have confirmed: on a busy machine leadership may pass on meanwhile.
    pub async fn confirmed_view(&self) -> QuorumView {
        wait_for_async("a confirmed leader", Duration::from_secs(60), || async {
            let address = self.leader_address().await;
            // Answered once a majority has confirmed that it leads. Its view is its own, so it must still lead then.
            status(&address).await.map_err(|error| error.to_string())?;
            let view = ask(&address, &ShowQuorum {}).await.map_err(|error| error.to_string())?;
            let leads = view.leader_id == Some(view.id) && view.spare_voters.is_some();
            if leads { Ok(view) } else { Err(format!("{view:?}")) }
        })
        .await
    }

    /// Waits until no change of the quorum is in progress, and returns its voters and its learners.
    pub async fn changed(&self) -> (Vec<u64>, Vec<u64>) {
        wait_for_async("the change of the quorum", Duration::from_secs(60), || async {
            let view = self.view().await.map_err(|error| error.to_string())?;
            if view.leader_id != Some(view.id) || view.pending.is_some() {
                return Err(format!("{view:?}"));
            }
            let (learners, voters): (Vec<_>, Vec<_>) = view.coordinators.into_iter().partition(|member| member.learner);
            let ids = |members: Vec<CoordinatorStatus>| members.into_iter().map(|member| member.id).collect();
            Ok((ids(voters), ids(learners)))
        })
        .await
    }

    /// Asks the leading coordinator to change the quorum.
    pub async fn change(&self, action: impl Into<QuorumAction>) -> Result<bool, ErrorDetail> {
        self.change_with(action, false).await
    }

    pub async fn change_with(&self, action: impl Into<QuorumAction>, force: bool) -> Result<bool, ErrorDetail> {
        Ok(self.ask(&ChangeQuorum { action: action.into(), force }).await?.changed)
    }

    /// Asks the leading coordinator, under one id until the others have confirmed that it leads: on a busy machine they may
    /// be late.
    pub async fn ask<T: MethodCall>(&self, document: &T) -> Result<T::Answer, ErrorDetail> {
        let id = request_id();
        wait_for_async("a confirmed leader", Duration::from_secs(60), || async {
            match ask_as(&self.leader_address().await, document, &id).await {
                Err(error) if matches!(error.kind, ErrorKind::NoQuorum | ErrorKind::NotCoordinatorLeader) => Err(error),
                answer => Ok(answer),
            }
        })
        .await
    }

    /// Returns the status in the view of a confirmed leader.
    pub async fn status(&self) -> ClusterStatus {
        self.ask(&ShowStatus {}).await.unwrap()
    }

    pub async fn restart(&mut self, id: u64) {
        let config = self.config(id);
        let listener = wait_for_async("the port to be free", Duration::from_secs(60), || async {
            TcpListener::bind(config.listen).await.map_err(|error| error.to_string())
        })
        .await;
        self.running.insert(id, Coordinator::start(listener, config).await.unwrap());
    }

    /// Waits for a leader and returns it.
    pub async fn leader(&self) -> u64 {
        wait_for_async("a leader", Duration::from_secs(60), || async {
            let leads = self.running.values().find(|coordinator| coordinator.is_leading());
            leads.map(Coordinator::id).ok_or_else(|| "no leader".to_owned())
        })
        .await
    }

    pub async fn leader_address(&self) -> String {
        self.peers[&self.leader().await].clone()
    }

    /// Returns the id of the cluster.
    pub async fn cluster(&self) -> v1::ClusterRef {
        let id: Uuid = self.status().await.cluster_id.parse().unwrap();
        v1::ClusterRef { cluster_id: bytes::Bytes::copy_from_slice(id.as_bytes()) }
    }

    pub async fn stop_all(self) {
        for (_, coordinator) in self.running {
            assert!(coordinator.shutdown().await.is_none());
        }
    }
}

pub fn channel(address: &str) -> Channel {
    Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy()
}

/// Calls a method with a document.
pub async fn ask<T: MethodCall>(address: &str, document: &T) -> Result<T::Answer, ErrorDetail> {
    exchange::<T>(address, Request::new(message(document, None, request_id()))).await
}

/// As `ask`, under an id of the caller's, as a retry has it.
pub async fn ask_as<T: MethodCall>(address: &str, document: &T, id: &bytes::Bytes) -> Result<T::Answer, ErrorDetail> {
    exchange::<T>(address, Request::new(message(document, None, id.clone()))).await
}

/// As `ask`, for the cluster that is named.
pub async fn ask_of<T: MethodCall>(
    address: &str,
    document: &T,
    cluster: Option<v1::ClusterRef>,
) -> Result<T::Answer, ErrorDetail> {
    exchange::<T>(address, Request::new(message(document, cluster, request_id()))).await
}

/// As `ask`, with a deadline.
pub async fn ask_within<T: MethodCall>(
    address: &str,
    document: &T,
    within: Duration,
) -> Result<T::Answer, ErrorDetail> {
    let mut request = Request::new(message(document, None, request_id()));
    request.set_timeout(within);
    exchange::<T>(address, request).await
}

fn message<T: MethodCall>(document: &T, cluster: Option<v1::ClusterRef>, request_id: bytes::Bytes) -> v1::AdminRequest {
    v1::AdminRequest { cluster, request_id, document: write(document).unwrap().into() }
}

async fn exchange<T: MethodCall>(address: &str, request: Request<v1::AdminRequest>) -> Result<T::Answer, ErrorDetail> {
    let answer = documents::call(channel(address).into(), T::METHOD, request).await;
    read_answer(&answer.map_err(|status| detail_of(&status))?.into_inner().document)
}

pub async fn status(address: &str) -> Result<ClusterStatus, ErrorDetail> {
    ask(address, &ShowStatus {}).await
}

/// A table of data with hashed keys and one copy of each partition.
pub fn hashed(name: &str, partitions: u32) -> CreateTable {
    CreateTable::new(name, Partitioning::Hash { partitions }, 1, TableContent::Data)
}

pub async fn table(address: &str, wait_ms: u32) -> Result<v1::GetTableResponse, ErrorDetail> {
    let request = v1::GetTableRequest { wait_ms, ..v1::GetTableRequest::default() };
    let answer = TableClient::new(channel(address)).get_table(request).await;
    answer.map(Response::into_inner).map_err(|status| detail_of(&status))
}

pub fn request_id() -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(Uuid::new_v4().as_bytes())
}

/// Received pushes.
#[derive(Clone, Default)]
pub struct ReceivedPushes {
    /// The last push, with the obeyed duties.
    pub last: Arc<Mutex<Option<v1::PushRequest>>>,
    /// The received tables.
    pub tables: Arc<Mutex<Tables>>,
    /// The boot id that the process confirms.
    pub boot: Arc<Mutex<bytes::Bytes>>,
}

/// Received pieces of a table, and their assembly.
#[derive(Default)]
pub struct Tables {
    /// `from` and `next` of each piece.
    pub pieces: Vec<(u64, Option<u64>)>,
    pub largest_push_bytes: usize,
    /// The first received table.
    pub held: Option<PartitionTable>,
    pub complete: u64,
    pub nodes: usize,
    /// The received lists of tables.
    pub lists: Vec<v1::TableList>,
    /// The nodes of all pushes, encoded.
    pub nodes_encoded: Vec<u8>,
    /// Fault for the next piece that is not a first one; once.
    pub trouble: Option<Trouble>,
    assembly: Option<Assembly>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The connection breaks before the answer.
    Cut,
    /// The previous pieces are lost.
    Gap,
}

impl Tables {
    /// Applies a push like a node. Returns the fault of its answer, if any.
    fn take(&mut self, push: &v1::PushRequest) -> Option<Trouble> {
        self.largest_push_bytes = self.largest_push_bytes.max(push.encoded_len());
        for bytes in &push.deltas {
            let piece = v1::TableDelta::decode(&bytes[..]).unwrap();
            let piece = TablePiece::try_from(piece).unwrap();
            self.pieces.push((piece.from, piece.next));
            if piece.from > 0
                && let Some(trouble) = self.trouble.take()
            {
                self.assembly = self.assembly.take().filter(|_| trouble == Trouble::Cut);
                return Some(trouble);
            }
            match Assembly::take(&mut self.assembly, piece) {
                AssemblyResult::Whole(delta) => match &mut self.held {
                    Some(held) if held.table().id == delta.table.id => assert!(held.merge(delta)),
                    Some(_) => {} // of another table
                    None => self.held = Some(PartitionTable::from_whole(delta).unwrap()),
                },
                AssemblyResult::More(_) => assert_eq!(push.complete, 0, "more is to follow"),
                AssemblyResult::Gap => return Some(Trouble::Gap),
            }
        }
        self.lists.extend(push.tables.clone());
        if !push.nodes.is_empty() {
            self.nodes_encoded.extend_from_slice(&push.nodes);
            self.nodes += v1::NodeDelta::decode(&push.nodes[..]).unwrap().nodes.len();
        }
        self.complete = self.complete.max(push.complete);
        None
    }
}

#[tonic::async_trait]
impl Control for ReceivedPushes {
    async fn push(&self, request: Request<v1::PushRequest>) -> Result<Response<v1::PushResponse>, Status> {
        let mut push = request.into_inner();
        let trouble = self.tables.lock().unwrap().take(&push);
        if trouble == Some(Trouble::Cut) {
            return Err(Status::unavailable("the connection was cut"));
        }
        let version = push.version;
        let mut last = self.last.lock().unwrap();
        if push.duties_omitted {
            push.duties = last.take().map(|last| last.duties).unwrap_or_default();
        }
        *last = Some(push);
        Ok(Response::new(v1::PushResponse { version, gap: trouble.is_some(), results: Vec::new() }))
    }

    async fn confirm_boot(
        &self,
        request: Request<v1::ConfirmBootRequest>,
    ) -> Result<Response<v1::ConfirmBootResponse>, Status> {
        let confirmed = *self.boot.lock().unwrap() == request.into_inner().boot_id;
        Ok(Response::new(v1::ConfirmBootResponse { confirmed }))
    }

    async fn find_middle(&self, _: Request<v1::FindMiddleRequest>) -> Result<Response<v1::FindMiddleResponse>, Status> {
        Err(Status::unimplemented("it has no rows"))
    }
}

/// A node as seen by the coordinator: registers, receives pushes, and follows the test.
pub struct FakeNode {
    pub name: String,
    pub address: String,
    pub storage: bytes::Bytes,
    pub boot: bytes::Bytes,
    pub cluster: Option<v1::ClusterRef>,
    pub id: u64,
    pub incarnation: u64,
    pub number: u64,
    pub pushed: ReceivedPushes,
    server: FakeServer,
}

impl FakeNode {
    pub async fn new(name: &str) -> Self {
        let pushed = ReceivedPushes::default();
        let server = FakeServer::of_calls(Routes::new(ControlServer::new(pushed.clone()))).unwrap();
        let address = server.address();
        let (storage, boot) = (request_id(), request_id());
        let name = name.to_owned();
        Self { name, address, storage, boot, cluster: None, id: 0, incarnation: 0, number: 0, pushed, server }
    }

    /// Ends the process: its address is not served any longer.
    pub fn hang_up(&mut self) {
        self.server.end();
    }

    pub fn registration(&self) -> v1::RegisterRequest {
        v1::RegisterRequest {
            cluster: self.cluster.clone(),
            name: self.name.clone(),
            address: self.address.clone(),
            storage_id: self.storage.clone(),
            boot_id: self.boot.clone(),
            weight: 100,
            protocol_min: 1,
            protocol_max: PROTOCOL_NEWEST,
            last_incarnation: self.incarnation,
            expects: self.incarnation,
            ..v1::RegisterRequest::default()
        }
    }

    pub async fn register(&mut self, coordinator: &str) -> Result<(), ErrorDetail> {
        self.pushed.boot.lock().unwrap().clone_from(&self.boot);
        let answer = SessionClient::new(channel(coordinator)).register(self.registration()).await;
        let answer = answer.map_err(|status| detail_of(&status))?.into_inner();
        (self.id, self.incarnation, self.cluster) = (answer.node, answer.incarnation, answer.cluster);
        Ok(())
    }

    pub fn sender(&self) -> Option<v1::Sender> {
        Some(v1::Sender { id: self.id, incarnation: self.incarnation })
    }

    pub async fn heartbeat(&mut self, coordinator: &str) -> Result<LeaseGrant, ErrorDetail> {
        self.heartbeat_saying(coordinator, None).await
    }

    /// Sends a heartbeat with this load.
    pub async fn heartbeat_saying(
        &mut self,
        coordinator: &str,
        load: Option<v1::NodeLoad>,
    ) -> Result<LeaseGrant, ErrorDetail> {
        self.number += 1;
        let table_version = self.pushed.tables.lock().unwrap().complete;
        let beat = v1::Beat {
            node: self.id,
            incarnation: self.incarnation,
            number: self.number,
            table_version,
            stopping: false,
            push_key: self.boot.clone(),
            load,
            ..v1::Beat::default()
        };
        beat_once(coordinator, self.cluster.clone(), beat).await
    }

    /// Returns the duties of the last push.
    pub fn duties(&self) -> Vec<v1::Duty> {
        self.pushed.last.lock().unwrap().as_ref().map(|push| push.duties.clone()).unwrap_or_default()
    }

    /// Reports every partition that this node should lead as served.
    pub async fn report_online(&self, coordinator: &str) -> Result<v1::ReportResponse, ErrorDetail> {
        let reports = self.duties().into_iter().filter_map(|duty| match duty.duty? {
            v1::duty::Duty::Host(host) => {
                let row = host.partition?;
                (row.leader == Some(host.placement)).then_some(v1::ReplicaReport {
                    partition: row.id,
                    placement: host.placement,
                    epoch: row.epoch,
                    version: row.version,
                    fact: Some(v1::replica_report::Fact::Online(v1::FactOnline {})),
                })
            }
            _ => None,
        });
        let request = v1::ReportRequest {
            cluster: self.cluster.clone(),
            sender: self.sender(),
            reports: reports.collect(),
            ..v1::ReportRequest::default()
        };
        let answer = SessionClient::new(channel(coordinator)).report(request).await;
        answer.map(Response::into_inner).map_err(|status| detail_of(&status))
    }
}

/// Sends one heartbeat on a stream of its own, and returns its answer.
pub async fn beat_once(
    coordinator: &str,
    cluster: Option<v1::ClusterRef>,
    beat: v1::Beat,
) -> Result<LeaseGrant, ErrorDetail> {
    let answers = beats(coordinator, v1::Beats { cluster, batch: 1, beats: vec![beat], relay: None }).await?;
    answers.outcome?.answers.remove(0).outcome
}

/// Sends heartbeats on a stream of their own, and returns their answers.
pub async fn beats(coordinator: &str, beats: v1::Beats) -> Result<BeatAnswers, ErrorDetail> {
    let (mut reader, mut writer) = beat_stream(coordinator).await;
    writer.push(&beats);
    writer.flush().await.unwrap();
    let answers = tokio::time::timeout(Duration::from_secs(60), reader.next::<v1::BeatAnswers>()).await;
    let answers = answers.expect("an answer within 10 s").map_err(FrameError::into_detail)?;
    Ok(BeatAnswers::try_from(answers).unwrap())
}

pub async fn beat_stream(coordinator: &str) -> (FrameReader, FrameWriter) {
    connect(
        &Transport::default(),
        coordinator,
        &ExpectedPeer::Coordinators,
        StreamKind::Beats,
        1 << 20,
        Duration::from_secs(5),
    )
    .await
    .unwrap()
}

pub fn kind<T: std::fmt::Debug>(result: Result<T, ErrorDetail>) -> ErrorKind {
    result.unwrap_err().kind
}
