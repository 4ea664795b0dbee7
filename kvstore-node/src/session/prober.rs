//! Prober of other nodes: opens a new connection to each one's client address, and sends a ping that its shards answer
//! (PROTOCOL rule 73).

use super::doors::DoorKeeper;
use crate::statistics::metrics::Metrics;
use crate::tables::Tables;
use archon_frames::{FrameError, StreamKind, connect};
use archon_member::Knock;
use archon_proto::convert::members::session::Member;
use archon_proto::v1;
use archon_security::{Expected, Transport};
use archon_session::Clock;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{DoorFailure, ErrorKind, Node};
use futures::StreamExt;
use futures::stream;
use std::convert::Infallible;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Most probes at once.
const KNOCKS_MAX: usize = 32;

/// Prober of one incarnation.
pub(super) struct Prober<'a> {
    pub(super) member: Member,
    pub(super) doors: &'a DoorKeeper,
    pub(super) tables: &'a Tables,
    pub(super) transport: &'a Transport,
    pub(super) clock: &'a dyn Clock,
    pub(super) metrics: &'a Metrics,
}

impl Prober<'_> {
    /// Probes for as long as it is polled.
    pub(super) async fn run(&self) -> Infallible {
        self.doors.forget();
        // Nodes that were started together should not all probe at once.
        sleep(Duration::from_millis(self.doors.every_ms()).mul_f64(rand::random())).await;
        let (mut kept, mut nodes, mut within) = (None, Vec::new(), Duration::ZERO);
        loop {
            let begun = Instant::now();
            let every_ms = self.doors.every_ms();
            if every_ms == 0 {
                kept = None;
                self.doors.forget();
                self.doors.changed().await;
                continue;
            }
            if kept != Some((self.tables.nodes_version(), every_ms)) {
                let version;
                (version, nodes) = self.tables.doors_of(self.member);
                kept = Some((version, every_ms));
                within = self.doors.keep(every_ms, &nodes);
            }
            let knocks = stream::iter(nodes.clone()).map(|node| self.knock(node, within));
            let mut knocks = knocks.buffer_unordered(KNOCKS_MAX);
            while let Some(knock) = knocks.next().await {
                self.metrics.door_knocks.add(1);
                self.metrics.door_failures.add(u64::from(knock.outcome.is_err()));
                self.doors.note(knock);
            }
            sleep_until(begun + Duration::from_millis(every_ms)).await;
        }
    }

    /// Probes one node.
    async fn knock(&self, node: Node, within: Duration) -> Knock {
        let began = self.clock.now();
        let outcome = match timeout(within, self.ask(&node, within)).await {
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
        Knock { node: node.id, incarnation: node.incarnation, began, ended: self.clock.now(), outcome }
    }

    /// Connects as a client does, and waits for the answer of the shards.
    async fn ask(&self, node: &Node, within: Duration) -> Result<(), FrameError> {
        let expected = Expected::Node(node.name.clone());
        let connected =
            connect(self.transport, &node.address, &expected, StreamKind::Exchange, MESSAGE_BYTES_MAX, within);
        let (mut reader, mut writer) = connected.await?;
        let ping = rand::random::<u64>().max(1);
        let cluster = Some(self.member.cluster.into());
        writer.push(&v1::OpBatch { cluster, node: node.id.get(), ping, ..v1::OpBatch::default() });
        writer.flush_within(within, within).await?;
        while reader.next::<v1::ReplyBatch>().await?.pong != ping {}
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;
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
