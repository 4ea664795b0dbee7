//! Victim of a failover in an existing cluster: a node killed by its process id, or ended manually.

use crate::exit::Failure;
use archon_client::{Admin, NodeStatus};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::time::Duration;

/// A process of this machine that runs a node.
pub(super) struct Victim(Pid);

impl Victim {
    /// Accepts only nodes, so that a wrong number does not kill another process.
    pub(super) fn check(pid: u32) -> Result<Self, Failure> {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        match (pid, words.next()) {
            (Some(pid), Some(b"node")) => Ok(Self(pid)),
            _ => Err(Failure::usage(
                "--pid names no process on this machine that was started as `archon node …`",
                "find it with `pgrep -f 'archon node'`, or leave --pid away and end the node yourself",
            )),
        }
    }

    pub(super) fn kill(&self) -> Result<String, Failure> {
        let wrong = |error| Failure::failed(format!("killing process {}: {error}", self.0.as_raw_nonzero()));
        kill_process(self.0, Signal::KILL).map_err(wrong)?;
        Ok(format!("the node with process id {} was killed", self.0.as_raw_nonzero()))
    }
}

/// Returns the live nodes with their incarnations.
pub(super) async fn lives(admin: &Admin) -> Result<BTreeMap<String, u64>, Failure> {
    let nodes = admin.list_nodes().await?;
    let alive = nodes.into_iter().filter(|node| node.status == NodeStatus::Alive);
    Ok(alive.map(|node| (node.name, node.incarnation)).collect())
}

/// Returns the nodes that ended in between, including those that have returned in another incarnation.
pub(super) fn ended(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<String> {
    before.iter().filter(|(name, life)| after.get(*name) != Some(life)).map(|(name, _)| name.clone()).collect()
}

/// Describes the manual disturbance. Without a failed node there is no failover to report.
pub(super) fn by_hand(ended: &[String], watched: Duration) -> Result<String, Failure> {
    if ended.is_empty() {
        let message = format!("no node was seen to end within {watched:?}, so there is nothing to report");
        return Err(Failure::failed(message).with_remedy(
            "kill a node early in a longer --duration (its failure is detected 1.5 s later), name one with --pid, or \
             use --local",
        ));
    }
    let were = if ended.len() == 1 { "was" } else { "were" };
    Ok(format!("{} {were} ended by hand", ended.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn undisturbed_cluster_reports_no_failover() {
        let nodes = |lives: &[(&str, u64)]| lives.iter().map(|(name, life)| ((*name).to_owned(), *life)).collect();
        let before: BTreeMap<String, u64> = nodes(&[("athens", 5), ("byzantium", 6), ("cyrene", 7)]);
        let watched = Duration::from_secs(4);
        let failure = by_hand(&ended(&before, &before), watched).unwrap_err();
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.message.contains("no node was seen to end within 4s"), "{failure}");
        let after = nodes(&[("athens", 9), ("cyrene", 7), ("delphi", 8)]);
        assert_eq!(by_hand(&ended(&before, &after), watched).unwrap(), "athens and byzantium were ended by hand");
    }

    #[test]
    fn only_a_node_is_accepted_as_victim() {
        for pid in [std::process::id(), 1, u32::MAX] {
            assert!(Victim::check(pid).is_err_and(|failure| failure.exit == Exit::Usage), "{pid}");
        }
    }
}
