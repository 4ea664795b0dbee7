//! Prober of other nodes: opens a new connection to each one's client address, and sends a ping that its shards answer
//! (PROTOCOL rule 73). The probed nodes are computed from the node rows; results are reported with each heartbeat.

use crate::node::shared::{Life, Shared};
use archon_frames::{FrameError, StreamKind, connect};
use archon_member::{Doors, Knock};
use archon_proto::v1;
use archon_security::Expected;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{DoorFailure, DoorReport, ErrorKind, Millis, Node};
use futures::StreamExt;
use futures::stream;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Most probes at once.
const KNOCKS_MAX: usize = 32;

/// Probe state of this node.
#[derive(Debug, Default)]
pub(crate) struct DoorKeeper {
    /// Probe interval in milliseconds, as last set by a coordinator; zero disables probing.
    every_ms: AtomicU64,
    /// Notified when that changes.
    changed: Notify,
    doors: Mutex<Doors>,
}

impl DoorKeeper {
    /// Sets the probe interval of a coordinator.
    pub(super) fn note_every(&self, every_ms: u64) {
        if self.every_ms.swap(every_ms, Ordering::Relaxed) != every_ms {
            self.changed.notify_one();
        }
    }

    /// Returns the report at `now`, if this node probes any.
    pub(super) fn report(&self, now: Millis) -> Option<DoorReport> {
        self.doors.lock().report(now)
    }

    /// Drops all results.
    fn forget(&self) {
        self.doors.lock().keep(0, []);
    }
}

/// Probes for as long as it is polled, as this incarnation.
pub(super) async fn keep(shared: &Shared, life: &Life) -> Infallible {
    let keeper = &shared.doors;
    keeper.forget();
    // Nodes that were started together should not all probe at once.
    sleep(Duration::from_millis(keeper.every_ms.load(Ordering::Relaxed)).mul_f64(rand::random())).await;
    let (mut kept, mut members, mut within) = (None, Vec::new(), Duration::ZERO);
    loop {
        let begun = Instant::now();
        let every_ms = keeper.every_ms.load(Ordering::Relaxed);
        if every_ms == 0 {
            kept = None;
            keeper.forget();
            keeper.changed.notified().await;
            continue;
        }
        let version = shared.tables.nodes_version();
        if kept != Some((version, every_ms)) {
            let (version, nodes) = shared.tables.doors_of(life.member);
            (kept, members) = (Some((version, every_ms)), nodes);
            let mut doors = keeper.doors.lock();
            doors.keep(every_ms, members.iter().map(|node| (node.id, node.incarnation)));
            within = Duration::from_millis(doors.within_ms());
        }
        let knocks = stream::iter(members.clone()).map(|node| knock(shared, life, node, within));
        let mut knocks = knocks.buffer_unordered(KNOCKS_MAX);
        while let Some(knock) = knocks.next().await {
            keeper.note(shared, knock);
        }
        sleep_until(begun + Duration::from_millis(every_ms)).await;
    }
}

impl DoorKeeper {
    fn note(&self, shared: &Shared, knock: Knock) {
        shared.metrics.door_knocks.add(1);
        shared.metrics.door_failures.add(u64::from(knock.outcome.is_err()));
        self.doors.lock().note(knock);
    }
}

/// Probes one node.
async fn knock(shared: &Shared, life: &Life, node: Node, within: Duration) -> Knock {
    let began = shared.clock.now();
    let outcome = match timeout(within, ask(shared, life, &node, within)).await {
        Err(_) | Ok(Err(FrameError::Silent(_) | FrameError::Stalled(_) | FrameError::Incomplete(_))) => {
            Err(DoorFailure::Silent)
        }
        Ok(Err(FrameError::Connect { source, .. })) if source.kind() == io::ErrorKind::TimedOut => {
            Err(DoorFailure::Silent)
        }
        Ok(Err(error)) if is_answer(&error) => Ok(()),
        Ok(Err(error)) => {
            tracing::debug!(%error, node = node.name, "a node is unreachable");
            Err(DoorFailure::Refused)
        }
        Ok(Ok(())) => Ok(()),
    };
    Knock { node: node.id, incarnation: node.incarnation, began, ended: shared.clock.now(), outcome }
}

/// Returns whether a node is reachable although it does not answer the ping: it is busy, and another node would be no less
/// busy; it refuses this node, for example because their versions differ, but may serve clients; or it accepts the
/// connection and closes it. A full node does the last during the TLS handshake, as it cannot send an error before. A port
/// without a process refuses the connection instead.
fn is_answer(error: &FrameError) -> bool {
    match error {
        FrameError::Refused(detail) => matches!(detail.kind, ErrorKind::Overloaded | ErrorKind::Refused),
        FrameError::Closed => true,
        FrameError::Connect { source: error, .. } | FrameError::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
        ),
        _ => false,
    }
}

/// Connects as a client does, and waits for the answer of the shards.
async fn ask(shared: &Shared, life: &Life, node: &Node, within: Duration) -> Result<(), FrameError> {
    let (transport, expected) = (&shared.config.transport, Expected::Node(node.name.clone()));
    let connected = connect(transport, &node.address, &expected, StreamKind::Exchange, MESSAGE_BYTES_MAX, within);
    let (mut reader, mut writer) = connected.await?;
    let ping = rand::random::<u64>().max(1);
    let cluster = Some(life.member.cluster.into());
    writer.push(&v1::OpBatch { cluster, node: node.id.get(), ping, ..v1::OpBatch::default() });
    writer.flush_within(within, within).await?;
    while reader.next::<v1::ReplyBatch>().await?.pong != ping {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_security::Transport;
    use tokio::net::TcpListener;

    async fn probed(address: String) -> FrameError {
        let (transport, expected) = (Transport::default(), Expected::Servers);
        let timeout = Duration::from_secs(5);
        let connected = connect(&transport, &address, &expected, StreamKind::Exchange, 1_024, timeout).await;
        match connected {
            Ok((mut reader, mut writer)) => match writer.flush().await {
                Ok(()) => reader.next::<v1::ReplyBatch>().await.unwrap_err(),
                Err(error) => error,
            },
            Err(error) => error,
        }
    }

    #[tokio::test]
    async fn full_node_is_reachable_and_closed_port_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let closing = tokio::spawn(async move {
            drop(listener.accept().await.unwrap());
            listener
        });
        let error = probed(address.clone()).await;
        assert!(is_answer(&error), "{error:?}");
        drop(closing.await.unwrap());
        let error = probed(address).await;
        assert!(!is_answer(&error), "{error:?}");
        assert!(!is_answer(&FrameError::Silent(Duration::from_secs(1))));
    }

    #[test]
    fn node_that_refuses_another_version_is_reachable() {
        let refused = |kind| FrameError::Refused(archon_types::ErrorDetail::new(kind, "run the same version"));
        assert!(is_answer(&refused(ErrorKind::Refused)));
        assert!(!is_answer(&refused(ErrorKind::WrongNode)), "another process has its address");
        assert!(!is_answer(&refused(ErrorKind::ShuttingDown)));
    }
}
