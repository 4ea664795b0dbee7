//! The table of events: code, severity and facts of each.

use crate::admin::facts::facts;
use crate::admin::subject::{Cause, Subject};
use crate::{KeyText, Millis, NodeGoal, NodeTraits, OpenEnum, Right, SettingChanged, TableTraits};

/// An event with its originator and object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedEvent {
    /// Log index of the event.
    pub index: u64,
    /// Time, on the wall clock.
    pub at: Millis,
    /// The originator.
    pub by: Cause,
    /// The object.
    pub subject: Subject,
    /// Code and facts.
    pub facts: EventFacts,
}

facts! {
    /// Code of an event.
    pub enum EventCode: "event";

    /// Code and facts of an event. Names are those at the time of the answer, unless the event records them.
    pub enum EventFacts;

    /// The cluster was created.
    Bootstrapped = "bootstrapped", Notice {}
    /// A new node registered.
    NodeRegistered = "node_registered", Notice {
        /// `incarnation`: its incarnation.
        incarnation: u64,
    }
    /// A known node registered again.
    NodeReturned = "node_returned", Notice {
        /// `incarnation`: its new incarnation.
        incarnation: u64,
    }
    /// A node was silent for too long, or stopped.
    NodeFailed = "node_failed", Warning {
        /// `incarnation`: the failed incarnation.
        incarnation: u64,
        /// `stopped`: true if the node reported its stop.
        stopped: bool,
        /// `leaderships_ended`: partitions that it led.
        leaderships_ended: u32,
        /// `leaderships_handed_on`: those that got another leader at once.
        leaderships_handed_on: u32,
    }
    /// Clients cannot reach a node that sends heartbeats.
    NodeUnreached = "node_unreached", Warning {
        /// `shut_to`: nodes that probed it in vain.
        shut_to: Vec<String>,
        /// `unreached_for_ms`: time since it was last reached.
        unreached_for_ms: u64,
    }
    /// Clients can reach the node again.
    NodeReached = "node_reached", Notice {
        /// `unreached_for_ms`: time for which it was unreached.
        unreached_for_ms: u64,
    }
    /// A new data directory took over the name of a node: its former data is lost.
    NodeLost = "node_lost", Warning {}
    /// An operator declared the data of a node lost.
    NodeDeclaredLost = "node_declared_lost", Warning {
        /// `copies_discarded`: its in-sync replicas.
        copies_discarded: u32,
        /// `partitions_lost`: partitions that lost their last in-sync replica.
        partitions_lost: u32,
    }
    /// An operator removed a node.
    NodeRemoved = "node_removed", Notice {
        /// `copies_discarded`: its replicas, none of which was in sync.
        copies_discarded: u32,
    }
    /// The drain of a node started.
    NodeDraining = "node_draining", Notice {
        /// `copies_held`: replicas that it holds.
        copies_held: u32,
    }
    /// The drain of a node finished: it holds no replicas.
    NodeDrained = "node_drained", Notice {}
    /// An operator changed the goal of a node.
    GoalChanged = "goal_changed", Notice {
        /// `goal`: the new goal.
        goal: OpenEnum<NodeGoal>,
    }
    /// An operator changed the zone, weight or limit of a node.
    NodeAltered = "node_altered", Notice {
        /// `before`: its former `zone`, `weight` and `partitions_max`.
        before: NodeTraits,
        /// `after`: the new ones.
        after: NodeTraits,
    }
    /// A node found its replica damaged; it left the in-sync set.
    CopyDamaged = "copy_damaged", Warning {
        /// `placement_id`: the replica.
        placement_id: u64,
        /// `node`: its node.
        node: String,
        /// `why`: the damage.
        why: String,
    }
    /// Two replicas disagree about committed data: one of them lost data.
    DataDisputed = "data_disputed", Alarm {
        /// `placement_id`: the replica that knows more entries as committed than its leader holds.
        placement_id: u64,
        /// `node`: its node.
        node: String,
        /// `committed`: the last entry that it knows as committed.
        committed: u64,
        /// `epoch`: the epoch of the leader.
        epoch: u64,
        /// `leader_placement_id`: the replica that leads.
        leader_placement_id: u64,
        /// `leader`: its node; null if it is unknown.
        leader: Option<String>,
        /// `agreed`: the last entry up to which the two may agree.
        agreed: u64,
    }
    /// A replica knew a higher epoch than the coordinators had granted.
    EpochSurpassed = "epoch_surpassed", Warning {
        /// `epoch`: the epoch that a replica knew.
        epoch: u64,
        /// `epoch_granted`: the highest epoch that was granted.
        epoch_granted: u64,
    }
    /// An in-sync replica was removed from the in-sync set: its data is gone, or differs from what the node stored
    /// last.
    ReplicaLost = "replica_lost", Warning {
        /// `placement_id`: the replica.
        placement_id: u64,
        /// `node`: its node.
        node: String,
        /// `why`: the loss.
        why: String,
    }
    /// A replacement replica is being loaded.
    RepairStarted = "repair_started", Notice {
        /// `placement_id`: the replica.
        placement_id: u64,
        /// `node`: its node.
        node: String,
        /// `why`: the reason.
        why: String,
    }
    /// A replacement replica is in sync.
    RepairDone = "repair_done", Notice {
        /// `placement_id`: the replica.
        placement_id: u64,
        /// `node`: its node.
        node: String,
    }
    /// A node must delete a surplus replica.
    CopyRetired = "copy_retired", Notice {
        /// `placement_id`: the replica.
        placement_id: u64,
        /// `node`: its node.
        node: String,
        /// `why`: the reason.
        why: String,
    }
    /// An operator started a new epoch of a partition.
    LeadershipBumped = "leadership_bumped", Notice {
        /// `epoch`: the epoch that ends.
        epoch: u64,
        /// `why`: the operator's reason, may be empty.
        why: String,
    }
    /// An operator excluded a member from partitions.
    MemberBarred = "member_barred", Notice {
        /// `excluded`: the member.
        excluded: String,
        /// `why`: the operator's reason, may be empty.
        why: String,
    }
    /// An operator lifted an exclusion.
    BarLifted = "bar_lifted", Notice {
        /// `excluded`: the member that was excluded.
        excluded: String,
    }
    /// An operator took a partition offline.
    PartitionOffline = "partition_offline", Notice {
        /// `why`: the operator's reason, may be empty.
        why: String,
    }
    /// An operator brought a partition back online.
    PartitionOnline = "partition_online", Notice {}
    /// Maintenance of a member started.
    MaintenanceBegun = "maintenance_begun", Notice {
        /// `ends_at_ms`: its latest end.
        ends_at_ms: u64,
        /// `why`: the operator's reason, may be empty.
        why: String,
    }
    /// Maintenance of a member ended.
    MaintenanceOver = "maintenance_over", Notice {}
    /// A table was created.
    TableCreated = "table_created", Notice {}
    /// The replication or the limits of a table changed.
    TableAltered = "table_altered", Notice {
        /// `before`: its former `replication` and `limits`.
        before: TableTraits,
        /// `after`: the new ones.
        after: TableTraits,
    }
    /// A table was dropped with all its data.
    TableDropped = "table_dropped", Warning {
        /// `partitions_total`: its partitions.
        partitions_total: u32,
        /// `copies_condemned`: replicas to be deleted.
        copies_condemned: u32,
        /// `moves_abandoned`: abandoned moves.
        moves_abandoned: u32,
    }
    /// A split started.
    SplitBegun = "split_begun", Notice {
        /// `right`: number of the new partition.
        right: u32,
        /// `at`: its first key.
        at: KeyText,
        /// `outgrown_bytes`: bytes of an automatic split for size, otherwise null.
        outgrown_bytes: Option<u64>,
        /// `outgrown_rate`: operations per second of an automatic split for load, otherwise null.
        outgrown_rate: Option<u64>,
    }
    /// The replicas of the new partition hold its keys; the old partition gives the keys up.
    SplitCut = "split_cut", Notice {
        /// `right`: number of the new partition.
        right: u32,
    }
    /// A split finished: the new partition exists.
    Parted = "parted", Notice {
        /// `right`: number of the new partition.
        right: u32,
        /// `at`: its first key.
        at: KeyText,
        /// `leader`: its leader.
        leader: String,
    }
    /// A split was abandoned: the partition keeps its keys.
    SplitAbandoned = "split_abandoned", Notice {
        /// `right`: number of the partition that was not created.
        right: u32,
        /// `why`: the reason, may be empty.
        why: String,
    }
    /// A merge of a partition with its right neighbour started.
    MergeBegun = "merge_begun", Notice {
        /// `right`: number of the neighbour.
        right: u32,
        /// `undersized_bytes`: bytes of both in an automatic merge, otherwise null.
        undersized_bytes: Option<u64>,
    }
    /// A merge finished: the neighbour no longer exists.
    Merged = "merged", Notice {
        /// `right`: number of the former neighbour.
        right: u32,
        /// `at`: its first key.
        at: KeyText,
    }
    /// A merge was abandoned: both partitions keep their keys.
    MergeAbandoned = "merge_abandoned", Notice {
        /// `right`: number of the neighbour.
        right: u32,
        /// `why`: the reason, may be empty.
        why: String,
    }
    /// An operator changed settings of the cluster.
    SettingsChanged = "settings_changed", Notice {
        /// `changes`: each changed `setting`, with its value `before` and `after`.
        changes: Vec<SettingChanged>,
    }
    /// An operator granted or revoked a right.
    AccessChanged = "access_changed", Notice {
        /// `client`: the client or participant; null for all of them.
        client: Option<String>,
        /// `before`: its former right, if any.
        before: Option<OpenEnum<Right>>,
        /// `after`: its new right, if any.
        after: Option<OpenEnum<Right>>,
        /// `weight_max`: the limit of weight of a right to own partitions, if any.
        weight_max: Option<u32>,
    }
    /// An operator revoked certificates, or accepts them again.
    CertificatesWithdrawn = "certificates_withdrawn", Notice {
        /// `identity`: their identity.
        identity: String,
        /// `begin_before_at_ms`: certificates that begin before this instant are revoked; null: none.
        begin_before_at_ms: Option<u64>,
    }
    /// A change of the quorum started.
    QuorumChangeBegun = "quorum_change_begun", Notice {
        /// `change`: the change.
        change: String,
    }
    /// A change of the quorum finished.
    QuorumChanged = "quorum_changed", Notice {
        /// `change`: the change.
        change: String,
        /// `voters`: numbers of the voters.
        voters: Vec<u64>,
    }
    /// An operator cancelled a change of the quorum.
    QuorumChangeCancelled = "quorum_change_cancelled", Notice {
        /// `change`: the change.
        change: String,
    }
    /// The coordinators were recovered from less than a majority.
    RecoveryBegun = "recovery_begun", Warning {
        /// `generation`: the new generation.
        generation: u64,
        /// `base_index`: the log entry from which it continues.
        base_index: u64,
    }
    /// A recovery replaced the former coordinators.
    RecoveryTookOver = "recovery_took_over", Warning {
        /// `generation`: the new generation.
        generation: u64,
        /// `ordered`: true if an operator ordered it although the former coordinators still worked.
        ordered: bool,
    }
    /// A recovery of the coordinators finished.
    RecoverySettled = "recovery_settled", Warning {
        /// `generation`: the new generation.
        generation: u64,
        /// `changes_lost`: true if changes known to nodes were lost.
        changes_lost: bool,
    }
    /// The cluster switched to a newer protocol.
    ProtocolRaised = "protocol_raised", Notice {
        /// `before`: the former protocol.
        before: u32,
        /// `after`: the new protocol.
        after: u32,
    }
    /// An operator held the protocol, or released it.
    ProtocolHeld = "protocol_held", Notice {
        /// `held`: true if it is held.
        held: bool,
    }
    /// A plan started.
    PlanStarted = "plan_started", Notice {
        /// `moves_total`: its moves.
        moves_total: u32,
    }
    /// An operator cancelled the running plan.
    PlanCancelled = "plan_cancelled", Notice {
        /// `moves_left`: moves that had not finished.
        moves_left: u32,
    }
    /// A move ended, successfully or not.
    MoveOver = "move_over", Notice {
        /// `move_id`: the move.
        move_id: u64,
        /// `outcome`: its end, in words.
        outcome: String,
    }
    /// An operator accepted the loss of acknowledged writes of a partition.
    DataLossAccepted = "data_loss_accepted", Alarm {
        /// `leader`: the node that leads; null if the partition starts empty.
        leader: Option<String>,
        /// `copies_retired`: other replicas, deleted afterwards.
        copies_retired: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use serde_json::json;

    #[test]
    fn event_facts_are_an_object_of_documented_keys() {
        let facts = EventFacts::GoalChanged { goal: NodeGoal::Drain.into() };
        assert_eq!(json!(facts.to_object()), json!({"goal": "drain"}));
        assert_eq!((facts.code(), facts.code().severity()), (EventCode::GoalChanged, Severity::Notice));
        assert_eq!(json!(EventFacts::NodeDrained {}.to_object()), json!({}));
        let key = EventFacts::Merged { right: 3, at: KeyText::new([0xFF]) };
        assert_eq!(json!(key.to_object()), json!({"right": 3, "at": {"hex": "ff"}}));
    }
}
