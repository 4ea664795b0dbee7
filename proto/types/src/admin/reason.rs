//! Reasons for waits and states.

use crate::admin::word::words;

words! {
    /// Reason for a wait or a state.
    #[non_exhaustive]
    pub enum ReasonCode: "reason" {
        /// Too few nodes have registered for the first assignment.
        NotEnoughNodes = "not_enough_nodes",
        /// No participant takes partitions of the table.
        NoParticipant = "no_participant",
        /// A lease table waits for its first participant.
        AwaitsFirstParticipant = "awaits_first_participant",
        /// The first assignment follows at once.
        AboutToBeAssigned = "about_to_be_assigned",
        /// The nodes that could take a copy are at their limits.
        NodesAtLimit = "nodes_at_limit",
        /// A node is not alive, and somebody works on it.
        InMaintenance = "in_maintenance",
        /// Nodes in maintenance lead partitions of data, since nobody else takes them.
        OnlyInMaintenance = "only_in_maintenance",
        /// An operator has taken it offline.
        Offline = "offline",
        /// Every participant that takes partitions of its table is barred from it.
        AllBarred = "all_barred",
        /// A participant is to give up leases and owns them still, since nobody else may.
        OwnerStays = "owner_stays",
        /// A participant serves a table that is not there, or holds data.
        NoLeaseTable = "no_lease_table",
        /// A participant serves a lease table that it was not granted.
        TableNotGranted = "table_not_granted",
        /// A member owns partitions, and its heartbeats are overdue: it may be dead.
        HeartbeatsOverdue = "heartbeats_overdue",
        /// Every participant that could own it gave it up a moment ago.
        GivenUp = "given_up",
        /// Partitions that ought to be served are not, for longer than a failover takes.
        NotServed = "not_served",
        /// All members together take fewer partitions or copies than there are.
        TooLittleRoom = "too_little_room",
        /// There is room, but not without the member that takes most.
        NoSpareRoom = "no_spare_room",
        /// Fewer members take partitions than should.
        TooFewMembers = "too_few_members",
        /// A member owns partitions, and its lease was not extended for long.
        LeaseStale = "lease_stale",
        /// An order of an operator stands: a bar, a cordon, a drain, maintenance.
        OrderStands = "order_stands",
        /// An order of an operator stands for long: a bar, a partition offline, a cordon, a drain, maintenance.
        HeldTooLong = "held_too_long",
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
        /// Copies of partitions that are no more are not deleted yet.
        CopiesCondemned = "copies_condemned",
        /// A node fell silent or stopped.
        NodeFailed = "node_failed",
        /// A node lives, and clients do not reach it.
        NodeUnreached = "node_unreached",
        /// A disk has too little space: a node takes no writes, or a coordinator nothing new into its log.
        DiskFull = "disk_full",
        /// Old entries of one copy keep much of a node's write-ahead log.
        LogPinned = "log_pinned",
        /// A coordinator's disk refuses another file.
        DiskFails = "disk_fails",
        /// A coordinator has no space for a snapshot, and cannot cut its log or catch up.
        SnapshotWaits = "snapshot_waits",
        /// A member's certificate is to be renewed.
        CertificateExpires = "certificate_expires",
        /// A member's certificate has expired, or does within a day: whoever connects anew is refused then.
        CertificateExpired = "certificate_expired",
        /// A member does not take the new certificate in its directory, and goes on with the old one.
        CertificateNotTaken = "certificate_not_taken",
        /// Members talk by certificates of different authorities: one takes over from another, or somebody was left behind.
        AuthoritiesDiffer = "authorities_differ",
        /// So few coordinators vote that none of them may fail.
        TooFewVoters = "too_few_voters",
        /// A coordinator holds another state than the others.
        StatesDiffer = "states_differ",
        /// A member is refused that has lived in another history of the cluster: two recoveries were given one number, or a later one runs.
        OtherHistory = "other_history",
        /// A coordinator does not answer the leading one.
        CoordinatorUnreachable = "coordinator_unreachable",
        /// The coordinators begin anew from less than a majority, and nothing is decided of data before they were told what is true.
        BeingRecovered = "being_recovered",
        /// A change of the quorum's members is under way.
        QuorumChanging = "quorum_changing",
        /// Members speak a newer protocol than the cluster does: an upgrade is under way, or held.
        Upgrading = "upgrading",
        /// The coordinators cannot be reached, or no majority of them answers.
        NoQuorum = "no_quorum",
        /// The quorum takes no changes.
        ReadOnly = "read_only",
    }
}

words! {
    /// Severity of a reason, for people who monitor a cluster.
    pub enum Severity: "severity" {
        /// It passes by itself, or is as somebody wants it.
        Notice = "notice",
        /// Somebody should look before long: a spare is gone, something may have been forgotten.
        Warning = "warning",
        /// Somebody should look now: something is not served, or data is lost or about to be.
        Alarm = "alarm",
    }
}

/// Remedy for a member that is refused because it has lived in another history of the cluster.
pub const OTHER_HISTORY_REMEDY: &str = "say which coordinators are to be kept, and stop the others: docs/operate/runbooks/majority-lost.md, \"A number was used twice\"";

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
