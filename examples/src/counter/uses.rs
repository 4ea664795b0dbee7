//! Uses of partitions, from the logs of all instances: instance, epoch, and times.

use super::log::Line;
use std::collections::{BTreeMap, BTreeSet};

/// One process of the service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Instance {
    /// Name.
    pub name: String,
    /// Process id: a restarted process is another instance.
    pub pid: u32,
}

/// The uses of one partition in one epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    /// Instances that used it. Exactly one, or the service is broken.
    pub instances: BTreeSet<Instance>,
    /// Owned at some moment up to this one: the end of the first check that passed.
    pub first_ns: u64,
    /// Owned at some moment from this one on: the beginning of the last check that passed.
    pub last_ns: u64,
}

/// All uses, by partition and by epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    by_partition: BTreeMap<u32, BTreeMap<u64, Use>>,
}

impl Uses {
    /// Adds the log of an instance.
    pub fn add(&mut self, lines: &[Line]) {
        let mut instance = Instance::default();
        for line in lines {
            match line {
                Line::Started { name, pid, .. } => instance = Instance { name: name.clone(), pid: *pid },
                Line::Used { first_ns, last_ns, owned } => {
                    for (partition, epoch) in owned {
                        self.note(*partition, *epoch, &instance, (*first_ns, *last_ns));
                    }
                }
                Line::Acquired { .. } | Line::Released { .. } | Line::Lost { .. } => {}
            }
        }
    }

    /// Returns the epochs in which each partition was used, in order.
    pub const fn by_partition(&self) -> &BTreeMap<u32, BTreeMap<u64, Use>> {
        &self.by_partition
    }

    fn note(&mut self, partition: u32, epoch: u64, instance: &Instance, (first_ns, last_ns): (u64, u64)) {
        let none = Use { instances: BTreeSet::new(), first_ns: u64::MAX, last_ns: 0 };
        let found = self.by_partition.entry(partition).or_default().entry(epoch).or_insert(none);
        found.first_ns = found.first_ns.min(first_ns);
        found.last_ns = found.last_ns.max(last_ns);
        if !found.instances.contains(instance) {
            found.instances.insert(instance.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_end_and_last_beginning_of_each_epoch_are_kept() {
        let started = |pid| Line::Started { name: "ada".to_owned(), pid, at_ns: 0 };
        let used = |last_ns, first_ns, epoch| Line::Used { first_ns, last_ns, owned: vec![(7, epoch), (8, 1)] };
        let mut uses = Uses::default();
        uses.add(&[started(1), used(10, 12, 4), used(20, 25, 4), started(2), used(30, 31, 5)]);
        let seven = &uses.by_partition()[&7];
        assert_eq!(seven.keys().collect::<Vec<_>>(), [&4, &5]);
        assert_eq!((seven[&4].first_ns, seven[&4].last_ns), (12, 20));
        assert_eq!((seven[&5].first_ns, seven[&5].last_ns), (31, 30));
        assert_eq!(uses.by_partition()[&8][&1].instances.len(), 2);
    }
}
