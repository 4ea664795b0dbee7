//! Prober of other nodes: opens a new connection to each one's client address, and sends a ping that its shards answer
//! (PROTOCOL rule 73). [`Prober`] decides when and to which nodes, and reports the results.

use crate::statistics::metrics::Metrics;
use crate::tables::Tables;
use archon_frames::{FrameError, StreamKind, connect};
use archon_member::{Probe, Prober};
use archon_proto::convert::members::session::Member;
use archon_proto::v1;
use archon_security::{ExpectedPeer, Transport};
use archon_session::Clock;
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{DoorFailure, DoorReport, ErrorKind, Millis, Node};
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Probes of this node, shared with its heartbeats, which bring the interval and report the results.
#[derive(Debug, Default)]
pub(crate) struct SharedProber {
    prober: Mutex<Prober>,
    /// Notified when the interval changes.
    changed: Notify,
}

impl SharedProber {
    /// Sets the probe interval of a coordinator in milliseconds; zero disables probing.
    pub(super) fn note_every(&self, every_ms: u64) {
        if self.prober.lock().note_every(every_ms) {
            self.changed.notify_one();
        }
    }

    /// Returns the report at `now`, if this node probes any.
    pub(super) fn report(&self, now: Millis) -> Option<DoorReport> {
        self.prober.lock().report(now)
    }
}

/// Sender of the probes of one incarnation.
pub(super) struct ProbeSender<'a> {
    pub(super) member: Member,
    pub(super) probing: &'a SharedProber,
    pub(super) tables: &'a Tables,
    pub(super) transport: &'a Transport,
    pub(super) clock: &'a dyn Clock,
    pub(super) metrics: &'a Metrics,
}

impl ProbeSender<'_> {
    /// Probes for as long as it is polled.
    pub(super) async fn run(&self) -> Infallible {
        *self.probing.prober.lock() = Prober::new(self.clock.now(), rand::random());
        let (mut nodes, mut in_flight) = (BTreeMap::new(), FuturesUnordered::new());
        loop {
            // An answer that waits while this thread was late counts as one in time.
            while let Some(Some((number, outcome))) = in_flight.next().now_or_never() {
                self.end(number, outcome);
            }
            let (late, sent, wake_at) = {
                let (now, mut prober) = (self.clock.now(), self.probing.prober.lock());
                let late = prober.expire(now).len() as u64;
                let sent = prober.begin(now, self.tables.nodes_version(), || {
                    let (version, targets) = self.tables.probed_by(self.member);
                    nodes = targets.into_iter().map(|node| (node.id, node)).collect();
                    (version, nodes.values().map(|node: &Node| (node.id, node.incarnation)).collect())
                });
                (late, sent, prober.wake_at())
            };
            self.count(late, late);
            let sent = sent.into_iter().filter_map(|probe| Some((nodes.get(&probe.node)?.clone(), probe)));
            in_flight.extend(sent.map(|(node, probe)| self.probe(node, probe)));
            let pause = wake_at.map(|at| Duration::from_millis(at.since(self.clock.now())));
            tokio::select! {
                Some((number, outcome)) = in_flight.next() => self.end(number, outcome),
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
                () = self.probing.changed.notified() => {}
            }
        }
    }

    /// Records the outcome of a probe, unless it has expired.
    fn end(&self, number: u64, outcome: Result<(), DoorFailure>) {
        let ended = self.probing.prober.lock().finish(number, outcome, self.clock.now()).is_some();
        self.count(u64::from(ended), u64::from(ended && outcome.is_err()));
    }

    fn count(&self, ended: u64, failed: u64) {
        self.metrics.door_knocks.add(ended);
        self.metrics.door_failures.add(failed);
    }

    /// Probes one node. Returns the number of the probe with its outcome.
    async fn probe(&self, node: Node, probe: Probe) -> (u64, Result<(), DoorFailure>) {
        let within = Duration::from_millis(probe.within_ms);
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
        (probe.number, outcome)
    }

    /// Connects as a client does, and waits for the answer of the shards.
    async fn ask(&self, node: &Node, within: Duration) -> Result<(), FrameError> {
        let expected = ExpectedPeer::Node(node.name.clone());
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
        let (transport, expected) = (Transport::default(), ExpectedPeer::Servers);
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
