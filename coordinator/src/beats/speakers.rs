//! One stream of each member: whoever begins another has lost the one before.

use archon_types::NodeId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The members whose streams are served.
#[derive(Default)]
pub(crate) struct Speakers(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    streams: BTreeMap<NodeId, (u64, CancellationToken)>,
    /// Streams so far.
    count: u64,
}

/// A member's stream among them, until it is dropped.
pub(super) struct Place {
    speakers: Arc<Speakers>,
    node: NodeId,
    number: u64,
    /// Cancelled when the member begins another stream.
    pub(super) replaced: CancellationToken,
}

impl Speakers {
    /// This stream is the member's from now on; one before it ends.
    pub(super) fn enter(self: &Arc<Self>, node: NodeId) -> Place {
        let replaced = CancellationToken::new();
        let mut inside = self.0.lock();
        inside.count += 1;
        let number = inside.count;
        if let Some((_, before)) = inside.streams.insert(node, (number, replaced.clone())) {
            before.cancel();
        }
        Place { speakers: Arc::clone(self), node, number, replaced }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().streams.len()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.speakers.0.lock();
        if inside.streams.get(&self.node).is_some_and(|(number, _)| *number == self.number) {
            inside.streams.remove(&self.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_has_one_stream_and_the_one_before_ends() {
        let speakers = Arc::new(Speakers::default());
        let (athens, byzantium) = (NodeId::new(1), NodeId::new(2));
        let (first, other) = (speakers.enter(athens), speakers.enter(byzantium));
        let second = speakers.enter(athens);
        assert!(first.replaced.is_cancelled() && !second.replaced.is_cancelled() && !other.replaced.is_cancelled());
        drop(first);
        assert_eq!(speakers.count(), 2, "the place is the second one's");
        drop((second, other));
        assert_eq!(speakers.count(), 0);
    }
}
