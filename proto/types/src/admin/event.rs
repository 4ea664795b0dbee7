//! Events of a cluster.

use crate::admin::word::words;

words! {
    /// Code of an event.
    #[non_exhaustive]
    pub enum EventCode: "event" {
        /// The cluster was created.
        Bootstrapped = "bootstrapped",
        /// A new node registered.
        NodeRegistered = "node_registered",
        /// A known node registered again.
        NodeReturned = "node_returned",
        /// A node was silent for too long, or stopped.
        NodeFailed = "node_failed",
        /// Clients cannot reach a node that sends heartbeats.
        NodeUnreached = "node_unreached",
        /// Clients can reach the node again.
        NodeReached = "node_reached",
        /// A new data directory took over the name of a node: its former data is lost.
        NodeLost = "node_lost",
        /// An operator declared the data of a node lost.
        NodeDeclaredLost = "node_declared_lost",
        /// An operator removed a node.
        NodeRemoved = "node_removed",
        /// The drain of a node started.
        NodeDraining = "node_draining",
        /// The drain of a node finished: it holds no replicas.
        NodeDrained = "node_drained",
        /// An operator changed the goal of a node.
        GoalChanged = "goal_changed",
        /// An operator changed the zone, weight or limit of a node.
        NodeAltered = "node_altered",
        /// A node found its replica damaged; it left the in-sync set.
        CopyDamaged = "copy_damaged",
        /// Two replicas disagree about committed data: one of them lost data.
        DataDisputed = "data_disputed",
        /// A replica knew a higher epoch than the coordinators had granted.
        EpochSurpassed = "epoch_surpassed",
        /// An in-sync replica was removed from the in-sync set: its data is gone, or differs from what the node stored
        /// last.
        ReplicaLost = "replica_lost",
        /// A replacement replica is being loaded.
        RepairStarted = "repair_started",
        /// A replacement replica is in sync.
        RepairDone = "repair_done",
        /// A surplus replica is to be deleted.
        CopyRetired = "copy_retired",
        /// An operator started a new epoch of a partition.
        LeadershipBumped = "leadership_bumped",
        /// An operator excluded a member from partitions.
        MemberBarred = "member_barred",
        /// An operator lifted an exclusion.
        BarLifted = "bar_lifted",
        /// An operator took a partition offline.
        PartitionOffline = "partition_offline",
        /// An operator brought a partition back online.
        PartitionOnline = "partition_online",
        /// Maintenance of a member started.
        MaintenanceBegun = "maintenance_begun",
        /// Maintenance of a member ended.
        MaintenanceOver = "maintenance_over",
        /// A table was created.
        TableCreated = "table_created",
        /// The replication or the limits of a table changed.
        TableAltered = "table_altered",
        /// A table was dropped with all its data.
        TableDropped = "table_dropped",
        /// A split started.
        SplitBegun = "split_begun",
        /// The replicas of the new partition hold its keys; the old partition gives the keys up.
        SplitCut = "split_cut",
        /// A split finished: the new partition exists.
        Parted = "parted",
        /// A split was abandoned: the partition keeps its keys.
        SplitAbandoned = "split_abandoned",
        /// A merge of a partition with its right neighbour started.
        MergeBegun = "merge_begun",
        /// A merge finished: the neighbour no longer exists.
        Merged = "merged",
        /// A merge was abandoned: both partitions keep their keys.
        MergeAbandoned = "merge_abandoned",
        /// An operator changed settings of the cluster.
        SettingsChanged = "settings_changed",
        /// An operator granted or revoked a right.
        AccessChanged = "access_changed",
        /// An operator revoked certificates, or accepts them again.
        CertificatesWithdrawn = "certificates_withdrawn",
        /// A change of the quorum started.
        QuorumChangeBegun = "quorum_change_begun",
        /// A change of the quorum finished.
        QuorumChanged = "quorum_changed",
        /// An operator cancelled a change of the quorum.
        QuorumChangeCancelled = "quorum_change_cancelled",
        /// The coordinators were recovered from less than a majority.
        RecoveryBegun = "recovery_begun",
        /// A recovery replaced the former coordinators.
        RecoveryTookOver = "recovery_took_over",
        /// A recovery of the coordinators finished.
        RecoverySettled = "recovery_settled",
        /// The cluster switched to a newer protocol.
        ProtocolRaised = "protocol_raised",
        /// An operator held the protocol, or released it.
        ProtocolHeld = "protocol_held",
        /// A plan started.
        PlanStarted = "plan_started",
        /// An operator cancelled the running plan.
        PlanCancelled = "plan_cancelled",
        /// A move ended, successfully or not.
        MoveOver = "move_over",
        /// An operator accepted the loss of acknowledged writes of a partition.
        DataLossAccepted = "data_loss_accepted",
    }
}
