//! Administration against in-memory coordinators: the coordinators asked, the number of requests, and the errors.

use crate::support::{CLUSTER, FakeCluster};
use archon_client::{
    Admin, Error, ErrorDetail, ErrorKind, Move, MoveCode, MoveKind, NodeGoal, NodeStatus, OpenEnum, Plan, Subject,
    Version,
};
use archon_documents::Method;
use archon_frames::testing::FakeServer;
use archon_proto::convert::error::status_of;
use archon_proto::documents::{AnswerDocuments, AnswerFuture, DocumentService};
use archon_proto::v1::{self, admin_server};
use archon_types::{NodeId, TableId};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// Behaviour of a coordinator.
#[derive(Clone)]
enum Role {
    Leads,
    Refuses(ErrorDetail),
    /// Answers nothing.
    Silent,
    /// Applies a request but loses the answer; leads from then on.
    LosesAnswer,
}

struct State {
    role: Mutex<Role>,
    asked: AtomicUsize,
    requests: Mutex<Vec<Vec<u8>>>,
    /// Addresses of the nodes that it knows.
    nodes: Mutex<Vec<String>>,
}

impl State {
    async fn begin(&self, request: &[u8]) -> Result<(), Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.requests.lock().unwrap().push(request.to_vec());
        let role = self.role.lock().unwrap().clone();
        match role {
            Role::Leads => Ok(()),
            Role::Refuses(detail) => Err(status_of(&detail)),
            Role::Silent => std::future::pending().await,
            Role::LosesAnswer => {
                *self.role.lock().unwrap() = Role::Leads;
                Err(Status::unavailable("connection reset"))
            }
        }
    }
}

struct FakeCoordinator {
    state: Arc<State>,
    address: String,
    _server: FakeServer,
}

impl FakeCoordinator {
    fn start(role: Role) -> Self {
        let (asked, requests, nodes) = (AtomicUsize::new(0), Mutex::default(), Mutex::default());
        let state = Arc::new(State { role: Mutex::new(role), asked, requests, nodes });
        let service = Arc::new(Service(Arc::clone(&state)));
        let others = admin_server::AdminServer::from_arc(Arc::clone(&service));
        let server = FakeServer::of_calls(Routes::new(DocumentService::new(service, others))).unwrap();
        Self { state, address: server.address(), _server: server }
    }

    fn asked(&self) -> usize {
        self.state.asked.load(Ordering::SeqCst)
    }

    fn set(&self, role: Role) {
        *self.state.role.lock().unwrap() = role;
    }
}

struct Service(Arc<State>);

fn plan() -> Value {
    json!({ "table_version": 41, "moves_version": 40, "unmet": [], "moves": [{
        "kind": "copy", "table_id": 1, "table": "default", "partition": 4, "from_id": 1, "from": "athens", "to_id": 4,
        "to": "ephesus", "bytes_total": 100, "code": "balance", "message": "athens has 3, ephesus 0",
    }]})
}

/// Answers as one that has learned more words.
impl AnswerDocuments for Service {
    fn answer(self: Arc<Self>, method: &'static Method, request: Request<v1::AdminRequest>) -> AnswerFuture {
        Box::pin(async move {
            let request = request.into_inner();
            let asked: Value = serde_json::from_slice(&request.document).unwrap();
            let kept = ["ForceLeader", "LoseNode", "ApplyPlan"].contains(&method.name);
            self.0.begin(if kept { &request.request_id } else { b"" }).await?;
            let answer = match method.name {
                "Status" => newer_status(),
                "ListNodes" => {
                    let others = self.0.nodes.lock().unwrap().clone();
                    let others = others.iter().map(|address| node(2, "ephesus", address, "alive", "serve"));
                    let nodes: Vec<Value> =
                        std::iter::once(node(1, "athens", "", "half_asleep", "drain")).chain(others).collect();
                    json!({ "nodes": nodes, "table_version": 1 })
                }
                "ForceLeader" if asked["accept_data_loss"] != true => {
                    return Err(status_of(&ErrorDetail::new(ErrorKind::DataLoss, "what would be lost")));
                }
                "ForceLeader" => json!({
                    "table_id": 1, "table": asked["table"], "partition": asked["partition"], "leader_id": 1,
                    "leader": asked["node"], "epoch": 7,
                }),
                "LoseNode" => json!({ "copies_lost": 3, "counting_copies_lost": 2, "last_copies_lost": 1 }),
                "PlanRebalance" => plan(),
                "ApplyPlan" => {
                    assert_eq!(asked["plan"], plan());
                    json!({ "moves_started": 1 })
                }
                "CancelRebalance" => json!({ "moves_cancelled": 0, "moves_too_late": 0 }),
                _ => json!({}),
            };
            Ok(Response::new(v1::AdminAnswer { document: serde_json::to_vec(&answer).unwrap().into() }))
        })
    }
}

fn newer_status() -> Value {
    json!({
        "cluster_id": CLUSTER.to_string(), "leader_id": 1, "term": 7, "transport": "plaintext", "table_version": 0,
        "coordinators": [{
            "coordinator_id": 1, "address": "a:1", "role": "witness", "learner": false, "entries_behind": 0, "lack": null,
        }],
        "nodes_alive": 0, "nodes_failed": 0, "nodes_unreached": 0, "nodes_min": 0, "partitions_total": 0,
        "partitions_online": 0, "partitions_under_replicated": 0, "copies_condemned": 0, "moves_running": 0,
        "reshapings_running": 0, "regions_total": 3,
        "reasons": [{
            "code": "region_away", "subject": { "kind": "region", "region_id": 3 }, "message": "a region is away",
            "began_at_ms": null, "remedy": null,
        }],
    })
}

fn node(id: u64, name: &str, address: &str, status: &str, goal: &str) -> Value {
    json!({
        "node_id": id, "node": name, "address": address, "status": status, "status_changed_at_ms": 0, "goal": goal,
        "incarnation": 1, "copies_held": 0, "partitions_led": 0, "weight": 100, "disk_full": false, "stopped": false,
        "serves": [], "bars": [],
    })
}

#[tonic::async_trait]
impl admin_server::Admin for Service {
    type SnapshotQuorumStream = futures::stream::Empty<Result<v1::SnapshotQuorumPage, Status>>;

    async fn snapshot_quorum(
        &self,
        request: Request<v1::SnapshotQuorumRequest>,
    ) -> Result<Response<Self::SnapshotQuorumStream>, Status> {
        self.0.begin(&request.get_ref().request_id).await?;
        Ok(Response::new(futures::stream::empty()))
    }

    async fn join_quorum(&self, _: Request<v1::JoinQuorumRequest>) -> Result<Response<v1::JoinQuorumResponse>, Status> {
        Err(Status::unimplemented("not asked here"))
    }
}

fn refuses(kind: ErrorKind, leader: Option<&str>) -> Role {
    Role::Refuses(ErrorDetail::new(kind, "why").with_leader(leader.map(str::to_owned)))
}

fn admin(addresses: &[&str], timeout_ms: u64) -> Admin {
    Admin::new(addresses.iter().copied(), Duration::from_millis(timeout_ms)).unwrap()
}

#[tokio::test]
async fn hint_leads_to_leader_which_is_then_asked_first() {
    let leader = FakeCoordinator::start(Role::Leads);
    let follower = FakeCoordinator::start(refuses(ErrorKind::NotCoordinatorLeader, Some(&leader.address)));
    // The caller knows only the follower.
    let admin = admin(&[&follower.address], 5_000);
    let status = admin.status().await.unwrap();
    assert_eq!((status.leader_id, status.term, status.cluster_id), (Some(1), 7, CLUSTER.to_string()));
    admin.status().await.unwrap();
    assert_eq!((follower.asked(), leader.asked()), (1, 2));
}

#[tokio::test]
async fn unknown_words_of_newer_coordinator_are_shown_unchanged() {
    let leader = FakeCoordinator::start(Role::Leads);
    let admin = admin(&[&leader.address], 5_000);
    let status = admin.status().await.unwrap();
    assert_eq!(status.coordinators[0].role, OpenEnum::Unknown("witness".to_owned()));
    assert_eq!((status.reasons[0].code.as_str(), &status.reasons[0].subject), ("region_away", &Subject::Unknown));
    let json = serde_json::to_value(&status.reasons[0]).unwrap();
    assert_eq!((&json["code"], &json["subject"]["kind"]), (&"region_away".into(), &"unknown".into()));
    let node = &admin.list_nodes().await.unwrap()[0];
    assert_eq!((node.status.to_string(), node.status.known()), ("half_asleep".to_owned(), None));
    assert!(node.goal == NodeGoal::Drain && node.status != NodeStatus::Alive);
}

#[tokio::test]
async fn dead_and_silent_coordinators_are_skipped() {
    let leader = FakeCoordinator::start(Role::Leads);
    let silent = FakeCoordinator::start(Role::Silent);
    // No process listens on port 1 of loopback.
    let admin = admin(&["127.0.0.1:1", &silent.address, &leader.address], 5_000);
    // Takes less than the time-out: it does not wait for the silent one until then.
    admin.status().await.unwrap();
}

#[tokio::test]
async fn unanswered_call_is_reported_while_it_continues() {
    let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let admin = admin(&["127.0.0.1:1"], 60_000).on_unanswered(move |detail, left| {
        let _ = report.send((detail.clone(), left));
    });
    let call = tokio::spawn(async move { admin.status().await });
    let (detail, left) = reports.recv().await.expect("a report");
    assert_eq!(detail.kind, ErrorKind::Unreachable);
    assert!(detail.message.starts_with("127.0.0.1:1: "), "{detail}");
    assert!(left > Duration::from_secs(10) && !call.is_finished());
    call.abort();
    assert!(reports.try_recv().is_err(), "once");
}

#[tokio::test]
async fn call_waits_for_failover_within_its_time_out() {
    let one = FakeCoordinator::start(refuses(ErrorKind::NotCoordinatorLeader, None));
    let two = FakeCoordinator::start(refuses(ErrorKind::NotCoordinatorLeader, Some(&one.address)));
    let admin = admin(&[&one.address, &two.address], 60_000);
    let waiting = tokio::spawn({
        let admin = admin.clone();
        async move { admin.status().await }
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    while two.asked() < 3 {
        assert!(Instant::now() < deadline, "the second coordinator was asked {} times", two.asked());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    two.set(Role::Leads);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn no_quorum_and_unreachable_are_distinct_errors() {
    let began = Instant::now();
    let error = admin(&["127.0.0.1:1"], 400).status().await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::Unreachable, false), "{error}");
    let lonely = FakeCoordinator::start(refuses(ErrorKind::NoQuorum, None));
    let error = admin(&["127.0.0.1:1", &lonely.address], 400).status().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    let silent = FakeCoordinator::start(Role::Silent);
    let error = admin(&[&silent.address], 400).cancel().await.unwrap_err();
    assert_eq!((error.kind(), error.outcome_unknown()), (ErrorKind::DeadlineExceeded, true), "{error}");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[tokio::test]
async fn error_of_leader_is_preferred_to_errors_of_followers() {
    let leader = FakeCoordinator::start(refuses(ErrorKind::Unavailable, None));
    let follower = FakeCoordinator::start(refuses(ErrorKind::NotCoordinatorLeader, Some(&leader.address)));
    for addresses in [[&leader.address, &follower.address], [&follower.address, &leader.address]] {
        let error = admin(&addresses.map(String::as_str), 400).plan().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
}

#[tokio::test]
async fn errors_that_need_an_operator_are_returned_at_once() {
    let kinds = [ErrorKind::NotEnoughNodes, ErrorKind::StalePlan, ErrorKind::AssignmentInProgress, ErrorKind::NotFound];
    for kind in kinds {
        let detail = ErrorDetail::new(kind, "why").with_have_need(41, 37);
        let leader = FakeCoordinator::start(Role::Refuses(detail.clone()));
        let error = admin(&[&leader.address], 5_000).plan().await.unwrap_err();
        assert_eq!((error.detail(), leader.asked()), (detail, 1));
    }
}

#[tokio::test]
async fn retry_of_plan_repeats_request_and_bad_plans_are_rejected() {
    let leader = FakeCoordinator::start(Role::Leads);
    let admin = admin(&[&leader.address], 5_000);
    let plan = admin.plan().await.unwrap();
    let step = Move {
        kind: MoveKind::Copy.into(),
        table_id: TableId::new(1),
        table: "default".into(),
        partition: 4,
        from_id: NodeId::new(1),
        from: "athens".into(),
        to_id: NodeId::new(4),
        to: "ephesus".into(),
        bytes_total: 100,
        code: MoveCode::Balance.into(),
        message: "athens has 3, ephesus 0".into(),
        unknown: Default::default(),
    };
    let (table_version, moves_version) = (Version::new(41), Version::new(40));
    assert_eq!(
        plan,
        Plan { table_version, moves_version, moves: vec![step], unmet: vec![], unknown: Default::default() }
    );
    // Through a file, as the command line does it.
    let text = serde_json::to_string(&plan).unwrap();
    let plan: Plan = serde_json::from_str(&text).unwrap();
    leader.set(Role::LosesAnswer);
    assert_eq!(admin.apply(&plan).await.unwrap(), 1);
    let requests = leader.state.requests.lock().unwrap().clone();
    let (last, before) = (&requests[requests.len() - 1], &requests[requests.len() - 2]);
    assert!(last.len() == 16 && last == before, "{requests:?}");
    // A damaged plan is rejected before anything is sent.
    let mut damaged = plan.clone();
    damaged.moves[0].to_id = damaged.moves[0].from_id;
    let asked = leader.asked();
    // So is a plan with a value that this program does not know.
    let mut newer = plan;
    newer.moves[0].kind = OpenEnum::read("witness");
    assert!(matches!(admin.apply(&newer).await, Err(Error::InvalidArgument { .. })));
    assert!(matches!(admin.apply(&damaged).await, Err(Error::InvalidArgument { .. })));
    assert!(matches!(admin.create_table("a b", 1, 1).await, Err(Error::InvalidArgument { .. })));
    assert!(matches!(admin.create_table("a", 0, 1).await, Err(Error::InvalidArgument { .. })));
    assert_eq!(leader.asked(), asked);
}

#[tokio::test]
async fn data_loss_requires_consent_and_retry_repeats_request() {
    let leader = FakeCoordinator::start(Role::Leads);
    let admin = admin(&[&leader.address], 5_000);
    let refused = admin.force_leader("default", 3, None, false).await.unwrap_err();
    assert_eq!((refused.kind(), leader.asked()), (ErrorKind::DataLoss, 1));
    leader.set(Role::LosesAnswer);
    let forced = admin.force_leader("default", 3, Some("athens"), true).await.unwrap();
    assert_eq!((forced.leader.as_deref(), forced.epoch), (Some("athens"), 7));
    leader.set(Role::LosesAnswer);
    let lost = admin.lose_node("athens", true).await.unwrap();
    assert_eq!((lost.copies_lost, lost.counting_copies_lost, lost.last_copies_lost), (3, 2, 1));
    let requests = leader.state.requests.lock().unwrap().clone();
    let [first, forced, again, lost, lost_again] = &requests[..] else { panic!("{requests:?}") };
    assert!(forced == again && lost == lost_again && first != forced && forced != lost, "{requests:?}");
    // Invalid arguments are rejected locally.
    let asked = leader.asked();
    assert!(matches!(admin.force_leader("default", 0, Some("a b"), true).await, Err(Error::InvalidArgument { .. })));
    assert!(matches!(admin.describe_partition("a b", 0).await, Err(Error::InvalidArgument { .. })));
    assert!(matches!(admin.remove_node("").await, Err(Error::InvalidArgument { .. })));
    assert_eq!(leader.asked(), asked);
    // An answer without a required field is an error, not a default.
    assert_eq!(admin.check_node("athens").await.unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(admin.describe_partition("default", 0).await.unwrap_err().kind(), ErrorKind::Internal);
}

#[tokio::test]
async fn nodes_name_replacements_of_all_coordinators() {
    let (first, next) = (FakeCoordinator::start(Role::Leads), FakeCoordinator::start(Role::Leads));
    let cluster = FakeCluster::start(1, 1).await;
    *cluster.nodes[0].state.coordinators.lock().unwrap() = vec![next.address.clone()];
    first.state.nodes.lock().unwrap().push(cluster.nodes[0].address.clone());
    let admin = admin(&[&first.address], 5_000);
    admin.list_nodes().await.unwrap();
    drop(first);
    admin.status().await.unwrap();
    assert_eq!(next.asked(), 1);
}

#[tokio::test]
async fn any_node_names_the_coordinators_and_shows_the_table() {
    let leader = FakeCoordinator::start(Role::Leads);
    let cluster = FakeCluster::start(3, 9).await;
    *cluster.nodes[0].state.coordinators.lock().unwrap() = vec![leader.address.clone()];
    let admin = admin(&[&cluster.nodes[0].address], 5_000);
    admin.status().await.unwrap();
    assert_eq!(leader.asked(), 1);
    let admin = Admin::new([cluster.nodes[0].address.as_str()], Duration::from_secs(5)).unwrap();
    let partitions = admin.table("default").await.unwrap();
    assert_eq!(partitions.len(), 9);
    assert_eq!((partitions[4].id, partitions[4].leader.as_deref()), (4, Some("node-2")));
    let json = serde_json::to_value(&partitions[4]).unwrap();
    let copies = serde_json::json!([{"placement_id": 5, "node_id": 2, "node": "node-2", "node_status": "alive", "state": "live"}]);
    assert_eq!(
        json,
        serde_json::json!({"table_id": 1, "table": "default", "partition": 4, "epoch": 5, "version": 5, "range": null, "splits_into": null, "merges_with": null,
                           "status": "online", "leader_id": 2, "leader": "node-2", "copies": copies})
    );
    let located = admin.locate("default", "123456789").await.unwrap();
    assert_eq!(located.slot, Some(0x31C3));
    assert_eq!(located.partition.id, 0x31C3 * 9 / 16_384);
    assert_eq!(admin.table("nowhere").await.unwrap_err().kind(), ErrorKind::NotFound);
}
