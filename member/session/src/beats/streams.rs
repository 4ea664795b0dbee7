//! Open heartbeat streams, one per address. Dropping the set ends them.

use super::stream::{Carrier, PendingFrame, StreamMessage};
use archon_proto::v1;
use archon_security::{ExpectedPeer, Transport};
use archon_types::ErrorDetail;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Maximum number of streams; a cluster has fewer coordinators, and a member has two relays.
const STREAMS_MAX: usize = 32;
/// Capacity for unprocessed messages; streams wait while it is full.
const SAID_MAX: usize = 64;
/// Minimum time for which an answer may be pending before the stream is replaced.
const STALLED_MIN: Duration = Duration::from_secs(1);

/// Limit of frames that wait on a stream; the newest ones stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backlog {
    /// For a member's own heartbeats: only the newest one matters.
    Newest,
    /// For carried heartbeats: each frame has those of other members.
    Frames(usize),
}

#[derive(Debug)]
pub(crate) struct Streams {
    transport: Transport,
    backlog: Backlog,
    /// Maximum age of a pending answer.
    stalled: Duration,
    open: Mutex<OpenStreams>,
    said: mpsc::Sender<StreamMessage>,
}

#[derive(Debug, Default)]
struct OpenStreams {
    streams: BTreeMap<String, Stream>,
    /// Number of streams and frames so far.
    count: u64,
}

/// The sending end of a stream's task, which ends when this is dropped.
#[derive(Debug)]
struct Stream {
    number: u64,
    newest: watch::Sender<Vec<PendingFrame>>,
}

impl Streams {
    /// Creates an empty set. Messages arrive at the receiver; `deadline` is the usual time for an answer.
    pub(crate) fn new(
        transport: Transport,
        backlog: Backlog,
        deadline: Duration,
    ) -> (Self, mpsc::Receiver<StreamMessage>) {
        let (said, heard) = mpsc::channel(SAID_MAX);
        let stalled = STALLED_MIN.max(2 * deadline);
        (Self { transport, backlog, stalled, open: Mutex::default(), said }, heard)
    }

    /// Passes a frame to the stream of this address, which is opened if there is none. The frame is not sent after
    /// `until`.
    ///
    /// # Errors
    /// Plaintext is not allowed for the address.
    pub(crate) fn send(
        &self,
        address: &str,
        expected: ExpectedPeer,
        frame: Arc<v1::Beats>,
        until: Instant,
    ) -> Result<(), ErrorDetail> {
        self.transport.check(address)?;
        let mut open = self.open.lock();
        open.count += 1;
        let waiting = PendingFrame { sequence: open.count, frame, until };
        if let Some(stream) = open.streams.get(address) {
            stream.newest.send_modify(|waits| {
                let stay = match self.backlog {
                    Backlog::Newest => 0,
                    Backlog::Frames(count) => count.saturating_sub(1),
                };
                waits.drain(..waits.len().saturating_sub(stay));
                waits.push(waiting);
            });
            return Ok(());
        }
        if open.streams.len() >= STREAMS_MAX {
            open.streams.clear();
        }
        let (number, (newest, heard)) = (open.count, watch::channel(Vec::new()));
        newest.send_replace(vec![waiting]);
        let carrier = Carrier {
            transport: self.transport.clone(),
            address: address.to_owned(),
            expected,
            stream: number,
            newest: heard,
            stalled: self.stalled,
            said: self.said.clone(),
        };
        tokio::spawn(carrier.run());
        open.streams.insert(address.to_owned(), Stream { number, newest });
        Ok(())
    }

    /// Closes the streams to all other addresses, as long as this one answers.
    pub(crate) fn keep_only(&self, address: &str) {
        self.open.lock().streams.retain(|other, _| other == address);
    }

    /// Removes a stream that has ended; returns whether it was the open one of its address.
    pub(crate) fn ended(&self, address: &str, number: u64) -> bool {
        let mut open = self.open.lock();
        let is_open = open.streams.get(address).is_some_and(|stream| stream.number == number);
        if is_open {
            open.streams.remove(address);
        }
        is_open
    }
}
