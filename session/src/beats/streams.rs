//! Streams of heartbeats, one to each address that is asked and whose word may still matter. They end with this.

use super::stream::{Carrier, Said, Waiting};
use archon_proto::v1;
use archon_security::{Expected, Transport};
use archon_types::ErrorDetail;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Streams at once; a cluster has fewer coordinators, and a member two relays.
const STREAMS_MAX: usize = 32;
/// What streams said and nobody has looked at yet; a stream waits when it is full.
const SAID_MAX: usize = 64;
/// How long a stream may owe an answer, at least, before it counts as broken and is made anew.
const STALLED_MIN: Duration = Duration::from_secs(1);

/// How many frames wait on a stream that has not taken them yet; of more, the newest stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backlog {
    /// A member's own: only its newest heartbeat says anything.
    Newest,
    /// Heartbeats of others: each frame has those of other members.
    Frames(usize),
}

#[derive(Debug)]
pub(crate) struct Streams {
    transport: Transport,
    backlog: Backlog,
    /// How long a stream may owe an answer.
    stalled: Duration,
    open: Mutex<Open>,
    said: mpsc::Sender<Said>,
}

#[derive(Debug, Default)]
struct Open {
    streams: BTreeMap<String, Stream>,
    /// Streams, and frames, so far.
    count: u64,
}

/// A stream's end that its task listens to; the task ends when it is dropped.
#[derive(Debug)]
struct Stream {
    number: u64,
    newest: watch::Sender<Vec<Waiting>>,
}

impl Streams {
    /// None yet. What arrives is received; an answer is waited for `deadline` as a rule.
    pub(crate) fn new(transport: Transport, backlog: Backlog, deadline: Duration) -> (Self, mpsc::Receiver<Said>) {
        let (said, heard) = mpsc::channel(SAID_MAX);
        let stalled = STALLED_MIN.max(2 * deadline);
        (Self { transport, backlog, stalled, open: Mutex::default(), said }, heard)
    }

    /// Gives a frame to the stream to this address, which is begun if there is none. It does not leave after `until`.
    ///
    /// # Errors
    /// Plaintext must not go there.
    pub(crate) fn send(
        &self,
        address: &str,
        expected: Expected,
        frame: Arc<v1::Beats>,
        until: Instant,
    ) -> Result<(), ErrorDetail> {
        self.transport.check(address)?;
        let mut open = self.open.lock();
        open.count += 1;
        let waiting = Waiting { sequence: open.count, frame, until };
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

    /// Nobody else than whoever serves at this address is asked from now on, as long as it answers.
    pub(crate) fn keep_only(&self, address: &str) {
        self.open.lock().streams.retain(|other, _| other == address);
    }

    /// A stream has ended. Returns whether it was the one that is open to its address.
    pub(crate) fn ended(&self, address: &str, number: u64) -> bool {
        let mut open = self.open.lock();
        let is_open = open.streams.get(address).is_some_and(|stream| stream.number == number);
        if is_open {
            open.streams.remove(address);
        }
        is_open
    }
}
