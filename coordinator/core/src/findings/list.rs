//! The list of findings as commands show it: the worst first, and one for many partitions.

use archon_types::subject::Subject;
use archon_types::{Facts, Finding, ReasonCode};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Returns up to `most` findings, merged and the worst first, and whether there are more. `recovers`: true during a
/// recovery of the coordinators.
pub fn list_findings(found: Vec<Finding>, recovers: bool, most: usize) -> (Vec<Finding>, bool) {
    let mut found = merged(found, recovers);
    found.sort_by_key(|finding| Reverse(finding.severity));
    let more = found.len() > most;
    found.truncate(most);
    (found, more)
}

/// Merges findings that name the same node as not alive for several partitions of a table: a failed node would fill a
/// screen otherwise. During a recovery of the coordinators, also those that name another cause for several of them. The
/// others stay as they are, in their order.
fn merged(found: Vec<Finding>, recovers: bool) -> Vec<Finding> {
    // Position of the first finding and number of findings, by table, code and node.
    let mut seen: BTreeMap<(u64, ReasonCode, String), (usize, u32)> = BTreeMap::new();
    let mut kept: Vec<Finding> = Vec::new();
    for finding in found {
        let node = match &finding.facts {
            // Until all holdings are reported, the recovery's finding names the nodes that partitions wait for.
            _ if recovers => Some(String::new()),
            Facts::NoLiveReplica { node } => Some(node.clone()),
            _ => None,
        };
        if let (Subject::Partition { table_id, .. }, Some(node)) = (&finding.subject, node) {
            let (place, count) = seen.entry((*table_id, finding.code(), node)).or_insert((kept.len(), 0));
            *count += 1;
            if let Some(first) = kept.get_mut(*place) {
                first.since = first.since.min(finding.since);
                continue;
            }
        }
        kept.push(finding);
    }
    for (place, count) in seen.into_values().filter(|(_, count)| *count > 1) {
        let Some(finding) = kept.get_mut(place) else { continue };
        let Subject::Partition { table_id, table, partition } = finding.subject.clone() else { continue };
        finding.alike = Some((count, partition));
        finding.subject = Subject::Table { table_id, table };
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::Millis;

    fn finding(table_id: u64, partition: u32, facts: Facts, at: u64) -> Finding {
        let subject = Subject::Partition { table_id, table: format!("t{table_id}"), partition };
        Finding::new(subject, facts).since(Millis::new(at))
    }

    fn dead(table_id: u64, partition: u32, node: &str, at: u64) -> Finding {
        finding(table_id, partition, Facts::NoLiveReplica { node: node.to_owned() }, at)
    }

    #[test]
    fn recovery_is_one_finding_for_all_partitions() {
        let mut all: Vec<Finding> = (0..16).map(|partition| dead(1, partition, "athens", 9)).collect();
        all.extend((0..16).map(|partition| dead(1, partition, "byzantium", 9)));
        all.extend((0..4).map(|partition| dead(2, partition, "athens", 9)));
        let registering = |finding: &Finding| Finding {
            facts: Facts::HolderRegistering { node: "athens".into() },
            ..finding.clone()
        };
        all.extend(all.clone().iter().map(registering));
        let merged = merged(all, true);
        assert_eq!(merged.len(), 4, "{merged:#?}");
        assert_eq!(merged[0].alike, Some((32, 0)));
    }

    #[test]
    fn dead_node_is_one_finding_per_table() {
        let other = Finding::new(Subject::Cluster, Facts::DiskFails { address: "c1:1".into() });
        let mut all = vec![other.clone()];
        all.extend((3..30).map(|partition| dead(1, partition, "athens", 100 - u64::from(partition))));
        all.extend((3..30).map(|partition| dead(1, partition, "byzantium", 7)));
        all.push(dead(2, 0, "athens", 5));
        let merged = merged(all, false);
        assert_eq!(merged.len(), 4, "{merged:#?}");
        assert_eq!(merged[0], other);
        assert_eq!(merged[1].alike, Some((27, 3)));
        assert_eq!(merged[1].subject, Subject::Table { table_id: 1, table: "t1".into() });
        assert_eq!(merged[1].since, Millis::new(71));
        assert_eq!(merged[2].facts, Facts::NoLiveReplica { node: "byzantium".into() });
        assert_eq!(merged[3], dead(2, 0, "athens", 5), "a single one stays as it is");
    }

    #[test]
    fn list_is_bounded_after_merging() {
        let same = (0..9).map(|partition| dead(1, partition, "athens", 1)).collect();
        let (same, more) = list_findings(same, false, 2);
        assert_eq!((same.len(), more), (1, false), "{same:?}");
        let several = [
            Facts::UnderReplicated { missing: 1, of: 3, supply: None },
            Facts::DataLost {},
            Facts::AboutToBeElected {},
        ];
        let several = several.into_iter().map(|facts| finding(1, 0, facts, 1)).collect();
        let (cut, more) = list_findings(several, false, 2);
        assert_eq!((cut.len(), more), (2, true));
        assert_eq!(cut[0].code(), ReasonCode::DataLost, "the worst first");
    }
}
