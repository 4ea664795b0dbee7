//! Plan in the form that is displayed, stored in a file and sent back for execution. The coordinator's decisions and
//! its log have their own types (`coordinator/core`), which know only numbers and are a disk format.

use crate::admin::moves::{MoveCode, MoveKind, UnmetCode};
use crate::admin::open_enum::OpenEnum;
use crate::admin::subject::Subject;
use crate::ids::{NodeId, PartitionId, TableId, Version};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Fields of a newer version: they are shown, and a plan with one is not carried out.
pub type UnknownFields = BTreeMap<String, serde_json::Value>;

/// A list of moves, valid for one table version and one version of the moves' records.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// The table version it was made for.
    pub table_version: Version,
    /// The version of the moves' records it was made for: what was under way is reckoned with as if it were done.
    pub moves_version: Version,
    /// What moves where, and why.
    pub moves: Vec<Move>,
    /// What it cannot meet.
    #[serde(default)]
    pub unmet: Vec<UnmetGoal>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownFields,
}

impl Plan {
    /// Returns a field that this version does not know, as `Move.speed`: it may change what the plan does.
    pub fn unknown_field(&self) -> Option<String> {
        fn of(what: &str, fields: &UnknownFields) -> Option<String> {
            fields.keys().next().map(|field| format!("{what}.{field}"))
        }
        of("Plan", &self.unknown)
            .or_else(|| self.moves.iter().find_map(|step| of("Move", &step.unknown)))
            .or_else(|| self.unmet.iter().find_map(|unmet| of("UnmetGoal", &unmet.unknown)))
    }
}

/// One move of a plan. The coordinator goes by the numbers alone; the names are for people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Move {
    /// What is moved.
    pub kind: OpenEnum<MoveKind>,
    /// The table's number.
    pub table_id: TableId,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    pub partition: u32,
    /// The number of the node that holds the replica, or leads.
    pub from_id: NodeId,
    /// The name of that node.
    pub from: String,
    /// The number of the node that is to hold it, or to lead.
    pub to_id: NodeId,
    /// The name of that node.
    pub to: String,
    /// Bytes to copy, an estimate.
    pub bytes_total: u64,
    /// Why it moves.
    pub code: OpenEnum<MoveCode>,
    /// Why it moves, in a sentence.
    pub message: String,
    /// Fields that this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownFields,
}

impl Move {
    /// Returns the id of the partition.
    pub const fn partition_id(&self) -> PartitionId {
        PartitionId { table: self.table_id, index: self.partition }
    }

    /// Returns the display name of the partition: `orders/7`.
    pub fn partition_name(&self) -> String {
        format!("{}/{}", self.table, self.partition)
    }
}

/// A goal that a plan cannot meet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct UnmetGoal {
    /// What kind of goal.
    pub code: OpenEnum<UnmetCode>,
    /// What it is about.
    pub subject: Subject,
    /// Why not, in a sentence.
    pub message: String,
    /// Fields that this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: UnknownFields,
}
