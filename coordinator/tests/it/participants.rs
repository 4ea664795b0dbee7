//! Participants of other services: registered without a port, with duties from a long poll.

use crate::common::{self, FakeNode, Quorum, ask, request_id, status};
use crate::{SOON, settings};
use archon_documents::{CreateTable, DescribeTable, GiveOrder, Order, PartitionName, RevokeCertificates, SetNode};
use archon_proto::convert::error::detail_of;
use archon_proto::convert::members::beats::LeaseGrant;
use archon_proto::v1;
use archon_proto::v1::duty::Duty;
use archon_proto::v1::replica_report::Fact;
use archon_proto::v1::session_client::SessionClient;
use archon_types::{ErrorDetail, ErrorKind, NodeGoal, PROTOCOL_NEWEST, Partitioning, ReasonCode, TableContent};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tonic::transport::Channel;

const PARTITIONS: u32 = 6;

/// A participant like the library's, call by call.
#[derive(Clone)]
struct Worker {
    cluster: Option<v1::ClusterRef>,
    sender: Option<v1::Sender>,
    boot: bytes::Bytes,
    number: u64,
    /// Term and version of the duties that it obeys.
    obeys: (u64, u64),
}

impl Worker {
    async fn register(leader: &str, name: &str) -> Result<Self, ErrorDetail> {
        let boot = request_id();
        let participant = v1::Participant { tables: vec!["jobs".into()], timing: None };
        let request = v1::RegisterRequest {
            name: name.to_owned(),
            address: format!("{name}.example:80"),
            storage_id: boot.clone(),
            boot_id: boot.clone(),
            weight: 100,
            protocol_min: 1,
            protocol_max: PROTOCOL_NEWEST,
            participant: Some(participant),
            ..v1::RegisterRequest::default()
        };
        let answer = SessionClient::new(common::channel(leader)).register(request).await;
        let answer = answer.map_err(|status| detail_of(&status))?.into_inner();
        let sender = Some(v1::Sender { id: answer.node, incarnation: answer.incarnation });
        Ok(Self { cluster: answer.cluster, sender, boot, number: 0, obeys: (0, 0) })
    }

    async fn heartbeat(&mut self, leader: &str) -> LeaseGrant {
        self.number += 1;
        let sender = self.sender.unwrap();
        let beat = v1::Beat {
            node: sender.id,
            incarnation: sender.incarnation,
            number: self.number,
            push_key: self.boot.clone(),
            ..v1::Beat::default()
        };
        common::beat_once(leader, self.cluster.clone(), beat).await.unwrap()
    }

    async fn poll(&mut self, leader: &str, wait_ms: u32) -> Result<v1::DutiesResponse, ErrorDetail> {
        let (term, version) = self.obeys;
        let request = v1::DutiesRequest { cluster: self.cluster.clone(), sender: self.sender, term, version, wait_ms };
        let answer = SessionClient::new(common::channel(leader)).duties(request).await;
        let answer = answer.map_err(|status| detail_of(&status))?.into_inner();
        self.obeys = (answer.term, answer.version);
        Ok(answer)
    }

    async fn report(&self, leader: &str, row: &v1::Partition, placement: u64, fact: Fact) {
        let report = v1::ReplicaReport {
            partition: row.id,
            placement,
            epoch: row.epoch,
            version: row.version,
            fact: Some(fact),
        };
        let (cluster, sender) = (self.cluster.clone(), self.sender);
        let request = v1::ReportRequest { cluster, sender, reports: vec![report], ..v1::ReportRequest::default() };
        let answer = SessionClient::new(common::channel(leader)).report(request).await.unwrap().into_inner();
        assert_eq!(answer.outcomes, [v1::ReportOutcome { error: None }]);
    }

    /// Polls and obeys once: serves its partitions, and releases requested ones. Returns the number of its partitions.
    async fn obey(&mut self, leader: &str) -> Option<usize> {
        self.heartbeat(leader).await;
        let answer = self.poll(leader, 0).await.unwrap();
        if answer.unchanged {
            return None;
        }
        let mut owned = 0;
        for duty in answer.duties.into_iter().filter_map(|duty| duty.duty) {
            match duty {
                Duty::Host(host) => {
                    let row = host.partition.unwrap();
                    let owns = row.leader == Some(host.placement);
                    owned += usize::from(owns);
                    if owns && row.status() == v1::PartitionStatus::Assigned {
                        self.report(leader, &row, host.placement, Fact::Online(v1::FactOnline {})).await;
                    }
                }
                Duty::HandOver(over) => {
                    let row = over.partition.unwrap();
                    self.report(leader, &row, over.placement, Fact::Released(v1::FactReleased {})).await;
                }
                Duty::Unload(_) | Duty::Inspect(_) => panic!("there is nothing to delete or to inspect"),
            }
        }
        Some(owned)
    }
}

async fn quorum_with_jobs() -> (Quorum, String) {
    let quorum = Quorum::start(1, settings(1, 1)).await;
    let leader = quorum.leader_address().await;
    let partitioning = Partitioning::Hash { partitions: PARTITIONS };
    ask(&leader, &CreateTable::new("jobs", partitioning, 1, TableContent::Lease)).await.unwrap();
    (quorum, leader)
}

async fn settle(leader: &str, workers: &mut [Worker], wanted: &[usize]) {
    let mut owned = vec![0; workers.len()];
    let begun = Instant::now();
    while owned != wanted {
        for (worker, owned) in workers.iter_mut().zip(&mut owned) {
            *owned = worker.obey(leader).await.unwrap_or(*owned);
        }
        assert!(begun.elapsed() < SOON, "owned: {owned:?}, wanted: {wanted:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn participants_share_lease_table_and_hand_over() {
    let (quorum, leader) = quorum_with_jobs().await;
    let reasons = status(&leader).await.unwrap().reasons;
    let waits = reasons.iter().find(|reason| reason.code == ReasonCode::AwaitsFirstParticipant);
    let waits = waits.unwrap_or_else(|| panic!("{reasons:?}"));
    assert!(waits.message.contains("table jobs") && waits.began_at_ms.is_some(), "since it was made: {waits:?}");
    let mut workers = vec![Worker::register(&leader, "w1").await.unwrap()];
    settle(&leader, &mut workers, &[6]).await;
    workers.push(Worker::register(&leader, "w2").await.unwrap());
    settle(&leader, &mut workers, &[3, 3]).await;
    let table = ask(&leader, &DescribeTable { table: "jobs".into(), partitions: true }).await.unwrap();
    let owners = table.holders.iter().map(|owner| (owner.node.as_str(), owner.partitions_led, owner.copies_held));
    assert_eq!(owners.collect::<Vec<_>>(), [("w1", 3, 0), ("w2", 3, 0)]);
    assert_eq!((table.partitions_led, table.copies_wanted, table.copies_held, table.copies_in_sync), (6, 0, 0, 0));
    let partitions = table.partitions.unwrap();
    assert!(partitions.len() == 6 && partitions.iter().all(|partition| partition.leader.is_some()), "{partitions:?}");
    workers.push(Worker::register(&leader, "w3").await.unwrap());
    settle(&leader, &mut workers, &[2, 2, 2]).await;
    let taken = Worker::register(&leader, "w1").await.map(|_| ());
    assert!(taken.is_ok(), "a restart at the same address is believed");
    // Their callers find the owners in the table.
    let request = v1::GetTableRequest { table: "jobs".into(), ..Default::default() };
    let mut tables = v1::table_client::TableClient::new(common::channel(&leader));
    let delta = tables.get_table(request).await.unwrap().into_inner().delta.unwrap();
    let names: Vec<&str> = delta.nodes.iter().map(|node| node.address.as_str()).collect();
    assert_eq!(names, ["w1.example:80", "w2.example:80", "w3.example:80"]);
    assert_eq!(delta.partitions.len(), PARTITIONS as usize);
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn poll_waits_for_changed_duties_or_newer_poll() {
    let (quorum, leader) = quorum_with_jobs().await;
    let mut worker = Worker::register(&leader, "w1").await.unwrap();
    settle(&leader, std::slice::from_mut(&mut worker), &[6]).await;
    // Its own reports changed the rows.
    let begun = Instant::now();
    while worker.obey(&leader).await.is_some() {
        assert!(begun.elapsed() < SOON, "its duties still change");
    }
    let (mut first, address) = (worker.clone(), leader.clone());
    let waiting = tokio::spawn(async move { first.poll(&address, 30_000).await.unwrap() });
    let begun = Instant::now();
    while !waiting.is_finished() {
        worker.heartbeat(&leader).await;
        // Another poll of the same participant.
        let answer = worker.clone().poll(&leader, 100).await.unwrap();
        assert!(answer.unchanged, "{answer:?}");
        assert!(begun.elapsed() < SOON, "the first poll still waits");
    }
    assert!(waiting.await.unwrap().unchanged);
    let (mut second, address) = (worker.clone(), leader.clone());
    let waiting = tokio::spawn(async move { second.poll(&address, 30_000).await.unwrap() });
    let drain = SetNode { node: "w1".into(), goal: NodeGoal::Drain.into() };
    let mut other = Worker::register(&leader, "w2").await.unwrap();
    other.heartbeat(&leader).await;
    ask(&leader, &drain).await.unwrap();
    let begun = Instant::now();
    while !waiting.is_finished() {
        worker.heartbeat(&leader).await;
        other.heartbeat(&leader).await;
        assert!(begun.elapsed() < SOON, "the poll still waits");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = waiting.await.unwrap();
    let over = answer.duties.iter().any(|duty| matches!(duty.duty, Some(Duty::HandOver(_))));
    assert!(over, "{answer:?}");
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_on_leases_end_the_poll_of_their_owner() {
    let (quorum, leader) = quorum_with_jobs().await;
    let mut workers = vec![Worker::register(&leader, "w1").await.unwrap()];
    settle(&leader, &mut workers, &[6]).await;
    let mut other = Worker::register(&leader, "w2").await.unwrap();
    let jobs = |partition| PartitionName { table: "jobs".into(), partition };
    // Cordoned, it is given nothing by the way.
    let cordon = SetNode { node: "w2".into(), goal: NodeGoal::Cordon.into() };
    ask(&leader, &cordon).await.unwrap();
    for order in [Order::Bump(jobs(0)), Order::Offline(jobs(1))] {
        let begun = Instant::now();
        while workers[0].obey(&leader).await.is_some() {
            other.heartbeat(&leader).await;
            assert!(begun.elapsed() < SOON, "its duties still change before {order:?}");
        }
        let (mut polling, address) = (workers[0].clone(), leader.clone());
        let waiting = tokio::spawn(async move { polling.poll(&address, 30_000).await.unwrap() });
        let begun = Instant::now();
        ask(&leader, &GiveOrder { order: order.clone(), why: String::new() }).await.unwrap();
        while !waiting.is_finished() {
            workers[0].heartbeat(&leader).await;
            other.heartbeat(&leader).await;
            assert!(begun.elapsed() < SOON, "the poll still waits after {order:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let answer = waiting.await.unwrap();
        let over = answer.duties.iter().any(|duty| matches!(duty.duty, Some(Duty::HandOver(_))));
        assert!(over, "{order:?}: {answer:?}");
    }
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_of_nodes_and_fenced_participants_are_refused() {
    let (quorum, leader) = quorum_with_jobs().await;
    let mut node = FakeNode::new("athens").await;
    node.register(&leader).await.unwrap();
    let mut posing = Worker::register(&leader, "w1").await.unwrap();
    let own = posing.sender.replace(node.sender().unwrap());
    let refused = posing.poll(&leader, 0).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidArgument, "{refused}");
    posing.sender = own.map(|own| v1::Sender { incarnation: own.incarnation - 1, ..own });
    assert_eq!(posing.poll(&leader, 0).await.unwrap_err().kind, ErrorKind::StaleIncarnation);
    posing.sender = own;
    let refused = posing.poll(&leader, 30_001).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidArgument, "{refused}");
    quorum.stop_all().await;
}

async fn revocations((leader, address): (&Channel, &str), version: u64, wait_ms: u32) -> Option<v1::AccessList> {
    let request = v1::RevocationsRequest { version, wait_ms };
    let answer = SessionClient::new(leader.clone()).revocations(request).await.unwrap().into_inner();
    assert_eq!(answer.coordinators, [address]);
    answer.revoked
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_ends_waiting_polls_at_once() {
    let (quorum, leader) = quorum_with_jobs().await;
    let withdraw = |name: &str| RevokeCertificates {
        identity: format!("participant/{name}"),
        begins_before_at_ms: None,
        readmit: false,
        force: false,
    };
    let begun = Instant::now();
    // Until the cluster uses the protocol of revocations.
    while let Err(error) = ask(&leader, &withdraw("w1")).await {
        assert!(begun.elapsed() < SOON, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let channel = common::channel(&leader);
    let leading = (&channel, leader.as_str());
    let first = revocations(leading, 0, 0).await.expect("a list");
    let mut poll = pin!(revocations(leading, first.version, 30_000));
    tokio::select! {
        biased;
        list = &mut poll => panic!("answered without a change: {list:?}"),
        // Answered after the poll has arrived, which was sent before them over the same connection.
        () = async {
            for _ in 0..10 {
                assert_eq!(revocations(leading, first.version, 0).await, None);
            }
        } => {}
    }
    ask(&leader, &withdraw("w2")).await.unwrap();
    let second = timeout(SOON, poll).await.expect("the poll ends before its wait").expect("a list");
    let identities: Vec<&str> = second.withdrawn.iter().map(|of| of.identity.as_str()).collect();
    assert_eq!(identities, ["participant/w1", "participant/w2"]);
    assert!(second.version > first.version);
    quorum.stop_all().await;
}
