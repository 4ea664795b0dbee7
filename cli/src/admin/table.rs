//! `archon table list | create | drop`.

use super::{list_text, watch};
use crate::args::{CreateTableArgs, DropTableArgs, WatchArgs};
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output, bytes_text, count_text};
use archon_client::{Admin, ErrorKind, Holds, RangeLimits, Setting, TableCheck, TableSummary};
use bytes::Bytes;

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
    output.rows_text(&columns, rows.collect(), "there is no table yet: the cluster is not bootstrapped")
}

/// Describes the limits above which partitions are split automatically, if any.
fn split_text(table: &TableSummary) -> Option<String> {
    let bytes = table.split_above_bytes.map(bytes_text);
    let rate = table.split_above_rate.map(|rate| format!("{rate} operations/s"));
    let limits: Vec<String> = bytes.into_iter().chain(rate).collect();
    (!limits.is_empty()).then(|| limits.join(", "))
}

/// Describes the limits of automatic splits and merges, if any.
pub(super) fn limits_text(table: &TableSummary) -> Option<String> {
    let split = split_text(table).map(|above| format!("split above {above}"));
    let merged = table.merge_below_bytes.map(|bytes| format!("merged below {}", bytes_text(bytes)));
    let limits: Vec<String> = split.into_iter().chain(merged).collect();
    (!limits.is_empty()).then(|| limits.join(" and "))
}

/// Creates a table.
pub(crate) async fn create(args: &CreateTableArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let replication = match args.replication {
        None if !args.lease => replication_of_cluster(admin).await?,
        given => given.unwrap_or_default(),
    };
    let table = match args.partitions {
        Some(partitions) if args.lease => admin.create_lease_table(&args.name, partitions).await?,
        Some(partitions) => admin.create_table(&args.name, partitions, replication).await?,
        None => {
            let mut split_at: Vec<Bytes> = args.split_at.iter().map(|key| Bytes::from(key.clone())).collect();
            split_at.sort();
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
        false => count_text(table.replication as usize, "copy each", "copies each"),
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
    let found = match admin.check_table(name).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Failure::from(error).with_remedy("see `archon table list`"));
        }
        found => found?,
    };
    if !args.yes {
        return Err(unconfirmed(&found));
    }
    let copies = admin.drop_table(name, found.table.id).await?;
    if output.is_json() {
        output.json(&TableCheck { copies_deleted: copies, ..found })?;
        return Ok(Exit::Done);
    }
    if found.table.holds == Holds::Lease {
        let partitions = count_text(found.table.partitions_total as usize, "partition", "partitions");
        let number = found.table.id;
        output.line(format!(
            "dropped lease table {name} (number {number}) with {partitions}: nobody owns them any more"
        ))?;
        return Ok(Exit::Done);
    }
    output.line(format!(
        "dropped table {name} (number {}) with {}; its nodes delete {}",
        found.table.id,
        count_text(found.table.partitions_total as usize, "partition", "partitions"),
        count_text(copies as usize, "copy", "copies"),
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
    if found.table.holds == Holds::Lease {
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
        "nothing was dropped: this would delete table {name} (number {id}) for good, with {}, {} on {}{away} and {} in them",
        count_text(*partitions as usize, "partition", "partitions"),
        count_text(found.copies_deleted as usize, "copy", "copies"),
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
            holds: Holds::Data.into(),
            version: 9,
        };
        let found =
            TableCheck { table, copies_deleted: 12, bytes_deleted: 2_048, nodes_holding: 3, nodes_away: vec![] };
        let failure = unconfirmed(&found);
        assert_eq!((failure.exit, failure.kind), (Exit::Refused, "refused"));
        for part in ["nothing was dropped", "table orders (number 7)", "4 partitions", "12 copies on 3 nodes and "] {
            assert!(failure.message.contains(part), "{}", failure.message);
        }
        assert_eq!(failure.remedy.as_deref(), Some("to delete it: `archon table drop orders --yes`"));
        let away = TableCheck { nodes_away: vec![NodeName { node_id: 1, node: "athens".into() }], ..found };
        assert!(unconfirmed(&away).message.contains("3 nodes (not alive now: athens)"));
        let leases = TableSummary { holds: Holds::Lease.into(), replication: 1, ..away.table };
        let found =
            TableCheck { table: leases, copies_deleted: 0, bytes_deleted: 0, nodes_holding: 2, nodes_away: vec![] };
        let message = unconfirmed(&found).message;
        assert!(
            message.ends_with("lease table orders (number 7) for good, with 4 partitions, owned by 2 participants"),
            "{message}"
        );
    }
}
