//! `archon partition merge`.

use super::split::given_up;
use crate::admin::orders::partition_failure;
use crate::admin::partition::texts::{keys_text, operand};
use crate::admin::wait::{WaitEnd, WatchedProcess, wait};
use crate::args::{MergePartitionArgs, PartitionArgs};
use crate::exit::{Exit, Failure};
use crate::output::{Output, bytes_text};
use archon_client::{Admin, ErrorKind, EventCode, PartitionMerge};
use std::time::Duration;

/// Maximum wait for a merge: it is done or abandoned after 10 s, unless the coordinators change meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Merges a partition with its right neighbour, predicts the effect, or abandons the merge.
pub(crate) async fn run(
    args: &MergePartitionArgs,
    admin: &Admin,
    timeout: Duration,
    output: &Output,
) -> Result<Exit, Failure> {
    let PartitionArgs { id, table } = &args.partition;
    if args.cancel {
        let merge = admin.cancel_merge(table, *id).await.map_err(partition_failure)?;
        let text = format!("partition {table}/{id}: the merge with {} is abandoned; both keep their keys", merge.right);
        return output.done(&merge, text);
    }
    let merge = admin.merge_partition(table, *id, args.dry_run).await.map_err(partition_failure)?;
    if args.dry_run {
        return output.done(&merge, format!("partition {table}/{id} would receive {}", what(&merge)));
    }
    if !args.wait {
        output.done(&merge, format!("partition {table}/{id} is receiving {}", what(&merge)))?;
        output.talk(format!("progress: archon partition describe {}", operand(*id, table)));
        return Ok(Exit::Done);
    }
    let mut watched = RunningMerge { admin, merge: &merge, output };
    match wait(&mut watched, Some(WAIT_MAX.max(timeout))).await? {
        WaitEnd::Over(true) => output.done(&merge, format!("partition {table}/{id} has received {}", what(&merge))),
        WaitEnd::Over(false) => {
            Err(given_up(admin, (merge.table_id, &args.partition), EventCode::MergeAbandoned, "merge").await)
        }
        WaitEnd::Detached => {
            output.talk(format!(
                "detached: the merge continues; progress: archon partition describe {}",
                operand(*id, table)
            ));
            Ok(Exit::Done)
        }
        WaitEnd::TimedOut => Err(Failure::new(Exit::TimedOut, format!("partition {table}/{id} is still being merged"))),
    }
}

/// Describes the keys that it gets, and its keys afterwards.
fn what(merge: &PartitionMerge) -> String {
    let keys = keys_text(&merge.range);
    let bytes = merge.right_bytes.map_or_else(String::new, |bytes| format!(", {}", bytes_text(bytes)));
    let PartitionMerge { table, right, .. } = merge;
    format!("all keys of {table}/{right}{bytes}, which is then deleted\n  {}  keys {keys}", merge.partition)
}

/// A merge in progress.
struct RunningMerge<'a> {
    admin: &'a Admin,
    merge: &'a PartitionMerge,
    output: &'a Output,
}

impl WatchedProcess for RunningMerge<'_> {
    /// True if it was completed.
    type Outcome = bool;

    async fn look(&mut self) -> Result<Option<bool>, Failure> {
        let PartitionMerge { table, right, .. } = self.merge;
        // Its number is never reused, and only its left neighbour gets its keys.
        match self.admin.describe_partition(table, *right).await {
            Ok(right) => Ok(right.reshaping.is_none_or(|merge| merge.right != right.id).then_some(false)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(true)),
            Err(error) => Err(error.into()),
        }
    }

    fn say(&self, text: &str) {
        self.output.talk(text);
    }

    fn finish(&self) {}
}
