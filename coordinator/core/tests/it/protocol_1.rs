//! Serialised forms of the first protocol, which must not change: versions that speak only that protocol read them. An
//! added command or field is written only once the cluster speaks the protocol that introduced it
//! (docs/design/adr/0057-upgrades.md).

use archon_coordinator_core::Order;
use archon_coordinator_core::*;
use archon_types::*;
use bytes::Bytes;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};
use uuid::Uuid;

/// As written by a version without later protocols: one of each command and of each edit, and a state.
const FILE: &str = "tests/it/protocol_1.json";

const PARTITION: PartitionId = PartitionId::new(TableId::new(2), 7);
const PLACEMENT: PlacementId = PlacementId::new(11);
const INCARNATION: Incarnation = Incarnation::new(42);
const VERSION: Version = Version::new(41);
const NODE: NodeId = NodeId::new(3);

fn edits() -> Vec<Edit> {
    let placement = Placement { id: PLACEMENT, node: NODE, state: ReplicaState::Live };
    let at = Bytes::from_static(b"m");
    vec![
        Edit::Assign(vec![placement]),
        Edit::Vacate(LeadershipEnd::Released),
        Edit::Lead { placement: PLACEMENT, incarnation: INCARNATION, ending: LeadershipEnd::Lapsed },
        Edit::Add(placement),
        Edit::Repair(placement, "why".into()),
        Edit::Promote(PLACEMENT, INCARNATION),
        Edit::Demote(PLACEMENT, INCARNATION),
        Edit::Lose(PLACEMENT, "why".into()),
        Edit::Emptied(PLACEMENT),
        Edit::Unload(PLACEMENT),
        Edit::Retire(PLACEMENT, "why".into()),
        Edit::Forget(PLACEMENT),
        Edit::Online(Epoch::new(5)),
        Edit::Settle(Epoch::new(5)),
        Edit::Surpass(Epoch::new(5)),
        Edit::Dispute {
            placement: PLACEMENT,
            leader: PlacementId::new(12),
            epoch: Epoch::new(5),
            commit: Seq::new(9),
            agreed: Seq::new(8),
        },
        Edit::Split { at, right: 8, outgrown: Some(ExceededLimit::Bytes(1 << 30)) },
        Edit::Mirroring { attempt: VERSION, placement: PLACEMENT, incarnation: INCARNATION },
        Edit::Cut,
    ]
}

fn register() -> Register {
    let storage = StorageId::new(Uuid::from_u128(4));
    Register {
        zone: Some("z".into()),
        partitions_max: Some(9),
        held: vec![PLACEMENT],
        last_incarnation: Some(INCARNATION),
        expects: Some(INCARNATION),
        told: VERSION,
        participant: Some(Participant { tables: vec!["jobs".into()], timing: None }),
        ..Register::new("athens", "127.0.0.1:7101", storage, BootId::new(Uuid::from_u128(5)))
    }
}

/// Returns one of each command of that protocol.
fn commands() -> Vec<Command> {
    let newcomer =
        Newcomer { id: 4, address: "127.0.0.1:7104".into(), storage: StorageId::new(Uuid::from_u128(6)), voter: true };
    let limits = RangeLimits::default();
    let change = |edit| PartitionChange::one(PARTITION, VERSION, edit);
    let successor =
        Successor { partition: PARTITION, if_version: VERSION, placement: PLACEMENT, incarnation: INCARNATION };
    let planned = PlannedMove {
        kind: MoveKind::Copy,
        partition: PARTITION,
        placement: PLACEMENT,
        from: NODE,
        to: NodeId::new(4),
        reason: "why".into(),
        bytes: 100,
    };
    let last = Position::new(Epoch::new(5), Seq::new(9));
    let mut commands = vec![
        Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(1)), settings: Settings::default() },
        Command::Register(Box::new(register())),
        Command::Activate { node: NODE, incarnation: INCARNATION },
        Command::NodeFailed { node: NODE, incarnation: INCARNATION, successors: vec![successor] },
        Command::SetNode { node: NODE, goal: NodeGoal::Drain, if_nodes: Some(VERSION) },
        Command::AlterNode { node: NODE, if_version: VERSION, traits: register().traits() },
        Command::NodeLost { node: NODE, if_version: VERSION },
        Command::RemoveNode { node: NODE, if_version: VERSION },
        Command::CreateTable {
            name: "t".into(),
            partitioning: Partitioning::Range { split_at: vec![Bytes::from_static(b"m")], limits },
            replication: 3,
            holds: TableContent::Data,
        },
        Command::CreateTable {
            name: "jobs".into(),
            partitioning: Partitioning::Hash { partitions: 8 },
            replication: 1,
            holds: TableContent::Lease,
        },
        Command::AlterTable {
            table: TableId::new(2),
            if_version: VERSION,
            traits: TableTraits { replication: 3, limits },
        },
        Command::DropTable { table: TableId::new(2) },
        Command::Deleted { node: NODE, placement: PLACEMENT },
        Command::StartPlan { table_version: VERSION, moves_version: VERSION, moves: vec![planned] },
        Command::SetMigration {
            migration: MigrationId::new(1),
            stage: Stage::Running { target: PLACEMENT },
            change: Some(change(Edit::Forget(PLACEMENT))),
        },
        Command::CancelPlan,
        Command::Configure {
            if_version: VERSION,
            changes: vec![SettingChange { setting: Setting::ReplaceAfterMs, value: 9 }],
        },
        Command::SetAccess {
            scope: Scope { client: Some("shop".into()), table: None },
            before: None,
            after: Some(Right::Read),
            weight_before: None,
            weight_max: None,
        },
        Command::Control { if_controls: VERSION, order: Order::Offline { partition: PARTITION }, why: "why".into() },
        Command::Inspected {
            node: NODE,
            incarnation: INCARNATION,
            placement: PLACEMENT,
            standing: FrozenReplica { partition: PARTITION, promised: Epoch::new(5), last },
        },
        Command::AcceptRecovery,
        Command::SettleRecovery,
        Command::ChangeQuorum { if_version: VERSION, wish: Wish::Join(newcomer) },
        Command::EndQuorumChange { if_version: VERSION, done: true },
        Command::AcceptLoss { partition: PARTITION, if_version: VERSION, outcome: LossOutcome::Empty },
    ];
    commands.extend(edits().into_iter().map(|edit| Command::Change(vec![change(edit)])));
    commands
}

fn batch() -> CommandBatch {
    CommandBatch {
        request: Some(RequestId::new(Uuid::from_u128(2))),
        at: Millis::new(1_700_000_000_000),
        who: Actor::Admin { identity: Some("admin/alice".into()), from: IpAddr::V4(Ipv4Addr::LOCALHOST), via: None },
        proposer: 1,
        term: 3,
        commands: commands(),
    }
}

/// Returns a state of the first protocol.
fn state() -> ClusterState {
    let mut state = ClusterState::new();
    let registered = Register { participant: None, last_incarnation: None, expects: None, held: vec![], ..register() };
    let commands = vec![
        Command::Bootstrap { cluster: ClusterId::new(Uuid::from_u128(1)), settings: Settings::default() },
        Command::Register(Box::new(registered)),
    ];
    apply(&mut state, 5, &CommandBatch { commands, ..batch() });
    state
}

fn written() -> Value {
    json!({ "batch": batch(), "state": state() })
}

#[test]
fn first_protocol_form_stays_unchanged() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let before: Value = serde_json::from_str(&text).expect("it is JSON");
    let now = serde_json::to_string_pretty(&written()).expect("it can be written");
    assert_eq!(
        before,
        serde_json::from_str::<Value>(&now).expect("it is JSON"),
        "what is new must not be written while the cluster speaks protocol 1: leave a field out while it says nothing new, and let \
         `Command::since` name the protocol of a command"
    );
    // The old form is still readable.
    let batch: CommandBatch = serde_json::from_value(before["batch"].clone()).expect("a batch of the first protocol");
    assert_eq!(batch, self::batch());
    let state: ClusterState = serde_json::from_value(before["state"].clone()).expect("a state of the first protocol");
    assert_eq!(state, self::state());
}

#[test]
fn every_command_of_the_first_protocol_has_a_sample() {
    let samples: std::collections::BTreeSet<&str> = commands().iter().map(Command::name).collect();
    assert!(commands().iter().all(|command| command.since() == PROTOCOL_FIRST));
    // The names are those of the match in `Command::name`; commands of later protocols are excluded.
    assert_eq!(samples.len(), 25, "{samples:?}");
}
