//! `archon partition split`.

use super::orders::partition_failure;
use super::partition::{keys_text, operand};
use super::wait::{Waited, Watched, wait};
use crate::args::{PartitionArgs, SplitPartitionArgs};
use crate::exit::{Exit, Failure};
use crate::output::{Output, count_text};
use archon_client::{Admin, ErrorKind, PartitionSplit, RangeSummary};
use std::time::Duration;

/// How long a split is waited for: keys are copied for half an hour at most, and given up within 5 s after that, unless the
/// coordinators change meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(35 * 60);

/// Splits a partition, says what that would do, or gives it up.
pub(crate) async fn run(
    args: &SplitPartitionArgs,
    admin: &Admin,
    timeout: Duration,
    output: &Output,
) -> Result<Exit, Failure> {
    let PartitionArgs { id, table } = &args.partition;
    if args.cancel {
        let split = admin.cancel_split(table, *id).await.map_err(partition_failure)?;
        return say(&split, output, &format!("partition {table}/{id} keeps its keys: its split is given up"));
    }
    match &args.at {
        Some(at) => crate::kv::check_key(at)?,
        None => output.talk(format!("looking for the middle of what partition {table}/{id} holds")),
    }
    let at = args.at.as_deref().map(str::as_bytes);
    let split = admin.split_partition(table, *id, at, args.dry_run).await.map_err(partition_failure)?;
    if args.dry_run {
        return say(&split, output, &format!("partition {table}/{id} would be split:{}", halves(&split)));
    }
    if !args.wait {
        say(&split, output, &format!("partition {table}/{id} is being split:{}", halves(&split)))?;
        output.talk(format!("how far: archon partition describe {}", operand(*id, table)));
        return Ok(Exit::Done);
    }
    let mut watched = RunningSplit { admin, split: &split, output };
    match wait(&mut watched, Some(WAIT_MAX.max(timeout))).await? {
        Waited::Over(true) => say(&split, output, &format!("partition {table}/{id} is split:{}", halves(&split))),
        Waited::Over(false) => {
            let why = format!("the split of partition {table}/{id} was given up; it keeps its keys");
            Err(Failure::new(Exit::Refused, why).with_remedy("`archon events` says why; then try again"))
        }
        Waited::Detached => {
            output.talk(format!("it goes on: archon partition describe {}", operand(*id, table)));
            Ok(Exit::Done)
        }
        Waited::TimedOut => Err(Failure::new(Exit::TimedOut, format!("partition {table}/{id} is still being split"))),
    }
}

fn say(split: &PartitionSplit, output: &Output, text: &str) -> Result<Exit, Failure> {
    match output.is_json() {
        true => output.json(split)?,
        false => output.line(text)?,
    }
    Ok(Exit::Done)
}

/// Which keys go where, a line for each half.
fn halves(split: &PartitionSplit) -> String {
    let keys = |range: &RangeSummary| keys_text(&range.begin, range.end.as_deref());
    let nodes: Vec<&str> = split.nodes.iter().map(|name| name.node.as_str()).collect();
    let left = format!("\n  {}  keys {}", split.partition, keys(&split.left_keys));
    // Asked again, and given up since: there is no other half.
    let Some(right) = &split.right_keys else { return left };
    let copies = count_text(nodes.len(), "copy", "copies");
    format!("{left}\n  {}  keys {}, {copies} on {}", split.right, keys(right), nodes.join(", "))
}

/// A split under way.
struct RunningSplit<'a> {
    admin: &'a Admin,
    split: &'a PartitionSplit,
    output: &'a Output,
}

impl Watched for RunningSplit<'_> {
    /// Whether it was done.
    type Outcome = bool;

    async fn look(&mut self) -> Result<Option<bool>, Failure> {
        let PartitionSplit { table, partition, right, .. } = self.split;
        let left = self.admin.describe_partition(table, *partition).await?;
        if left.reshaping.is_some_and(|split| split.right == *right) {
            return Ok(None);
        }
        match self.admin.describe_partition(table, *right).await {
            Ok(_) => Ok(Some(true)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(false)),
            Err(error) => Err(error.into()),
        }
    }

    fn say(&self, text: &str) {
        self.output.talk(text);
    }

    fn finish(&self) {}
}
