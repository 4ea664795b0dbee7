//! All unfinished migrations belong to one plan, and no partition has two running ones.

use crate::invariants::violation::{Violation, violated};
use crate::state::ClusterState;
use crate::state::migration::Stage;
use std::collections::BTreeSet;

const NAME: &str = "one_plan";

pub(super) fn check(state: &ClusterState) -> Result<(), Violation> {
    let plans: BTreeSet<u64> = state.migrations.active().map(|migration| migration.plan).collect();
    if plans.len() > 1 {
        return violated(NAME, format!("plans {plans:?} run at once"));
    }
    let mut moving = BTreeSet::new();
    for migration in state.migrations.iter() {
        if let Stage::Running { target } = migration.stage {
            if !moving.insert(migration.partition) {
                return violated(NAME, format!("{} is moved twice at once", migration.partition));
            }
            let row = state.partitions.get(migration.partition);
            let stands = row.and_then(|row| row.placement(target)).is_none_or(|p| p.node == migration.to);
            if !stands {
                return violated(NAME, format!("the target of migration {} stands elsewhere", migration.id));
            }
        }
    }
    Ok(())
}
