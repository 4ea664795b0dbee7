//! What the runs came across. A simulator that silently stops exercising something proves nothing.

macro_rules! coverage {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each thing happened.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct Coverage { $($(#[$doc])* pub $name: u64,)* }

        impl Coverage {
            /// Adds what another run came across.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }

            /// Every counter by its name.
            pub fn counters(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

coverage! {
    /// Events of the world, of every sort.
    events,
    /// Recoveries of the coordinators from less than a majority.
    recoveries,
    /// Of these, the ones that had lost changes.
    recoveries_behind,
    /// Recoveries that came to their end.
    recoveries_settled,
    /// Nodes started on an older copy of their directory while the coordinators were recovered.
    older_in_recovery,
    /// Nodes that came back with the right one before that recovery ended.
    right_in_recovery,
    /// Times that requests for keys just split off were held up while the keys were to come back.
    keys_returned,
    /// Times that the protocol rose.
    protocols_raised,
    /// Times that it did not, since a member of an older version had just registered.
    raises_refused,
    /// Times that an operator held it and let it go.
    protocols_held,
    /// Starts of a version that does not speak the protocol of its disk.
    older_refused,
    /// Copies stopped at an entry that their version does not read.
    unreadable,
    /// Changes of the quorum begun.
    quorum_changes,
    /// Of these, the ones that came to their end.
    quorum_changes_done,
    /// Of these, the ones that were taken back.
    quorum_changes_cancelled,
    /// Changes of the quorum that were not let through.
    quorum_changes_refused,
    /// Coordinators that began to copy the log.
    learners_added,
    /// Looks at which a change waited for somebody to have the log.
    catch_ups,
    /// Times that the voters began to change.
    voters_changed,
    /// Times that those of before did not count any more.
    joints_left,
    /// Of these, the ones that another leader began.
    joints_left_by_another,
    /// Coordinators that were members no more.
    coordinators_forgotten,
    /// Times that a leading coordinator was to go, and gave way.
    leads_given_way,
    /// Times that an operator had another one lead.
    leads_transferred,
    /// Leading coordinators lost in the middle of a change.
    leaders_lost_changing,
    /// Processes of coordinators killed.
    coordinators_killed,
    /// Directories of coordinators lost.
    coordinators_wiped,
    /// Machines of coordinators gone.
    coordinators_burnt,
    /// Coordinators that had the others told where they are reached.
    coordinators_moved,
    /// Times that a coordinator was told that its number belongs to another directory.
    other_directories_told,
    /// Copies of a directory that found its process running, and ended.
    coordinator_copies_refused,
    /// Newcomers that were not let in.
    joins_refused,
    /// Coordinators that a member vouched for.
    coordinators_vouched,
    /// Coordinators that ended since they are members no more.
    coordinators_dismissed,
    /// Leaderships granted by the coordinator.
    elections,
    /// Leaderships named in the command that failed a node.
    successors,
    /// Nodes failed for their silence.
    nodes_failed,
    /// Take-overs that ended in serving.
    take_overs,
    /// Copies that came to count.
    promotions,
    /// Copies that ceased to count.
    demotions,
    /// Requests of leaders that were answered "no".
    refusals,
    /// Copies begun.
    copies,
    /// Copies completed.
    copies_done,
    /// Times that a log was no longer kept for a copy that was away.
    logs_not_kept,
    /// Placements declared lost.
    placements_lost,
    /// Copies begun in place of one that is missing, failed or to go.
    repairs,
    /// Of these, the ones that came to count.
    repairs_done,
    /// Copies that threw their data away, to be copied anew.
    emptied,
    /// Operations that waited for a leadership to settle.
    parked,
    /// Copies that were not needed any more.
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
    /// Processes of participants killed.
    participants_killed,
    /// Leases that a service was asked to acquire.
    leases_acquired,
    /// Leases that a service was asked to release.
    leases_released,
    /// Leases that were lost.
    leases_lost,
    /// Leases that a service wanted to be rid of.
    leases_dropped,
    /// Orders of operators.
    orders,
    /// Coordinator terms begun.
    terms,
    /// Sessions that ended and began again within a term.
    sessions_restarted,
    /// Of these, the ones with proposals under way.
    sessions_restarted_amid,
    /// Log entries that were void, as their proposer's term was over.
    void_entries,
    /// Proposals of a leader that was deposed meanwhile, and that were committed all the same.
    orphan_commits,
    /// Heartbeats answered.
    leases,
    /// Of these, the ones that shared a quorum round with another.
    beats_shared,
    /// Heartbeats that were repeated, or that came after a later one.
    beats_overtaken,
    /// Heartbeats that relays passed on.
    beats_carried,
    /// Batches of them.
    batches_carried,
    /// Answers that relays brought back.
    answers_routed,
    /// Members that were told by a relay that no coordinator answers.
    no_coordinator_told,
    /// Heartbeats that a relay turned away, since it carries for enough.
    relays_busy,
    /// Heartbeats that a member's second relay carried, after the first had failed.
    second_relays,
    /// Answers to carried heartbeats that brought a member something new of nodes and tables.
    news_taken,
    /// Pushes that were not made, since answers bring the same.
    pushes_spared,
    /// Heartbeats that went straight to a coordinator though there are relays.
    beats_direct,
    /// Members that asked for themselves, of those whom no relay helped.
    asked_for_themselves,
    /// Lives that ended by the word of a relay.
    over_by_relay,
    /// Lives that ended by the word of another node.
    over_by_peer,
    /// Words of other lives, which ended none.
    over_of_others,
    /// Nodes that were failed, after the faults, while others relayed.
    dead_noticed,
    /// Knocks at doors.
    knocks,
    /// Of these, the ones that were not answered.
    knocks_failed,
    /// Doors that were shut.
    doors_shut,
    /// Worlds that stood still in the end, so that it was looked at what shut doors move.
    doors_looked_at,
    /// Nodes that live, and were found not to be reached by clients.
    nodes_unreached,
    /// Of these, the ones that were reached again in the same life.
    nodes_reached_again,
    /// Leaderships that nobody granted, of which a copy heard.
    strays,
    /// Epochs that a copy knew and nobody had granted, and that were passed.
    epochs_surpassed,
    /// Registrations refused because another one of the same directory had overtaken them.
    overtaken,
    /// Registrations answered.
    registrations,
    /// Writes acknowledged.
    writes,
    /// Of these, the ones without a name.
    unnamed_writes,
    /// Writes without a name whose outcome their client does not know.
    unnamed_unknown,
    /// Deletes answered that found something.
    deletes,
    /// Deletes answered that found nothing.
    deletes_of_nothing,
    /// Scans answered to their end.
    scans,
    /// Scans of which more was to come.
    scans_cut,
    /// Messages with several operations.
    batches,
    /// Writes without an effect that were committed before they were answered, as nothing proved that they saw the newest.
    unproven,
    /// Reads answered under a lease.
    lease_reads,
    /// Reads answered after a round of confirmations.
    confirm_reads,
    /// Reads refused because nothing confirmed the leadership.
    unconfirmed_reads,
    /// Answers that waited for a lease.
    answers_held,
    /// Retries answered from the record of the first attempt, as seen by an effect that is missing.
    repeats,
    /// Operations answered `MaybeApplied`.
    maybe_applied,
    /// First attempts that were stamped anew.
    restamps,
    /// Clients forgotten.
    clients_forgotten,
    /// Compare-and-sets that did not hold.
    conditions_failed,
    /// Writes refused because too few copies count.
    not_enough_replicas,
    /// Writes whose outcome the node could not know.
    abandoned,
    /// Copies formed of partitions that were split off.
    formed,
    /// Splits begun.
    splits_begun,
    /// Splits of which every copy had the keys, or enough.
    splits_cut,
    /// Splits done.
    parted,
    /// Splits given up.
    splits_abandoned,
    /// Merges begun.
    merges_begun,
    /// Merges done.
    merged,
    /// Merges given up.
    merges_abandoned,
    /// Pages of a partition that came into the log of its left neighbour.
    pages_absorbed,
    /// Writes that began anew because their partition had ended.
    renamed_after_merge,
    /// Writes that were open when their partition ended.
    open_after_merge,
    /// Operations answered that their key is another partition's by now.
    moved,
    /// Writes that began anew at the partition that has their key now.
    renamed,
    /// Log tails cut.
    cuts,
    /// Processes killed.
    kills,
    /// Machines that lost power.
    power_losses,
    /// Disks wiped.
    wipes,
    /// Placements whose files went.
    files_lost,
    /// Situations brought about on purpose.
    themed,
    /// Directories set back to an older state.
    rollbacks,
    /// Nodes stopped in order.
    stops,
    /// Processes paused.
    pauses,
    /// Cuts in the network.
    partitions_of_network,
    /// Times without a coordinator quorum.
    quorum_losses,
    /// Plans begun.
    plans,
    /// Tables made while faults went on.
    tables_created,
    /// Losses that an operator accepted.
    losses_accepted,
    /// Of these, the ones after which the partition began empty.
    begun_empty,
    /// Acknowledged positions of partitions that were given up so.
    positions_given_up,
    /// Answers of a side that was cut off and had not heard of it.
    answers_given_up,
    /// Tables dropped.
    tables_dropped,
    /// Tables made by the name of one that was dropped.
    names_reused,
    /// Copies of dropped tables that their nodes deleted.
    condemned_deleted,
    /// Of these, the ones on nodes that were away when the table was dropped.
    condemned_deleted_late,
    /// Answers of dropped tables that clients were given before everybody had heard of it.
    answers_after_drop,
    /// Clients that were told that a table was dropped.
    heard_dropped,
    /// Nodes that an operator declared lost.
    nodes_declared_lost,
    /// Nodes that an operator removed.
    nodes_removed,
    /// Worlds whose nodes are in zones.
    zoned,
    /// Worlds whose nodes take so many placements and no more.
    limited,
    /// Bytes that survived a kill in the page cache, not durable when the process came back.
    cached_tails,
}
