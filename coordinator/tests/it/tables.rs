//! Plans for tables, and dropped tables.

use crate::common::{self, FakeNode, Quorum, ask, ask_as, hashed, kind, request_id, status};
use crate::{SOON, settings, settle};
use archon_documents::{
    ApplyPlan, CancelRebalance, CheckTable, CreateTable, DescribeTable, DropTable, PlanRebalance, ShowRebalance,
};
use archon_proto::convert::error::detail_of;
use archon_proto::v1;
use archon_proto::v1::session_client::SessionClient;
use archon_testkit::wait_for_async;
use archon_types::plan::Plan;
use archon_types::{ErrorKind, KeyText, NodeStatus, Partitioning, RangeLimits, ReasonCode, Settings, TableContent};

/// It answered UNIMPLEMENTED without a message, although reflection lists `Kv`.
#[tokio::test(flavor = "multi_thread")]
async fn kv_call_at_coordinator_names_a_node() {
    let quorum = Quorum::start(1, settings(1, 1)).await;
    let leader = quorum.leader_address().await;
    let get = async || {
        let mut kv = v1::kv_client::KvClient::new(common::channel(&leader));
        kv.get(v1::GetRequest { key: "k".into(), ..v1::GetRequest::default() }).await.unwrap_err()
    };
    let status = get().await;
    assert_eq!(status.code(), tonic::Code::Unimplemented);
    assert!(status.message().contains("coordinators hold no rows: ask a node (Table/GetTable lists them)"), "{status}");
    let mut athens = FakeNode::new("athens").await;
    athens.register(&leader).await.unwrap();
    let address = athens.registration().address;
    let detail = detail_of(&get().await);
    assert_eq!(detail.kind, ErrorKind::Refused);
    assert!(detail.message.contains(&format!("such as athens at {address}")), "{detail}");
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn table_description_counts_copies_and_shows_ranges() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let describe = async |table: &str, partitions| {
        let table = table.to_owned();
        ask(&leader, &DescribeTable { table, partitions }).await
    };
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    let table = describe("default", true).await.unwrap();
    assert_eq!((table.table.partitions_total, table.partitions_online, table.partitions_led), (4, 4, 4));
    assert_eq!((table.copies_wanted, table.copies_in_sync), (4 * table.table.replication, 4));
    let [athens] = &table.holders[..] else { panic!("{:?}", table.holders) };
    let share = (athens.partitions_led, athens.copies_held, athens.copies_in_sync);
    assert_eq!((athens.node.as_str(), athens.node_status == NodeStatus::Alive, share), ("athens", true, (4, 4, 4)));
    let partitions = table.partitions.unwrap();
    let lines = partitions.iter().map(|row| (row.id, row.leader.as_deref(), row.copies_in_sync, row.range.is_none()));
    let wanted: Vec<_> = (0..4).map(|id| (id, Some("athens"), 1, true)).collect();
    assert_eq!(lines.collect::<Vec<_>>(), wanted);
    assert_eq!(describe("default", false).await.unwrap().partitions, None);

    let ranges = Partitioning::Range { split_at: vec!["m".into(), "f".into()], limits: RangeLimits::NONE };
    assert!(
        ask(&leader, &CreateTable::new("times", ranges, 1, TableContent::Data)).await.is_err(),
        "keys are in order"
    );
    let ranges = Partitioning::Range { split_at: vec!["f".into(), "m".into()], limits: RangeLimits::NONE };
    ask(&leader, &CreateTable::new("times", ranges, 1, TableContent::Data)).await.unwrap();
    let partitions = describe("times", true).await.unwrap().partitions.unwrap();
    let bounds = partitions.into_iter().filter_map(|row| row.range).map(|range| (range.begin, range.end));
    let wanted = [("", Some("f")), ("f", Some("m")), ("m", None)];
    let wanted = wanted.map(|(begin, end)| (KeyText::new(begin), end.map(KeyText::new)));
    assert_eq!(bounds.collect::<Vec<_>>(), wanted);
    assert_eq!(kind(describe("absent", false).await), ErrorKind::NotFound);

    // Problems of the table and its nodes, and of no other table.
    ask(&leader, &CreateTable::new("jobs", Partitioning::Hash { partitions: 2 }, 1, TableContent::Lease))
        .await
        .unwrap();
    let jobs = describe("jobs", false).await.unwrap();
    assert_eq!((jobs.partitions_led, jobs.copies_wanted, jobs.holders.len()), (0, 0, 0));
    let codes: Vec<_> = jobs.alerts.iter().map(|alert| alert.code.as_str().to_owned()).collect();
    assert_eq!(codes, [ReasonCode::AwaitsFirstParticipant.as_str()]);
    let other = describe("default", false).await.unwrap().alerts;
    assert!(other.iter().all(|alert| alert.code != ReasonCode::AwaitsFirstParticipant), "{other:?}");
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_plan_runs_at_a_time_and_stale_one_is_refused() {
    let quorum = Quorum::start(1, settings(1, 9)).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 9).await;
    let early = ask(&leader, &PlanRebalance {}).await.unwrap();
    let mut second = FakeNode::new("byzantium").await;
    second.register(&leader).await.unwrap();
    second.heartbeat(&leader).await.unwrap();
    nodes.push(second);
    let plan = wait_for_async("a plan with moves", SOON, || async {
        let plan = ask(&leader, &PlanRebalance {}).await.map_err(|error| error.to_string())?;
        if plan.moves.len() == 4 { Ok(plan) } else { Err(format!("{plan:?}")) }
    })
    .await;
    let apply = async |plan: Plan, id: bytes::Bytes| ask_as(&leader, &ApplyPlan { plan }, &id).await;
    let stale = apply(early, request_id()).await.unwrap_err();
    assert_eq!(stale.kind, ErrorKind::StalePlan);
    assert!(stale.have > stale.need, "{stale:?}");
    let id = request_id();
    assert_eq!(apply(plan.clone(), id.clone()).await.unwrap().moves_started, 4);
    // The same request again has the same answer and no second effect; another one is refused.
    assert_eq!(apply(plan.clone(), id).await.unwrap().moves_started, 4);
    assert_eq!(kind(apply(plan, request_id()).await), ErrorKind::AssignmentInProgress);
    let page = async |most, after| {
        let page = ask(&leader, &ShowRebalance { most, after }).await.unwrap();
        (page.status, page.more)
    };
    let (first, more) = page(3, 0).await;
    assert!(first.running && more && first.moves.len() == 3, "{first:?}");
    let (second, more) = page(3, first.moves[2].id).await;
    assert!(second.running && !more && second.moves.len() == 1, "{second:?}");
    let ((alone, _), summary) = (page(0, 0).await, first.summary);
    assert!(alone.moves.is_empty() && summary.moves_total == 4, "{alone:?}");
    assert_eq!((summary.queued + summary.copying, summary.done, summary.percent), (4, 0, 0));
    let id = request_id();
    let cancelled = ask_as(&leader, &CancelRebalance {}, &id).await.unwrap();
    assert_eq!((cancelled.moves_cancelled, cancelled.moves_too_late), (4, 0));
    // A repetition after a lost answer returns the same.
    let repeated = ask_as(&leader, &CancelRebalance {}, &id).await.unwrap();
    assert_eq!(repeated, cancelled, "a repeated cancellation answered 0 and 0");
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_drop_spares_later_table_of_same_name() {
    let quorum = Quorum::start(1, settings(1, 4)).await;
    let leader = quorum.leader_address().await;
    let check_of = async |name: &str| {
        let checked = ask(&leader, &CheckTable { table: name.to_owned() }).await;
        checked.map(|answer| answer.table.id)
    };
    let check = async || check_of("orders").await;
    let missing = check().await.unwrap_err();
    assert_eq!(missing.kind, ErrorKind::NotFound);
    assert!(missing.message.contains("the tables are: default"), "{missing}");
    ask(&leader, &hashed("orders", 7)).await.unwrap();
    let table = check().await.unwrap();
    let (drop, first) = (DropTable { table: "orders".to_owned(), table_id: table }, request_id());
    ask_as(&leader, &drop, &first).await.unwrap();
    ask(&leader, &hashed("orders", 7)).await.unwrap();
    let again = check().await.unwrap();
    assert!(again > table);
    // The same request gets the same answer; another one for the table that was checked is refused.
    ask_as(&leader, &drop, &first).await.unwrap();
    let refused = ask(&leader, &drop).await.unwrap_err();
    assert_eq!((refused.kind, refused.have, refused.need), (ErrorKind::StaleVersion, Some(again), Some(table)));
    assert_eq!(check().await, Ok(again));
    // After the drop of the last table nothing is wrong either.
    for name in ["orders", "default"] {
        let table_id = check_of(name).await.unwrap();
        ask(&leader, &DropTable { table: name.to_owned(), table_id }).await.unwrap();
    }
    let missing = check().await.unwrap_err();
    assert!(missing.message.contains("there is none at all"), "{missing}");
    assert_eq!(status(&leader).await.unwrap().partitions_total, 0);
    quorum.stop_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drop_is_pushed_until_copies_are_deleted() {
    let quorum = Quorum::start(1, Settings { replication: 1, ..settings(1, 4) }).await;
    let leader = quorum.leader_address().await;
    let mut nodes = vec![FakeNode::new("athens").await];
    nodes[0].register(&leader).await.unwrap();
    settle(&quorum, &mut nodes, 4).await;
    let node = &mut nodes[0];
    let drop = DropTable { table: "default".to_owned(), table_id: 1 };
    assert_eq!(ask(&leader, &drop).await.unwrap().copies_deleted, 4);
    assert_eq!(node.heartbeat(&leader).await.unwrap().withdrawn.len(), 4, "no lease covers what it led");
    let unloads = |node: &FakeNode| -> Vec<v1::DutyUnload> {
        let unload = |duty: v1::Duty| match duty.duty {
            Some(v1::duty::Duty::Unload(unload)) => Some(unload),
            _ => None,
        };
        node.duties().into_iter().filter_map(unload).collect()
    };
    wait_for_async("the node to be told", SOON, || async {
        let (lists, duties) = (node.pushed.tables.lock().unwrap().lists.clone(), node.duties());
        let version = status(&leader).await.map_err(|error| error.to_string())?.table_version;
        let gone = lists.last() == Some(&v1::TableList { version, last: 1, tables: Vec::new() });
        let told = gone && duties.len() == 4 && unloads(node).len() == 4;
        if told { Ok(()) } else { Err(format!("{lists:?}, {duties:?}")) }
    })
    .await;
    let waits = status(&leader).await.unwrap();
    assert_eq!((waits.copies_condemned, waits.partitions_total), (4, 0));
    assert!(
        waits
            .reasons
            .iter()
            .any(|reason| reason.code == ReasonCode::CopiesCondemned && reason.message.contains("athens"))
    );
    let report = |unload: v1::DutyUnload| v1::ReplicaReport {
        partition: unload.partition,
        placement: unload.placement,
        fact: Some(v1::replica_report::Fact::Unloaded(v1::FactUnloaded {})),
        ..Default::default()
    };
    let reports = unloads(node).into_iter().map(report).collect();
    let request = v1::ReportRequest {
        cluster: node.cluster.clone(),
        sender: node.sender(),
        reports,
        ..v1::ReportRequest::default()
    };
    let answer = SessionClient::new(common::channel(&leader)).report(request).await.unwrap().into_inner();
    assert!(answer.outcomes.iter().all(|outcome| outcome.error.is_none()), "{answer:?}");
    assert_eq!(status(&leader).await.unwrap().copies_condemned, 0);
    assert_eq!(node.heartbeat(&leader).await.unwrap().withdrawn, []);
    quorum.stop_all().await;
}

/// A follower that had not applied a creation denied the table to its creator, while the leader still placed the partitions.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_leader_denies_a_table() {
    let mut quorum = Quorum::start(3, settings(1, 4)).await;
    let leader = quorum.leader().await;
    let of = async |address: &str, since: u64| {
        let request = v1::GetTableRequest { table: "orders".to_owned(), since, ..v1::GetTableRequest::default() };
        let answer = v1::table_client::TableClient::new(common::channel(address)).get_table(request).await;
        answer.map(|_| ()).map_err(|status| detail_of(&status))
    };
    let mut followers = quorum.peers.clone();
    let address = followers.remove(&leader).unwrap();
    let denied = of(&address, 0).await.unwrap_err();
    assert_eq!(denied.kind, ErrorKind::NotFound, "{denied}");
    assert!(denied.message.contains("table \"orders\" does not exist"), "{denied}");
    for follower in followers.values() {
        // Also to a caller that names a version which this state may not have reached.
        for since in [0, u64::MAX] {
            let refused = wait_for_async("a follower that knows the leader", SOON, || async {
                let refused = of(follower, since).await.unwrap_err();
                if refused.kind == ErrorKind::NoQuorum { Err(refused) } else { Ok(refused) }
            })
            .await;
            assert_eq!(refused.kind, ErrorKind::NotCoordinatorLeader, "{refused}");
            assert_eq!(refused.leader.as_deref(), Some(address.as_str()));
        }
        // A table that existed at this version has been dropped: any later state proves that.
        wait_for_async("a follower that has begun", SOON, || async {
            let dropped = of(follower, 1).await.unwrap_err();
            if dropped.kind == ErrorKind::NotFound { Ok(()) } else { Err(dropped) }
        })
        .await;
    }
    // A leader that no majority confirms does not deny it either.
    for follower in followers.keys() {
        assert!(quorum.running.remove(follower).unwrap().shutdown().await.is_none());
    }
    let refused = of(&address, 0).await.unwrap_err();
    assert!(refused.kind.is_retryable(), "{refused}");
    quorum.stop_all().await;
}
