//! Splits with replicas that change at the same moment as a request.

use crate::common::{self, FakeNode, Quorum, ask};
use crate::{SOON, settings, settle};
use archon_documents::{CreateTable, PartitionName, SplitPartition};
use archon_proto::v1;
use archon_proto::v1::session_client::SessionClient;
use archon_testkit::wait_for_async;
use archon_types::{ErrorDetail, KeyText, Partitioning, RangeLimits, TableContent};

/// Number of splits to cancel, so that a replica comes between decision and commit of some.
const CANCELLED: usize = 30;

/// Three nodes with replicas of a table by ranges.
struct World {
    quorum: Quorum,
    leader: String,
    nodes: Vec<FakeNode>,
}

impl World {
    async fn start() -> Self {
        let quorum = Quorum::start(3, settings(3, 1)).await;
        let leader = quorum.leader_address().await;
        let mut nodes = Vec::new();
        for name in ["athens", "byzantium", "cyrene"] {
            let mut node = FakeNode::new(name).await;
            node.register(&leader).await.unwrap();
            nodes.push(node);
        }
        settle(&quorum, &mut nodes, 1).await;
        let ranges = Partitioning::Range { split_at: Vec::new(), limits: RangeLimits::NONE };
        ask(&leader, &CreateTable::new("grows", ranges, 3, TableContent::Data)).await.unwrap();
        settle(&quorum, &mut nodes, 2).await;
        Self { quorum, leader, nodes }
    }

    /// Requests a split of the only partition, or its cancellation.
    async fn split(&self, cancel: bool) -> Result<(), ErrorDetail> {
        let (partition, at) = (PartitionName::new("grows", 0), KeyText(bytes::Bytes::from_static(b"m")));
        let at = (!cancel).then_some(at);
        ask(&self.leader, &SplitPartition { partition, at, cancel, dry_run: false }).await.map(drop)
    }

    /// Waits until all nodes know of a split that began after `last`. Returns its attempt, and each node's report that its
    /// replica has the keys.
    async fn mirroring(&self, last: u64) -> (u64, Vec<v1::ReportRequest>) {
        let known = || -> Option<Vec<(u64, v1::ReplicaReport)>> {
            self.nodes.iter().map(|node| forms(node).filter(|(attempt, _)| *attempt > last)).collect()
        };
        let found = wait_for_async("all nodes to know of the split", SOON, || async {
            known().ok_or_else(|| format!("{:?}", self.nodes.iter().map(FakeNode::duties).collect::<Vec<_>>()))
        })
        .await;
        let attempt = found[0].0;
        let request = |(node, (_, report)): (&FakeNode, (u64, v1::ReplicaReport))| v1::ReportRequest {
            cluster: node.cluster.clone(),
            sender: node.sender(),
            reports: vec![report],
            ..v1::ReportRequest::default()
        };
        (attempt, self.nodes.iter().zip(found).map(request).collect())
    }

    async fn report(&self, request: v1::ReportRequest) -> v1::ReportResponse {
        SessionClient::new(common::channel(&self.leader)).report(request).await.unwrap().into_inner()
    }
}

/// Returns the attempt of a split that this node hosts, and its report.
fn forms(node: &FakeNode) -> Option<(u64, v1::ReplicaReport)> {
    node.duties().into_iter().find_map(|duty| match duty.duty? {
        v1::duty::Duty::Host(host) => {
            let (row, own) = (host.partition?, node.sender()?.id);
            let split = row.split?;
            let copy = split.copies.iter().find(|copy| copy.node == own)?.id;
            let report = v1::ReplicaReport {
                partition: row.id,
                placement: host.placement,
                epoch: row.epoch,
                version: row.version,
                fact: Some(v1::replica_report::Fact::Mirroring(v1::FactMirroring { attempt: split.attempt, copy })),
            };
            Some((split.attempt, report))
        }
        _ => None,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_split_reports_need_no_repetition() {
    let world = World::start().await;
    world.split(false).await.unwrap();
    let (_, requests) = world.mirroring(0).await;
    for response in futures::future::join_all(requests.into_iter().map(|request| world.report(request))).await {
        assert!(response.outcomes.iter().all(|outcome| outcome.error.is_none()), "{response:?}");
    }
    world.quorum.stop_all().await;
}

/// It was refused with `StaleVersion`, although the operator named no version.
#[tokio::test(flavor = "multi_thread")]
async fn cancellation_succeeds_while_replicas_change() {
    let world = World::start().await;
    let mut last = 0;
    for _ in 0..CANCELLED {
        world.split(false).await.unwrap();
        let (attempt, requests) = world.mirroring(last).await;
        last = attempt;
        let reports = futures::future::join_all(requests.into_iter().map(|request| world.report(request)));
        let (cancelled, _) = futures::join!(world.split(true), reports);
        cancelled.unwrap();
    }
    world.quorum.stop_all().await;
}
