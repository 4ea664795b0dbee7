//! The table of findings: code, severity and facts of each.

use crate::DiskFull;
use crate::admin::facts::facts;
use crate::admin::finding::{AuthorityUse, CondemnedCopies, OutdatedMember, StandingOrder, Supply};

facts! {
    /// Code of a finding.
    pub enum ReasonCode: "reason";

    /// Code and facts of a finding.
    pub enum Facts;

    /// Too few nodes are registered for the first assignment.
    NotEnoughNodes = "not_enough_nodes", Alarm {
        /// `have`: registered nodes.
        have: u64,
        /// `need`: required nodes.
        need: u64,
    }
    /// No participant takes partitions of the table.
    NoParticipant = "no_participant", Alarm {
        /// `drained`: a drained participant of the table.
        drained: Option<String>,
        /// `cordoned`: a cordoned one.
        cordoned: Option<String>,
        /// `in_maintenance`: one in maintenance.
        in_maintenance: Option<String>,
    }
    /// A lease table waits for its first participant.
    AwaitsFirstParticipant = "awaits_first_participant", Notice {}
    /// The first assignment is about to happen.
    AboutToBeAssigned = "about_to_be_assigned", Notice {}
    /// All nodes that could take a replica are at their limits.
    NodesAtLimit = "nodes_at_limit", Alarm {
        /// `partitions_short`: partitions that lack a replica; null if it is about one partition.
        partitions_short: Option<u32>,
        /// `nodes_full`: members at their limits.
        nodes_full: u32,
        /// `plan`: true if a plan may free capacity.
        plan: bool,
        /// `raisable`: true if the limit of a member can be raised.
        raisable: bool,
    }
    /// A node in maintenance is not alive.
    InMaintenance = "in_maintenance", Notice {
        /// `address`: its address.
        address: String,
        /// `stopped`: true if it reported its stop.
        stopped: bool,
        /// `drained`: true if it was drained.
        drained: bool,
        /// `lack`: the disk space that it waits for before it starts.
        lack: Option<DiskFull>,
        /// `why`: the operator's reason, may be empty.
        why: String,
    }
    /// Nodes in maintenance still lead partitions, because no other node can take them.
    OnlyInMaintenance = "only_in_maintenance", Warning {
        /// `node`: the node.
        node: String,
        /// `partitions_led`: partitions that it leads.
        partitions_led: u32,
        /// `partition`: the first of these.
        partition: u32,
    }
    /// An operator took it offline.
    Offline = "offline", Notice {
        /// `why`: the operator's reason, may be empty.
        why: String,
    }
    /// All participants that serve its table are excluded from it.
    AllBarred = "all_barred", Alarm {
        /// `participants_total`: participants that serve the table.
        participants_total: u32,
    }
    /// A participant that should give up leases still owns them, because no other participant may.
    OwnerStays = "owner_stays", Warning {
        /// `node`: the participant.
        node: String,
        /// `leases_kept`: leases that it keeps; null if it is about one partition.
        leases_kept: Option<u64>,
        /// `named`: the first of these leases.
        named: String,
    }
    /// A participant serves a table that does not exist, or that is not a lease table.
    NoLeaseTable = "no_lease_table", Notice {
        /// `table`: the table.
        table: String,
        /// `exists`: true if the table exists and holds data.
        exists: bool,
    }
    /// A participant serves a lease table without the right `own`.
    TableNotGranted = "table_not_granted", Notice {
        /// `table`: the table.
        table: String,
    }
    /// A member owns partitions, and its heartbeats are overdue: it may be dead.
    HeartbeatsOverdue = "heartbeats_overdue", Notice {
        /// `silent_for_ms`: time since its lease was extended.
        silent_for_ms: u64,
        /// `left_for_ms`: time until it is failed.
        left_for_ms: u64,
    }
    /// All participants that could own it gave it up recently.
    GivenUp = "given_up", Warning {
        /// `participants_total`: possible owners.
        participants_total: u32,
    }
    /// Partitions have been unavailable for longer than a failover takes.
    NotServed = "not_served", Alarm {
        /// `partitions_unserved`: unavailable partitions.
        partitions_unserved: u32,
        /// `partitions_total`: partitions of the table.
        partitions_total: u32,
        /// `longest`: the partition that is unavailable for longest.
        longest: u32,
    }
    /// The limits of all members together are below the number of partitions or replicas.
    TooLittleRoom = "too_little_room", Alarm {
        /// `have`: sum of the limits.
        have: u64,
        /// `need`: partitions or replicas.
        need: u64,
    }
    /// The capacity is sufficient, but would not be without the largest member.
    NoSpareRoom = "no_spare_room", Warning {
        /// `without`: the member with the highest limit.
        without: String,
        /// `have`: sum of the limits of the others.
        have: u64,
        /// `need`: partitions or replicas.
        need: u64,
    }
    /// Fewer members than required take partitions.
    TooFewMembers = "too_few_members", Alarm {
        /// `have`: members that take partitions.
        have: u64,
        /// `need`: required members.
        need: u64,
    }
    /// A member owns partitions, and its lease was not extended for a long time.
    LeaseStale = "lease_stale", Alarm {
        /// `silent_for_ms`: time since its lease was extended.
        silent_for_ms: u64,
    }
    /// An order of an operator is in force: an exclusion, a cordon, a drain, maintenance.
    OrderStands = "order_stands", Notice {
        /// `order`: the order.
        order: StandingOrder,
        /// `excluded`: the excluded member.
        excluded: Option<String>,
    }
    /// An order of an operator has been in force for a long time: an exclusion, an offline partition, a cordon, a
    /// drain, maintenance.
    HeldTooLong = "held_too_long", Warning {
        /// `order`: the order.
        order: StandingOrder,
        /// `excluded`: the excluded member.
        excluded: Option<String>,
    }
    /// A leader reaches too few followers to accept writes.
    LeaderHearsTooFew = "leader_hears_too_few", Alarm {
        /// `node`: the leader.
        node: String,
        /// `have`: replicas that it reaches, including its own.
        have: u64,
        /// `need`: replicas that must store each write.
        need: u64,
    }
    /// Too many nodes are failed: their replicas are not replaced.
    RepairWithheld = "repair_withheld", Warning {
        /// `partitions_short`: partitions that lack a replica; null if it is about one partition.
        partitions_short: Option<u32>,
        /// `nodes_failed`: failed nodes.
        nodes_failed: u64,
        /// `nodes_total`: all nodes.
        nodes_total: u64,
    }
    /// A leader is assigned and does not serve yet.
    TakingOver = "taking_over", Notice {
        /// `node`: the next leader.
        node: String,
    }
    /// A replica knew a higher epoch than the coordinators had granted.
    EpochSurpassed = "epoch_surpassed", Warning {
        /// `epoch`: the epoch that a replica knew.
        epoch: u64,
    }
    /// The lease of the former leader may not have expired yet.
    WaitingForLease = "waiting_for_lease", Notice {
        /// `node`: the former leader.
        node: String,
    }
    /// All in-sync replicas are on nodes that are not alive.
    NoLiveReplica = "no_live_replica", Alarm {
        /// `node`: the node of an in-sync replica.
        node: String,
    }
    /// The node of an in-sync replica is registering.
    HolderRegistering = "holder_registering", Notice {
        /// `node`: the node.
        node: String,
    }
    /// A leader is about to be elected.
    AboutToBeElected = "about_to_be_elected", Notice {}
    /// No in-sync replica is left.
    DataLost = "data_lost", Alarm {}
    /// Fewer replicas are in sync than the table requires.
    UnderReplicated = "under_replicated", Warning {
        /// `missing`: missing replicas of one partition, or partitions that lack replicas.
        missing: u64,
        /// `of`: required replicas of the partition, or all partitions.
        of: u64,
        /// `supply`: state of the nodes, if it is about all tables.
        supply: Option<Supply>,
    }
    /// A lost or damaged replica is kept until enough others are in sync on live nodes.
    LostCopyKept = "lost_copy_kept", Warning {
        /// `node`: the node of the replica.
        node: String,
        /// `have`: other replicas in sync on live nodes.
        have: u64,
        /// `need`: required ones.
        need: u64,
    }
    /// A move is blocked.
    MoveWaits = "move_waits", Notice {
        /// `move_id`: the move.
        move_id: u64,
        /// `why`: the obstacle.
        why: String,
    }
    /// Replicas of deleted partitions are not deleted yet.
    CopiesCondemned = "copies_condemned", Notice {
        /// `copies_condemned`: these replicas.
        copies_condemned: u64,
        /// `holders`: some of the nodes that hold them.
        holders: Vec<CondemnedCopies>,
        /// `nodes_more`: further nodes.
        nodes_more: u64,
        /// `away`: true if a node is not alive.
        away: bool,
    }
    /// A node stopped sending heartbeats, or reported its stop.
    NodeFailed = "node_failed", Warning {
        /// `address`: its address.
        address: String,
        /// `stopped`: true if it reported its stop.
        stopped: bool,
        /// `drained`: true if it was drained.
        drained: bool,
        /// `lack`: the disk space that it waits for before it starts.
        lack: Option<DiskFull>,
    }
    /// A node sends heartbeats, but clients cannot reach it.
    NodeUnreached = "node_unreached", Warning {
        /// `address`: its address.
        address: String,
        /// `shut_to`: nodes that probed it in vain.
        shut_to: Vec<String>,
        /// `partitions_led`: partitions that it still leads.
        partitions_led: u32,
    }
    /// Disk space is low: a node refuses writes, or a coordinator appends nothing to its log.
    DiskFull = "disk_full", Alarm {
        /// `address`: address of the member.
        address: String,
        /// `lack`: the shortage.
        lack: DiskFull,
    }
    /// Old entries of one replica pin a large part of a node's write-ahead log.
    LogPinned = "log_pinned", Warning {
        /// `placement_id`: the replica.
        placement_id: u64,
        /// `replica_of`: its partition; null if no partition names it.
        replica_of: Option<String>,
        /// `bytes_pinned`: bytes of the log.
        bytes_pinned: u64,
    }
    /// A coordinator cannot create files on its disk.
    DiskFails = "disk_fails", Alarm {
        /// `address`: its address.
        address: String,
    }
    /// A coordinator has no space for a snapshot, and cannot truncate its log or catch up.
    SnapshotWaits = "snapshot_waits", Warning {
        /// `address`: its address.
        address: String,
    }
    /// The certificate of a member should be renewed.
    CertificateExpires = "certificate_expires", Warning {
        /// `members`: the members, the first few of many.
        members: Vec<String>,
        /// `members_total`: their number.
        members_total: u64,
        /// `first`: the first one to expire.
        first: String,
        /// `left_for_ms`: time until that certificate expires, negative afterwards.
        left_for_ms: i64,
    }
    /// The certificate of a member has expired, or expires within a day; new connections fail then.
    CertificateExpired = "certificate_expired", Alarm {
        /// `members`: the members, the first few of many.
        members: Vec<String>,
        /// `members_total`: their number.
        members_total: u64,
        /// `first`: the first one to expire.
        first: String,
        /// `left_for_ms`: time until that certificate expires, negative afterwards.
        left_for_ms: i64,
    }
    /// A member cannot use the new certificate in its directory, and keeps the old one.
    CertificateNotTaken = "certificate_not_taken", Warning {
        /// `members`: the members, the first few of many.
        members: Vec<String>,
        /// `members_total`: their number.
        members_total: u64,
        /// `first`: one of the members.
        first: String,
    }
    /// Members use certificates of different authorities: a change of authority is incomplete.
    AuthoritiesDiffer = "authorities_differ", Warning {
        /// `authorities`: the authorities, the least used first.
        authorities: Vec<AuthorityUse>,
    }
    /// The quorum has too few voters to tolerate a failure.
    TooFewVoters = "too_few_voters", Warning {
        /// `voters_total`: voters.
        voters_total: u32,
        /// `had_more`: true if there were more before.
        had_more: bool,
    }
    /// The state of a coordinator differs from that of the others.
    StatesDiffer = "states_differ", Alarm {
        /// `index`: log entry as of which it differs.
        index: u64,
        /// `wrong`: true if a majority has another state.
        wrong: bool,
    }
    /// A member of a diverged history of the cluster is refused: two recoveries used the same number, or a later
    /// recovery exists.
    OtherHistory = "other_history", Alarm {
        /// `member`: the refused member; null for a coordinator.
        member: Option<String>,
        /// `why`: the reason for which it is refused.
        why: String,
        /// `generation`: generation of a coordinator.
        generation: Option<u64>,
        /// `waits`: true if that coordinator was recovered from these, and grants nothing.
        waits: bool,
    }
    /// A coordinator does not answer the leading coordinator.
    CoordinatorUnreachable = "coordinator_unreachable", Warning {
        /// `address`: its address.
        address: String,
        /// `why`: reason, if known.
        why: Option<String>,
        /// `learner`: true if it has no vote.
        learner: bool,
        /// `spare_voters`: further voters that may fail.
        spare_voters: u64,
        /// `quorum_heartbeat_ms`: heartbeat of the quorum that fits its distance, if it is too far away.
        quorum_heartbeat_ms: Option<u64>,
    }
    /// The coordinators are being recovered from less than a majority; decisions about data wait for the reports of
    /// the nodes.
    BeingRecovered = "being_recovered", Alarm {
        /// `nodes_unheard`: nodes without a report.
        nodes_unheard: u64,
    }
    /// A change of the quorum's members is in progress.
    QuorumChanging = "quorum_changing", Notice {
        /// `change`: the change.
        change: String,
    }
    /// Members support a newer protocol than the cluster uses: an upgrade is in progress or held.
    Upgrading = "upgrading", Notice {
        /// `protocol`: protocol of the cluster.
        protocol: u32,
        /// `newest`: the newer protocol.
        newest: u32,
        /// `outdated`: members that do not support it, the first few of many.
        outdated: Vec<OutdatedMember>,
        /// `members_more`: further ones.
        members_more: u64,
    }
    /// The coordinators are unreachable, or no majority of them answers.
    NoQuorum = "no_quorum", Alarm {
        /// `error`: the error.
        error: String,
    }
    /// The quorum accepts no changes.
    ReadOnly = "read_only", Alarm {
        /// `why`: the coordinators without space.
        why: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Severity, Vocabulary};

    /// The reference lists the facts of a code by these comments.
    #[test]
    fn meaning_of_a_code_names_its_facts() {
        let meaning = ReasonCode::NotEnoughNodes.meaning();
        assert!(meaning.ends_with(" `have`: registered nodes. `need`: required nodes."), "{meaning}");
        let facts = Facts::NotEnoughNodes { have: 1, need: 3 };
        let written = serde_json::json!({"code": "not_enough_nodes", "facts": {"have": 1, "need": 3}});
        assert_eq!(serde_json::to_value(&facts).unwrap(), written);
        assert_eq!((facts.code(), facts.code().severity()), (ReasonCode::NotEnoughNodes, Severity::Alarm));
    }
}
