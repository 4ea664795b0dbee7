//! Why something waits or is as it is.

use crate::word::words;

words! {
    /// Why something waits or is as it is.
    #[non_exhaustive]
    pub enum ReasonCode: "reason" {
        /// Too few nodes have registered for the first assignment.
        NotEnoughNodes = "not_enough_nodes",
        /// No participant takes partitions of the table.
        NoParticipant = "no_participant",
        /// The first assignment follows at once.
        AboutToBeAssigned = "about_to_be_assigned",
        /// The nodes that could take a copy are at their limits.
        NodesAtLimit = "nodes_at_limit",
        /// A leader hears too few of the other copies, and takes no writes.
        LeaderHearsTooFew = "leader_hears_too_few",
        /// So many nodes are failed that no copy is made in place of theirs.
        RepairWithheld = "repair_withheld",
        /// A leader is named and does not serve yet.
        TakingOver = "taking_over",
        /// A copy knew an epoch that nobody had granted.
        EpochSurpassed = "epoch_surpassed",
        /// The former leader's lease may still run.
        WaitingForLease = "waiting_for_lease",
        /// The copies that count are on nodes that are not alive.
        NoLiveReplica = "no_live_replica",
        /// The node of a copy that counts is just coming back.
        HolderRegistering = "holder_registering",
        /// A leader is just being chosen.
        AboutToBeElected = "about_to_be_elected",
        /// No copy that counts is left.
        DataLost = "data_lost",
        /// Fewer copies count than are wanted.
        UnderReplicated = "under_replicated",
        /// A lost or damaged copy is kept until enough others count on nodes that are alive.
        LostCopyKept = "lost_copy_kept",
        /// A move waits.
        MoveWaits = "move_waits",
        /// Copies of dropped tables are not deleted yet.
        CopiesCondemned = "copies_condemned",
        /// A node fell silent or stopped.
        NodeFailed = "node_failed",
        /// A disk has too little space: a node takes no writes, or a coordinator nothing new into its log.
        DiskFull = "disk_full",
        /// A coordinator's disk refuses another file.
        DiskFails = "disk_fails",
        /// A coordinator has no space for a snapshot, and cannot cut its log or catch up.
        SnapshotWaits = "snapshot_waits",
        /// A coordinator does not answer the leading one.
        CoordinatorUnreachable = "coordinator_unreachable",
        /// The quorum takes no changes.
        ReadOnly = "read_only",
    }
}
