//! Drops of tables while clients use them, nodes are away and copies move; and new tables with their names (rule 26).

use crate::event::Event;
use crate::scenario::PARTITIONS_ADDED_MAX;
use crate::world::World;
use archon_coordinator_core::{Command, Goal, plan};
use archon_types::{DEFAULT_TABLE, Partitioning, TableContent, TableId};

impl World {
    /// Drops a table; schedules the next drop.
    pub(crate) fn drop_tables(&mut self) {
        if self.healing {
            return;
        }
        let unit = self.plan.unit_ms();
        let delay = self.drops.between(unit * 6, unit * 30);
        self.after(delay, Event::Drop);
        let tables: Vec<TableId> = self.quorum.state.data_tables().map(|table| table.id).collect();
        let Some(table) = self.drops.pick(&tables) else {
            return self.after(1, Event::Make);
        };
        match self.drops.below(6) {
            0 | 1 => {
                // A node is away at the drop, possibly for long.
                let host = self.drops.index(self.hosts.len());
                self.coverage.power_losses += 1;
                self.power_off(host);
                self.come_back(host);
            }
            2 => {
                // Copies are in motion.
                let moves = plan(&self.quorum.state, Goal::default()).start();
                self.say(moves);
            }
            _ => {}
        }
        let soon = self.drops.between(1, unit * 2);
        self.after(soon, Event::DropAgain { table });
        if self.drops.below(3) == 0 {
            // The order is repeated, possibly when another table has the name.
            let late = self.drops.between(unit, unit * 20);
            self.after(late, Event::DropAgain { table });
        }
        if self.drops.below(4) > 0 {
            let again = self.drops.between(soon, unit * 10);
            self.after(again, Event::Make);
        }
    }

    /// Delivers a repeated drop order to the coordinators.
    pub(crate) fn drop_again(&mut self, table: TableId) {
        if !self.healing {
            self.say(Command::DropTable { table });
        }
    }

    /// Creates a table with a free name, such as that of a dropped one.
    pub(crate) fn make_again(&mut self) {
        let Some(room) = self.room_for_partitions().filter(|_| !self.healing) else { return };
        let partitions = 1 + u32::try_from(self.drops.below(u64::from(room))).unwrap_or(0);
        let most = u64::from(self.plan.settings.replication);
        let replication = u8::try_from(self.drops.between(1, most)).unwrap_or(1);
        self.say(Command::CreateTable {
            name: self.free_name(),
            partitioning: Partitioning::Hash { partitions },
            replication,
            holds: TableContent::Data,
        });
    }

    /// Returns the number of partitions that may be added, if any.
    pub(crate) fn room_for_partitions(&self) -> Option<u32> {
        let made: u32 = {
            let state = &self.quorum.state;
            state.data_tables().map(|table| state.partitions.count_of(table.id)).sum()
        };
        (self.plan.settings.partitions + PARTITIONS_ADDED_MAX).checked_sub(made).filter(|room| *room > 0)
    }

    /// Returns a free name: that of the first table if it was dropped.
    pub(crate) fn free_name(&self) -> String {
        let state = &self.quorum.state;
        let numbered = (0..).map(|number: u64| format!("t{number}"));
        let mut names = std::iter::once(DEFAULT_TABLE.to_owned()).chain(numbered);
        names.find(|name| state.table_by_name(name).is_none()).unwrap_or_default()
    }
}
