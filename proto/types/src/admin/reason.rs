//! Reasons for waits and states.

use crate::admin::word::words;

words! {
    /// Reason for a wait or a state.
    #[non_exhaustive]
    pub enum ReasonCode: "reason" {
        /// Too few nodes are registered for the first assignment.
        NotEnoughNodes = "not_enough_nodes",
        /// No participant takes partitions of the table.
        NoParticipant = "no_participant",
        /// A lease table waits for its first participant.
        AwaitsFirstParticipant = "awaits_first_participant",
        /// The first assignment is about to happen.
        AboutToBeAssigned = "about_to_be_assigned",
        /// All nodes that could take a replica are at their limits.
        NodesAtLimit = "nodes_at_limit",
        /// A node in maintenance is not alive.
        InMaintenance = "in_maintenance",
        /// Nodes in maintenance still lead partitions, because no other node can take them.
        OnlyInMaintenance = "only_in_maintenance",
        /// An operator took it offline.
        Offline = "offline",
        /// All participants that serve its table are excluded from it.
        AllBarred = "all_barred",
        /// A participant that should give up leases still owns them, because no other participant may.
        OwnerStays = "owner_stays",
        /// A participant serves a table that does not exist, or that is not a lease table.
        NoLeaseTable = "no_lease_table",
        /// A participant serves a lease table without the right `own`.
        TableNotGranted = "table_not_granted",
        /// A member owns partitions, and its heartbeats are overdue: it may be dead.
        HeartbeatsOverdue = "heartbeats_overdue",
        /// All participants that could own it gave it up recently.
        GivenUp = "given_up",
        /// Partitions have been unavailable for longer than a failover takes.
        NotServed = "not_served",
        /// The limits of all members together are below the number of partitions or replicas.
        TooLittleRoom = "too_little_room",
        /// The capacity is sufficient, but would not be without the largest member.
        NoSpareRoom = "no_spare_room",
        /// Fewer members than required take partitions.
        TooFewMembers = "too_few_members",
        /// A member owns partitions, and its lease was not extended for a long time.
        LeaseStale = "lease_stale",
        /// An order of an operator is in force: an exclusion, a cordon, a drain, maintenance.
        OrderStands = "order_stands",
        /// An order of an operator has been in force for a long time: an exclusion, an offline partition, a cordon, a
        /// drain, maintenance.
        HeldTooLong = "held_too_long",
        /// A leader reaches too few followers to accept writes.
        LeaderHearsTooFew = "leader_hears_too_few",
        /// Too many nodes are failed: their replicas are not replaced.
        RepairWithheld = "repair_withheld",
        /// A leader is assigned and does not serve yet.
        TakingOver = "taking_over",
        /// A replica knew a higher epoch than the coordinators had granted.
        EpochSurpassed = "epoch_surpassed",
        /// The lease of the former leader may not have expired yet.
        WaitingForLease = "waiting_for_lease",
        /// All in-sync replicas are on nodes that are not alive.
        NoLiveReplica = "no_live_replica",
        /// The node of an in-sync replica is registering.
        HolderRegistering = "holder_registering",
        /// A leader is about to be elected.
        AboutToBeElected = "about_to_be_elected",
        /// No in-sync replica is left.
        DataLost = "data_lost",
        /// Fewer replicas are in sync than the table requires.
        UnderReplicated = "under_replicated",
        /// A lost or damaged replica is kept until enough others are in sync on live nodes.
        LostCopyKept = "lost_copy_kept",
        /// A move is blocked.
        MoveWaits = "move_waits",
        /// Replicas of deleted partitions are not deleted yet.
        CopiesCondemned = "copies_condemned",
        /// A node stopped sending heartbeats, or reported its stop.
        NodeFailed = "node_failed",
        /// A node sends heartbeats, but clients cannot reach it.
        NodeUnreached = "node_unreached",
        /// Disk space is low: a node refuses writes, or a coordinator appends nothing to its log.
        DiskFull = "disk_full",
        /// Old entries of one replica pin a large part of a node's write-ahead log.
        LogPinned = "log_pinned",
        /// A coordinator cannot create files on its disk.
        DiskFails = "disk_fails",
        /// A coordinator has no space for a snapshot, and cannot truncate its log or catch up.
        SnapshotWaits = "snapshot_waits",
        /// The certificate of a member should be renewed.
        CertificateExpires = "certificate_expires",
        /// The certificate of a member has expired, or expires within a day; new connections fail then.
        CertificateExpired = "certificate_expired",
        /// A member cannot use the new certificate in its directory, and keeps the old one.
        CertificateNotTaken = "certificate_not_taken",
        /// Members use certificates of different authorities: a change of authority is incomplete.
        AuthoritiesDiffer = "authorities_differ",
        /// The quorum has too few voters to tolerate a failure.
        TooFewVoters = "too_few_voters",
        /// The state of a coordinator differs from that of the others.
        StatesDiffer = "states_differ",
        /// A member of a diverged history of the cluster is refused: two recoveries used the same number, or a later
        /// recovery exists.
        OtherHistory = "other_history",
        /// A coordinator does not answer the leading coordinator.
        CoordinatorUnreachable = "coordinator_unreachable",
        /// The coordinators are being recovered from less than a majority; decisions about data wait for the reports of
        /// the nodes.
        BeingRecovered = "being_recovered",
        /// A change of the quorum's members is in progress.
        QuorumChanging = "quorum_changing",
        /// Members support a newer protocol than the cluster uses: an upgrade is in progress or held.
        Upgrading = "upgrading",
        /// The coordinators are unreachable, or no majority of them answers.
        NoQuorum = "no_quorum",
        /// The quorum accepts no changes.
        ReadOnly = "read_only",
    }
}

words! {
    /// Severity of a reason, for people who monitor a cluster.
    pub enum Severity: "severity" {
        /// Resolves by itself, or is intended.
        Notice = "notice",
        /// Needs attention soon: redundancy is reduced, or something may have been forgotten.
        Warning = "warning",
        /// Needs attention now: something is unavailable, or data is lost or at risk.
        Alarm = "alarm",
    }
}

/// Remedy for a member that is refused because it has lived in another history of the cluster.
pub const OTHER_HISTORY_REMEDY: &str = "decide which coordinators to keep, and stop the others: docs/operate/runbooks/majority-lost.md, \"A number was used twice\"";

impl ReasonCode {
    /// Returns the severity.
    pub const fn severity(self) -> Severity {
        match self {
            Self::AboutToBeAssigned
            | Self::AwaitsFirstParticipant
            | Self::TakingOver
            | Self::WaitingForLease
            | Self::HolderRegistering
            | Self::AboutToBeElected
            | Self::InMaintenance
            | Self::OrderStands
            | Self::NoLeaseTable
            | Self::TableNotGranted
            | Self::HeartbeatsOverdue
            | Self::Offline
            | Self::CopiesCondemned
            | Self::QuorumChanging
            | Self::Upgrading
            | Self::MoveWaits => Severity::Notice,
            Self::RepairWithheld
            | Self::OwnerStays
            | Self::GivenUp
            | Self::NoSpareRoom
            | Self::OnlyInMaintenance
            | Self::HeldTooLong
            | Self::UnderReplicated
            | Self::LostCopyKept
            | Self::EpochSurpassed
            | Self::NodeFailed
            | Self::NodeUnreached
            | Self::SnapshotWaits
            | Self::LogPinned
            | Self::CertificateExpires
            | Self::CertificateNotTaken
            | Self::AuthoritiesDiffer
            | Self::TooFewVoters
            | Self::CoordinatorUnreachable => Severity::Warning,
            Self::NotEnoughNodes
            | Self::NoParticipant
            | Self::NodesAtLimit
            | Self::AllBarred
            | Self::NotServed
            | Self::TooLittleRoom
            | Self::TooFewMembers
            | Self::LeaseStale
            | Self::LeaderHearsTooFew
            | Self::NoLiveReplica
            | Self::DataLost
            | Self::DiskFull
            | Self::DiskFails
            | Self::CertificateExpired
            | Self::StatesDiffer
            | Self::OtherHistory
            | Self::BeingRecovered
            | Self::NoQuorum
            | Self::ReadOnly => Severity::Alarm,
        }
    }
}
