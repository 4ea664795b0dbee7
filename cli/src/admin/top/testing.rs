//! Clusters for tests.

use super::cluster_view::ClusterView;
use super::model::Model;
use crate::documents::testing::{node, status};
use crate::documents::{Node, Rebalance};
use crate::output::{Format, Output};
use archon_client::{Cause, Event, EventCode, MoveKind, MovePhase, MoveStatus, Subject};
use ratatui::layout::Size;
use std::collections::BTreeMap;
use std::time::Duration;

/// Returns `count` different nodes: `node-0000`, which leads nothing, `node-0001`, which leads one partition …
pub(super) fn nodes(count: u32) -> Vec<Node> {
    let numbered = |number: u32| Node {
        bytes_stored: Some(u64::from(number) << 20),
        operations_per_second: Some(u64::from(number) * 10),
        zone: Some(format!("zone-{}", number % 3)),
        ..node(number.into(), &format!("node-{number:04}"), number)
    };
    (0..count).map(numbered).collect()
}

/// Returns a cluster of these nodes without moves and with two events.
pub(super) fn look(nodes: Vec<Node>) -> ClusterView {
    let at_ms = 1_000_000_000;
    let event = |index, code: EventCode, message: &str| Event {
        index,
        at_ms: at_ms - 61_000,
        code: code.into(),
        severity: code.severity().into(),
        facts: BTreeMap::new(),
        by: Cause::Coordinator { coordinator_id: 2 },
        subject: Subject::Node { node_id: 1, node: "athens".into() },
        message: message.into(),
    };
    ClusterView {
        at_ms,
        status: status(),
        nodes,
        rebalance: Rebalance::default(),
        events: vec![
            event(3, EventCode::NodeFailed, "athens was silent for 3 s"),
            event(4, EventCode::NodeFailed, "athens is back"),
        ],
    }
}

/// Returns a model with its first poll answered at zero.
pub(super) fn model(nodes: Vec<Node>, size: Size) -> Model {
    let output = Output { color: true, ..Output::plain(Format::Table) };
    let mut model = Model::new(look(nodes), Duration::ZERO, Duration::from_secs(1), output);
    model.resized(size);
    model
}

/// Returns a move of a partition of the same number from athens to ephesus.
pub(super) fn moving(id: u64, phase: MovePhase) -> MoveStatus {
    MoveStatus {
        id,
        kind: MoveKind::Copy.into(),
        table_id: 1,
        table: "orders".into(),
        partition: id as u32,
        from_id: 1,
        from: "athens".into(),
        to_id: 4,
        to: "ephesus".into(),
        phase: phase.into(),
        percent: 40,
        bytes_done: 4 << 20,
        bytes_total: 10 << 20,
        message: String::new(),
    }
}
