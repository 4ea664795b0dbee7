//! Start-up: from what the log and the engine hold to replicas that may be opened.

use crate::clock::LogTime;
use crate::engine::Engine;
use crate::kv::{Effect, Recent, RecentBudget, row};
use crate::reconcile::{Held, HeldState};
use crate::shard::Found;
use crate::store;
use archon_replica::{Position, Recovered as ReplicaState, Run};
use archon_types::{Epoch, PlacementId, Seq};
use archon_wal::{Recovered, StreamState, Wal};
use std::collections::BTreeMap;

/// Bytes read from the log at once.
const READ_BYTES: usize = 4 * 1024 * 1024;

/// What start-up found.
pub(crate) struct Recovery {
    /// Placements that may be opened.
    pub(crate) found: BTreeMap<PlacementId, Found>,
    /// All placements, the damaged ones too.
    pub(crate) held: BTreeMap<PlacementId, Held>,
}

/// Reads every stream of the log. `engine_is_new` says that a damaged engine was set aside, so that nothing is in it.
pub(crate) fn recover(
    wal: &Wal,
    recovered: &Recovered,
    engine: &dyn Engine,
    engine_is_new: bool,
    budget: &RecentBudget,
) -> Recovery {
    let mut recovery = Recovery { found: BTreeMap::new(), held: BTreeMap::new() };
    for (stream, state) in &recovered.streams {
        let placement = PlacementId::new(stream.0);
        let named = state.metas.get(&store::META_PARTITION).map(|value| store::read_partition(value));
        let Some(Ok(partition)) = named else {
            tracing::error!(%placement, "a stream of the log does not say whose it is; its data is left alone");
            continue;
        };
        let read = if state.damaged {
            Err("the log lost entries of this placement".to_owned())
        } else {
            read_placement(wal, placement, state, engine, engine_is_new, budget)
        };
        let state = match read {
            Ok((recovered, complete, recent, log_time)) => {
                recovery.found.insert(placement, Found { partition, recovered, complete, recent, log_time });
                HeldState::Aside
            }
            Err(why) => {
                tracing::error!(%partition, %placement, why, "placement damaged; it will not be served");
                HeldState::Damaged
            }
        };
        recovery.held.insert(placement, Held { partition, state });
    }
    recovery
}

type Read = (ReplicaState, Position, Recent, LogTime);

fn read_placement(
    wal: &Wal,
    placement: PlacementId,
    state: &StreamState,
    engine: &dyn Engine,
    engine_is_new: bool,
    budget: &RecentBudget,
) -> Result<Read, String> {
    let words = |error: store::StoreError| error.to_string();
    let position = |key| match state.metas.get(&key) {
        Some(value) => store::read_position(value).map_err(words),
        None => Ok(Position::ZERO),
    };
    let epoch = match state.metas.get(&store::META_EPOCH) {
        Some(value) => store::read_epoch(value).map_err(words)?,
        None => Epoch::ZERO,
    };
    let base = position(store::META_BASE)?;
    let mut complete = position(store::META_COMPLETE)?.max(base);
    if engine_is_new {
        if base.seq > Seq::ZERO {
            return Err("the engine was damaged and set aside, and the log does not reach back to the beginning".into());
        }
        complete = Position::ZERO;
    }
    // The engine may be ahead of what the log notes, never behind: then it has lost what it had synced.
    let written = row::engine_position(engine, placement).map_err(|error| error.to_string())?;
    if complete.seq > Seq::ZERO && written.is_none_or(|written| written < complete.seq) {
        return Err(format!("the engine holds entries up to {written:?}, but had synced them up to {}", complete.seq));
    }
    let stamp = engine.get(placement, row::LOG_TIME_KEY).map_err(|error| error.to_string())?;
    let stamp = stamp.map(|stamp| row::decode_millis(&stamp)).transpose().map_err(|error| error.to_string())?;
    let mut log_time = LogTime::starting_at(stamp.unwrap_or_default());
    let mut recent = Recent::new(complete.seq, budget.clone());
    let mut runs: Vec<Run> = Vec::new();
    let mut last = base.seq;
    let end = state.bounds.map_or(0, |bounds| bounds.last);
    while last.get() < end {
        let from = last.next().ok_or("the log has no room after its end")?;
        let records = wal.read(store::stream(placement), from.get(), READ_BYTES).map_err(|error| error.to_string())?;
        if records.is_empty() {
            return Err(format!("the log ends at {last}, before its recorded end {end}"));
        }
        for record in records {
            let entry = store::read_entry(record.seq, &record.data).map_err(words)?;
            if runs.last().is_none_or(|run| run.epoch != entry.at.epoch) {
                runs.push(Run { epoch: entry.at.epoch, first: entry.at.seq });
            }
            last = entry.at.seq;
            if entry.at.seq > complete.seq {
                let effect = Effect::decode(&entry.bytes).map_err(|error| error.to_string())?;
                log_time.observe(effect.at);
                recent.push(entry.at.seq, effect.rows()).map_err(|error| error.to_string())?;
            }
        }
    }
    // What the engine is complete to was committed; anything after it is the replica's tail, applied only once a leader
    // has committed it anew (PROTOCOL rule 20).
    let recovered = ReplicaState { epoch, base, runs, last, commit: complete.seq };
    Ok((recovered, complete, recent, log_time))
}
