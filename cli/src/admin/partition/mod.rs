//! `archon partition list | locate | describe | force-leader`.

mod merge;
mod split;
pub(crate) mod texts;

use super::{list_text, orders, reasons, watch};
use crate::admin::partition::texts::{
    bar_text, bound_text, copy_text, keys_text, listed_status, operand, owner_lines, reshaping_text, status_text,
};
use crate::args::{
    DescribePartitionArgs, ForceLeaderArgs, LocateArgs, PartitionArgs, PartitionListArgs, PartitionVerb,
};
use crate::connect::leading;
#[cfg(test)]
use crate::documents::contract;
use crate::documents::{Node, Partition};
use crate::exit::{Exit, Failure};
use crate::kv::KeyForm;
use crate::output::{Column, Output, bytes_text};
use archon_client::{
    Admin, Condition, ForceLeaderCheck, NodeName, NodeStatus, OpenEnum, PartitionCopy, PartitionDescription,
    ReasonCode, ReplicaState, Subject, TableContent,
};
use archon_types::bare_key;
use std::time::Duration;

/// Documents of the verbs.
#[cfg(test)]
pub(crate) const DOCUMENTS: contract::Documents = &[
    ("partition list", contract::list::<Partition>),
    ("partition locate", contract::one::<archon_client::KeyLocation>),
    ("partition describe", contract::one::<PartitionDescription>),
    ("partition bump", contract::one::<crate::documents::PartitionOrdered>),
    ("partition offline", contract::one::<crate::documents::PartitionOrdered>),
    ("partition online", contract::one::<crate::documents::PartitionOrdered>),
    ("partition bar", contract::one::<crate::documents::PartitionOrdered>),
    ("partition unbar", contract::one::<crate::documents::PartitionOrdered>),
    ("partition split", contract::one::<archon_client::PartitionSplit>),
    ("partition merge", contract::one::<archon_client::PartitionMerge>),
    ("partition force-leader", contract::one::<archon_client::ForcedLeader>),
];

/// Runs a verb.
pub(crate) async fn run(
    verb: &PartitionVerb,
    admin: &Admin,
    timeout: Duration,
    output: &Output,
) -> Result<Exit, Failure> {
    match verb {
        PartitionVerb::List(args) => list(args, admin, timeout, output).await,
        PartitionVerb::Locate(args) => locate(args, &leading(admin, timeout).await?, output).await,
        PartitionVerb::Describe(args) => describe(args, admin, output).await,
        PartitionVerb::Bump(args) => orders::bump(args, admin, output).await,
        PartitionVerb::Offline(args) => orders::offline(args, admin, output).await,
        PartitionVerb::Online(args) => orders::online(args, admin, output).await,
        PartitionVerb::Bar(args) => orders::bar(args, admin, output).await,
        PartitionVerb::Unbar(args) => orders::unbar(args, admin, output).await,
        PartitionVerb::Merge(args) => merge::run(args, admin, timeout, output).await,
        PartitionVerb::Split(args) => split::run(args, admin, timeout, output).await,
        PartitionVerb::ForceLeader(args) => force(args, admin, output).await,
    }
}

/// Lists the partitions of a table.
pub(crate) async fn list(
    args: &PartitionListArgs,
    admin: &Admin,
    timeout: Duration,
    output: &Output,
) -> Result<Exit, Failure> {
    watch::show(args.watch.watch, output, async |output: &Output| {
        let partitions = leading(admin, timeout).await?.table(&args.table).await?;
        if output.is_json() { output.json_text(&partitions) } else { Ok(list_rows(&partitions, output)) }
    })
    .await
}

fn list_rows(partitions: &[Partition], output: &Output) -> String {
    let ranged = partitions.iter().any(|partition| partition.range.is_some());
    let mut columns = vec![Column::text("TABLE"), Column::number("ID")];
    if ranged {
        columns.extend([Column::text("BEGIN"), Column::text("END")]);
    }
    columns.extend([
        Column::text("STATUS"),
        Column::text("LEADER"),
        Column::number("EPOCH"),
        Column::number("VERSION"),
        Column::text("REPLICAS"),
    ]);
    let mut partitions: Vec<&Partition> = partitions.iter().collect();
    // The order of ranges matters, not their numbers.
    partitions.sort_by_key(|partition| partition.range.as_ref().map(|range| &range.begin));
    let rows = partitions.iter().map(|partition| {
        let mut row = vec![partition.table.clone(), partition.id.to_string()];
        if ranged {
            let range = partition.range.as_ref();
            row.push(bound_text(range.map(|range| &range.begin)));
            row.push(bound_text(range.and_then(|range| range.end.as_ref())));
        }
        row.extend([
            listed_status(partition, output),
            partition.leader.clone().unwrap_or_else(|| "-".to_owned()),
            partition.epoch.to_string(),
            partition.version.to_string(),
            list_text(partition.copies.iter().map(copy_text)),
        ]);
        row
    });
    output.rows_text(&columns, rows.collect(), "the table has no partitions yet")
}

/// Prints the partition of a key.
pub(crate) async fn locate(args: &LocateArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let key = KeyForm::of(args.hex).key(&args.key)?;
    let location = admin.locate(&args.table, &key).await?;
    if output.is_json() {
        output.json(&location)?;
        return Ok(Exit::Done);
    }
    let partition = &location.partition;
    let leader = match (&partition.leader, &location.leader_address) {
        (Some(name), Some(address)) => format!("{name} ({address})"),
        (Some(name), None) => name.clone(),
        (None, _) => output.bad("none"),
    };
    output.line(format!("key        {}", bare_key(&location.key.0)))?;
    if let Some(slot) = location.slot {
        output.line(format!("slot       {slot}"))?;
    }
    output.line(format!("partition  {} of table {}", partition.id, partition.table))?;
    output.line(format!("leader     {leader}"))?;
    output.line(format!("status     {}, epoch {}", listed_status(partition, output), partition.epoch))?;
    if let Some(range) = &partition.range {
        output.line(format!("keys       {}", keys_text(range)))?;
    }
    Ok(Exit::Done)
}

/// Prints a complete description of one partition.
pub(crate) async fn describe(args: &DescribePartitionArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch.watch, output, async |output: &Output| {
        let partition = admin.describe_partition(&args.partition.table, args.partition.id).await?;
        if output.is_json() {
            return output.json_text(&partition);
        }
        // Needed only for the way in which a node comes back: a description without it is better than none.
        let nodes = admin.list_nodes().await.unwrap_or_default();
        Ok(description(&partition, &nodes, output))
    })
    .await
}

fn description(partition: &PartitionDescription, nodes: &[Node], output: &Output) -> String {
    let mut lines = Vec::new();
    let status = status_text(&partition.status, output);
    let live = partition.copies.iter().filter(|copy| copy.state == ReplicaState::Live).count();
    lines.push(format!("partition  {} of table {}", partition.id, output.bold(&partition.table)));
    lines.push(format!("status     {status}, epoch {}, version {}", partition.epoch, partition.version));
    match partition.holds == TableContent::Lease {
        true => lines.extend(owner_lines(partition, nodes)),
        false => {
            lines.push(format!("leader     {}", partition.leader.as_deref().unwrap_or("none")));
            let (all, need) = (partition.replication, partition.min_in_sync);
            lines.push(format!("replicas   {live} of {all} in sync; writes need {need}"));
        }
    }
    if let Some(range) = &partition.range {
        lines.push(format!("keys       {}", keys_text(range)));
    }
    lines.extend(partition.reshaping.as_ref().map(|reshaping| reshaping_text(partition, reshaping)));
    for reason in &partition.reasons {
        let of_reason = reasons::lines("waiting    ", reason, &reasons::sentence(reason), output);
        // For lost data the remedy is this very command, and its answer follows.
        let shown = if reason.code == ReasonCode::DataLost { 1 } else { of_reason.len() };
        lines.extend(of_reason.into_iter().take(shown));
    }
    for bar in &partition.bars {
        let table = matches!(bar.subject, Subject::Table { .. });
        let what = if table { format!("{} (from the whole table)", bar.node) } else { bar.node.clone() };
        lines.push(format!("excluded   {}", bar_text(&what, bar)));
    }
    if let Some(moving) = &partition.running_move {
        let (from, to) = (&moving.from, &moving.to);
        lines.push(format!("move       {from} -> {to}  {}  {}%", moving.phase, moving.percent));
    }
    // While an in-sync replica can serve, the cost of forcing a leader is irrelevant.
    if partition.force_leader.obstacles.is_empty() && partition.holds != TableContent::Lease {
        lines.push(format!("recovery   {}", forced_text(partition, &partition.force_leader, nodes)));
    }
    // A lease has only its owner, and the next one.
    let next = |copy: &&PartitionCopy| !copy.leads;
    if partition.holds == TableContent::Lease {
        lines.extend(partition.copies.iter().filter(next).map(|copy| format!("goes to    {}", copy.node)));
    }
    if partition.copies.is_empty() || partition.holds == TableContent::Lease {
        return lines.join("\n");
    }
    lines.push(String::new());
    let columns = [
        Column::number("PLACEMENT"),
        Column::text("NODE"),
        Column::text("NODE IS"),
        Column::text("STATE"),
        Column::text("LEADS"),
        Column::number("DATA"),
    ];
    let rows = partition.copies.iter().map(|copy| {
        let is = copy.node_status.to_string();
        vec![
            copy.placement_id.to_string(),
            copy.node.clone(),
            if copy.node_status == NodeStatus::Alive { output.good(&is) } else { output.bad(&is) },
            copy.state.to_string(),
            if copy.leads { "yes" } else { "-" }.to_owned(),
            if copy.bytes_stored == 0 { "-".to_owned() } else { bytes_text(copy.bytes_stored) },
        ]
    });
    lines.push(output.rows_text(&columns, rows.collect(), ""));
    lines.join("\n")
}

/// Describes the options for a partition that no replica can lead without loss.
fn forced_text(partition: &PartitionDescription, forced: &ForceLeaderCheck, nodes: &[Node]) -> String {
    let mut first = String::new();
    for (names, what) in [(&forced.lose_nothing, "nothing"), (&forced.lose_less, "less")] {
        if !names.is_empty() {
            let way = ways_back(partition, names, nodes);
            first.push_str(&format!("{way}start {} again to lose {what}; or, ", list_text(names)));
        }
    }
    let then = match (&forced.leader, forced.condition.as_ref().and_then(OpenEnum::known)) {
        (Some(leader), Some(Condition::Whole)) => {
            format!("use the replica on {leader}, without the writes since it left the in-sync set")
        }
        (Some(leader), Some(Condition::Older)) => format!("use the replica on {leader}, which is from an earlier time"),
        (Some(leader), _) => format!("use the replica on {leader}, which may hold only a part of the data"),
        (None, _) if forced.could_be_named.is_empty() => "start with an empty partition".to_owned(),
        (None, _) => {
            let named = list_text(&forced.could_be_named);
            format!("start with an empty partition, or, with --node, with the partial data on one of {named}")
        }
    };
    format!(
        "{first}losing acknowledged writes, {then}: archon partition force-leader {}",
        operand(partition.id, &partition.table)
    )
}

/// Describes the steps needed before nodes can be restarted if other directories have taken over their names.
fn ways_back(partition: &PartitionDescription, names: &[NodeName], nodes: &[Node]) -> String {
    let lost =
        |name: &str| partition.copies.iter().any(|copy| copy.node == name && copy.node_status == NodeStatus::Lost);
    let held = |name: &str| nodes.iter().any(|node| node.name == name && node.status != NodeStatus::Lost);
    let names = names.iter().map(|name| &name.node);
    let taken = names.filter(|name| lost(name) && held(name));
    taken
        .map(|name| {
            format!("another data directory uses the name {name}: stop that node, `archon node remove {name}`, then ")
        })
        .collect()
}

/// Forces one replica to lead, at the price of acknowledged writes.
pub(crate) async fn force(args: &ForceLeaderArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let PartitionArgs { id, table } = &args.partition;
    let forced = admin.force_leader(table, *id, args.node.as_deref(), args.accept_data_loss).await?;
    if output.is_json() {
        output.json(&forced)?;
    } else {
        let epoch = forced.epoch;
        match &forced.leader {
            Some(leader) => {
                output.line(format!("partition {table}/{id}: {leader} leads with its data in epoch {epoch}"))?
            }
            None => output.line(format!("partition {table}/{id} starts empty"))?,
        }
    }
    output.talk(
        "replicas cut off from the coordinators may acknowledge writes until they learn of this; these writes \
                 are lost",
    );
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::testing::node;
    use archon_client::{CopySummary as Copy, MemberTiming, PartitionStatus};

    #[test]
    fn replica_on_a_failed_node_is_marked() {
        let copy = |node_status: NodeStatus, state: ReplicaState| {
            let (node_status, state) = (node_status.into(), state.into());
            copy_text(&Copy { placement_id: 1, node_id: 1, node: "athens".into(), node_status, state })
        };
        assert_eq!(copy(NodeStatus::Alive, ReplicaState::Load), "athens:Load");
        assert_eq!(copy(NodeStatus::Failed, ReplicaState::Load), "athens:Load(failed)");
        assert_eq!(copy(NodeStatus::Lost, ReplicaState::Live), "athens:Live(lost)");
    }

    #[test]
    fn lease_description_names_the_owner() {
        let timing = MemberTiming { heartbeat_for_ms: 8_000, lease_for_ms: 30_000, failure_timeout_for_ms: 45_250 };
        let ada = Node {
            address: "10.0.0.7:80".into(),
            serves: vec!["jobs".into()],
            timing: Some(timing),
            silent_for_ms: Some(3_000),
            ..node(7, "ada", 1)
        };
        let copy = |name: &str, id, leads| PartitionCopy {
            placement_id: id,
            node_id: id,
            node: name.into(),
            node_status: NodeStatus::Alive.into(),
            state: ReplicaState::Live.into(),
            leads,
            bytes_stored: 0,
        };
        let lease = PartitionDescription {
            table: "jobs".into(),
            status: PartitionStatus::Online.into(),
            leader_id: Some(7),
            leader: Some("ada".into()),
            holds: TableContent::Lease.into(),
            copies: vec![copy("ada", 7, true), copy("grace", 8, false)],
            ..of_orders()
        };
        let plain = Output::plain(crate::output::Format::Table);
        assert_eq!(
            description(&lease, &[ada], &plain),
            "\
partition  3 of table jobs
status     Online, epoch 1, version 1
owner      ada (10.0.0.7:80)
timing     heartbeat 8 s, lease 30 s, failure time-out 45.25 s
heard      3s ago
goes to    grace"
        );
        let nobody = PartitionDescription { leader_id: None, leader: None, copies: vec![], ..lease };
        assert!(description(&nobody, &[], &plain).ends_with("owner      none"));
    }

    /// Returns a partition without any remaining replica.
    fn of_orders() -> PartitionDescription {
        PartitionDescription {
            table_id: 2,
            table: "orders".into(),
            id: 3,
            epoch: 1,
            version: 1,
            status: PartitionStatus::Unavailable.into(),
            leader_id: None,
            leader: None,
            holds: TableContent::Data.into(),
            replication: 2,
            min_in_sync: 1,
            copies: vec![],
            range: None,
            reshaping: None,
            reasons: vec![],
            running_move: None,
            force_leader: ForceLeaderCheck::default(),
            bars: vec![],
        }
    }

    fn named(name: &str) -> Vec<NodeName> {
        vec![NodeName { node_id: 1, node: name.into() }]
    }

    #[test]
    fn last_hope_names_the_price_and_the_better_way() {
        let mut forced = ForceLeaderCheck { lose_nothing: named("athens"), ..ForceLeaderCheck::default() };
        let partition = of_orders();
        assert_eq!(
            forced_text(&partition, &forced, &[]),
            "start athens again to lose nothing; or, losing acknowledged writes, start with an empty partition: archon \
             partition force-leader 3 --table orders"
        );
        let copy = PartitionCopy {
            placement_id: 1,
            node_id: 1,
            node: "athens".into(),
            node_status: NodeStatus::Lost.into(),
            state: ReplicaState::Unload.into(),
            leads: false,
            bytes_stored: 0,
        };
        let lost = Node { status: NodeStatus::Lost.into(), ..node(9, "athens", 0) };
        let overtaken = PartitionDescription { copies: vec![copy], ..partition.clone() };
        let text = forced_text(&overtaken, &forced, &[node(9, "athens", 0)]);
        let way = "another data directory uses the name athens: stop that node, `archon node remove athens`, then";
        assert!(text.starts_with(&format!("{way} start athens again to lose nothing; or, losing")), "{text}");
        assert!(forced_text(&overtaken, &forced, &[lost]).starts_with("start athens again"));
        forced.could_be_named = named("delphi");
        assert!(forced_text(&partition, &forced, &[]).contains("with --node, with the partial data on one of delphi"));
        forced.leader = Some("cyrene".into());
        forced.condition = Some(Condition::Gone.into());
        assert!(forced_text(&partition, &forced, &[]).contains("the replica on cyrene, which may hold only a part"));
        forced.condition = Some(Condition::Whole.into());
        forced.lose_less = named("byzantium");
        let text = forced_text(&partition, &forced, &[]);
        assert!(text.contains("without the writes since"), "{text}");
        assert!(text.contains("start athens again to lose nothing; or, start byzantium again to lose less"), "{text}");
    }
}
