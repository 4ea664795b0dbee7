//! Reports that arrive by a relay (PROTOCOL rule 82).

use crate::common::{self, FakeNode, Quorum, request_id};
use crate::{settings, settle};
use archon_proto::convert::error::detail_of;
use archon_proto::convert::members::report_proofs::{outcomes_statement, reports_statement};
use archon_proto::v1;
use archon_proto::v1::session_client::SessionClient;
use archon_security::BeatKey;
use archon_types::{BootId, ErrorKind, StorageId};
use bytes::Bytes;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread")]
async fn reports_forged_by_a_relay_are_refused() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    let node = &nodes[0];
    let id = |bytes: &Bytes| Uuid::from_slice(bytes).unwrap();
    let key = BeatKey::new(StorageId::new(id(&node.storage)), BootId::new(id(&node.boot)));
    let proven = |nonce: Bytes| {
        let (cluster, sender) = (node.cluster.clone(), node.sender());
        let request = v1::ReportRequest { cluster, sender, nonce, ..v1::ReportRequest::default() };
        v1::ReportRequest { proof: key.prove(&reports_statement(&request)), ..request }
    };
    let ask = async |request| SessionClient::new(common::channel(&leader)).report(request).await;
    let request = proven(request_id());
    let answer = ask(request.clone()).await.unwrap().into_inner();
    assert!(key.proves(&outcomes_statement(&request, &answer), &answer.proof));
    let made_up = [
        v1::ReportRequest { nonce: request_id(), ..request.clone() },
        v1::ReportRequest { proof: Bytes::from_static(&[7; 32]), ..request.clone() },
        v1::ReportRequest { reports: vec![v1::ReplicaReport::default()], ..request },
        proven(Bytes::new()),
    ];
    for request in made_up {
        let refused = ask(request.clone()).await.unwrap_err();
        assert_eq!(detail_of(&refused).kind, ErrorKind::Refused, "{request:?}: {refused}");
    }
    quorum.stop_all().await;
}
