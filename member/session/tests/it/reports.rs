//! Reports that a relay forwards because no coordinator is reachable (PROTOCOL rule 82).

use archon_proto::convert::members::report::Outcomes;
use archon_proto::convert::members::report_proofs::{NONCE_BYTES, outcomes_statement, reports_statement};
use archon_proto::convert::members::session::Member;
use archon_proto::v1;
use archon_proto::v1::carrier_server::{Carrier, CarrierServer};
use archon_security::{BeatKey, Transport};
use archon_session::{Coordinators, Facts, ReportRelays, reports};
use archon_types::{
    BootId, ClusterId, Epoch, ErrorKind, Fact, Incarnation, NodeId, PartitionId, PlacementId, RelayAddress, Report,
    StorageId, TableId, Version,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use uuid::Uuid;

const SOON: Duration = Duration::from_secs(60);

fn key() -> BeatKey {
    BeatKey::new(StorageId::new(Uuid::from_u128(1)), BootId::new(Uuid::from_u128(2)))
}

/// A relay that forges its answers, or forwards those of a coordinator.
#[derive(Clone)]
struct FakeRelay {
    honest: bool,
    asked: mpsc::UnboundedSender<v1::ReportRequest>,
}

#[tonic::async_trait]
impl Carrier for FakeRelay {
    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportResponse>, Status> {
        let request = request.into_inner();
        let outcomes = vec![None; request.reports.len()];
        let mut response = v1::ReportResponse::from(Outcomes { outcomes, table_version: Version::new(7) });
        if self.honest {
            response.proof = key().prove(&outcomes_statement(&request, &response));
        }
        self.asked.send(request).unwrap();
        Ok(Response::new(response))
    }
}

/// Starts a relay; returns its address and the received requests.
async fn relay(node: u64, honest: bool) -> (RelayAddress, mpsc::UnboundedReceiver<v1::ReportRequest>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (asked, requests) = mpsc::unbounded_channel();
    let server = tonic::transport::Server::builder().add_service(CarrierServer::new(FakeRelay { honest, asked }));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    (RelayAddress { node: NodeId::new(node), name: format!("n{node}"), address }, requests)
}

/// One report that waits for its answer.
#[derive(Clone, Default)]
struct OneFact(Arc<(Mutex<bool>, Notify)>);

impl Facts for OneFact {
    fn peek(&self, _: usize) -> Vec<Report> {
        let report = Report {
            partition: PartitionId::new(TableId::new(1), 0),
            placement: PlacementId::new(3),
            epoch: Epoch::new(1),
            version: Version::new(5),
            fact: Fact::Online,
        };
        if *self.0.0.lock().unwrap() { Vec::new() } else { vec![report] }
    }

    fn answered(&self, _: &Report, refused: Option<ErrorKind>) -> bool {
        assert_eq!(refused, None);
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
        true
    }

    async fn filled(&self) {
        std::future::pending().await
    }
}

struct Relays(Vec<RelayAddress>, Option<BeatKey>);

impl ReportRelays for Relays {
    fn relays(&self) -> Vec<RelayAddress> {
        self.0.clone()
    }

    fn key(&self) -> Option<&BeatKey> {
        self.1.as_ref()
    }
}

/// Sends one report while nothing listens at the only coordinator's address.
async fn tell(relays: Vec<RelayAddress>, key: Option<BeatKey>) -> OneFact {
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let fact = OneFact::default();
    tokio::spawn({
        let fact = fact.clone();
        async move {
            let coordinators = Coordinators::new(vec![nowhere], Transport::default(), Vec::new);
            let cluster = ClusterId::new(Uuid::from_u128(4));
            let member = Member { cluster, node: NodeId::new(2), incarnation: Incarnation::new(3) };
            reports(&coordinators, member, &fact, &Relays(relays, key)).await;
        }
    });
    fact
}

#[tokio::test]
async fn unreachable_coordinators_get_reports_by_relay() {
    let (address, mut asked) = relay(8, false).await;
    let fact = tell(vec![address], None).await;
    timeout(SOON, fact.0.1.notified()).await.expect("an answer");
    let request = asked.recv().await.unwrap();
    assert_eq!((request.reports.len(), request.nonce.len(), request.proof.len()), (1, 0, 0));
}

#[tokio::test]
async fn forged_answer_of_relay_does_not_finish_report() {
    let ((liar, mut lied), (honest, mut passed_on)) = (relay(8, false).await, relay(9, true).await);
    let fact = tell(vec![liar, honest], Some(key())).await;
    timeout(SOON, fact.0.1.notified()).await.expect("an answer");
    for request in [lied.recv().await.unwrap(), passed_on.recv().await.unwrap()] {
        assert_eq!(request.nonce.len(), NONCE_BYTES);
        assert!(key().proves(&reports_statement(&request), &request.proof));
    }
    assert!(lied.try_recv().is_err(), "the other one's answer was taken at once");
}

#[tokio::test]
async fn report_with_forged_answer_is_repeated_with_new_nonce() {
    let (address, mut asked) = relay(8, false).await;
    let fact = tell(vec![address], Some(key())).await;
    let (first, second) = (asked.recv().await.unwrap(), asked.recv().await.unwrap());
    assert_ne!(first.nonce, second.nonce);
    assert!(!*fact.0.0.lock().unwrap());
}
