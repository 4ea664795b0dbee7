//! Documents of the administration: a request that a method accepts is written as it was read.

use crate::target::{Target, Verdict};
use archon_documents::{
    AlterNode, AlterTable, ApplyPlan, BarName, ChangeQuorum, ChangeUpgrade, CheckCluster, Configure, CreateTable,
    DropTable, ForceLeader, GiveOrder, ListAccess, LoseNode, METHODS, Order, PartitionName, QuorumAction,
    RevokeCertificates, SetAccess, SetNode, SplitPartition, TransferLead, UpgradeAction, write,
};
use archon_types::plan::{Move, Plan};
use archon_types::{
    KeyText, MoveCode, MoveKind, NodeGoal, NodeId, Partitioning, QuorumChange, RangeLimits, Right, Setting,
    SettingChange, TableChange, TableContent, TableId, TraitsChange, Version,
};
use bytes::Bytes;

/// Rewrites the input by each method that accepts it.
fn documents(input: &[u8]) -> Verdict {
    let mut accepted = Vec::new();
    let mut refused = String::new();
    for method in METHODS {
        match (method.rewrite)(input) {
            Ok(written) => {
                assert_eq!(
                    (method.rewrite)(&written).as_ref(),
                    Ok(&written),
                    "decoding does not restore {}",
                    method.name
                );
                accepted.push(method.name);
            }
            Err(error) => refused = error.message,
        }
    }
    if accepted.is_empty() { Verdict::Refused(refused) } else { Verdict::Accepted(accepted.join(" ")) }
}

/// A request of each kind; chance does not hit the names of fields.
fn document_requests() -> Vec<Vec<u8>> {
    let change = |setting: &Setting| SettingChange { setting: *setting, value: setting.default_value() };
    let changes: Vec<SettingChange> = Setting::ALL.iter().map(change).collect();
    let withdraw = |begins_before_at_ms, readmit| RevokeCertificates {
        identity: "admin/alice".into(),
        begins_before_at_ms,
        readmit,
        force: false,
    };
    let order = |order| GiveOrder { order, why: "a bad disk".into() };
    let step = Move {
        kind: MoveKind::Copy.into(),
        table_id: TableId::new(1),
        table: "orders".into(),
        partition: 4,
        from_id: NodeId::new(1),
        from: "athens".into(),
        to_id: NodeId::new(2),
        to: "byzantium".into(),
        bytes_total: 100,
        code: MoveCode::Balance.into(),
        message: "athens has 3, byzantium 0".into(),
        unknown: Default::default(),
    };
    let ranges = Partitioning::Range { split_at: vec!["m".into()], limits: RangeLimits::NONE };
    [
        write(&Configure::new(&changes, Some(Version::new(3)), true)),
        write(&SetAccess::new(Right::Write, Some("shop"), None, false)),
        write(&SetAccess::new(Right::Own, None, Some("orders"), true)),
        write(&SetAccess::own_up_to(100, Some("billing-3"), "jobs")),
        write(&withdraw(None, false)),
        write(&withdraw(Some(7), false)),
        write(&withdraw(None, true)),
        write(&ListAccess { client: Some("shop".into()), table: Some("orders".into()) }),
        write(&ChangeUpgrade { action: UpgradeAction::Hold }),
        write(&SetNode { node: "athens".into(), goal: NodeGoal::Drain.into() }),
        write(&AlterNode {
            node: "athens".into(),
            change: TraitsChange { zone: Some(None), weight: Some(50), partitions_max: Some(Some(3)) },
        }),
        write(&LoseNode { node: "athens".into(), accept_data_loss: true }),
        write(&order(Order::Bump(PartitionName::new("orders", 7)))),
        write(&order(Order::Bar(BarName { node: "athens".into(), table: "orders".into(), partition: Some(7) }))),
        write(&order(Order::Maintain { node: "athens".into(), for_ms: 60_000 })),
        write(&CheckCluster::default()),
        write(&ForceLeader { partition: PartitionName::new("orders", 7), node: None, accept_data_loss: false }),
        write(&SplitPartition {
            partition: PartitionName::new("orders", 7),
            at: Some(KeyText(Bytes::from_static(&[0xFF, 0]))),
            cancel: false,
            dry_run: true,
        }),
        write(&CreateTable::new("orders", Partitioning::Hash { partitions: 16 }, 3, TableContent::Data)),
        write(&CreateTable::new("orders", ranges, 3, TableContent::Data)),
        write(&AlterTable {
            table: "orders".into(),
            change: TableChange { replication: Some(3), ..Default::default() },
        }),
        write(&DropTable { table: "orders".into(), table_id: 7 }),
        write(&ChangeQuorum {
            action: QuorumChange::SetAddress { id: 3, address: "127.0.0.1:7103".into() }.into(),
            force: true,
        }),
        write(&ChangeQuorum { action: QuorumAction::Settle, force: true }),
        write(&TransferLead { coordinator_id: Some(3) }),
        write(&ApplyPlan { plan: Plan { moves: vec![step], ..Plan::default() } }),
    ]
    .into_iter()
    .filter_map(Result::ok)
    .collect()
}

pub(super) fn targets() -> Vec<Target> {
    vec![Target::new("wire/documents", documents, document_requests)]
}
