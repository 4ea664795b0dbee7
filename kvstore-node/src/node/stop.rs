//! Graceful stop of a node: ordered steps, each with a deadline.

use super::{Node, NodeError};
use crate::engine::note_clean_end;
use crate::node::deadlines::{
    FLUSHER_DEADLINE, LEAVING_HEARD_DEADLINE, SERVER_DEADLINE, SHARDS_DEADLINE, WAL_DEADLINE,
};
use crate::shard::{ShardMessage, Shards};
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between checks for ended shards: waiting with a deadline would take another thread.
const SHARDS_POLL: Duration = Duration::from_millis(5);
const RELEASE_POLL: Duration = Duration::from_millis(5);
/// Time after the end of the lease during which a stopping node still waits for a coordinator, in milliseconds.
const QUORUM_TIMEOUT_MS: u64 = 1_500;
/// Longest wait of a leaving node without leaderships for its copies to be dropped from the Live sets.
const UNCOUNTED_DEADLINE: Duration = Duration::from_secs(1);

impl Node {
    /// Stops gracefully: refuses new work, hands over leaderships, sends the leave request, answers pending work,
    /// flushes, closes the log. Each step has a deadline.
    ///
    /// # Errors
    /// The reason why the node had ended by itself, or the part that could not be ended in time; nothing acknowledged
    /// is lost either way.
    pub async fn stop(mut self) -> Result<(), NodeError> {
        let failed = self.shared.lifecycle.failed().is_cancelled();
        let failed_for_space = self.stats.flusher.has_failed_for_space();
        if !failed && !self.ended.is_cancelled() {
            self.hand_over().await;
        }
        self.shared.lifecycle.stop();
        self.session_end.cancel();
        let session = tokio::time::timeout(SERVER_DEADLINE, &mut self.session).await;
        self.shared.membership.end_life();
        self.services_end.cancel();
        // Calls wait for its answers. Its tasks are on the shards' threads, one of which may be stuck.
        if tokio::time::timeout(SERVER_DEADLINE, self.forwards.stop()).await.is_err() {
            tracing::warn!("streams to leaders have not ended in time");
        }
        let server = tokio::time::timeout(SERVER_DEADLINE, &mut self.server).await;
        if server.is_err() {
            self.server.abort();
        }
        self.service_tasks.close();
        if tokio::time::timeout(SERVER_DEADLINE, self.service_tasks.wait()).await.is_err() {
            tracing::warn!(tasks = self.service_tasks.len(), "streams of peers have not ended in time");
        }
        self.copies.stop_all().await;
        // Cancelled with the services; a page in progress ends by itself.
        let _ = tokio::time::timeout(SERVER_DEADLINE, &mut self.size_scan).await;
        let _ = tokio::time::timeout(SERVER_DEADLINE, &mut self.split_search).await;
        let (flusher, threads, wal, shards) =
            (self.flusher.take(), std::mem::take(&mut self.threads), self.wal.clone(), self.shards.clone());
        let closed = tokio::task::spawn_blocking(move || {
            // Before the shards, which note its progress in the log.
            let flushed = flusher.map_or(Ok(()), |flusher| flusher.shutdown(FLUSHER_DEADLINE));
            let shards_ended = end_shards(&shards, threads);
            let closed = wal.close(WAL_DEADLINE);
            (flushed.map_err(NodeError::from).and(closed.map_err(NodeError::from)), shards_ended)
        });
        let (closed, shards_ended) = closed.await.unwrap_or((Err(NodeError::Failed), false));
        // The stop itself writes the last rows.
        let failed = failed || self.shared.lifecycle.failed().is_cancelled();
        let failed_for_space = failed_for_space || self.stats.flusher.has_failed_for_space();
        // Their tasks are on the shards' threads, one of which may be stuck.
        if tokio::time::timeout(SERVER_DEADLINE, self.peers.stop()).await.is_err() {
            tracing::warn!("streams to peers have not ended in time");
        }
        if let Some(metrics_server) = self.metrics_server.take() {
            metrics_server.close().await;
        }
        drop(self.engine);
        if closed.is_ok()
            && !failed
            && let Err(error) = note_clean_end(&self.directory.lock().engine_directory())
        {
            tracing::debug!(%error, "the next start reads the engine from the disk");
        }
        drop(self.directory);
        if failed {
            // Another start in this process must not meet threads of this one, which may still write to the log.
            let may_start_again = failed_for_space && shards_ended && closed.is_ok();
            return Err(if may_start_again { NodeError::FailedForSpace } else { NodeError::Failed });
        }
        if let Ok(Ok(Err(error))) = session {
            return Err(Box::new(error).into());
        }
        if let Ok(Ok(Err(error))) = server {
            return Err(NodeError::Server(error.to_string()));
        }
        closed
    }

    /// Gives up every leadership, waits until the coordinator knows, and then until no leader counts this node's
    /// copies: a leader that still counted them would wait for acknowledgements that never come.
    async fn hand_over(&self) {
        self.shared.lifecycle.leaving().cancel();
        // First, as the coordinator would otherwise grant this node what it has just released.
        let _ = tokio::time::timeout(LEAVING_HEARD_DEADLINE, self.shared.lifecycle.leaving_heard().cancelled()).await;
        self.shards.send_all(|| ShardMessage::Release);
        let done = async {
            while self.shards.leading().await > 0 || !self.shared.reports.is_empty() {
                tokio::time::sleep(RELEASE_POLL).await;
            }
            let uncounted = async {
                while self.shards.counted().await > 0 {
                    tokio::time::sleep(RELEASE_POLL).await;
                }
            };
            if tokio::time::timeout(UNCOUNTED_DEADLINE, uncounted).await.is_err() {
                tracing::info!(
                    "replicas of this node are still in sync; their leaders continue without them in a \
                                moment"
                );
            }
        };
        let gone = async {
            while !self.quorum_is_gone() {
                tokio::time::sleep(RELEASE_POLL).await;
            }
        };
        tokio::select! {
            handed = tokio::time::timeout(self.shared.config.hand_over_timeout, done) => match handed {
                Ok(()) => self.released.store(true, Ordering::Release),
                Err(_) => tracing::warn!("not everything could be handed over in time; it comes back with this node"),
            },
            () = gone => tracing::warn!("no coordinator takes the leaderships; they return with this node"),
        }
    }

    /// Returns whether no heartbeat was answered for a lease and a while: longer than the coordinators take to elect,
    /// so they are probably stopping as well, and cannot accept a hand-over.
    fn quorum_is_gone(&self) -> bool {
        let until = self.shared.membership.life().and_then(|life| life.grants.until());
        until.is_none_or(|until| self.shared.clock.now() >= until.plus(QUORUM_TIMEOUT_MS))
    }
}

/// Ends the shard threads; one that does not end in time is left running. Returns whether all of them have ended.
fn end_shards(shards: &Shards, threads: Vec<JoinHandle<()>>) -> bool {
    for number in 0..shards.count() {
        if let Some(inbox) = shards.inbox(number) {
            inbox.close();
        }
    }
    shards.send_all(|| ShardMessage::Stop);
    let deadline = Instant::now() + SHARDS_DEADLINE;
    for thread in threads {
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                tracing::warn!("a shard did not end in time");
                return false;
            }
            std::thread::sleep(SHARDS_POLL);
        }
        // A panic was noticed when it happened.
        let _ = thread.join();
    }
    true
}
