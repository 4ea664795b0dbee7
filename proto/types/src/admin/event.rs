//! Events of a cluster.

use crate::admin::word::words;

words! {
    /// Code of an event.
    #[non_exhaustive]
    pub enum EventCode: "event" {
        /// The cluster came into being.
        Bootstrapped = "bootstrapped",
        /// A node that was never seen before registered.
        NodeRegistered = "node_registered",
        /// A known node registered again.
        NodeReturned = "node_returned",
        /// A node was silent too long, or stopped.
        NodeFailed = "node_failed",
        /// Clients do not reach a node whose heartbeats come.
        NodeUnreached = "node_unreached",
        /// Clients reach it again.
        NodeReached = "node_reached",
        /// Another data directory took over a node's name: its data is gone.
        NodeLost = "node_lost",
        /// An operator declared that a node's data is lost.
        NodeDeclaredLost = "node_declared_lost",
        /// An operator had a node forgotten.
        NodeRemoved = "node_removed",
        /// A node is being emptied.
        NodeDraining = "node_draining",
        /// A node that was being emptied holds nothing any more.
        NodeDrained = "node_drained",
        /// An operator wants something else of a node.
        GoalChanged = "goal_changed",
        /// An operator gave a node another zone, weight or limit.
        NodeAltered = "node_altered",
        /// A node found its copy damaged; it counts no more.
        CopyDamaged = "copy_damaged",
        /// Two copies disagree about what was committed: one of them lost data.
        DataDisputed = "data_disputed",
        /// A copy knew an epoch that nobody had granted.
        EpochSurpassed = "epoch_surpassed",
        /// A copy that counted counts no more: its data is gone, or is not what the node last stored.
        ReplicaLost = "replica_lost",
        /// A new copy is being loaded in place of another one.
        RepairStarted = "repair_started",
        /// A copy that was loaded for a repair counts now.
        RepairDone = "repair_done",
        /// A copy that is not needed any more is to be deleted.
        CopyRetired = "copy_retired",
        /// An operator wants a leadership renewed.
        LeadershipBumped = "leadership_bumped",
        /// An operator barred a member from partitions.
        MemberBarred = "member_barred",
        /// An operator took a bar back.
        BarLifted = "bar_lifted",
        /// An operator took a partition offline.
        PartitionOffline = "partition_offline",
        /// An operator brought a partition back.
        PartitionOnline = "partition_online",
        /// A member is being worked on.
        MaintenanceBegun = "maintenance_begun",
        /// The maintenance of a member is over.
        MaintenanceOver = "maintenance_over",
        /// A table was made.
        TableCreated = "table_created",
        /// Another number of copies is wanted of each partition of a table.
        TableAltered = "table_altered",
        /// A table was dropped, with everything in it.
        TableDropped = "table_dropped",
        /// A partition is being split.
        SplitBegun = "split_begun",
        /// The copies of the new partition have the keys, which are given up now.
        SplitCut = "split_cut",
        /// A split is done: there is another partition.
        Parted = "parted",
        /// A split was given up: the partition keeps its keys.
        SplitAbandoned = "split_abandoned",
        /// A partition is being merged with its right neighbour.
        MergeBegun = "merge_begun",
        /// A merge is done: the neighbour is no partition any more.
        Merged = "merged",
        /// A merge was given up: both partitions keep their keys.
        MergeAbandoned = "merge_abandoned",
        /// An operator changed settings of the cluster.
        SettingsChanged = "settings_changed",
        /// An operator gave clients a right, or took one from them.
        AccessChanged = "access_changed",
        /// An operator withdrew certificates, or has them count again.
        CertificatesWithdrawn = "certificates_withdrawn",
        /// The quorum is being changed.
        QuorumChangeBegun = "quorum_change_begun",
        /// The quorum was changed.
        QuorumChanged = "quorum_changed",
        /// An operator does not want a change of the quorum any more.
        QuorumChangeCancelled = "quorum_change_cancelled",
        /// The coordinators were recovered from less than a majority.
        RecoveryBegun = "recovery_begun",
        /// A recovery of the coordinators has taken the place of the former coordinators.
        RecoveryTookOver = "recovery_took_over",
        /// A recovery of the coordinators has come to its end.
        RecoverySettled = "recovery_settled",
        /// Every member speaks a newer protocol, and so does the cluster from now on.
        ProtocolRaised = "protocol_raised",
        /// An operator wants the protocol to stay as it is, or to rise by itself again.
        ProtocolHeld = "protocol_held",
        /// A plan is being carried out.
        PlanStarted = "plan_started",
        /// An operator wants the running plan undone.
        PlanCancelled = "plan_cancelled",
        /// A move is over, well or not.
        MoveOver = "move_over",
        /// An operator accepted that acknowledged writes of a partition are lost.
        DataLossAccepted = "data_loss_accepted",
    }
}
