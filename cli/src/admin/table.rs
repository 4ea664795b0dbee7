//! `archon table list | describe | create | drop`.

use super::{alter, list_text, reasons, watch};
use crate::admin::limits::{limits_text, split_text};
use crate::admin::partition::texts::{bound_text, status_text};
use crate::args::{CreateTableArgs, DescribeTableArgs, DropTableArgs, TableVerb, WatchArgs};
#[cfg(test)]
use crate::documents::contract;
use crate::exit::{Exit, Failure};
use crate::kv::KeyForm;
use crate::output::{Column, Output, bytes_text, count_text};
use archon_client::documents::{TableDescription, TableHolder, TablePartition};
use archon_client::{
    Admin, Error, ErrorKind, NodeStatus, RangeLimits, Setting, TableCheck, TableContent, TableSummary,
};
use bytes::Bytes;

/// Documents of the verbs.
#[cfg(test)]
pub(crate) const DOCUMENTS: contract::Documents = &[
    ("table list", contract::list::<TableSummary>),
    ("table describe", contract::one::<TableDescription>),
    ("table create", contract::one::<TableSummary>),
    ("table alter", contract::one::<TableSummary>),
    ("table drop", contract::one::<TableCheck>),
];

/// Runs a verb.
pub(crate) async fn run(verb: &TableVerb, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    match verb {
        TableVerb::List(args) => list(args, admin, output).await,
        TableVerb::Describe(args) => describe(args, admin, output).await,
        TableVerb::Alter(args) => alter::table(args, admin, output).await,
        TableVerb::Drop(args) => drop(args, admin, output).await,
        TableVerb::Create(args) => create(args, admin, output).await,
    }
}

/// Lists the tables.
pub(crate) async fn list(args: &WatchArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch, output, async |output: &Output| {
        let tables = admin.list_tables().await?;
        if output.is_json() { output.json_text(&tables) } else { Ok(list_rows(&tables, output)) }
    })
    .await
}

fn list_rows(tables: &[TableSummary], output: &Output) -> String {
    let columns = [
        Column::number("ID"),
        Column::text("NAME"),
        Column::text("KEYS"),
        Column::number("PARTITIONS"),
        Column::number("REPLICATION"),
        Column::text("HOLDS"),
        Column::text("SPLIT ABOVE"),
        Column::text("MERGE BELOW"),
        Column::number("VERSION"),
    ];
    let rows = tables.iter().map(|table| {
        vec![
            table.id.to_string(),
            table.name.clone(),
            table.keys.to_string(),
            table.partitions_total.to_string(),
            table.replication.to_string(),
            table.holds.to_string(),
            split_text(table).unwrap_or_else(|| "-".to_owned()),
            table.merge_below_bytes.map_or_else(|| "-".to_owned(), bytes_text),
            table.version.to_string(),
        ]
    });
    output.rows_text(&columns, rows.collect(), "no tables yet: the cluster is not bootstrapped")
}

/// Adds the remedy for a wrong name to an error.
fn not_found(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::NotFound => Failure::from(error).with_remedy("see `archon table list`"),
        _ => error.into(),
    }
}

/// Prints a complete description of one table.
async fn describe(args: &DescribeTableArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    watch::show(args.watch.watch, output, async |output: &Output| {
        let table = admin.describe_table(&args.name, args.partitions).await.map_err(not_found)?;
        if output.is_json() { output.json_text(&table) } else { Ok(description(&table, output)) }
    })
    .await
}

fn description(found: &TableDescription, output: &Output) -> String {
    let TableDescription { table, partitions_online: online, partitions_led: led, .. } = found;
    let is_lease = table.holds == TableContent::Lease;
    let total = table.partitions_total;
    let mut lines = vec![
        format!("table       {}", output.bold(&table.name)),
        format!("id          {}, version {}", table.id, table.version),
        format!("holds       {}", table.holds),
        format!("keys        {}", table.keys),
    ];
    let served = match is_lease {
        true => format!("{total}, of which {led} have an owner"),
        false => format!("{total}, of which {led} have a leader and {online} are online"),
    };
    lines.push(format!("partitions  {served}"));
    if !is_lease {
        let (in_sync, wanted, held) = (found.copies_in_sync, found.copies_wanted, found.copies_held);
        let each = count_text(table.replication as usize, "replica", "replicas");
        lines
            .push(format!("replicas    {in_sync} in sync of {wanted} required, {each} per partition; {held} on nodes"));
        let (once, all) = (bytes_text(found.bytes_led), bytes_text(found.bytes_stored));
        lines.push(format!("size        {once}, with all replicas {all}"));
    }
    lines.extend(limits_text(table).map(|limits| format!("limits      partitions are {limits}")));
    let running =
        [(found.moves_running, "move", "moves"), (found.reshapings_running, "split or merge", "splits and merges")];
    let running = running.into_iter().filter(|(count, ..)| *count > 0);
    let running: Vec<String> = running.map(|(count, one, more)| count_text(count as usize, one, more)).collect();
    lines.extend((!running.is_empty()).then(|| format!("running     {}", running.join(", "))));
    for reason in &found.alerts {
        lines.extend(reasons::lines("problem     ", reason, &reasons::sentence(reason), output));
    }
    lines.extend(found.alerts_more.then(|| "            there are more problems; see `archon check`".to_owned()));
    if !found.holders.is_empty() {
        lines.extend([String::new(), holder_rows(&found.holders, is_lease, output)]);
    }
    let partitions = found.partitions.iter().filter(|partitions| !partitions.is_empty());
    lines.extend(partitions.flat_map(|partitions| [String::new(), partition_rows(partitions, is_lease, output)]));
    lines.join("\n")
}

fn holder_rows(holders: &[TableHolder], is_lease: bool, output: &Output) -> String {
    let mut columns = match is_lease {
        true => vec![Column::text("OWNER"), Column::text("STATUS"), Column::number("OWNS")],
        false => vec![Column::text("NODE"), Column::text("STATUS"), Column::number("LEADS")],
    };
    if !is_lease {
        columns.extend([Column::number("REPLICAS"), Column::number("IN SYNC"), Column::number("DATA")]);
    }
    let rows = holders.iter().map(|holder| {
        let status = holder.node_status.to_string();
        let status = if holder.node_status == NodeStatus::Alive { output.good(&status) } else { output.bad(&status) };
        let mut row = vec![holder.node.clone(), status, holder.partitions_led.to_string()];
        if !is_lease {
            let data = bytes_text(holder.bytes_stored);
            row.extend([holder.copies_held.to_string(), holder.copies_in_sync.to_string(), data]);
        }
        row
    });
    output.grid(&columns, rows.collect())
}

fn partition_rows(partitions: &[TablePartition], is_lease: bool, output: &Output) -> String {
    let is_ranged = partitions.iter().any(|partition| partition.range.is_some());
    let mut columns = vec![Column::number("PARTITION")];
    if is_ranged {
        columns.extend([Column::text("BEGIN"), Column::text("END")]);
    }
    columns.push(Column::text("STATUS"));
    columns.push(Column::text(if is_lease { "OWNER" } else { "LEADER" }));
    columns.push(Column::number("EPOCH"));
    if !is_lease {
        columns.extend([Column::number("IN SYNC"), Column::number("REPLICAS"), Column::number("DATA")]);
    }
    let rows = partitions.iter().map(|partition| {
        let mut row = vec![partition.id.to_string()];
        if is_ranged {
            let range = partition.range.as_ref();
            row.push(bound_text(range.map(|range| &range.begin)));
            row.push(bound_text(range.and_then(|range| range.end.as_ref())));
        }
        row.push(status_text(&partition.status, output));
        row.push(partition.leader.clone().unwrap_or_else(|| "-".to_owned()));
        row.push(partition.epoch.to_string());
        if !is_lease {
            let data = bytes_text(partition.bytes_led);
            row.extend([partition.copies_in_sync.to_string(), partition.copies_held.to_string(), data]);
        }
        row
    });
    output.grid(&columns, rows.collect())
}

/// Creates a table.
pub(crate) async fn create(args: &CreateTableArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let form = KeyForm::of(args.hex);
    let split_at = args.split_at.iter().map(|key| form.key(key).map(|key| key.0));
    let mut split_at: Vec<Bytes> = split_at.collect::<Result<_, _>>()?;
    split_at.sort();
    let replication = match args.replication {
        None if !args.lease => replication_of_cluster(admin).await?,
        given => given.unwrap_or_default(),
    };
    let table = match args.partitions {
        Some(partitions) if args.lease => admin.create_lease_table(&args.name, partitions).await?,
        Some(partitions) => admin.create_table(&args.name, partitions, replication).await?,
        None => {
            let limits = RangeLimits {
                split_above_bytes: args.split_above,
                split_above_rate: args.split_above_rate,
                merge_below_bytes: args.merge_below,
            };
            admin.create_range_table(&args.name, split_at, limits, replication).await?
        }
    };
    if output.is_json() {
        output.json(&table)?;
        return Ok(Exit::Done);
    }
    let each = match args.lease {
        true => "each a lease".to_owned(),
        false => count_text(table.replication as usize, "replica each", "replicas each"),
    };
    let partitions = count_text(table.partitions_total as usize, "partition", "partitions");
    let limits = limits_text(&table).map_or_else(String::new, |limits| format!("; they are {limits}"));
    output.line(format!("created table {} with {partitions}, {each}{limits}", table.name))?;
    output.talk(format!("next: archon partition list --table {}", table.name));
    Ok(Exit::Done)
}

/// Returns the number of replicas with which the cluster was founded.
async fn replication_of_cluster(admin: &Admin) -> Result<u8, Failure> {
    let settings = admin.settings().await?.settings;
    let found = settings.iter().find(|setting| setting.setting.as_str() == Setting::Replication.as_str());
    let replication = found.and_then(|setting| u8::try_from(setting.current).ok());
    replication.ok_or_else(|| Failure::usage("the coordinators report no setting `replication`", "give --replication"))
}

/// Drops a table, if confirmed.
pub(crate) async fn drop(args: &DropTableArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let name = &args.name;
    let found = admin.check_table(name).await.map_err(not_found)?;
    if !args.yes {
        return Err(unconfirmed(&found));
    }
    let copies = admin.drop_table(name, found.table.id).await?;
    if output.is_json() {
        output.json(&TableCheck { copies_deleted: copies, ..found })?;
        return Ok(Exit::Done);
    }
    if found.table.holds == TableContent::Lease {
        let partitions = count_text(found.table.partitions_total as usize, "partition", "partitions");
        let number = found.table.id;
        output.line(format!(
            "dropped lease table {name} (number {number}) with {partitions}, which have no owners now"
        ))?;
        return Ok(Exit::Done);
    }
    output.line(format!(
        "dropped table {name} (number {}) with {}; its nodes delete {}",
        found.table.id,
        count_text(found.table.partitions_total as usize, "partition", "partitions"),
        count_text(copies as usize, "replica", "replicas"),
    ))?;
    if !found.nodes_away.is_empty() {
        let away = list_text(&found.nodes_away);
        output.talk(format!("not alive, and to delete theirs when they return: {away}; see archon status"));
    }
    Ok(Exit::Done)
}

/// Returns the refusal of an unconfirmed drop: the data to be deleted, and the way to confirm.
fn unconfirmed(found: &TableCheck) -> Failure {
    let TableSummary { name, id, partitions_total: partitions, .. } = &found.table;
    let remedy = format!("to delete it: `archon table drop {name} --yes`");
    if found.table.holds == TableContent::Lease {
        let message = format!(
            "nothing was dropped: this would delete lease table {name} (number {id}) for good, with {}, owned by {}",
            count_text(*partitions as usize, "partition", "partitions"),
            count_text(found.nodes_holding as usize, "participant", "participants"),
        );
        return Failure::new(Exit::Refused, message).with_remedy(remedy);
    }
    let away = match found.nodes_away.is_empty() {
        true => String::new(),
        false => format!(" (not alive now: {})", list_text(&found.nodes_away)),
    };
    let message = format!(
        "nothing was dropped: this would delete table {name} (number {id}) for good, with {}, {} on {}{away} and {} in \
         them",
        count_text(*partitions as usize, "partition", "partitions"),
        count_text(found.copies_deleted as usize, "replica", "replicas"),
        count_text(found.nodes_holding as usize, "node", "nodes"),
        bytes_text(found.bytes_deleted),
    );
    Failure::new(Exit::Refused, message).with_remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::NodeName;

    #[test]
    fn drop_without_yes_is_refused_with_its_effect() {
        let table = TableSummary {
            id: 7,
            name: "orders".into(),
            partitions_total: 4,
            replication: 3,
            keys: archon_client::KeysBy::Hash.into(),
            split_above_bytes: None,
            split_above_rate: None,
            merge_below_bytes: None,
            holds: TableContent::Data.into(),
            version: 9,
        };
        let found =
            TableCheck { table, copies_deleted: 12, bytes_deleted: 2_048, nodes_holding: 3, nodes_away: vec![] };
        let failure = unconfirmed(&found);
        assert_eq!((failure.exit, failure.kind), (Exit::Refused, "refused"));
        for part in ["nothing was dropped", "table orders (number 7)", "4 partitions", "12 replicas on 3 nodes and "] {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
        assert_eq!(failure.remedy.as_deref(), Some("to delete it: `archon table drop orders --yes`"));
        let away = TableCheck { nodes_away: vec![NodeName { node_id: 1, node: "athens".into() }], ..found };
        assert!(unconfirmed(&away).message.contains("3 nodes (not alive now: athens)"));
        let leases = TableSummary { holds: TableContent::Lease.into(), replication: 1, ..away.table };
        let found =
            TableCheck { table: leases, copies_deleted: 0, bytes_deleted: 0, nodes_holding: 2, nodes_away: vec![] };
        let message = unconfirmed(&found).message;
        assert!(
            message.ends_with("lease table orders (number 7) for good, with 4 partitions, owned by 2 participants"),
            "{message}"
        );
    }

    fn described(holds: TableContent) -> TableDescription {
        let table = TableSummary {
            id: 7,
            name: "orders".into(),
            partitions_total: 4,
            replication: 2,
            keys: archon_client::KeysBy::Range.into(),
            split_above_bytes: Some(1 << 30),
            split_above_rate: None,
            merge_below_bytes: None,
            holds: holds.into(),
            version: 9,
        };
        let holder = TableHolder {
            node_id: 1,
            node: "athens".into(),
            node_status: NodeStatus::Failed.into(),
            partitions_led: 3,
            copies_held: 4,
            copies_in_sync: 3,
            bytes_stored: 2_048,
        };
        let partition = TablePartition {
            id: 5,
            range: Some(archon_client::RangeSummary {
                begin: archon_client::KeyText::new("f"),
                end: Some(archon_client::KeyText::new("m")),
            }),
            status: archon_client::PartitionStatus::Online.into(),
            epoch: 12,
            leader_id: Some(1),
            leader: Some("athens".into()),
            copies_held: 2,
            copies_in_sync: 1,
            bytes_led: 1_024,
        };
        TableDescription {
            table,
            partitions_online: 2,
            partitions_led: 3,
            partitions_under_replicated: 1,
            copies_wanted: 8,
            copies_held: 7,
            copies_in_sync: 6,
            bytes_led: 1_024,
            bytes_stored: 2_048,
            moves_running: 1,
            reshapings_running: 0,
            holders: vec![holder],
            alerts: Vec::new(),
            alerts_more: false,
            partitions: Some(vec![partition]),
        }
    }

    #[test]
    fn table_description_shows_copies_size_limits_and_ranges() {
        let output = Output::new(crate::output::Format::Table);
        let text = description(&described(TableContent::Data), &output);
        for line in [
            "table       orders",
            "partitions  4, of which 3 have a leader and 2 are online",
            "replicas    6 in sync of 8 required, 2 replicas per partition; 7 on nodes",
            "limits      partitions are split above 1.0 GiB",
            "running     1 move",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let words = |start: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap_or_default();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words("PARTITION")[..3], ["PARTITION", "BEGIN", "END"]);
        assert_eq!(words("5 ")[..5], ["5", "f", "m", "Online", "athens"]);
        assert_eq!(words("athens")[..5], ["athens", "Failed", "3", "4", "3"]);
    }

    #[test]
    fn lease_table_description_shows_owners_and_no_copies() {
        let output = Output::new(crate::output::Format::Table);
        let text = description(&described(TableContent::Lease), &output);
        assert!(text.contains("partitions  4, of which 3 have an owner"), "{text}");
        assert!(text.contains("OWNER") && !text.contains("REPLICAS") && !text.contains("in sync"), "{text}");
    }
}
