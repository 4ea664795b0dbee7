//! Leaders and states of a table's partitions, compact enough for a hundred thousand of them.

use crate::feed::state_section::StateSection;
use archon_client::{OpenEnum, PartitionStatus, ReplicaState, TableContent};
use archon_types::{Partition, PartitionTable};
use serde::{Serialize, Serializer};
use serde_json::json;

/// Overview of a table. Lists are indexed by partition number.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct TableMap {
    /// Number of the table.
    pub(crate) table_id: u64,
    /// Name of the table.
    pub(crate) table: String,
    /// Version of its newest change.
    pub(crate) version: u64,
    /// Kind of content.
    pub(crate) holds: OpenEnum<TableContent>,
    /// Numbers of the leading nodes or participants; zero without a leader.
    pub(crate) leaders: Vec<u64>,
    /// State of each partition, a letter.
    #[serde(serialize_with = "as_text")]
    pub(crate) states: Vec<State>,
}

/// State of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    /// Served, with all copies.
    Online = b'o',
    /// Served, with fewer copies than configured.
    Degraded = b'd',
    /// A copy or its leadership is being moved.
    Moving = b'm',
    /// Being split or merged.
    Reshaped = b's',
    /// No leader.
    Leaderless = b'l',
    /// Taken offline by an operator.
    Offline = b'x',
    /// No partition with this number.
    None = b'.',
}

fn as_text<S: Serializer>(states: &[State], serializer: S) -> Result<S::Ok, S::Error> {
    let text: String = states.iter().map(|state| char::from(*state as u8)).collect();
    serializer.serialize_str(&text)
}

impl TableMap {
    /// Builds the map of a table.
    pub(crate) fn of(table: &PartitionTable) -> Self {
        let about = table.table();
        let rows = || (0..about.keys.numbers_end()).map(|number| table.partition(number));
        let leader = |row: &Partition| row.leader_placement().map_or(0, |placement| placement.node.get());
        Self {
            table_id: about.id.get(),
            table: about.name.clone(),
            version: table.version().get(),
            holds: about.holds.into(),
            leaders: rows().map(|row| row.map_or(0, leader)).collect(),
            states: rows().map(|row| row.map_or(State::None, |row| state(row, about.replication))).collect(),
        }
    }

    /// Returns the update for subscribers that have `before`; `None` if nothing changed.
    pub(crate) fn changes_since(&self, before: &Self) -> Option<StateSection> {
        if (&self.table, self.leaders.len()) != (&before.table, before.leaders.len()) {
            return Some(StateSection::new("map", self));
        }
        let changed = |number: &usize| {
            (self.leaders[*number], self.states[*number]) != (before.leaders[*number], before.states[*number])
        };
        let changes = (0..self.leaders.len()).filter(changed);
        let changes: Vec<_> = changes
            .map(|number| json!([number, self.leaders[number], char::from(self.states[number] as u8)]))
            .collect();
        let news = json!({ "table_id": self.table_id, "version": self.version, "changes": changes });
        (!changes.is_empty()).then(|| StateSection::new("map_change", &news))
    }
}

fn state(row: &Partition, replication: u8) -> State {
    match row.status {
        PartitionStatus::Offline => State::Offline,
        PartitionStatus::Unassigned | PartitionStatus::Unavailable => State::Leaderless,
        _ if row.is_reshaped() => State::Reshaped,
        _ if row.live().count() < usize::from(replication) => State::Degraded,
        PartitionStatus::Assigned => State::Moving,
        PartitionStatus::Online if row.placements.iter().any(|copy| copy.state != ReplicaState::Live) => State::Moving,
        PartitionStatus::Online => State::Online,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(leaders: &[u64], states: &[State]) -> TableMap {
        let (leaders, states) = (leaders.to_vec(), states.to_vec());
        TableMap { table_id: 1, table: "t".into(), version: 9, holds: TableContent::Data.into(), leaders, states }
    }

    #[test]
    fn only_changes_of_the_map_are_sent() {
        let before = map(&[1, 2, 0], &[State::Online, State::Online, State::Leaderless]);
        assert_eq!(before.changes_since(&before), None);
        let after = map(&[1, 3, 3], &[State::Online, State::Online, State::Degraded]);
        let told = after.changes_since(&before).unwrap();
        assert_eq!(
            (told.section, &*told.data),
            ("map_change", r#"{"changes":[[1,3,"o"],[2,3,"d"]],"table_id":1,"version":9}"#)
        );
        let grown = map(&[1, 2, 0, 4], &[State::Online, State::Online, State::Leaderless, State::Moving]);
        let told = grown.changes_since(&before).unwrap();
        assert!(told.section == "map" && told.data.contains(r#""states":"oolm""#), "{told:?}");
    }
}
