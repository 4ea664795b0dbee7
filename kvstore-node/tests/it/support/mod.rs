//! Fake coordinator that grants leases and records reports; the test sets the rest of its behaviour.

#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

pub mod packed;
pub mod stream;

use archon_frames::testing::FakeServer;
use archon_frames::{FrameError, FrameReader, FrameWriter, StreamKind, end_stream};
use archon_kvstore_node::{Node, NodeConfig};
use archon_proto::convert::error::{detail_of, status_of};
use archon_proto::convert::members::beats::{
    Beat, BeatAnswer, BeatAnswers, Beats, ClusterNow, HeartbeatAnswers, LeaseGrant,
};
use archon_proto::convert::members::control::{Push, PushAnswer};
use archon_proto::convert::members::load::PlacementLoad;
use archon_proto::convert::members::report::{Outcomes, Reports};
use archon_proto::convert::members::session::{Member, Registration, RegistrationResult};
use archon_proto::v1;
use archon_proto::v1::control_client::ControlClient;
use archon_proto::v1::kv_client::KvClient;
use archon_proto::v1::session_server::{Session, SessionServer};
use archon_proto::v1::table_server::{self, TableServer};
use archon_telemetry::flat;
use archon_testkit::wait_for_state;
use archon_types::{
    BootId, ClusterId, Duty, Epoch, ErrorDetail, ErrorKind, GenerationKey, Incarnation, KeyRange, Keys, NodeDelta,
    NodeId, PROTOCOL_FIRST, Partition, PartitionId, PartitionStatus, Placement, PlacementId, PushKey, Register,
    ReplicaState, Report, Settings, Table, TableContent, TableDelta, TableId, TablePiece, Version,
};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use uuid::Uuid;

pub const PARTITION: PartitionId = PartitionId::new(TableId::new(1), 0);

#[derive(Clone, Debug)]
pub struct RegisteredNode {
    pub id: NodeId,
    pub incarnation: Incarnation,
    pub address: String,
    pub boot: BootId,
    pub held: Vec<PlacementId>,
    /// Address of its Redis listener, once the cluster takes such addresses.
    pub redis: Option<String>,
    /// The recorded incarnation that its last registration named.
    pub expects: Option<Incarnation>,
}

#[derive(Default)]
pub struct State {
    pub grants_stopped: bool,
    pub stale: bool,
    /// Address of the coordinator that leads instead.
    pub succeeded_by: Option<String>,
    /// Number of terms before the one in which this coordinator leads.
    pub terms_before: u64,
    pub withdrawn: Vec<(PartitionId, Epoch)>,
    pub nodes: BTreeMap<String, RegisteredNode>,
    pub reports: Vec<(NodeId, Report)>,
    pub left: Vec<NodeId>,
    pub registrations: u64,
    /// Protocol version of the cluster, if it is not the first one.
    pub protocol: Option<u32>,
    /// Names of the tables that exist according to this coordinator, besides those that it pushes.
    pub tables: Vec<String>,
    /// Last reported load of each placement.
    pub loads: BTreeMap<PlacementId, PlacementLoad>,
    /// Keys that pushes to each incarnation of a node must carry.
    pub keys: BTreeMap<(NodeId, Incarnation), PushKey>,
}

#[derive(Clone)]
pub struct Fake {
    pub cluster: ClusterId,
    pub address: String,
    pub state: Arc<Mutex<State>>,
    /// Ends when the last clone is dropped.
    _server: Arc<FakeServer>,
}

/// Services of the fake coordinator.
#[derive(Clone)]
struct FakeServices {
    cluster: ClusterId,
    state: Arc<Mutex<State>>,
}

impl Fake {
    pub async fn start() -> Self {
        let (cluster, state) = (ClusterId::new(Uuid::new_v4()), Arc::<Mutex<State>>::default());
        let played = FakeServices { cluster, state: Arc::clone(&state) };
        let routes = Routes::new(SessionServer::new(played.clone())).add_service(TableServer::new(played.clone()));
        let streams = move |kind, reader, writer| played.clone().stream(kind, reader, writer);
        let server = FakeServer::start("127.0.0.1:0", routes, streams).unwrap();
        Self { cluster, address: server.address(), state, _server: Arc::new(server) }
    }

    pub fn config(&self, name: &str, directory: &Path) -> NodeConfig {
        let mut config = NodeConfig::new(name, "127.0.0.1:0", vec![self.address.clone()], directory.join(name));
        config.wal_segment_bytes = 1 << 20;
        config.hand_over_timeout = Duration::from_secs(3);
        config
    }

    /// Starts a node and waits until it has registered.
    pub async fn node(&self, name: &str, directory: &Path) -> Node {
        let before = self.known(name).map_or(Incarnation::ZERO, |known| known.incarnation);
        let node = Node::start(self.config(name, directory)).await.unwrap();
        wait_for_state(
            "the node registers",
            || self.known(name),
            |known| known.as_ref().is_some_and(|known| known.incarnation > before),
        )
        .await;
        node
    }

    /// Adds a node that the test plays; the coordinators name it to the others from the next push on.
    pub fn played(&self, name: &str, id: NodeId, incarnation: u64) {
        self.played_at(name, id, incarnation, "127.0.0.1:9".to_owned());
    }

    /// As [`Fake::played`], with the address at which the test listens.
    pub fn played_at(&self, name: &str, id: NodeId, incarnation: u64, address: String) {
        let incarnation = Incarnation::new(incarnation);
        let boot = BootId::new(Uuid::from_u128(9));
        let known = RegisteredNode { id, incarnation, address, boot, held: Vec::new(), redis: None, expects: None };
        self.state.lock().nodes.insert(name.to_owned(), known);
    }

    pub fn known(&self, name: &str) -> Option<RegisteredNode> {
        self.state.lock().nodes.get(name).cloned()
    }

    pub fn id(&self, name: &str) -> NodeId {
        self.known(name).unwrap().id
    }

    /// Returns a push for a node, as the leading coordinator would send it.
    pub fn duties(&self, name: &str, row: &Partition, duties: Vec<Duty>) -> Push {
        let known = self.known(name).unwrap();
        let mut delta = self.delta(row);
        let nodes = std::mem::take(&mut delta.nodes);
        Push {
            tables: None,
            access: None,
            cluster: self.cluster,
            coordinator: 1,
            term: 1,
            node: known.id,
            incarnation: known.incarnation,
            version: row.version,
            duties: Some(duties),
            deltas: vec![TablePiece::whole(delta)],
            complete: Some(row.version),
            nodes: Some(NodeDelta { since: Version::ZERO, version: row.version, nodes, removed: None }),
            coordinators: vec![self.address.clone()],
            key: PushKey::new(Uuid::from_u128(1)),
            newest: Version::new(1 << 30),
        }
    }

    fn delta(&self, row: &Partition) -> TableDelta {
        let table = Table {
            id: TableId::new(1),
            name: "default".into(),
            keys: Keys::Hash { partitions: 1 },
            replication: 1,
            holds: TableContent::Data,
            version: Version::new(1),
        };
        let state = self.state.lock();
        let nodes = state.nodes.iter().map(|(name, known)| archon_types::Node {
            incarnation: known.incarnation,
            version: Version::new(known.incarnation.get()),
            redis: known.redis.clone(),
            ..archon_types::Node::new(known.id, name, &known.address)
        });
        TableDelta {
            table,
            since: Version::ZERO,
            version: row.version,
            partitions: vec![row.clone()],
            nodes: nodes.collect(),
            removed: None,
        }
    }

    /// Pushes until the node returns a final answer, as a coordinator does.
    pub async fn send(&self, name: &str, push: Push) -> Result<PushAnswer, ErrorDetail> {
        let address = self.known(name).unwrap().address;
        let mut client = ControlClient::connect(format!("http://{address}")).await.unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let key = || {
            let known = self.known(name)?;
            self.state.lock().keys.get(&(known.id, known.incarnation)).copied()
        };
        let key = wait_for_state("the node is heard", key, Option::is_some).await.unwrap();
        let push = Push { key, ..push };
        loop {
            match client.push(v1::PushRequest::from(push.clone())).await.map_err(|status| detail_of(&status)) {
                Ok(answer) => return Ok(PushAnswer::try_from(answer.into_inner()).unwrap()),
                Err(detail) if detail.kind == ErrorKind::Unavailable && Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                Err(detail) => return Err(detail),
            }
        }
    }

    /// Returns `true` if the process at a node's address confirms that it registers or has registered with `boot`.
    pub async fn confirms(&self, name: &str, boot: BootId) -> bool {
        let address = self.known(name).unwrap().address;
        let mut client = ControlClient::connect(format!("http://{address}")).await.unwrap();
        let boot_id = Bytes::copy_from_slice(boot.get().as_bytes());
        client
            .confirm_boot(v1::ConfirmBootRequest { boot_id, ..Default::default() })
            .await
            .unwrap()
            .into_inner()
            .confirmed
    }

    /// Returns `true` if a node's health service reports a service, or with the empty name the whole node, as serving.
    pub async fn serves(&self, name: &str, service: &str) -> bool {
        let address = self.known(name).unwrap().address;
        let mut client = HealthClient::new(Endpoint::from_shared(format!("http://{address}")).unwrap().connect_lazy());
        let answer = client.check(HealthCheckRequest { service: service.to_owned() }).await.unwrap().into_inner();
        answer.status() == ServingStatus::Serving
    }

    /// Pushes a `Host` duty for the placement a row gives a node.
    pub async fn host(&self, name: &str, row: &Partition) {
        let placement = row.placement_on(self.id(name)).unwrap().id;
        let push = self.duties(name, row, vec![Duty::Host { partition: row.clone(), placement }]);
        let pushed = self.send(name, push).await.unwrap();
        assert!(pushed.refused.is_empty(), "{pushed:?}");
    }

    /// Pushes to a node a row in which it has no placement.
    pub async fn tell(&self, name: &str, row: &Partition) {
        let pushed = self.send(name, self.duties(name, row, Vec::new())).await.unwrap();
        assert!(pushed.refused.is_empty(), "{pushed:?}");
    }

    pub async fn reported(&self, what: &str, matches: impl Fn(&Report) -> bool) -> Report {
        let found = wait_for_state(
            what,
            || self.state.lock().reports.clone(),
            |reports| reports.iter().any(|(_, report)| matches(report)),
        )
        .await;
        found.into_iter().map(|(_, report)| report).find(|report| matches(report)).unwrap()
    }

    pub async fn kv(&self, name: &str) -> Kv {
        let address = self.known(name).unwrap().address;
        Kv { cluster: self.cluster, client: KvClient::connect(format!("http://{address}")).await.unwrap() }
    }
}

#[tonic::async_trait]
impl table_server::Table for FakeServices {
    async fn get_table(&self, request: Request<v1::GetTableRequest>) -> Result<Response<v1::GetTableResponse>, Status> {
        let state = self.state.lock();
        if state.grants_stopped {
            return Err(status_of(&ErrorDetail::new(ErrorKind::NoQuorum, "as the test wants it")));
        }
        if !state.tables.contains(&request.get_ref().table) {
            return Err(status_of(&ErrorDetail::new(ErrorKind::NotFound, "as the test wants it")));
        }
        Ok(Response::new(v1::GetTableResponse { cluster: Some(self.cluster.into()), ..Default::default() }))
    }
}

impl FakeServices {
    /// Answers heartbeats until their stream ends.
    async fn stream(self, kind: StreamKind, mut reader: FrameReader, mut writer: FrameWriter) {
        assert_eq!(kind, StreamKind::Beats);
        let ended = loop {
            let answers = match reader.next::<v1::Beats>().await {
                Ok(beats) => self.beats(Beats::try_from(beats).unwrap()),
                Err(error) => break Err(error),
            };
            writer.push(&v1::BeatAnswers::from(answers));
            if let Err(error) = writer.flush().await {
                break Err::<(), FrameError>(error);
            }
        };
        end_stream(ended, writer).await;
    }

    fn beats(&self, Beats { batch, beats, .. }: Beats) -> BeatAnswers {
        let mut answers = Vec::new();
        for beat in beats {
            let (node, incarnation, number) = (beat.node, beat.incarnation, beat.number);
            match self.beat(beat) {
                Err(detail) if detail.kind == ErrorKind::NotCoordinatorLeader => {
                    return BeatAnswers::new(batch, Err(detail));
                }
                outcome => answers.push(BeatAnswer::new(node, incarnation, number, outcome)),
            }
        }
        let (term, protocol) = {
            let state = self.state.lock();
            (1 + state.terms_before, state.protocol.unwrap_or(PROTOCOL_FIRST))
        };
        let now = ClusterNow { replication_timeout_ms: 1_000, protocol, term, relays: 0, door_every_ms: 0 };
        BeatAnswers::new(batch, Ok(HeartbeatAnswers::new(answers, now)))
    }

    fn beat(&self, beat: Beat) -> Result<LeaseGrant, ErrorDetail> {
        let mut state = self.state.lock();
        state.keys.insert((beat.node, beat.incarnation), beat.push_key);
        if std::mem::take(&mut state.stale) {
            return Err(ErrorDetail::new(ErrorKind::StaleIncarnation, "as the test wants it"));
        }
        if let Some(leader) = state.succeeded_by.clone() {
            let error = ErrorDetail::new(ErrorKind::NotCoordinatorLeader, "as the test wants it");
            return Err(error.with_leader(Some(leader)));
        }
        let placements = beat.load.into_iter().flat_map(|load| load.placements);
        state.loads.extend(placements.map(|load| (load.placement, load)));
        if state.grants_stopped {
            return Err(ErrorDetail::new(ErrorKind::NoQuorum, "as the test wants it"));
        }
        Ok(LeaseGrant { lease_ms: 1_000, withdrawn: state.withdrawn.clone() })
    }
}

#[tonic::async_trait]
impl Session for FakeServices {
    async fn register(&self, request: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterResponse>, Status> {
        let mut state = self.state.lock();
        let protocol = state.protocol.unwrap_or(PROTOCOL_FIRST);
        let node = Registration::try_from(request.into_inner())?.register.by_protocol(protocol);
        state.registrations += 1;
        // Rows take their versions from the same log as incarnations; tests use versions from 1,000 on.
        let next = Incarnation::new(10 + state.registrations);
        let (id, incarnation) = match state.nodes.get(&node.name) {
            // The same process has the same incarnation.
            Some(known) => (known.id, if known.boot == node.boot { known.incarnation } else { next }),
            None => (NodeId::new(state.nodes.len() as u64 + 1), next),
        };
        let Register { address, boot, held, redis, expects, .. } = node;
        state.nodes.insert(node.name, RegisteredNode { id, incarnation, address, boot, held, redis, expects });
        let registered = RegistrationResult {
            cluster: self.cluster,
            node: id,
            generation_key: GenerationKey::NIL,
            incarnation,
            protocol,
            settings: Settings::default(),
        };
        Ok(Response::new(registered.into()))
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let reports = Reports::try_from(request.into_inner())?;
        let mut state = self.state.lock();
        let outcomes = reports.reports.iter().map(|_| None).collect();
        state.reports.extend(reports.reports.into_iter().map(|report| (reports.member.node, report)));
        Ok(Response::new(Outcomes { outcomes, table_version: Version::ZERO }.into()))
    }

    async fn duties(&self, _: Request<v1::DutiesRequest>) -> Result<Response<v1::DutiesResponse>, Status> {
        Err(Status::unimplemented("nodes are pushed their duties"))
    }

    async fn revocations(
        &self,
        _: Request<v1::RevocationsRequest>,
    ) -> Result<Response<v1::RevocationsResponse>, Status> {
        Err(Status::unimplemented("nodes are pushed the revoked certificates"))
    }

    async fn leave(&self, request: Request<v1::LeaveRequest>) -> Result<Response<v1::LeaveResponse>, Status> {
        let member = Member::try_from(request.into_inner())?;
        self.state.lock().left.push(member.node);
        Ok(Response::new(v1::LeaveResponse {}))
    }

    async fn wait_for_space(
        &self,
        _: Request<v1::WaitForSpaceRequest>,
    ) -> Result<Response<v1::WaitForSpaceResponse>, Status> {
        Ok(Response::new(v1::WaitForSpaceResponse {}))
    }
}

/// Client for plain calls to one node.
#[derive(Clone)]
pub struct Kv {
    pub cluster: ClusterId,
    pub client: KvClient<Channel>,
}

impl Kv {
    pub async fn put(&mut self, key: &str, value: &str) -> Result<u64, ErrorDetail> {
        let request = v1::PutRequest {
            cluster: Some(self.cluster.into()),
            table: String::new(),
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::copy_from_slice(value.as_bytes()),
            id: None,
            expiry: None,
        };
        let answer = tokio::time::timeout(Duration::from_secs(5), self.client.put(request)).await;
        let late = |_| ErrorDetail::new(ErrorKind::DeadlineExceeded, "no answer within 5 s");
        Ok(answer.map_err(late)?.map_err(|status| detail_of(&status))?.into_inner().revision)
    }

    pub async fn get(&mut self, key: &str) -> Result<Option<String>, ErrorDetail> {
        let request = v1::GetRequest {
            cluster: Some(self.cluster.into()),
            table: String::new(),
            key: Bytes::copy_from_slice(key.as_bytes()),
        };
        let answer = self.client.get(request).await.map_err(|status| detail_of(&status))?.into_inner();
        let value = answer.value.unwrap();
        Ok(value.found.then(|| String::from_utf8(value.value.to_vec()).unwrap()))
    }

    /// Reads until a read is refused.
    pub async fn get_until_refused(&mut self, key: &str) -> ErrorDetail {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match self.get(key).await {
                Err(detail) => return detail,
                Ok(value) => assert!(Instant::now() < until, "reads are still answered, by {value:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Puts as soon as the node serves.
    pub async fn put_when_served(&mut self, key: &str, value: &str) -> u64 {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match self.put(key, value).await {
                Ok(revision) => return revision,
                Err(detail) if detail.kind.is_retryable() && Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(detail) => panic!("{detail}"),
            }
        }
    }
}

pub fn row(epoch: u64, version: u64, leader: u64, placements: &[(u64, NodeId, ReplicaState)]) -> Partition {
    Partition {
        id: PARTITION,
        epoch: Epoch::new(epoch),
        version: Version::new(1_000 + version),
        leader: Some(PlacementId::new(leader)),
        placements: placements
            .iter()
            .map(|(id, node, state)| Placement { id: PlacementId::new(*id), node: *node, state: *state })
            .collect(),
        status: PartitionStatus::Online,
        min_in_sync: 1,
        range: KeyRange::ALL,
        split: None,
        merge: None,
        absorbed: Version::ZERO,
    }
}

/// Returns a metric of a node by the end of its name.
pub fn metric(node: &Node, name: &str) -> u64 {
    seconds(node, name) as u64
}

/// As [`metric`], for values that are not whole numbers.
pub fn seconds(node: &Node, name: &str) -> f64 {
    let numbers = flat(&node.metrics());
    numbers.into_iter().find(|number| number.name.ends_with(name)).unwrap().value
}
