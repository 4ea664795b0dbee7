//! `archon partition bump | offline | online | bar | unbar`, `archon node maintain | resume | bar | unbar`.

use super::node::operate::look;
use super::phrases::words;
use super::{each, short_time};
use crate::admin::partition::texts::operand;
use crate::args::{
    BarNodeArgs, BarPartitionArgs, MaintainArgs, NodeNamesArgs, OrderPartitionArgs, PartitionArgs, UnbarNodeArgs,
    UnbarPartitionArgs,
};
use crate::documents::{NodeOrdered, PartitionOrdered};
use crate::exit::{Exit, Failure, says_how};
use crate::output::{Output, count_text};
use archon_client::{Admin, Error, ErrorKind};

/// Starts a new epoch with the same leader.
pub(crate) async fn bump(args: &OrderPartitionArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let PartitionArgs { id, table } = &args.partition;
    admin.bump(table, *id, &args.why.why).await.map_err(partition_failure)?;
    say(&args.partition, None, true, output, "a new epoch starts")
}

/// Takes a partition offline: it has no leader.
pub(crate) async fn offline(args: &OrderPartitionArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let PartitionArgs { id, table } = &args.partition;
    let changed = admin.take_offline(table, *id, &args.why.why).await.map_err(partition_failure)?;
    let text = if changed { "offline: its leader stops, its replicas stay" } else { "is offline already" };
    say(&args.partition, None, changed, output, text)?;
    if changed {
        output.talk(format!("undo: archon partition online {}", operand(*id, table)));
    }
    Ok(Exit::Done)
}

/// Brings a partition online again.
pub(crate) async fn online(args: &PartitionArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let changed = admin.bring_online(&args.table, args.id).await.map_err(partition_failure)?;
    say(args, None, changed, output, if changed { "online: a leader is chosen" } else { "was not offline" })
}

/// Excludes a member from a partition: it gets no replica of it and does not lead it.
pub(crate) async fn bar(args: &BarPartitionArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let UnbarPartitionArgs { partition, node } = &args.unbar;
    let barred = admin.bar(node, &partition.table, Some(partition.id), &args.why.why).await;
    let changed = barred.map_err(partition_failure)?;
    let text = format!("{node} {}", if changed { "is excluded from it" } else { "was excluded from it already" });
    say(partition, Some(node), changed, output, &text)?;
    if changed {
        output.talk(format!("undo: archon partition unbar {} --node {node}", operand(partition.id, &partition.table)));
    }
    Ok(Exit::Done)
}

/// Ends such an exclusion.
pub(crate) async fn unbar(args: &UnbarPartitionArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let UnbarPartitionArgs { partition, node } = args;
    let changed = admin.unbar(node, &partition.table, Some(partition.id)).await.map_err(partition_failure)?;
    let text = format!("{node} {}", if changed { "is no longer excluded from it" } else { "was not excluded from it" });
    say(partition, Some(node), changed, output, &text)
}

/// Excludes a member from a table: it gets no replica and leads nothing there.
pub(crate) async fn bar_node(args: &BarNodeArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let UnbarNodeArgs { name, table } = &args.unbar;
    let changed = admin.bar(name, table, None, &args.why.why).await.map_err(node_failure)?;
    if output.is_json() {
        output.json(&NodeOrdered::new(name, Some(table), changed))?;
        return Ok(Exit::Done);
    }
    output
        .line(format!("{name} {} from table {table}", if changed { "is excluded" } else { "was excluded already" }))?;
    if changed {
        output.talk(format!("undo: archon node unbar {name} --table {table}"));
    }
    Ok(Exit::Done)
}

/// Ends such an exclusion.
pub(crate) async fn unbar_node(args: &UnbarNodeArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let UnbarNodeArgs { name, table } = args;
    let changed = admin.unbar(name, table, None).await.map_err(node_failure)?;
    if output.is_json() {
        output.json(&NodeOrdered::new(name, Some(table), changed))?;
        return Ok(Exit::Done);
    }
    output.line(format!(
        "{name} {} from table {table}",
        if changed { "is no longer excluded" } else { "was not excluded" }
    ))?;
    Ok(Exit::Done)
}

/// Puts members into maintenance: they lead nothing for a while.
pub(crate) async fn maintain(args: &MaintainArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let names = &args.nodes.names;
    let order = async |name: &str, node| {
        let still_led = admin.maintain(name, args.lasts, &args.why.why).await.map_err(node_failure)?;
        if output.is_json() {
            let partitions_still_led = Some(still_led);
            return output.json(&NodeOrdered { partitions_still_led, ..NodeOrdered::new(name, None, true) });
        }
        let (lasts, words) = (short_time(args.lasts), words(&node));
        output
            .line(format!("{name} is in maintenance for {lasts}: {}", maintained(words.in_maintenance, still_led)))?;
        if still_led > 0 {
            output.talk("these become unavailable when it stops: archon check");
        }
        output.talk(format!("end it early: archon node resume {name}"));
        Ok(())
    };
    let judged = each::judge(names, async |name: &str| look(name, admin).await).await?;
    each::act(names, judged, order).await?;
    Ok(Exit::Done)
}

/// Ends their maintenance.
pub(crate) async fn resume(args: &NodeNamesArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let order = async |name: &str, node| {
        admin.resume(name).await.map_err(node_failure)?;
        if output.is_json() {
            return output.json(&NodeOrdered::new(name, None, true));
        }
        output.line(format!("the maintenance of {name} has ended"))?;
        output.talk(words(&node).maintained);
        Ok(())
    };
    let judged = each::judge(&args.names, async |name: &str| look(name, admin).await).await?;
    each::act(&args.names, judged, order).await?;
    Ok(Exit::Done)
}

fn maintained(all_leaves: &str, still_led: u32) -> String {
    match still_led {
        0 => all_leaves.to_owned(),
        led => {
            let partitions = count_text(led as usize, "partition", "partitions");
            format!("it receives nothing new, and still leads {partitions} that no other member can take")
        }
    }
}

fn say(
    partition: &PartitionArgs,
    node: Option<&str>,
    changed: bool,
    output: &Output,
    text: &str,
) -> Result<Exit, Failure> {
    let PartitionArgs { id, table } = partition;
    if output.is_json() {
        let node = node.map(str::to_owned);
        output.json(&PartitionOrdered { table: table.clone(), partition: *id, node, changed })?;
    } else {
        output.line(format!("partition {table}/{id}: {text}"))?;
    }
    Ok(Exit::Done)
}

pub(super) fn partition_failure(error: Error) -> Failure {
    with_list(error, "see `archon partition list` and `archon node list`")
}

fn node_failure(error: Error) -> Failure {
    with_list(error, "see `archon node list` and `archon table list`")
}

/// Returns the failure, with the command that lists existing names if the name does not exist.
pub(super) fn with_list(error: Error, list: &str) -> Failure {
    let kind = error.kind();
    let failure = Failure::from(error);
    if kind == ErrorKind::NotFound && !says_how(kind, &failure.message) { failure.with_remedy(list) } else { failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maintenance_reports_leaderships_that_stay() {
        assert_eq!(maintained("it leads nothing", 0), "it leads nothing");
        assert_eq!(
            maintained("it leads nothing", 1),
            "it receives nothing new, and still leads 1 partition that no other member can take"
        );
    }
}
