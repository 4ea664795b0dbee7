//! Coverage counters. A simulator that silently stops exercising a feature proves nothing.

macro_rules! coverage {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Number of occurrences of each event.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct Coverage { $($(#[$doc])* pub $name: u64,)* }

        impl Coverage {
            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Returns every counter with its name.
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

coverage! {
    /// Events of the world, of every kind.
    events,
    /// Recoveries of the coordinators from less than a majority.
    recoveries,
    /// Of these, the ones that had lost changes.
    recoveries_behind,
    /// Completed recoveries.
    recoveries_settled,
    /// Nodes started on an older copy of their directory during a recovery.
    older_in_recovery,
    /// Nodes that returned with the right directory before that recovery ended.
    right_in_recovery,
    /// Delays of requests for keys just split off, with the keys to come back.
    keys_returned,
    /// Protocol upgrades.
    protocols_raised,
    /// Upgrades withheld because a member of an older version had just registered.
    raises_refused,
    /// Operators' holds and releases of the protocol.
    protocols_held,
    /// Starts of a version that does not support the protocol of its disk.
    older_refused,
    /// Expired rows removed by leaders.
    expired,
    /// Transactions carried out.
    transactions,
    /// Transactions with a check that did not hold.
    checks_failed,
    /// Reads of several keys.
    reads_together,
    /// Reads answered by replicas.
    replica_reads,
    /// Reads without a bound among them: at followers of a former leader.
    replica_reads_unbounded,
    /// Reads that replicas refused.
    replica_reads_refused,
    /// Copies stopped at an entry that their version cannot read.
    unreadable,
    /// Engines that began to refuse accesses.
    engines_refusing,
    /// Copies stopped because the engine refused to read their rows.
    unread,
    /// Changes of the quorum begun.
    quorum_changes,
    /// Of these, the completed ones.
    quorum_changes_done,
    /// Of these, the cancelled ones.
    quorum_changes_cancelled,
    /// Changes of the quorum that were refused.
    quorum_changes_refused,
    /// Coordinators that began to copy the log.
    learners_added,
    /// Checks at which a change waited for a member's log.
    catch_ups,
    /// Changes of voters begun.
    voters_changed,
    /// Ends of the former voter set.
    joints_left,
    /// Of these, the ones that another leader began.
    joints_left_by_another,
    /// Coordinators removed from the membership.
    coordinators_forgotten,
    /// Leaders to be removed that stepped down.
    leads_given_way,
    /// Leadership transfers by an operator.
    leads_transferred,
    /// Leading coordinators lost during a change.
    leaders_lost_changing,
    /// Coordinator processes killed.
    coordinators_killed,
    /// Coordinator directories lost.
    coordinators_wiped,
    /// Coordinator machines lost.
    coordinators_burnt,
    /// Coordinators that reported a new address.
    coordinators_moved,
    /// Notifications that a coordinator's number belongs to another directory.
    other_directories_told,
    /// Copies of a directory that met its running process, and ended.
    coordinator_copies_refused,
    /// Newcomers refused.
    joins_refused,
    /// Coordinators that a member vouched for.
    coordinators_vouched,
    /// Coordinators that ended because they are not members any longer.
    coordinators_dismissed,
    /// Leaderships granted by the coordinator.
    elections,
    /// Leaderships named in the command that failed a node.
    successors,
    /// Nodes failed for silence.
    nodes_failed,
    /// Failovers that ended in serving.
    take_overs,
    /// Copies that became in sync.
    promotions,
    /// Copies that left the in-sync set.
    demotions,
    /// Leaders' requests that were refused.
    refusals,
    /// Copies begun.
    copies,
    /// Copies completed.
    copies_done,
    /// Cases in which a log was no longer retained for an absent copy.
    logs_not_kept,
    /// Placements declared lost.
    placements_lost,
    /// Copies begun to replace one that is missing, failed or to be removed.
    repairs,
    /// Of these, the ones that became in sync.
    repairs_done,
    /// Copies that discarded their data to be reloaded.
    emptied,
    /// Operations that waited for a leadership to settle.
    parked,
    /// Surplus copies removed.
    copies_retired,
    /// Placements deleted.
    unloads,
    /// Migrations that ended in `Done`.
    migrations_done,
    /// Migrations that were cancelled or failed.
    migrations_undone,
    /// Leaderships released by their holder.
    releases,
    /// Leaderships listed as withdrawn in a heartbeat's answer.
    withdrawn,
    /// Participants.
    participants,
    /// Participant processes killed.
    participants_killed,
    /// Acquisitions requested from a service.
    leases_acquired,
    /// Releases requested from a service.
    leases_released,
    /// Leases lost.
    leases_lost,
    /// Leases dropped by a service.
    leases_dropped,
    /// Operators' orders.
    orders,
    /// Coordinator terms begun.
    terms,
    /// Sessions restarted within a term.
    sessions_restarted,
    /// Of these, the ones with pending proposals.
    sessions_restarted_amid,
    /// Log entries that were void, because their proposer's term had ended.
    void_entries,
    /// Proposals of a deposed leader that were committed nevertheless.
    orphan_commits,
    /// Heartbeats answered.
    leases,
    /// Of these, the ones that shared a quorum round.
    beats_shared,
    /// Heartbeats repeated or overtaken by a later one.
    beats_overtaken,
    /// Heartbeats forwarded by relays.
    beats_carried,
    /// Batches of them.
    batches_carried,
    /// Answers returned by relays.
    answers_routed,
    /// Relays' answers that no coordinator answers.
    no_coordinator_told,
    /// Heartbeats refused by a relay at its limit.
    relays_busy,
    /// Heartbeats carried by a member's second relay after the first failed.
    second_relays,
    /// Answers to relayed heartbeats that brought updates of nodes and tables.
    news_taken,
    /// Pushes saved because answers bring the same.
    pushes_spared,
    /// Heartbeats sent directly to a coordinator despite relays.
    beats_direct,
    /// Members that contacted a coordinator themselves after no relay helped.
    asked_for_themselves,
    /// Incarnations fenced by a relay's notification.
    over_by_relay,
    /// Incarnations fenced by another node's notification.
    over_by_peer,
    /// Notifications for other incarnations, without effect.
    over_of_others,
    /// Nodes failed, after the faults, while others relayed.
    dead_noticed,
    /// Probes of nodes.
    knocks,
    /// Of these, the unanswered ones.
    knocks_failed,
    /// Nodes made unreachable for clients.
    doors_shut,
    /// Worlds that came to rest, in which the effect of unreachable nodes was checked.
    doors_looked_at,
    /// Live nodes declared unreachable.
    nodes_unreached,
    /// Of these, the ones reachable again in the same incarnation.
    nodes_reached_again,
    /// Stray leaderships, never granted, that a copy heard of.
    strays,
    /// Stray epochs known to a copy that were surpassed.
    epochs_surpassed,
    /// Registrations refused because a later one of the same directory came first.
    overtaken,
    /// Registrations answered.
    registrations,
    /// Writes acknowledged.
    writes,
    /// Of these, the ones without an id.
    unnamed_writes,
    /// Writes without an id and with unknown outcome.
    unnamed_unknown,
    /// Answered deletes that found the key.
    deletes,
    /// Answered deletes that found nothing.
    deletes_of_nothing,
    /// Scans answered completely.
    scans,
    /// Scans truncated, with more to come.
    scans_cut,
    /// Messages with several operations.
    batches,
    /// Writes without effect, committed before their answer because nothing proved that they saw the newest state.
    unproven,
    /// Reads answered under a lease.
    lease_reads,
    /// Reads answered after a round of confirmations.
    confirm_reads,
    /// Reads refused because the leadership was not confirmed.
    unconfirmed_reads,
    /// Answers that waited for a lease.
    answers_held,
    /// Retries answered from the record of the first attempt, recognized by the missing effect.
    repeats,
    /// Operations answered `MaybeApplied`.
    maybe_applied,
    /// First attempts with a new stamp.
    restamps,
    /// Clients forgotten.
    clients_forgotten,
    /// Failed conditions of compare-and-sets.
    conditions_failed,
    /// Writes refused for too few in-sync copies.
    not_enough_replicas,
    /// Writes with an outcome unknown to the node.
    abandoned,
    /// Copies formed of partitions that were split off.
    formed,
    /// Splits begun.
    splits_begun,
    /// Splits of which every copy had the keys, or enough.
    splits_cut,
    /// Splits completed.
    parted,
    /// Splits abandoned.
    splits_abandoned,
    /// Merges begun.
    merges_begun,
    /// Merges completed.
    merged,
    /// Merges abandoned.
    merges_abandoned,
    /// Pages appended to the log of a merge target.
    pages_absorbed,
    /// Writes restarted because their partition had ended.
    renamed_after_merge,
    /// Writes open when their partition ended.
    open_after_merge,
    /// Operations answered that their key has moved.
    moved,
    /// Writes restarted at the new partition of their key.
    renamed,
    /// Log tails truncated.
    cuts,
    /// Processes killed.
    kills,
    /// Machines that lost power.
    power_losses,
    /// Disks wiped.
    wipes,
    /// Placements with lost files.
    files_lost,
    /// Situations created on purpose.
    themed,
    /// Directories rolled back to an older state.
    rollbacks,
    /// Nodes stopped cleanly.
    stops,
    /// Processes paused.
    pauses,
    /// Network partitions.
    partitions_of_network,
    /// Periods without a coordinator quorum.
    quorum_losses,
    /// Plans begun.
    plans,
    /// Tables created during faults.
    tables_created,
    /// Losses accepted by an operator.
    losses_accepted,
    /// Of these, the ones after which the partition began empty.
    begun_empty,
    /// Acknowledged positions discarded by accepted losses.
    positions_given_up,
    /// Answers of a cut-off side that did not know of the loss.
    answers_given_up,
    /// Tables dropped.
    tables_dropped,
    /// Tables created with the name of a dropped one.
    names_reused,
    /// Copies of dropped tables deleted by their nodes.
    condemned_deleted,
    /// Of these, the ones on nodes that were away at the drop.
    condemned_deleted_late,
    /// Answers of dropped tables to clients before all nodes knew of the drop.
    answers_after_drop,
    /// Clients notified of a drop.
    heard_dropped,
    /// Nodes declared lost by an operator.
    nodes_declared_lost,
    /// Nodes removed by an operator.
    nodes_removed,
    /// Worlds with zones.
    zoned,
    /// Worlds with a limit of placements per node.
    limited,
    /// Bytes that survived a kill in the page cache, not durable when the process came back.
    cached_tails,
}
