//! Moves of a rebalance, splits and merges.

use crate::codec::ANSWER_BYTES_MAX;
use crate::method::{Document, invalid, known};
use archon_types::limits::{PLAN_MOVES_MAX, PLAN_UNMET_MAX};
pub(crate) use archon_types::plan::Plan;
use archon_types::plan::{Move, UnknownFields, UnmetGoal};
use archon_types::subject::Subject;
use archon_types::{
    ErrorDetail, KeyText, MoveCode, MoveKind, MovePhase, NodeId, OpenEnum, RangeChangeKind, RangeChangePhase, TableId,
    UnmetCode, Version,
};
use schemars::JsonSchema;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Progress of a rebalance, and of running splits and merges.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RebalanceStatus {
    /// True while a move is running; splits and merges do not count.
    pub running: bool,
    /// All moves together.
    pub summary: RebalanceSummary,
    /// The moves of the present or last plan.
    pub moves: Vec<MoveStatus>,
    /// Running splits and merges, the first 256.
    pub reshapings: Vec<RangeChangeStatus>,
    /// Number of running splits and merges.
    pub reshapings_total: u32,
}

/// The moves of the present or last plan, counted by phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RebalanceSummary {
    /// Number of the plan; 0 if there was none.
    pub plan_id: u64,
    /// All moves of the plan.
    pub moves_total: u32,
    /// Moves that wait for the copy limits of their nodes.
    pub queued: u32,
    /// Moves that load the new replica.
    pub copying: u32,
    /// Moves with a new replica in sync, or with a hand-over of leadership about to start.
    pub in_sync: u32,
    /// Moves with a new leader that is taking over.
    pub hand_over: u32,
    /// Moves that delete the old replica.
    pub cleanup: u32,
    /// Moves that reached their goal.
    pub done: u32,
    /// Moves that an operator cancelled.
    pub cancelled: u32,
    /// Moves abandoned because a change of the cluster made them pointless.
    pub superseded: u32,
    /// Moves that failed.
    pub failed: u32,
    /// Progress of all moves together, `0..=100`.
    pub percent: u32,
    /// Bytes copied.
    pub bytes_done: u64,
    /// Bytes to copy, an estimate.
    pub bytes_total: u64,
}

impl RebalanceSummary {
    /// Returns the number of finished moves, successful or not.
    pub const fn over(&self) -> u32 {
        self.done + self.cancelled + self.superseded + self.failed
    }
}

/// A move and its progress.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MoveStatus {
    /// The move's number.
    #[serde(rename = "move_id")]
    pub id: u64,
    /// Kind of move.
    pub kind: OpenEnum<MoveKind>,
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// The partition's number within its table.
    pub partition: u32,
    /// Number of the source node.
    pub from_id: u64,
    /// Name of the source node.
    pub from: String,
    /// Number of the target node.
    pub to_id: u64,
    /// Name of the target node.
    pub to: String,
    /// Its phase.
    pub phase: OpenEnum<MovePhase>,
    /// Progress, `0..=100`.
    pub percent: u32,
    /// Bytes copied.
    pub bytes_done: u64,
    /// Bytes to copy, an estimate.
    pub bytes_total: u64,
    /// Reason for the move, or for its wait, cancellation or failure, in a sentence.
    pub message: String,
}

impl MoveStatus {
    /// Returns true if it has ended. A phase that this version does not know has not.
    pub fn is_over(&self) -> bool {
        self.phase.known().is_some_and(MovePhase::is_over)
    }

    /// Returns true if it has ended without reaching its goal.
    pub fn is_aborted(&self) -> bool {
        self.phase.known().is_some_and(MovePhase::is_aborted)
    }

    /// Returns the partition's name for people: `orders/7`.
    pub fn partition_name(&self) -> String {
        format!("{}/{}", self.table, self.partition)
    }
}

/// A running split or merge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RangeChangeStatus {
    /// The table's number.
    pub table_id: u64,
    /// The table's name.
    pub table: String,
    /// Number within its table of the partition that is split, or that receives the keys of a merge.
    pub partition: u32,
    /// Split or merge.
    pub kind: OpenEnum<RangeChangeKind>,
    /// Its phase.
    pub reshaping_phase: OpenEnum<RangeChangePhase>,
    /// Number of the new partition of a split, or of the partition deleted by a merge.
    pub right: u32,
    /// First key of the right partition.
    pub at: KeyText,
    /// Progress, `0..=99`. For a split: the mean over its replicas, where a replica counts only once it has every key.
    /// Not measured for a merge.
    pub percent: u32,
    /// Number of replicas to build for the new partition of a split.
    pub copies_total: u32,
    /// Number of these replicas that have completed the present phase.
    pub copies_ready: u32,
    /// Names of the nodes that it waits for.
    pub waits_for: Vec<String>,
    /// Present step or blocker, in a sentence.
    pub message: String,
}

impl RangeChangeStatus {
    /// Returns the partition's name for people: `orders/7`.
    pub fn partition_name(&self) -> String {
        format!("{}/{}", self.table, self.partition)
    }
}

/// Effect of cancelling a rebalance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RebalanceCancellation {
    /// Number of moves being undone.
    pub moves_cancelled: u32,
    /// Number of moves past the point of no return, which continue.
    pub moves_too_late: u32,
}

/// Returns the progress of the current or last rebalance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ShowRebalance {
    /// Maximum number of moves in the answer, up to 1,024; absent or 0: only the summary.
    #[serde(default)]
    pub most: u32,
    /// Returns only moves with a higher number.
    #[serde(default)]
    pub after: u64,
}

/// A page of moves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RebalancePage {
    /// The progress, with the moves of this page.
    #[serde(flatten)]
    pub status: RebalanceStatus,
    /// There are moves with higher numbers.
    pub more: bool,
}

/// Cancels the running rebalance: undoes moves before their point of no return.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct CancelRebalance {}

/// Computes a plan: the moves of a rebalance.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct PlanRebalance {}

/// Starts to execute a plan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyPlan {
    /// The plan, as it was shown.
    #[serde(deserialize_with = "strict_plan")]
    pub plan: Plan,
}

/// A plan was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PlanApplied {
    /// Number of its moves.
    pub moves_started: u32,
}

/// Reads a plan of a request: refuses unknown fields, and lists that are longer than any plan's.
fn strict_plan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Plan, D::Error> {
    #[derive(Deserialize)]
    #[serde(remote = "Plan", deny_unknown_fields)]
    struct StrictPlan {
        table_version: Version,
        moves_version: Version,
        #[serde(deserialize_with = "strict_moves")]
        moves: Vec<Move>,
        #[serde(default, deserialize_with = "strict_unmet")]
        unmet: Vec<UnmetGoal>,
        #[serde(skip)]
        unknown: UnknownFields,
    }
    StrictPlan::deserialize(deserializer)
}

fn strict_moves<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Move>, D::Error> {
    #[derive(Deserialize)]
    #[serde(remote = "Move", deny_unknown_fields)]
    struct StrictMove {
        kind: OpenEnum<MoveKind>,
        table_id: TableId,
        table: String,
        partition: u32,
        from_id: NodeId,
        from: String,
        to_id: NodeId,
        to: String,
        bytes_total: u64,
        code: OpenEnum<MoveCode>,
        message: String,
        #[serde(skip)]
        unknown: UnknownFields,
    }
    #[derive(Deserialize)]
    struct Item(#[serde(with = "StrictMove")] Move);
    deserializer.deserialize_seq(BoundedList { what: "moves", max: PLAN_MOVES_MAX, item: |Item(step)| step })
}

fn strict_unmet<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<UnmetGoal>, D::Error> {
    #[derive(Deserialize)]
    #[serde(remote = "UnmetGoal", deny_unknown_fields)]
    struct StrictUnmet {
        code: OpenEnum<UnmetCode>,
        subject: Subject,
        message: String,
        #[serde(skip)]
        unknown: UnknownFields,
    }
    #[derive(Deserialize)]
    struct Item(#[serde(with = "StrictUnmet")] UnmetGoal);
    deserializer.deserialize_seq(BoundedList { what: "unmet goals", max: PLAN_UNMET_MAX, item: |Item(unmet)| unmet })
}

/// Reads a list, and gives up at the first element above a limit.
struct BoundedList<Item, T> {
    what: &'static str,
    max: usize,
    item: fn(Item) -> T,
}

impl<'de, Item: Deserialize<'de>, T> Visitor<'de> for BoundedList<Item, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a list of up to {} {}", self.max, self.what)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == self.max {
                return Err(A::Error::custom(format_args!(
                    "more than {} {}, the limit of a plan",
                    self.max, self.what
                )));
            }
            list.push((self.item)(item));
        }
        Ok(list)
    }
}

impl Document for ShowRebalance {}

impl Document for PlanRebalance {}

impl Document for ApplyPlan {
    /// Every plan that fits into an answer fits into a request.
    const BYTES_MAX: usize = ANSWER_BYTES_MAX;
    const IS_STRICT: bool = true;

    fn check(&self) -> Result<(), ErrorDetail> {
        let Plan { moves, unmet, .. } = &self.plan;
        if let Some(field) = self.plan.unknown_field() {
            let why = "this version does not know that field, and does not carry out such a plan; use a newer `archon`";
            return Err(invalid(&field, why));
        }
        if moves.len() > PLAN_MOVES_MAX {
            return Err(invalid("Plan.moves", format!("{} moves; the limit is {PLAN_MOVES_MAX}", moves.len())));
        }
        if unmet.len() > PLAN_UNMET_MAX {
            return Err(invalid("Plan.unmet", format!("{} goals; the limit is {PLAN_UNMET_MAX}", unmet.len())));
        }
        moves.iter().try_for_each(check_move)
    }

    fn subject(&self) -> String {
        "rebalance".to_owned()
    }

    fn wanted(&self) -> Option<String> {
        Some(format!("{} moves", self.plan.moves.len()))
    }
}

/// Checks the numbers of a move, and its kind: a plan with an unknown kind can be shown, but not executed.
fn check_move(step: &Move) -> Result<(), ErrorDetail> {
    known(&step.kind, "Move.kind")?;
    let numbers = [
        ("Move.table_id", step.table_id.get()),
        ("Move.from_id", step.from_id.get()),
        ("Move.to_id", step.to_id.get()),
    ];
    if let Some((field, _)) = numbers.into_iter().find(|(_, number)| *number == 0) {
        return Err(invalid(field, "0; numbers begin at 1"));
    }
    if step.from_id == step.to_id {
        return Err(invalid("Move.to_id", format!("{} is the node from which it moves", step.to_id.get())));
    }
    Ok(())
}

impl Document for CancelRebalance {
    fn subject(&self) -> String {
        "rebalance".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn apply(change: impl FnOnce(&mut Value)) -> Result<ApplyPlan, ErrorDetail> {
        let mut document = json!({ "plan": { "table_version": 41, "moves_version": 40, "moves": [{
            "kind": "copy", "table_id": 1, "table": "orders", "partition": 4, "from_id": 1, "from": "athens", "to_id": 4,
            "to": "ephesus", "bytes_total": 100, "code": "balance", "message": "athens has 3, ephesus 0",
        }]}});
        change(&mut document);
        let request: ApplyPlan = crate::read_request(document.to_string().as_bytes())?;
        request.check()?;
        Ok(request)
    }

    #[test]
    fn plan_is_read_and_audited() {
        let request = apply(|_| {}).unwrap();
        assert_eq!((request.plan.table_version.get(), request.plan.moves.len()), (41, 1));
        assert_eq!((request.subject().as_str(), request.wanted().as_deref()), ("rebalance", Some("1 moves")));
        // Words that only explain may be of a newer version.
        assert!(apply(|document| document["plan"]["moves"][0]["code"] = json!("quorum")).is_ok());
    }

    #[test]
    fn invalid_plan_names_the_field() {
        let wrong = |change: fn(&mut Value)| apply(change).unwrap_err().message;
        let step = |field: &'static str, value: Value| {
            apply(|document| document["plan"]["moves"][0][field] = value).unwrap_err().message
        };
        assert!(step("to_id", json!(1)).starts_with("Move.to_id: 1 is the node"));
        assert!(step("from_id", json!(0)).starts_with("Move.from_id: 0"));
        assert!(step("kind", json!("witness")).starts_with("Move.kind: "));
        assert!(step("condition", json!("empty")).contains("unknown field `condition`"));
        assert!(wrong(|document| document["plan"]["condition"] = json!(1)).contains("unknown field `condition`"));
        assert!(wrong(|document| document["condition"] = json!(1)).contains("unknown field `condition`"));
        assert!(wrong(|document| document["plan"] = Value::Null).starts_with("ApplyPlan: cannot be read"));
    }

    #[test]
    fn plan_of_newer_coordinator_is_shown_but_not_applied() {
        let plan = |field: &str| {
            let mut answer = json!({ "table_version": 41, "moves_version": 40, "moves": [{
                "kind": "witness", "table_id": 1, "table": "orders", "partition": 4, "from_id": 1, "from": "athens",
                "to_id": 4, "to": "ephesus", "bytes_total": 100, "code": "quorum", "message": "athens has 3",
            }], "unmet": [{ "code": "region_away", "subject": { "kind": "region", "name": "north" }, "message": "m" }]});
            answer.pointer_mut(field).unwrap()["condition"] = json!("after \u{1b}dawn");
            crate::read_answer::<Plan>(answer.to_string().as_bytes()).unwrap()
        };
        for (field, named) in
            [("", "Plan.condition"), ("/moves/0", "Move.condition"), ("/unmet/0", "UnmetGoal.condition")]
        {
            let plan = plan(field);
            assert_eq!((plan.moves[0].kind.as_str(), plan.unknown_field().as_deref()), ("witness", Some(named)));
            let shown = serde_json::to_value(&plan).unwrap();
            assert_eq!(shown.pointer(field).unwrap()["condition"], json!("after \\u{1b}dawn"), "it is shown");
            let request = ApplyPlan { plan };
            let refused = request.check().unwrap_err();
            assert!(refused.message.starts_with(named) && refused.message.contains("newer `archon`"), "{refused}");
            let sent = crate::read_request::<ApplyPlan>(&crate::write(&request).unwrap()).unwrap_err();
            assert!(sent.message.contains("unknown field `condition`"), "{sent}");
        }
    }

    #[test]
    fn plan_longer_than_any_is_refused_while_it_is_read() {
        let unmet = json!({ "code": "full", "subject": { "kind": "cluster" }, "message": "m" });
        let refused = apply(|document| document["plan"]["unmet"] = vec![unmet; PLAN_UNMET_MAX + 1].into()).unwrap_err();
        assert!(refused.message.contains("more than 1024 unmet goals"), "{refused}");
        let refused = apply(|document| {
            let step = document["plan"]["moves"][0].clone();
            document["plan"]["moves"] = vec![step; PLAN_MOVES_MAX + 1].into();
        });
        let refused = refused.unwrap_err();
        assert!(refused.message.contains("more than 32768 moves"), "{refused}");
    }
}
