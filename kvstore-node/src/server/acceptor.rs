//! Connections of one listener.

use archon_frames::IncomingConnections;
use archon_proto::listen::{ACCEPT_AGAIN, AcceptFailures};
use archon_security::connection_limit::Entry;
use archon_telemetry::Metric;
use std::time::Instant;
use tokio::time::sleep;

/// A connection on its way to the thread that serves it, which alone should be woken by it.
#[derive(Debug)]
pub(crate) struct IncomingConnection {
    pub(crate) connection: std::net::TcpStream,
    /// Its entry among the connections.
    pub(crate) entry: Entry,
}

/// Accepts the connections of a listener. Failures are counted and logged, and it is tried again.
pub(crate) struct Acceptor<'a> {
    incoming: IncomingConnections,
    failures: AcceptFailures,
    /// Counts the failures.
    errors: &'a Metric,
    /// Name of the connections in the log.
    what: &'static str,
}

impl<'a> Acceptor<'a> {
    /// Creates the acceptor of a listener; the log names its connections as `what`.
    pub(crate) fn new(incoming: IncomingConnections, errors: &'a Metric, what: &'static str) -> Self {
        Self { incoming, failures: AcceptFailures::default(), errors, what }
    }

    /// Waits for the next connection.
    pub(crate) async fn next(&mut self) -> IncomingConnection {
        loop {
            let accepted = self.incoming.next().await;
            match accepted.and_then(|(stream, entry)| Ok(IncomingConnection { connection: stream.into_std()?, entry }))
            {
                Ok(accepted) => return accepted,
                Err(error) => {
                    self.errors.add(1);
                    if let Some(times) = self.failures.note(Instant::now()) {
                        tracing::warn!(%error, times, "{} cannot be accepted; they wait, and it is tried again", self.what);
                    }
                    sleep(ACCEPT_AGAIN).await;
                }
            }
        }
    }
}
