//! `archon node drain`.

use super::operate::{look, refused, refused_for, say_maintenance_over};
use crate::admin::each;
use crate::admin::node::operate::check;
use crate::admin::phrases::words;
use crate::admin::wait::{WaitEnd, WatchedProcess, wait};
use crate::args::DrainArgs;
use crate::documents::{Node, NodeChanged};
use crate::exit::{Exit, Failure};
use crate::output::{Output, count_text};
use archon_client::{Admin, DrainCheck, NodeCheck, NodeGoal};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// Empties nodes, and waits for it if requested. All of several are checked before any starts, and start before any is
/// waited for, so that the replicas of none go to another one of them. Each may be drained alone, and not all together:
/// the failure reports which ones were started.
pub(crate) async fn drain(args: &DrainArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let names = &args.nodes.names;
    let judged = each::judge(names, async |name: &str| judge(&check(name, admin).await?, args, refused));
    judged.await?;
    let mut begun: Vec<(Node, DrainCheck)> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let one = begin_drain(name, args, admin, output).await;
        begun.push(one.map_err(|failure| if args.dry_run { failure } else { each::partly(failure, names, at) })?);
    }
    for (node, drain) in begun {
        if !finish_drain(&node, drain, args, admin, output).await? {
            return Ok(Exit::Done);
        }
    }
    Ok(Exit::Done)
}

/// Rejects a drain that the cluster would refuse. A drain in progress continues even if it now has obstacles.
fn judge(found: &NodeCheck, args: &DrainArgs, refused: fn(&str, &[String]) -> Failure) -> Result<(), Failure> {
    let already = found.node.goal == NodeGoal::Drain;
    match found.drain.obstacles.is_empty() || (already && !args.dry_run) {
        true => Ok(()),
        false => Err(refused(&format!("{} cannot be drained", found.node.name), &found.drain.obstacles)),
    }
}

async fn begin_drain(
    name: &str,
    args: &DrainArgs,
    admin: &Admin,
    output: &Output,
) -> Result<(Node, DrainCheck), Failure> {
    let found = check(name, admin).await?;
    judge(&found, args, refused_for)?;
    let NodeCheck { node, drain, .. } = found;
    if !args.dry_run && node.goal != NodeGoal::Drain {
        admin.set_node(&node.name, NodeGoal::Drain).await?;
    }
    if !output.is_json() {
        output.line(drain_text(&node, &drain, args.dry_run))?;
        if !args.dry_run {
            say_maintenance_over(&node, output);
        }
        if drain.zones_doubled > 0 {
            let partitions = count_text(drain.zones_doubled as usize, "partition", "partitions");
            output.talk(format!("{partitions} will have two replicas in one zone: no other zone has capacity"));
        }
    }
    Ok((node, drain))
}

/// Waits for a drain in progress, and prints the next step. Returns true if the reader still waits.
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
        // A participant that has ended is removed automatically.
        let forget = if node.is_participant() { String::new() } else { format!(", then: archon node remove {name}") };
        output.talk(format!("next: stop it{forget}"));
    } else if args.dry_run {
        output.talk(format!("nothing was changed; to do it: archon node drain {name} --wait"));
    } else {
        output.talk(format!("watch it: archon node describe {name}"));
        output.talk(format!("cancel it: archon node undrain {name}"));
    }
    Ok(true)
}

fn drain_text(node: &Node, drain: &DrainCheck, dry_run: bool) -> String {
    let name = &node.name;
    if node.is_participant() {
        return leases_text(node, drain.leaderships_moved, dry_run);
    }
    let gains: Vec<String> = drain.gains.iter().map(|gain| format!("{} {}", gain.node, gain.copies_gained)).collect();
    let gains = if gains.is_empty() { String::new() } else { format!(" ({})", gains.join(", ")) };
    let leaderships = count_text(drain.leaderships_moved as usize, "leadership", "leaderships");
    let (verb, go) = if dry_run { ("would drain", "would go") } else { ("draining", "go") };
    match drain.copies_moved {
        0 => format!("{verb} {name}: it holds nothing"),
        moved => {
            let copies = words(node).count(moved);
            format!("{verb} {name}: {leaderships} and {copies} {go} to other nodes{gains}")
        }
    }
}

/// Describes the leases that a participant hands over, and those that no other takes.
fn leases_text(node: &Node, moved: u32, dry_run: bool) -> String {
    let (name, count) = (&node.name, |count| words(node).count(count));
    let verb = if dry_run { "would drain" } else { "draining" };
    match (moved, node.partitions_led.saturating_sub(moved)) {
        (0, 0) => format!("{verb} {name}: it owns nothing"),
        (0, stay) => format!("{verb} {name}: it keeps {} that no other participant can take", count(stay)),
        (moved, 0) => format!("{verb} {name}: it hands over {}", count(moved)),
        (moved, stay) => {
            format!(
                "{verb} {name}: it hands over {} and keeps {} that no other participant can take",
                count(moved),
                count(stay)
            )
        }
    }
}

/// Progress of a node that is being emptied.
struct DrainProgress<'a> {
    name: &'a str,
    admin: &'a Admin,
    output: &'a Output,
    started: Instant,
    bar: Option<ProgressBar>,
    /// Highest number of replicas seen on it.
    most: u32,
    last_reported: Option<String>,
}

impl<'a> DrainProgress<'a> {
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

impl WatchedProcess for DrainProgress<'_> {
    type Outcome = u32;

    async fn look(&mut self) -> Result<Option<u32>, Failure> {
        let node = look(self.name, self.admin).await?;
        if node.goal != NodeGoal::Drain {
            return Err(Failure::new(Exit::Refused, format!("the drain of {} was cancelled", self.name))
                .with_remedy("see who cancelled it: `archon events`"));
        }
        self.most = self.most.max(node.copies_held);
        let left = words(&node).count(node.copies_held);
        let text = match node.is_participant() {
            true => format!("{left} left"),
            false => format!("{left} left, {} led", node.partitions_led),
        };
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
    match wait(&mut DrainProgress::new(name, admin, output), limit).await? {
        WaitEnd::Over(left) => Ok(Some(left)),
        WaitEnd::Detached => {
            output.talk("detached: the drain continues in the cluster");
            output.talk(format!("  watch it:      archon node describe {name}"));
            output.talk(format!("  cancel it:     archon node undrain {name}"));
            Ok(None)
        }
        WaitEnd::TimedOut => {
            let remedy = format!(
                "the drain continues; `archon status` shows what it waits for, `archon node describe {name}` its \
                 progress"
            );
            Err(Failure::new(Exit::TimedOut, format!("{name} is still being drained")).with_remedy(remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::testing::node;
    use archon_client::NodeGain;

    #[test]
    fn drain_names_destinations() {
        let gains = vec![
            NodeGain { node_id: 2, node: "byzantium".into(), copies_gained: 2 },
            NodeGain { node_id: 3, node: "cyrene".into(), copies_gained: 1 },
        ];
        let drain = DrainCheck { leaderships_moved: 1, copies_moved: 3, gains, ..DrainCheck::default() };
        assert_eq!(
            drain_text(&node(1, "athens", 3), &drain, false),
            "draining athens: 1 leadership and 3 replicas go to other nodes (byzantium 2, cyrene 1)"
        );
        let nothing = DrainCheck::default();
        assert_eq!(drain_text(&node(1, "athens", 0), &nothing, true), "would drain athens: it holds nothing");
    }

    #[test]
    fn participant_drain_names_its_leases() {
        let said = |owned, leaderships_moved| {
            let ada = Node { serves: vec!["jobs".into()], ..node(7, "ada", owned) };
            drain_text(&ada, &DrainCheck { leaderships_moved, ..DrainCheck::default() }, false)
        };
        assert_eq!(said(12, 12), "draining ada: it hands over 12 leases");
        assert_eq!(
            said(12, 11),
            "draining ada: it hands over 11 leases and keeps 1 lease that no other participant \
                                  can take"
        );
        assert_eq!(said(12, 0), "draining ada: it keeps 12 leases that no other participant can take");
        assert_eq!(said(0, 0), "draining ada: it owns nothing");
    }
}
