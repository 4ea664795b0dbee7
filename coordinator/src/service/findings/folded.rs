//! Merging of alerts that report the same about many partitions: a failed node would fill a screen otherwise.

use crate::service::findings::found::Found;
use archon_types::subject::Subject;
use archon_types::{ReasonCode, Word};
use std::collections::BTreeMap;

/// Merges alerts that name the same node as not alive for several partitions of a table; during a recovery of the
/// coordinators, also those that name another cause for several of them. The others stay as they are, in their order.
pub(in crate::service) fn folded(found: Vec<Found>, recovers: bool) -> Vec<Found> {
    // Position of the first alert and number of alerts, by table, kind and message, which names the node.
    let mut seen: BTreeMap<(u64, Word<ReasonCode>, String), (usize, u32)> = BTreeMap::new();
    let mut kept: Vec<Found> = Vec::new();
    for Found { severity, waits, reason } in found {
        let names_node = reason.code == ReasonCode::NoLiveReplica;
        if let Subject::Partition { table_id, .. } = reason.subject
            && (names_node || recovers)
        {
            // Until all holdings are reported, the nodes that partitions wait for are named once, by the recovery's
            // alert.
            let message = if recovers { String::new() } else { reason.message.clone() };
            let (place, count) = seen.entry((table_id, reason.code.clone(), message)).or_insert((kept.len(), 0));
            *count += 1;
            if let Some(first) = kept.get_mut(*place) {
                first.reason.began_at_ms = first.reason.began_at_ms.min(reason.began_at_ms);
                continue;
            }
        }
        kept.push(Found { severity, waits, reason });
    }
    for (place, count) in seen.into_values().filter(|(_, count)| *count > 1) {
        let Some(Found { reason, .. }) = kept.get_mut(place) else { continue };
        let Subject::Partition { table_id, table, partition } = reason.subject.clone() else { continue };
        reason.message = format!("{count} of its partitions, the first is {partition}: {}", reason.message);
        reason.subject = Subject::Table { table_id, table };
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::findings::reason::reason_now;
    use archon_documents::Reason;
    use archon_types::Severity;

    fn reason(table_id: u64, partition: u32, node: &str, at: u64) -> Reason {
        let subject = Subject::Partition { table_id, table: format!("t{table_id}"), partition };
        let message = format!("a copy that counts is on {node}, which is not alive");
        let reason = reason_now(ReasonCode::NoLiveReplica, subject, message, format!("start {node} again"));
        Reason { began_at_ms: Some(at), ..reason }
    }

    fn told(reasons: Vec<Reason>, recovers: bool) -> Vec<Reason> {
        let found = |reason| Found { severity: Severity::Alarm, waits: true, reason };
        folded(reasons.into_iter().map(found).collect(), recovers).into_iter().map(|found| found.reason).collect()
    }

    #[test]
    fn recovery_is_one_alert_for_all_partitions() {
        let mut all: Vec<Reason> = (0..16).map(|partition| reason(1, partition, "athens", 9)).collect();
        all.extend((0..16).map(|partition| reason(1, partition, "byzantium", 9)));
        all.extend((0..4).map(|partition| reason(2, partition, "athens", 9)));
        let waiting = |reason: &Reason| Reason { code: ReasonCode::HolderRegistering.into(), ..reason.clone() };
        all.extend(all.clone().iter().map(waiting));
        let told = told(all, true);
        assert_eq!(told.len(), 4, "{told:#?}");
        assert!(told[0].message.starts_with("32 of its partitions, the first is 0: "), "{told:#?}");
    }

    #[test]
    fn dead_node_is_one_alert_per_table() {
        let other = reason_now(ReasonCode::NodeFailed, Subject::Cluster, "athens has stopped".to_owned(), "start it");
        let mut all = vec![other.clone()];
        all.extend((3..30).map(|partition| reason(1, partition, "athens", 100 - u64::from(partition))));
        all.extend((3..30).map(|partition| reason(1, partition, "byzantium", 7)));
        all.push(reason(2, 0, "athens", 5));
        let told = told(all, false);
        assert_eq!(told.len(), 4, "{told:#?}");
        assert_eq!(told[0], other);
        assert_eq!(
            told[1].message,
            "27 of its partitions, the first is 3: a copy that counts is on athens, which is not alive"
        );
        assert_eq!(told[1].subject, Subject::Table { table_id: 1, table: "t1".into() });
        assert_eq!((told[1].began_at_ms, told[1].remedy.as_deref()), (Some(71), Some("start athens again")));
        assert!(told[2].message.contains("byzantium"));
        assert_eq!(told[3], reason(2, 0, "athens", 5), "one alone is told as it is");
    }
}
