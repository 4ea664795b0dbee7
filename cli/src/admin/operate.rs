//! `archon node cordon | uncordon | drain | undrain | remove | lost`.

use super::node::check;
use super::wait::{Waited, Watched, wait};
use crate::args::{DrainArgs, LostArgs, NodeNameArgs, NodeNamesArgs, RemoveArgs};
use crate::documents::{Node, NodeChanged};
use crate::exit::{Exit, Failure};
use crate::output::{Output, count_text};
use archon_client::{Admin, DrainCheck, ErrorKind, NodeGoal, NodeLoss};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// How often a drain is asked for again because other nodes changed between judging and beginning it.
const ATTEMPTS_MAX: usize = 5;

/// Gives nodes nothing new.
pub(crate) async fn cordon(args: &NodeNamesArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    for name in &args.names {
        cordon_one(name, admin, output).await?;
    }
    Ok(Exit::Done)
}

async fn cordon_one(name: &str, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let node = look(name, admin).await?;
    let name = &node.name;
    if node.goal == NodeGoal::Drain {
        let remedy = format!("to keep it as it is: `archon node undrain {name}`, then `archon node cordon {name}`");
        return Err(Failure::new(Exit::Refused, format!("{name} is being emptied")).with_remedy(remedy));
    }
    admin.set_node(name, NodeGoal::Cordon).await?;
    if output.is_json() {
        let (goal, copies_held) = (Some(NodeGoal::Cordon.into()), Some(node.copies_held));
        output.json(&NodeChanged { goal, copies_held, ..NodeChanged::new(&node) })?;
        return Ok(Exit::Done);
    }
    output.line(format!("{name} is cordoned: it keeps {} and gets nothing new", copies(node.copies_held)))?;
    output.talk(format!("undo: archon node uncordon {name}"));
    Ok(Exit::Done)
}

/// Lets nodes take copies again.
pub(crate) async fn uncordon(args: &NodeNamesArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    for name in &args.names {
        let node = look(name, admin).await?;
        if node.goal == NodeGoal::Drain {
            return Err(Failure::new(Exit::Refused, format!("{name} is being emptied, not cordoned"))
                .with_remedy(format!("to stop that: `archon node undrain {name}`")));
        }
        refuse_maintained(&node)?;
        serve(&node, admin, output).await?;
    }
    Ok(Exit::Done)
}

/// What ends maintenance is said by its own verb.
fn refuse_maintained(node: &Node) -> Result<(), Failure> {
    if node.goal != NodeGoal::Maintain {
        return Ok(());
    }
    Err(Failure::new(Exit::Refused, format!("{} is in maintenance", node.name))
        .with_remedy(format!("to end that: `archon node resume {}`", node.name)))
}

/// Stops emptying a node.
pub(crate) async fn undrain(args: &NodeNameArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let node = look(&args.name, admin).await?;
    if node.goal == NodeGoal::Cordon {
        return Err(Failure::new(Exit::Refused, format!("{} is cordoned, not being emptied", args.name))
            .with_remedy(format!("to let it take copies again: `archon node uncordon {}`", args.name)));
    }
    refuse_maintained(&node)?;
    serve(&node, admin, output).await
}

async fn serve(node: &Node, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    admin.set_node(&node.name, NodeGoal::Serve).await?;
    if output.is_json() {
        let (goal, copies_held) = (Some(NodeGoal::Serve.into()), Some(node.copies_held));
        output.json(&NodeChanged { goal, copies_held, ..NodeChanged::new(node) })?;
        return Ok(Exit::Done);
    }
    output.line(format!("{} takes copies again; it holds {}", node.name, copies(node.copies_held)))?;
    if node.goal == NodeGoal::Drain {
        output.talk("what has gone elsewhere comes back by a plan: archon rebalance plan");
    }
    Ok(Exit::Done)
}

/// Empties nodes, and waits for it if asked to. All of several begin before any is waited for, so that the copies of none go
/// to another one of them; one that cannot be drained ends the command, and names those that were begun.
pub(crate) async fn drain(args: &DrainArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let mut begun: Vec<(Node, DrainCheck)> = Vec::new();
    for name in &args.nodes.names {
        match begin_drain(name, args, admin, output).await {
            Ok(one) => begun.push(one),
            Err(failure) if begun.is_empty() || args.dry_run => return Err(failure),
            Err(failure) => {
                let names: Vec<&str> = begun.iter().map(|(node, _)| node.name.as_str()).collect();
                let message = format!("{}; {} is being drained", failure.message, names.join(", "));
                return Err(Failure { message, ..failure });
            }
        }
    }
    for (node, drain) in begun {
        if !finish_drain(&node, drain, args, admin, output).await? {
            return Ok(Exit::Done);
        }
    }
    Ok(Exit::Done)
}

async fn begin_drain(
    name: &str,
    args: &DrainArgs,
    admin: &Admin,
    output: &Output,
) -> Result<(Node, DrainCheck), Failure> {
    let mut attempt = 1;
    let (node, drain) = loop {
        let found = check(name, admin).await?;
        let name = &found.node.name;
        let already = found.node.goal == NodeGoal::Drain;
        if !found.drain.obstacles.is_empty() && (args.dry_run || !already) {
            return Err(refused(&format!("{name} cannot be drained"), &found.drain.obstacles));
        }
        if args.dry_run || already {
            break (found.node, found.drain);
        }
        match admin.set_node(name, NodeGoal::Drain).await {
            Ok(()) => break (found.node, found.drain),
            Err(error) if error.kind() == ErrorKind::StaleVersion && attempt < ATTEMPTS_MAX => attempt += 1,
            Err(error) => return Err(error.into()),
        }
    };
    let name = &node.name;
    if !output.is_json() {
        output.line(drain_text(name, &drain, args.dry_run))?;
        if drain.zones_doubled > 0 {
            let partitions = count_text(drain.zones_doubled as usize, "partition", "partitions");
            output.talk(format!("of {partitions} two copies will stand in one zone: no other zone has room"));
        }
    }
    Ok((node, drain))
}

/// Waits for a drain that has begun, and says what comes next. Returns whether the reader still waits.
async fn finish_drain(
    node: &Node,
    drain: DrainCheck,
    args: &DrainArgs,
    admin: &Admin,
    output: &Output,
) -> Result<bool, Failure> {
    let name = &node.name;
    let left = if args.wait {
        match wait_until_empty(name, admin, output, args.wait_timeout).await? {
            Some(left) => left,
            None => return Ok(false),
        }
    } else {
        look(name, admin).await?.copies_held
    };
    if output.is_json() {
        let goal = if args.dry_run { None } else { Some(NodeGoal::Drain.into()) };
        let (drain, copies_held) = (Some(drain), Some(left));
        output.json(&NodeChanged { goal, drain, copies_held, ..NodeChanged::new(node) })?;
    } else if args.wait {
        output.line(format!("{name} is empty"))?;
        output.talk(format!("next: stop it, then: archon node remove {name}"));
    } else if args.dry_run {
        output.talk(format!("nothing was changed; to do it: archon node drain {name} --wait"));
    } else {
        output.talk(format!("watch it: archon node describe {name}"));
        output.talk(format!("take it back: archon node undrain {name}"));
    }
    Ok(true)
}

fn drain_text(name: &str, drain: &DrainCheck, dry_run: bool) -> String {
    let gains: Vec<String> = drain.gains.iter().map(|gain| format!("{} {}", gain.node, gain.copies_gained)).collect();
    let gains = if gains.is_empty() { String::new() } else { format!(" ({})", gains.join(", ")) };
    let leaderships = count_text(drain.leaderships_moved as usize, "leadership", "leaderships");
    let (verb, go) = if dry_run { ("would drain", "would go") } else { ("draining", "go") };
    match drain.copies_moved {
        0 => format!("{verb} {name}: it holds nothing"),
        moved => format!("{verb} {name}: {leaderships} and {} {go} to other nodes{gains}", copies(moved)),
    }
}

/// A node that is being emptied.
struct Emptying<'a> {
    name: &'a str,
    admin: &'a Admin,
    output: &'a Output,
    started: Instant,
    bar: Option<ProgressBar>,
    /// The most copies that it was seen to hold.
    most: u32,
    last_reported: Option<String>,
}

impl<'a> Emptying<'a> {
    fn new(name: &'a str, admin: &'a Admin, output: &'a Output) -> Self {
        let bar = (output.stderr_is_terminal && !output.is_json()).then(|| {
            let bar = ProgressBar::no_length();
            let style = ProgressStyle::with_template("{spinner} [{bar:30}] {percent:>3}%  {elapsed}  {wide_msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
            bar
        });
        Self { name, admin, output, started: Instant::now(), bar, most: 0, last_reported: None }
    }
}

impl Watched for Emptying<'_> {
    type Outcome = u32;

    async fn look(&mut self) -> Result<Option<u32>, Failure> {
        let node = look(self.name, self.admin).await?;
        if node.goal != NodeGoal::Drain {
            return Err(Failure::new(Exit::Refused, format!("{} is not being emptied any more", self.name))
                .with_remedy("somebody took the drain back; `archon events` says when"));
        }
        self.most = self.most.max(node.copies_held);
        let text = format!("{} left, {} led", copies(node.copies_held), node.partitions_led);
        match &self.bar {
            Some(bar) => {
                bar.set_length(u64::from(self.most.max(1)));
                bar.set_position(u64::from(self.most - node.copies_held));
                bar.set_message(text);
            }
            None if self.output.is_json() || self.last_reported.as_ref() == Some(&text) => {}
            None => {
                self.output.talk(format!("{:>6.1}s  {text}", self.started.elapsed().as_secs_f64()));
                self.last_reported = Some(text);
            }
        }
        Ok((node.copies_held == 0).then_some(0))
    }

    fn say(&self, text: &str) {
        self.output.talk(text);
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Waits until the node holds nothing. `None` means that the reader detached with Ctrl-C.
async fn wait_until_empty(
    name: &str,
    admin: &Admin,
    output: &Output,
    limit: Option<Duration>,
) -> Result<Option<u32>, Failure> {
    match wait(&mut Emptying::new(name, admin, output), limit).await? {
        Waited::Over(left) => Ok(Some(left)),
        Waited::Detached => {
            output.talk("detached: the drain goes on in the cluster");
            output.talk(format!("  watch it:      archon node describe {name}"));
            output.talk(format!("  take it back:  archon node undrain {name}"));
            Ok(None)
        }
        Waited::TimedOut => {
            let remedy = format!(
                "that goes on; `archon status` says what it waits for, `archon node describe {name}` how far it is"
            );
            Err(Failure::new(Exit::TimedOut, format!("{name} is still being emptied")).with_remedy(remedy))
        }
    }
}

/// Forgets a node.
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
        output.line(removed_text(name, copies).replacen("is removed", "can be removed", 1))?;
        output.talk(format!("nothing was changed; to do it: archon node remove {name}"));
        return Ok(Exit::Done);
    }
    output.line(removed_text(name, copies))?;
    output.talk("its data directory cannot join again: to use the machine, start a node with an empty --data-dir");
    Ok(Exit::Done)
}

fn removed_text(name: &str, copies: u32) -> String {
    match copies {
        0 => format!("{name} is removed"),
        gone => {
            let what = count_text(gone as usize, "copy that does", "copies that do");
            format!("{name} is removed, and with it {what} not count; other copies of these partitions do")
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
    output.talk("copies are made anew elsewhere: archon status");
    Ok(Exit::Done)
}

fn lost_text(name: &str, loss: &NodeLoss) -> String {
    format!(
        "{name} is lost: {} of it given up, {} of them counted",
        copies(loss.copies_lost),
        loss.counting_copies_lost
    )
}

fn would_lose_text(name: &str, loss: &NodeLoss) -> String {
    let last = match loss.last_copies_lost {
        0 => "no partition would lose its last copy that counts".to_owned(),
        last => {
            let partitions = count_text(last as usize, "partition", "partitions");
            format!("{partitions} would lose the last copy that counts, and acknowledged writes with it")
        }
    };
    let (all, counting) = (copies(loss.copies_lost), loss.counting_copies_lost);
    format!("declaring {name} lost would give up {all}, {counting} of them count; {last}")
}

/// What has to be said as well where data would be lost.
const fn accept(loss: &NodeLoss) -> &'static str {
    if loss.last_copies_lost > 0 { " --accept-data-loss" } else { "" }
}

/// What to do about partitions that have no copy any more; `None` if there is none.
fn last_copies_text(loss: &NodeLoss) -> Option<String> {
    (loss.last_copies_lost > 0).then(|| {
        let partitions = count_text(loss.last_copies_lost as usize, "partition", "partitions");
        format!("{partitions} lost the last copy that counts: `archon partition list` shows them, `archon partition force-leader` lets them go on")
    })
}

/// The node as it is now.
async fn look(name: &str, admin: &Admin) -> Result<Node, Failure> {
    Ok(check(name, admin).await?.node)
}

fn refused(what: &str, obstacles: &[String]) -> Failure {
    let list: Vec<String> = obstacles.iter().map(|obstacle| format!("\n  - {obstacle}")).collect();
    Failure::new(Exit::Refused, format!("{what}; nothing was changed:{}", list.concat()))
}

fn copies(count: u32) -> String {
    count_text(count as usize, "copy", "copies")
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_client::NodeGain;

    #[test]
    fn a_drain_says_what_goes_where() {
        let gains = vec![
            NodeGain { node_id: 2, node: "byzantium".into(), copies_gained: 2 },
            NodeGain { node_id: 3, node: "cyrene".into(), copies_gained: 1 },
        ];
        let drain = DrainCheck { leaderships_moved: 1, copies_moved: 3, gains, ..DrainCheck::default() };
        assert_eq!(
            drain_text("athens", &drain, false),
            "draining athens: 1 leadership and 3 copies go to other nodes (byzantium 2, cyrene 1)"
        );
        let nothing = DrainCheck::default();
        assert_eq!(drain_text("athens", &nothing, true), "would drain athens: it holds nothing");
    }

    #[test]
    fn a_removal_says_what_goes_with_the_node() {
        assert_eq!(removed_text("athens", 0), "athens is removed");
        assert_eq!(
            removed_text("athens", 1),
            "athens is removed, and with it 1 copy that does not count; other copies of these partitions do"
        );
        assert_eq!(
            removed_text("athens", 3),
            "athens is removed, and with it 3 copies that do not count; other copies of these partitions do"
        );
    }

    #[test]
    fn a_loss_says_what_was_given_up_and_names_the_way_on_for_partitions_without_a_copy() {
        let loss = NodeLoss { copies_lost: 3, counting_copies_lost: 2, last_copies_lost: 0 };
        assert_eq!(lost_text("athens", &loss), "athens is lost: 3 copies of it given up, 2 of them counted");
        assert_eq!(
            would_lose_text("athens", &loss),
            "declaring athens lost would give up 3 copies, 2 of them count; no partition would lose its last copy that counts"
        );
        assert_eq!(last_copies_text(&loss), None);
        let last = last_copies_text(&NodeLoss { last_copies_lost: 1, ..loss }).unwrap();
        assert!(last.starts_with("1 partition lost the last copy that counts"), "{last}");
        assert!(last.contains("archon partition force-leader"), "{last}");
    }

    #[test]
    fn every_reason_of_a_refusal_has_a_line() {
        let failure = refused("athens cannot be removed", &["it is alive".into(), "it holds copies".into()]);
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(
            failure.message,
            "athens cannot be removed; nothing was changed:\n  - it is alive\n  - it holds copies"
        );
    }
}
