//! `archon node cordon | uncordon | undrain | remove | lost`.

use crate::admin::phrases::words;
use crate::admin::{each, list_text};
use crate::args::{LostArgs, NodeNamesArgs, RemoveArgs};
use crate::documents::{Node, NodeChanged};
use crate::exit::{Exit, Failure};
use crate::output::{Output, count_text};
use archon_client::{Admin, ErrorKind, NodeCheck, NodeGoal, NodeLoss};

/// Cordons nodes: they get nothing new.
pub(crate) async fn cordon(args: &NodeNamesArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let judged = each::judge(&args.names, async |name: &str| {
        let node = look(name, admin).await?;
        if node.goal == NodeGoal::Drain {
            let remedy = format!(
                "to cordon it instead: `archon node undrain {name}`, then `archon node cordon \
                                  {name}`"
            );
            return Err(Failure::new(Exit::Refused, format!("{name} is being drained")).with_remedy(remedy));
        }
        Ok(node)
    });
    let order = async |_: &str, node| cordon_one(node, admin, output).await;
    each::act(&args.names, judged.await?, order).await?;
    Ok(Exit::Done)
}

async fn cordon_one(node: Node, admin: &Admin, output: &Output) -> Result<(), Failure> {
    let name = &node.name;
    admin.set_node(name, NodeGoal::Cordon).await?;
    if output.is_json() {
        let (goal, copies_held) = (Some(NodeGoal::Cordon.into()), Some(node.copies_held));
        return output.json(&NodeChanged { goal, copies_held, ..NodeChanged::new(&node) });
    }
    output.line(format!(
        "{name} is cordoned: it keeps {} and receives no new ones",
        words(&node).count(node.copies_held)
    ))?;
    say_maintenance_over(&node, output);
    output.talk(format!("undo: archon node uncordon {name}"));
    Ok(())
}

/// Reports that the new goal of a node ends its maintenance.
pub(super) fn say_maintenance_over(before: &Node, output: &Output) {
    if before.goal == NodeGoal::Maintain {
        output.talk(format!("this ends the maintenance of {}", before.name));
    }
}

/// Uncordons nodes: they accept replicas again.
pub(crate) async fn uncordon(args: &NodeNamesArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let judged = each::judge(&args.names, async |name: &str| {
        let node = look(name, admin).await?;
        if node.goal == NodeGoal::Drain {
            return Err(Failure::new(Exit::Refused, format!("{name} is being drained, not cordoned"))
                .with_remedy(format!("to cancel the drain: `archon node undrain {name}`")));
        }
        refuse_maintained(node)
    });
    let order = async |_: &str, node| serve(node, admin, output).await;
    each::act(&args.names, judged.await?, order).await?;
    Ok(Exit::Done)
}

/// Refuses a node in maintenance, which its own command ends.
fn refuse_maintained(node: Node) -> Result<Node, Failure> {
    if node.goal != NodeGoal::Maintain {
        return Ok(node);
    }
    Err(Failure::new(Exit::Refused, format!("{} is in maintenance", node.name))
        .with_remedy(format!("to end it: `archon node resume {}`", node.name)))
}

/// Stops emptying nodes.
pub(crate) async fn undrain(args: &NodeNamesArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let judged = each::judge(&args.names, async |name: &str| {
        let node = look(name, admin).await?;
        if node.goal == NodeGoal::Cordon {
            let takes = words(&node).takes;
            return Err(Failure::new(Exit::Refused, format!("{name} is cordoned, not being drained"))
                .with_remedy(format!("to let it take {takes} again: `archon node uncordon {name}`")));
        }
        refuse_maintained(node)
    });
    let order = async |_: &str, node| serve(node, admin, output).await;
    each::act(&args.names, judged.await?, order).await?;
    Ok(Exit::Done)
}

async fn serve(node: Node, admin: &Admin, output: &Output) -> Result<(), Failure> {
    admin.set_node(&node.name, NodeGoal::Serve).await?;
    if output.is_json() {
        let (goal, copies_held) = (Some(NodeGoal::Serve.into()), Some(node.copies_held));
        return output.json(&NodeChanged { goal, copies_held, ..NodeChanged::new(&node) });
    }
    let words = words(&node);
    let (takes, has, held) = (words.takes, words.has, words.count(node.copies_held));
    output.line(format!("{} may receive {takes} again; it {has} {held}", node.name))?;
    if node.goal == NodeGoal::Drain {
        output.talk(words.drained);
    }
    Ok(())
}

/// Removes a node from the cluster.
pub(crate) async fn remove(args: &RemoveArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let found = check(&args.name, admin).await?;
    let name = &found.node.name;
    if !found.remove.obstacles.is_empty() {
        return Err(refused(&format!("{name} cannot be removed"), &found.remove.obstacles));
    }
    let copies = if args.dry_run { found.remove.copies_removed } else { admin.remove_node(name).await? };
    if output.is_json() {
        output.json(&NodeChanged { copies_removed: Some(copies), ..NodeChanged::new(&found.node) })?;
        return Ok(Exit::Done);
    }
    if args.dry_run {
        output.line(removed_text(&found.node, copies).replacen("is removed", "can be removed", 1))?;
        output.talk(format!("nothing was changed; to do it: archon node remove {name}"));
        return Ok(Exit::Done);
    }
    output.line(removed_text(&found.node, copies))?;
    output.talk(words(&found.node).removed);
    Ok(Exit::Done)
}

fn removed_text(node: &Node, copies: u32) -> String {
    let name = &node.name;
    match copies {
        0 => format!("{name} is removed"),
        gone if node.is_participant() => {
            let leases = words(node).count(gone);
            format!(
                "{name} is removed with its {leases}: these partitions have no owner until another participant takes \
                 them"
            )
        }
        gone => {
            let what = count_text(gone as usize, "replica that is not in sync", "replicas that are not in sync");
            format!("{name} is removed with {what}; other replicas of these partitions are in sync")
        }
    }
}

/// Declares a node's data lost.
pub(crate) async fn lost(args: &LostArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let found = check(&args.name, admin).await?;
    let name = &found.node.name;
    if !found.lost.obstacles.is_empty() {
        return Err(refused(&format!("{name} cannot be declared lost"), &found.lost.obstacles));
    }
    let loss = if args.dry_run { found.lost.loss } else { admin.lose_node(name, args.accept_data_loss).await? };
    if output.is_json() {
        output.json(&NodeChanged { loss: Some(loss), ..NodeChanged::new(&found.node) })?;
        return Ok(Exit::Done);
    }
    if args.dry_run {
        output.line(would_lose_text(name, &loss))?;
        output.talk(format!("nothing was changed; to do it: archon node lost {name}{}", accept(&loss)));
        return Ok(Exit::Done);
    }
    output.line(lost_text(name, &loss))?;
    if let Some(text) = last_copies_text(&loss) {
        output.talk(text);
    }
    output.talk("its replicas are rebuilt on other nodes; progress: archon status");
    Ok(Exit::Done)
}

fn lost_text(name: &str, loss: &NodeLoss) -> String {
    format!("{name} is lost: {} discarded, {} of them in sync", copies(loss.copies_lost), loss.counting_copies_lost)
}

fn would_lose_text(name: &str, loss: &NodeLoss) -> String {
    let last = match loss.last_copies_lost {
        0 => "no partition would lose its last in-sync replica".to_owned(),
        last => {
            let partitions = count_text(last as usize, "partition", "partitions");
            format!("{partitions} would lose the last in-sync replica, and acknowledged writes with it")
        }
    };
    let (all, counting) = (copies(loss.copies_lost), loss.counting_copies_lost);
    format!("declaring {name} lost would discard {all}, {counting} of them in sync; {last}")
}

/// Returns the additional option needed if data would be lost.
const fn accept(loss: &NodeLoss) -> &'static str {
    if loss.last_copies_lost > 0 { " --accept-data-loss" } else { "" }
}

/// Describes the next step for partitions without any replica; `None` if there is none.
fn last_copies_text(loss: &NodeLoss) -> Option<String> {
    (loss.last_copies_lost > 0).then(|| {
        let partitions = count_text(loss.last_copies_lost as usize, "partition", "partitions");
        format!(
            "{partitions} lost the last in-sync replica: `archon partition list` shows them, `archon partition \
                 force-leader` makes them available again"
        )
    })
}

/// Returns the present state of the node.
pub(in crate::admin) async fn look(name: &str, admin: &Admin) -> Result<Node, Failure> {
    Ok(check(name, admin).await?.node)
}

pub(in crate::admin) fn refused(what: &str, obstacles: &[String]) -> Failure {
    refused_for(&format!("{what}; nothing was changed"), obstacles)
}

/// As [`refused`], when other members may have been changed.
pub(super) fn refused_for(what: &str, obstacles: &[String]) -> Failure {
    let list: Vec<String> = obstacles.iter().map(|obstacle| format!("\n  - {obstacle}")).collect();
    Failure::new(Exit::Refused, format!("{what}:{}", list.concat()))
}

fn copies(count: u32) -> String {
    count_text(count as usize, "replica", "replicas")
}

/// Returns the cluster's view of a node. For an unknown name, the error lists the names.
pub(crate) async fn check(name: &str, admin: &Admin) -> Result<NodeCheck, Failure> {
    match admin.check_node(name).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let nodes = admin.list_nodes().await?;
            let names = list_text(nodes.iter().map(|node| &node.name));
            Err(Failure::from(error).with_remedy(format!("the nodes are: {names}")))
        }
        found => Ok(found?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::testing::node;

    #[test]
    fn removal_reports_its_effects() {
        let removed_text = |name, copies| super::removed_text(&node(1, name, copies), copies);
        assert_eq!(removed_text("athens", 0), "athens is removed");
        assert_eq!(
            removed_text("athens", 1),
            "athens is removed with 1 replica that is not in sync; other replicas of these partitions are in sync"
        );
        assert_eq!(
            removed_text("athens", 3),
            "athens is removed with 3 replicas that are not in sync; other replicas of these partitions are in sync"
        );
        let participant = Node { serves: vec!["jobs".into()], ..node(7, "w7", 12) };
        assert_eq!(
            super::removed_text(&participant, 12),
            "w7 is removed with its 12 leases: these partitions have no owner until another participant takes them"
        );
    }

    #[test]
    fn loss_reports_its_effects_and_the_next_step() {
        let loss = NodeLoss { copies_lost: 3, counting_copies_lost: 2, last_copies_lost: 0 };
        assert_eq!(lost_text("athens", &loss), "athens is lost: 3 replicas discarded, 2 of them in sync");
        assert_eq!(
            would_lose_text("athens", &loss),
            "declaring athens lost would discard 3 replicas, 2 of them in sync; no partition would lose its last in-sync \
             replica"
        );
        assert_eq!(last_copies_text(&loss), None);
        let last = last_copies_text(&NodeLoss { last_copies_lost: 1, ..loss }).unwrap();
        assert!(last.starts_with("1 partition lost the last in-sync replica"), "{last}");
        assert!(last.contains("archon partition force-leader"), "{last}");
    }

    #[test]
    fn refusal_prints_each_obstacle_on_its_own_line() {
        let failure = refused("athens cannot be removed", &["it is alive".into(), "it holds replicas".into()]);
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(
            failure.message,
            "athens cannot be removed; nothing was changed:\n  - it is alive\n  - it holds replicas"
        );
    }
}
