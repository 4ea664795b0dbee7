//! `archon partition split`.

use crate::admin::orders::partition_failure;
use crate::admin::partition::texts::{keys_text, operand};
use crate::admin::wait::{WaitEnd, WatchedProcess, wait};
use crate::args::{PartitionArgs, SplitPartitionArgs};
use crate::exit::{Exit, Failure};
use crate::kv::KeyForm;
use crate::output::{Output, bytes_text, count_text};
use archon_client::{Admin, BarSummary, ErrorKind, EventCode, PartitionSplit, Subject};
use std::time::Duration;

/// Maximum wait for a split: keys are copied for at most half an hour, and the split is abandoned within 5 s after
/// that, unless the coordinators change meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(35 * 60);

/// Time without an answer after which the reason is printed.
const SEARCH_SAID_AFTER: Duration = Duration::from_millis(500);

/// Splits a partition, predicts the effect, or abandons the split.
pub(crate) async fn run(
    args: &SplitPartitionArgs,
    admin: &Admin,
    timeout: Duration,
    output: &Output,
) -> Result<Exit, Failure> {
    let PartitionArgs { id, table } = &args.partition;
    if args.cancel {
        let split = admin.cancel_split(table, *id).await.map_err(partition_failure)?;
        return output.done(&split, format!("partition {table}/{id} keeps its keys: the split is abandoned"));
    }
    let at = args.at.as_deref().map(|at| KeyForm::of(args.hex).key(at)).transpose()?;
    let at = at.as_ref().map(AsRef::as_ref);
    let asked = admin.split_partition(table, *id, at, args.dry_run);
    tokio::pin!(asked);
    // A refusal comes at once.
    let split = match tokio::time::timeout(SEARCH_SAID_AFTER, &mut asked).await {
        Ok(answer) => answer,
        Err(_) => {
            if at.is_none() {
                output.talk(format!("searching the split key of partition {table}/{id}"));
            }
            asked.await
        }
    };
    let split = split.map_err(partition_failure)?;
    if args.dry_run {
        output.done(&split, format!("partition {table}/{id} would be split:{}", halves(&split)))?;
        consequences(&split, admin, output).await;
        return Ok(Exit::Done);
    }
    if !args.wait {
        output.done(&split, format!("partition {table}/{id} is being split:{}", halves(&split)))?;
        consequences(&split, admin, output).await;
        output.talk(format!("progress: archon partition describe {}", operand(*id, table)));
        return Ok(Exit::Done);
    }
    let mut watched = RunningSplit { admin, split: &split, output };
    match wait(&mut watched, Some(WAIT_MAX.max(timeout))).await? {
        WaitEnd::Over(true) => {
            output.done(&split, format!("partition {table}/{id} is split:{}", halves(&split)))?;
            consequences(&split, admin, output).await;
            Ok(Exit::Done)
        }
        WaitEnd::Over(false) => {
            Err(given_up(admin, (split.table_id, &args.partition), EventCode::SplitAbandoned, "split").await)
        }
        WaitEnd::Detached => {
            output.talk(format!(
                "detached: the split continues; progress: archon partition describe {}",
                operand(*id, table)
            ));
            Ok(Exit::Done)
        }
        WaitEnd::TimedOut => Err(Failure::new(Exit::TimedOut, format!("partition {table}/{id} is still being split"))),
    }
}

/// Describes the keys of each half, in a line each.
fn halves(split: &PartitionSplit) -> String {
    let nodes: Vec<&str> = split.nodes.iter().map(|name| name.node.as_str()).collect();
    let left = format!("\n  {}  keys {}", split.partition, keys_text(&split.left_keys));
    // A repeated request for a split abandoned since: there is no other half.
    let Some(right) = &split.right_keys else { return left };
    let copies = count_text(nodes.len(), "replica", "replicas");
    format!("{left}\n  {}  keys {}, {copies} on {}", split.right, keys_text(right), nodes.join(", "))
}

/// Maximum number of recent events searched for the reason of an abandoned split or merge.
const EVENTS_LOOKED_AT: u32 = 1_000;

/// Returns the failure for a split or merge (`what`) of a partition, in the table of this number, that ended by an
/// event of this code.
pub(super) async fn given_up(
    admin: &Admin,
    (table_id, PartitionArgs { id, table }): (u64, &PartitionArgs),
    code: EventCode,
    what: &str,
) -> Failure {
    let why = end_told(admin, table_id, *id, code).await;
    let why = why.unwrap_or_else(|| {
        format!(
            "keeps its keys: the {what} was abandoned; `archon events` shows the \
                                             reason"
        )
    });
    Failure::new(Exit::Refused, format!("partition {table}/{id} {why}"))
        .with_remedy("repeat the command if it is still needed; `archon events` shows the details")
}

/// Returns the last event of this code about a partition: the end of its split or merge, with the reason.
async fn end_told(admin: &Admin, table: u64, partition: u32, code: EventCode) -> Option<String> {
    let events = admin.events(EVENTS_LOOKED_AT).await.ok()?;
    let mut ends = events.into_iter().rev().filter(|event| event.code == code);
    let of = |subject: &Subject| matches!(subject, Subject::Partition { table_id, partition: id, .. } if (*table_id, *id) == (table, partition));
    ends.find(|event| of(&event.subject)).map(|event| event.message)
}

/// Prints less obvious consequences of a split. If they cannot be determined, the split is done all the same.
async fn consequences(split: &PartitionSplit, admin: &Admin, output: &Output) {
    if output.is_json() || split.right_keys.is_none() {
        return;
    }
    let PartitionSplit { table, partition, right, .. } = split;
    let bars = admin.describe_partition(table, *partition).await.map_or_else(|_| Vec::new(), |left| left.bars);
    for bar in inherited(&bars) {
        output.talk(format!(
            "{bar} is excluded from {table}/{right} as well; undo after the split: archon partition unbar {} --node \
             {bar}",
            operand(*right, table)
        ));
    }
    let tables = admin.list_tables().await.unwrap_or_default();
    if let Some(below) = tables.iter().find(|other| other.name == *table).and_then(|table| table.merge_below_bytes) {
        output.talk(format!(
            "after a minute in which the two hold {} or less together they are merged again (archon table alter \
             {table} --merge-below)",
            bytes_text(below)
        ));
    }
}

/// Returns the members excluded from the partition itself; exclusions from its table are obvious.
fn inherited(bars: &[BarSummary]) -> Vec<&str> {
    let of_partition = bars.iter().filter(|bar| matches!(bar.subject, Subject::Partition { .. }));
    of_partition.map(|bar| bar.node.as_str()).collect()
}

/// A split in progress.
struct RunningSplit<'a> {
    admin: &'a Admin,
    split: &'a PartitionSplit,
    output: &'a Output,
}

impl WatchedProcess for RunningSplit<'_> {
    /// True if it was completed.
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
