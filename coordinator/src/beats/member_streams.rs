//! Streams of members: one of each, and one more if it relays heartbeats for others; a new stream ends the previous
//! one.

use archon_types::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Owner of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Sender {
    /// A member that sends its own heartbeats.
    Member(NodeId),
    /// A node that relays the heartbeats of others.
    Relay(NodeId),
}

/// The members with served streams.
#[derive(Default)]
pub(crate) struct MemberStreams(Mutex<OpenStreams>);

#[derive(Default)]
struct OpenStreams {
    streams: BTreeMap<Sender, (u64, CancellationToken)>,
    /// Number of streams so far.
    count: u64,
}

/// A member's stream, served until this is dropped.
pub(super) struct MemberStream {
    member_streams: Arc<MemberStreams>,
    sender: Sender,
    number: u64,
    /// Cancelled when the member opens another stream.
    pub(super) replaced: CancellationToken,
}

impl MemberStreams {
    /// Makes this stream the member's; the previous one ends.
    pub(super) fn enter(self: &Arc<Self>, sender: Sender) -> MemberStream {
        let replaced = CancellationToken::new();
        let mut inside = self.0.lock();
        inside.count += 1;
        let number = inside.count;
        if let Some((_, before)) = inside.streams.insert(sender, (number, replaced.clone())) {
            before.cancel();
        }
        MemberStream { member_streams: Arc::clone(self), sender, number, replaced }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().streams.len()
    }
}

impl Drop for MemberStream {
    fn drop(&mut self) {
        let mut inside = self.member_streams.0.lock();
        if inside.streams.get(&self.sender).is_some_and(|(number, _)| *number == self.number) {
            inside.streams.remove(&self.sender);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_stream_of_member_ends_the_previous_one() {
        let member_streams = Arc::new(MemberStreams::default());
        let (athens, byzantium) = (Sender::Member(NodeId::new(1)), Sender::Member(NodeId::new(2)));
        let (first, other) = (member_streams.enter(athens), member_streams.enter(byzantium));
        let second = member_streams.enter(athens);
        assert!(first.replaced.is_cancelled() && !second.replaced.is_cancelled() && !other.replaced.is_cancelled());
        drop(first);
        assert_eq!(member_streams.count(), 2, "the stream that is left is the second one");
        let relayed = member_streams.enter(Sender::Relay(NodeId::new(1)));
        assert!(!second.replaced.is_cancelled(), "what it carries for others is another stream");
        drop((second, other, relayed));
        assert_eq!(member_streams.count(), 0);
    }
}
