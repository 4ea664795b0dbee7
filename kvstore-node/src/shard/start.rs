//! Start of the shards' threads.

use super::Shard;
use super::backlog::Backlog;
use super::cache::RowCache;
use super::context::Context;
use super::journal::{BatchCallback, Journal};
use super::message::ShardMessage;
use super::runtime::ShardRuntime;
use super::shards::Shards;
use super::shell::ShardShell;
use crate::server::health::Pulse;
use crate::service::reply::{Replies, Timing};
use archon_host::{DisabledRule, ParkLimits, Partitions, RecoveredCopy};
use archon_types::{Millis, PlacementId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Starts the threads of the shards, one for each of `runtimes`, of which there is one per shard. `found` are the placements
/// found by recovery.
///
/// # Errors
/// If the system gives no thread.
pub(crate) fn start(
    shards: &Shards,
    context: &Arc<Context>,
    pulses: &[Arc<Pulse>],
    found: BTreeMap<PlacementId, RecoveredCopy>,
    runtimes: Vec<ShardRuntime>,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let mut dormant: Vec<BTreeMap<PlacementId, RecoveredCopy>> = (0..shards.count()).map(|_| BTreeMap::new()).collect();
    for (placement, found) in found {
        let number = shards.number_of(found.partition);
        dormant[number].insert(placement, found);
    }
    let mut threads = Vec::new();
    for ((number, dormant), runtime) in dormant.into_iter().enumerate().zip(runtimes) {
        let Some(inbox) = shards.inbox(number).cloned() else { continue };
        let notify: BatchCallback = Arc::new({
            let inbox = Arc::clone(&inbox);
            move |batch, result| inbox.complete(ShardMessage::Logged { batch, result })
        });
        let shell = ShardShell {
            context: Arc::clone(context),
            grants: context.shared.membership.grants(),
            journal: Journal::new(context.wal.clone(), u32::try_from(number).unwrap_or(u32::MAX), notify),
            replies: Replies::timed(Timing::new(&context.shared, false)),
            outgoing: BTreeMap::new(),
            cache: RefCell::new(RowCache::new(context.row_cache_bytes / shards.count() as u64)),
        };
        let shard = Shard {
            inbox,
            pulse: Arc::clone(&pulses[number]),
            context: Arc::clone(context),
            partitions: Partitions::new(shell, dormant, ParkLimits::default(), DisabledRule::default()),
            backlog: Backlog::default(),
            turn_seconds: context.shared.metrics.turn_seconds.member(),
            now: Millis::ZERO,
            stopping: false,
            snapshots_wanted: Vec::new(),
        };
        let thread =
            std::thread::Builder::new().name(format!("shard-{number}")).spawn(move || runtime.run(shard.run()))?;
        threads.push(thread);
    }
    Ok(threads)
}
