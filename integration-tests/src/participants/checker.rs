//! Checker of exclusive ownership: finds partitions owned by two instances at once, by the records of the instances on
//! the machine's single clock.
//!
//! An instance reads the clock before and after each check of a grant; a check that passed did so at some unknown
//! moment between the two. An epoch was therefore certainly valid at some moment after the beginning of its last check,
//! and had certainly begun at some moment before the end of its first check. If an earlier epoch's last beginning is
//! later than a later epoch's first end, then a check of the earlier one passed after a check of the later one: both
//! owned the partition at once, however the scheduler delayed the instances. The converse does not hold: overlaps
//! shorter than a check are not reported, and unchecked ownership cannot be seen.

use archon_examples::counter::{Instance, Line, Uses};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A violation of exclusive ownership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A check of an earlier epoch passed after one of a later epoch.
    Overlap {
        /// The partition.
        partition: u32,
        /// The earlier epoch, which had ended.
        earlier: u64,
        /// The later epoch.
        later: u64,
        /// Minimum length of the overlap, in nanoseconds.
        for_ns: u64,
    },
    /// Two processes owned a partition in the same epoch.
    Shared {
        /// The partition.
        partition: u32,
        /// The epoch.
        epoch: u64,
        /// The processes.
        instances: BTreeSet<Instance>,
    },
    /// A check passed after the instance was notified of the loss, without a new acquisition.
    AfterLoss {
        /// The instance.
        instance: Instance,
        /// The partition.
        partition: u32,
        /// The epoch.
        epoch: u64,
        /// Time since the loss, in nanoseconds.
        after_ns: u64,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overlap { partition, earlier, later, for_ns } => {
                let ms = for_ns / 1_000_000;
                write!(out, "partition {partition} was used in epoch {earlier} {ms} ms after it was in epoch {later}")
            }
            Self::Shared { partition, epoch, instances } => {
                write!(out, "partition {partition} had several owners in epoch {epoch}: {instances:?}")
            }
            Self::AfterLoss { instance, partition, epoch, after_ns } => {
                let ms = after_ns / 1_000_000;
                let Instance { name, pid } = instance;
                write!(
                    out,
                    "{name} ({pid}) used partition {partition} of epoch {epoch} {ms} ms after it was told of its loss"
                )
            }
        }
    }
}

/// Returns all violations.
pub fn violations(uses: &Uses) -> Vec<Violation> {
    let mut found = Vec::new();
    for (partition, epochs) in uses.by_partition() {
        let partition = *partition;
        // Latest use over all earlier epochs: epoch and moment.
        let mut last: Option<(u64, u64)> = None;
        for (epoch, used) in epochs {
            if used.instances.len() > 1 {
                found.push(Violation::Shared { partition, epoch: *epoch, instances: used.instances.clone() });
            }
            if let Some((earlier, last_ns)) = last
                && last_ns > used.first_ns
            {
                let for_ns = last_ns - used.first_ns;
                found.push(Violation::Overlap { partition, earlier, later: *epoch, for_ns });
            }
            if last.is_none_or(|(_, last_ns)| used.last_ns > last_ns) {
                last = Some((*epoch, used.last_ns));
            }
        }
    }
    found
}

/// Returns the violations within the log of one instance. A loss is reported after the grant ended, so no later check
/// may pass; a release is logged while the partition is still owned, so later checks may.
pub fn used_after_loss(lines: &[Line]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut instance = Instance::default();
    let mut lost: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for line in lines {
        match line {
            Line::Started { name, pid, .. } => {
                (instance, lost) = (Instance { name: name.clone(), pid: *pid }, BTreeMap::new());
            }
            Line::Acquired { partition, epoch, .. } => drop(lost.remove(&(*partition, *epoch))),
            Line::Lost { partition, epoch, at_ns } => drop(lost.insert((*partition, *epoch), *at_ns)),
            Line::Released { .. } => {}
            Line::Used { last_ns, owned, .. } => {
                for (partition, epoch) in owned {
                    if let Some(at_ns) = lost.get(&(*partition, *epoch)).filter(|at_ns| *at_ns < last_ns) {
                        let (instance, after_ns) = (instance.clone(), last_ns - at_ns);
                        let (partition, epoch) = (*partition, *epoch);
                        found.push(Violation::AfterLoss { instance, partition, epoch, after_ns });
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(name: &str, lines: &[Line]) -> Vec<Line> {
        let started = Line::Started { name: name.to_owned(), pid: 7, at_ns: 0 };
        [&[started], lines].concat()
    }

    /// Returns checks that began at the first moment and ended at the second.
    fn used(last_ns: u64, first_ns: u64, epoch: u64) -> Line {
        Line::Used { first_ns, last_ns, owned: vec![(3, epoch)] }
    }

    fn judge(logs: &[Vec<Line>]) -> Vec<Violation> {
        let mut uses = Uses::default();
        logs.iter().for_each(|lines| uses.add(lines));
        violations(&uses)
    }

    #[test]
    fn successive_owners_are_accepted() {
        let ada = log("ada", &[used(10, 11, 4), used(20, 21, 4)]);
        let mary = log("mary", &[used(30, 31, 5), used(90, 95, 5)]);
        assert_eq!(judge(&[ada, mary]), []);
    }

    #[test]
    fn concurrent_owners_are_reported() {
        let ada = log("ada", &[used(10, 11, 4), used(50, 51, 4)]);
        let mary = log("mary", &[used(30, 31, 5)]);
        let overlap = Violation::Overlap { partition: 3, earlier: 4, later: 5, for_ns: 19 };
        assert_eq!(judge(&[mary, ada]), [overlap]);
    }

    #[test]
    fn overlap_is_found_behind_an_epoch_without_proof() {
        let (ada, mary) = (log("ada", &[used(80, 81, 4)]), log("mary", &[used(40, 101, 5)]));
        let grace = log("grace", &[used(60, 61, 6)]);
        assert_eq!(judge(&[ada, mary, grace]), [Violation::Overlap { partition: 3, earlier: 4, later: 6, for_ns: 19 }]);
    }

    #[test]
    fn unproven_overlap_is_not_reported() {
        // The check of epoch 4 may have passed at 29, that of epoch 5 at 40.
        assert_eq!(judge(&[log("ada", &[used(29, 99, 4)]), log("mary", &[used(25, 40, 5)])]), []);
    }

    #[test]
    fn epoch_shared_by_two_instances_is_reported() {
        let found = judge(&[log("ada", &[used(10, 11, 4)]), log("mary", &[used(30, 31, 4)])]);
        assert!(
            matches!(&found[..], [Violation::Shared { partition: 3, epoch: 4, instances }] if instances.len() == 2)
        );
        let again = [log("ada", &[used(10, 11, 4)]), log("ada", &[used(30, 31, 4)])].concat();
        assert_eq!(judge(&[again]), [], "it is the same process");
    }

    #[test]
    fn use_after_loss_without_reacquisition_is_reported() {
        let lost = Line::Lost { partition: 3, epoch: 4, at_ns: 20 };
        assert_eq!(used_after_loss(&log("ada", &[used(10, 11, 4), lost.clone(), used(19, 25, 4)])), []);
        let found = used_after_loss(&log("ada", &[lost.clone(), used(21, 25, 4)]));
        assert!(matches!(found[..], [Violation::AfterLoss { partition: 3, epoch: 4, after_ns: 1, .. }]), "{found:?}");
        let acquired = Line::Acquired { partition: 3, epoch: 4, at_ns: 30 };
        assert_eq!(used_after_loss(&log("ada", &[lost, acquired, used(31, 32, 4)])), []);
    }
}
