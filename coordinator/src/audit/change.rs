//! Audit fields of each request that changes the cluster, as it was sent, before any check.

use archon_proto::v1;
use archon_proto::v1::change_quorum_request::Change as Quorum;
use archon_proto::v1::create_table_request::Partitioning;
use archon_proto::v1::order_request::Order;
use archon_proto::v1::set_access_request::Change as Access;
use archon_security::date;
use archon_types::text::shown_key;
use std::time::{Duration, UNIX_EPOCH};

/// A request that changes the cluster.
pub(crate) trait Change {
    /// Returns the id under which it is repeated.
    fn request_id(&self) -> &[u8];

    /// Returns its subject.
    fn subject(&self) -> String;

    /// Returns the requested change of the subject, if the call alone does not state it.
    fn wanted(&self) -> Option<String> {
        None
    }

    /// Returns true if it only asks for a prediction.
    fn is_trial(&self) -> bool {
        false
    }
}

macro_rules! change {
    ($($request:ident: |$this:ident| $subject:expr $(, wants $wanted:expr)? $(, trial $trial:expr)?;)+) => {
        $(impl Change for v1::$request {
            fn request_id(&self) -> &[u8] {
                &self.request_id
            }

            fn subject(&self) -> String {
                let $this = self;
                $subject
            }

            $(fn wanted(&self) -> Option<String> {
                let $this = self;
                Some($wanted)
            })?

            $(fn is_trial(&self) -> bool {
                let $this = self;
                $trial
            })?
        })+
    };
}

change! {
    SetNodeRequest: |it| node(&it.name), wants it.goal().as_str_name().trim_start_matches("NODE_GOAL_").to_lowercase();
    AlterNodeRequest: |it| node(&it.name), wants settings([
        ("weight", it.weight.map(|weight| weight.to_string())),
        ("partitions_max", it.partitions_max.map(|most| most.to_string())),
        ("zone", it.zone.clone()),
    ]);
    RemoveNodeRequest: |it| node(&it.name);
    LoseNodeRequest: |it| node(&it.name), wants accepting(it.accept_data_loss);
    OrderRequest: |it| ordered(it).0, wants ordered(it).1;
    ForceLeaderRequest: |it| partition(&it.table, it.partition), wants format!(
        "{}, {}",
        it.node.as_deref().map_or_else(|| "the best copy".to_owned(), |node| format!("the copy on {node}")),
        accepting(it.accept_data_loss)
    );
    SplitPartitionRequest: |it| partition(&it.table, it.partition), wants match (it.cancel, it.at.as_ref()) {
        (true, _) => "cancel".to_owned(),
        (false, []) => "in the middle".to_owned(),
        (false, at) => format!("at {}", shown_key(at)),
    }, trial it.dry_run;
    MergePartitionRequest: |it| partition(&it.table, it.partition), wants match it.cancel {
        true => "cancel".to_owned(),
        false => "with its right neighbour".to_owned(),
    }, trial it.dry_run;
    CreateTableRequest: |it| table(&it.name), wants {
        let partitions = match &it.partitioning {
            Some(Partitioning::HashPartitions(count)) => format!("{count} partitions"),
            Some(Partitioning::Ranges(ranges)) => format!("{} ranges", ranges.split_at.len().saturating_add(1)),
            None => "no partitions".to_owned(),
        };
        format!("{partitions}, {} copies of each", it.replication)
    };
    AlterTableRequest: |it| table(&it.name), wants settings([
        ("replication", it.replication.map(|copies| copies.to_string())),
        ("split_above_bytes", it.split_above_bytes.map(|bytes| bytes.to_string())),
        ("split_above_rate", it.split_above_rate.map(|rate| rate.to_string())),
        ("merge_below_bytes", it.merge_below_bytes.map(|bytes| bytes.to_string())),
    ]);
    DropTableRequest: |it| table(&it.name), wants format!("number {}", it.table);
    ApplyPlanRequest: |_it| "rebalance".to_owned(), wants {
        format!("{} moves", _it.plan.as_ref().map_or(0, |plan| plan.moves.len()))
    };
    CancelRebalanceRequest: |_it| "rebalance".to_owned();
    SetAccessRequest: |it| it.client.as_ref().map_or_else(|| "every client".to_owned(), |name| format!("client {name}")), wants {
        let table = it.table.as_ref().map_or_else(|| "every table".to_owned(), |name| table(name));
        match &it.change {
            Some(Access::Grant(right)) => format!("grant {right} of {table}"),
            Some(Access::Revoke(right)) => format!("revoke {right} of {table}"),
            None => "nothing".to_owned(),
        }
    };
    WithdrawRequest: |it| it.identity.clone(), wants match (it.readmit, it.begins_before_ms) {
        (true, _) => "all certificates count again".to_owned(),
        (false, None) => "certificates that begin before now count no more".to_owned(),
        (false, Some(moment)) => {
            let begins = UNIX_EPOCH.checked_add(Duration::from_millis(moment));
            format!("certificates that begin before {} count no more", begins.map(date).unwrap_or_default())
        }
    };
    JoinQuorumRequest: |it| coordinator(it.id), wants {
        format!("join at {} as a {}", it.address, if it.learner { "learner" } else { "voter" })
    };
    ChangeQuorumRequest: |it| quorum(it).0, wants quorum(it).1;
    TransferLeadRequest: |_it| _it.to.map_or_else(|| "quorum".to_owned(), coordinator), wants "lead".to_owned();
    ChangeUpgradeRequest: |_it| "protocol".to_owned(), wants {
        _it.ask().as_str_name().trim_start_matches("UPGRADE_ASK_").to_lowercase()
    };
    SnapshotQuorumRequest: |_it| "quorum".to_owned(), wants "all that it holds, as a file".to_owned();
    ConfigureRequest: |_it| "settings".to_owned(), wants settings(
        _it.changes.iter().take(SETTINGS_MAX).map(|change| (change.setting.as_str(), Some(change.value.to_string())))
    ), trial _it.dry_run;
}

/// Maximum number of named settings, above the number that exist.
const SETTINGS_MAX: usize = 64;

fn coordinator(id: u64) -> String {
    format!("coordinator {id}")
}

/// Returns the member and the change.
fn quorum(asked: &v1::ChangeQuorumRequest) -> (String, String) {
    let (whom, what) = match &asked.change {
        Some(Quorum::Promote(id)) => (coordinator(*id), "promote".to_owned()),
        Some(Quorum::Demote(id)) => (coordinator(*id), "demote".to_owned()),
        Some(Quorum::Remove(id)) => (coordinator(*id), "remove".to_owned()),
        Some(Quorum::Replace(it)) => (coordinator(it.old), format!("replace by {}", coordinator(it.new))),
        Some(Quorum::SetAddress(it)) => (coordinator(it.id), format!("reached at {}", it.address)),
        Some(Quorum::Cancel(_)) => ("quorum".to_owned(), "cancel".to_owned()),
        Some(Quorum::Settle(_)) => {
            let loss = if asked.force { ", also if acknowledged writes are lost" } else { "" };
            return ("quorum".to_owned(), format!("end the recovery{loss}"));
        }
        None => ("quorum".to_owned(), "nothing".to_owned()),
    };
    (whom, if asked.force { format!("{what}, also without a spare") } else { what })
}

fn node(name: &str) -> String {
    format!("node {name}")
}

fn table(name: &str) -> String {
    format!("table {name}")
}

fn partition(table: &str, index: u32) -> String {
    format!("partition {table}/{index}")
}

fn accepting(data_loss: bool) -> String {
    if data_loss { "data loss is accepted".to_owned() } else { "data loss is not accepted".to_owned() }
}

/// Formats the settings to set; absent ones stay as they are.
fn settings<'a>(all: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let said = all.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    said.collect::<Vec<_>>().join(" ")
}

/// Returns the subject and text of an order.
fn ordered(request: &v1::OrderRequest) -> (String, String) {
    let of = |of: &v1::PartitionOf| partition(&of.table, of.partition);
    let bar = |bar: &v1::BarOf| {
        let from = bar.partition.map_or_else(|| table(&bar.table), |index| partition(&bar.table, index));
        (node(&bar.node), from)
    };
    let (subject, order) = match &request.order {
        Some(Order::Bump(at)) => (of(at), "bump".to_owned()),
        Some(Order::Offline(at)) => (of(at), "offline".to_owned()),
        Some(Order::Online(at)) => (of(at), "online".to_owned()),
        Some(Order::Bar(at)) => {
            let (node, from) = bar(at);
            (node, format!("bar from {from}"))
        }
        Some(Order::Unbar(at)) => {
            let (node, from) = bar(at);
            (node, format!("unbar from {from}"))
        }
        Some(Order::Maintain(at)) => (node(&at.node), format!("maintain for {} ms", at.for_ms)),
        Some(Order::Resume(name)) => (node(name), "resume".to_owned()),
        None => ("nothing".to_owned(), "nothing".to_owned()),
    };
    let why = if request.why.is_empty() { String::new() } else { format!(": {}", request.why) };
    (subject, format!("{order}{why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(request: &impl Change) -> (String, Option<String>) {
        (request.subject(), request.wanted())
    }

    #[test]
    fn requests_have_subject_and_change() {
        let drain =
            v1::SetNodeRequest { name: "athens".into(), goal: v1::NodeGoal::Drain.into(), ..Default::default() };
        assert_eq!(said(&drain), ("node athens".into(), Some("drain".into())));
        let alter = v1::AlterNodeRequest { name: "athens".into(), weight: Some(50), ..Default::default() };
        assert_eq!(said(&alter), ("node athens".into(), Some("weight=50".into())));
        let bar = v1::BarOf { node: "athens".into(), table: "orders".into(), partition: Some(7) };
        let order = v1::OrderRequest { why: "a bad disk".into(), order: Some(Order::Bar(bar)), ..Default::default() };
        assert_eq!(said(&order), ("node athens".into(), Some("bar from partition orders/7: a bad disk".into())));
        let change = v1::SettingChange { setting: "replication".into(), value: 3 };
        let configure = v1::ConfigureRequest { changes: vec![change], dry_run: true, ..Default::default() };
        assert_eq!(said(&configure), ("settings".into(), Some("replication=3".into())));
        assert!(configure.is_trial() && !drain.is_trial());
        let access = v1::SetAccessRequest {
            client: Some("shop".into()),
            all_tables: true,
            change: Some(Access::Grant("write".into())),
            ..Default::default()
        };
        assert_eq!(said(&access), ("client shop".into(), Some("grant write of every table".into())));
        let split =
            v1::SplitPartitionRequest { table: "orders".into(), at: b"m".to_vec().into(), ..Default::default() };
        assert_eq!(said(&split), ("partition orders/0".into(), Some("at \"m\"".into())));
    }
}
