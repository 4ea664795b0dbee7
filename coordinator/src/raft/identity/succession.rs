//! Relation of generations of the cluster to each other, and the answer of one to a coordinator of another (PROTOCOL rule 60).

use archon_coordinator_core::ClusterState;
use archon_proto::v1::{HelloRequest, Takeover};
use archon_types::limits::check_address;

/// Returns the state of this coordinator's generation towards the former coordinators. A follower's state may lack that it has taken over;
/// the only voter's may not, except before it leads, and each leader asks the former coordinators again.
pub(in crate::raft) fn takeover_of(
    stands_by: bool,
    leads_and_waits: bool,
    is_only_voter: impl FnOnce() -> bool,
) -> Takeover {
    match stands_by {
        false => Takeover::Unspecified,
        true if leads_and_waits || is_only_voter() => Takeover::Waits,
        true => Takeover::Unknown,
    }
}

/// Returns the values of `later_generation` and `standby_generation` of an answer. Versions without the second one end for any value of the
/// first.
pub(in crate::raft) const fn named_generations(later: u64, takeover: Takeover) -> (u64, u64) {
    match takeover {
        Takeover::Unspecified => (later, 0),
        Takeover::Waits | Takeover::Unknown => (0, later),
    }
}

/// Returns the number and address of the sender of `hello` if it lives in a later generation of this cluster, and is to
/// be asked whether that one has taken the place of this one. Without a certificate it is not believed: a stranger could
/// end the quorum. Neither is a coordinator that was removed from this quorum: its stolen key could.
pub(in crate::raft) fn successor_of(
    state: &ClusterState,
    hello: &HelloRequest,
    is_certified: bool,
) -> Option<(u64, String)> {
    let later = Succession::of(state, hello) == Some(Succession::Earlier);
    let believed = later && is_certified && !state.coordinators.retired.contains_key(&hello.sender);
    (believed && check_address(&hello.address).is_ok()).then(|| (hello.sender, hello.address.clone()))
}

/// Relation of a generation of the cluster to an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::raft) enum Succession {
    /// This later generation continues it.
    Continues(u64),
    /// This generation was begun from another state (PROTOCOL rule 60).
    OtherHistory(u64),
    /// The other one is later.
    Earlier,
}

impl Succession {
    /// Relates the generation of `state` to that of the sender of `hello`; `None` if they are the same, or of two clusters.
    pub(in crate::raft) fn of(state: &ClusterState, hello: &HelloRequest) -> Option<Self> {
        let own = state.generation;
        if hello.cluster != state.cluster.get().as_bytes()[..] || hello.generation == 0 {
            return None;
        }
        if hello.generation > own {
            return Some(Self::Earlier);
        }
        let key = state.generation_key(hello.generation).get();
        let is_continued = hello.generation_key.as_ref().is_none_or(|theirs| theirs[..] == key.as_bytes()[..]);
        match is_continued {
            false => Some(Self::OtherHistory(own)),
            true if hello.generation < own => Some(Self::Continues(own)),
            true => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{ClusterId, GenerationKey, StorageId};
    use bytes::Bytes;
    use std::collections::BTreeMap;
    use uuid::Uuid;

    const CLUSTER: Uuid = Uuid::from_u128(1);

    fn key(number: u128) -> GenerationKey {
        GenerationKey::new(Uuid::from_u128(number))
    }

    /// The state of the third generation, which continues the second one of this key.
    fn third() -> ClusterState {
        let mut state = ClusterState::new();
        (state.cluster, state.generation) = (ClusterId::new(CLUSTER), 3);
        state.generation_keys = BTreeMap::from([(2, key(20)), (3, key(30))]);
        state
    }

    fn hello(generation: u64, of: Option<u128>) -> HelloRequest {
        let bytes = |id: Uuid| Bytes::copy_from_slice(id.as_bytes());
        let generation_key = of.map(|of| bytes(key(of).get()));
        HelloRequest { cluster: bytes(CLUSTER), generation, generation_key, ..HelloRequest::default() }
    }

    #[test]
    fn later_generation_is_asked_if_its_coordinator_is_believed() {
        let mut state = third();
        let address = || "10.0.0.9:7101".to_owned();
        let hello_of = |generation| HelloRequest { sender: 9, address: address(), ..hello(generation, Some(40)) };
        assert_eq!(successor_of(&state, &hello_of(4), true), Some((9, address())));
        assert_eq!(successor_of(&state, &hello_of(3), true), None);
        assert_eq!(successor_of(&state, &hello_of(4), false), None);
        assert_eq!(successor_of(&state, &HelloRequest { address: String::new(), ..hello_of(4) }, true), None);
        state.coordinators.retired.insert(9, StorageId::new(Uuid::from_u128(9)));
        assert_eq!(successor_of(&state, &hello_of(4), true), None);
    }

    #[test]
    fn lone_founder_without_a_leader_holds_nothing_up() {
        assert_eq!(takeover_of(true, false, || true), Takeover::Waits);
        assert_eq!(takeover_of(true, false, || false), Takeover::Unknown);
        assert_eq!(takeover_of(true, true, || false), Takeover::Waits);
        assert_eq!(takeover_of(false, false, || true), Takeover::Unspecified);
    }

    #[test]
    fn recovery_that_stands_by_does_not_end_earlier_versions() {
        assert_eq!(named_generations(2, Takeover::Waits), (0, 2));
        assert_eq!(named_generations(2, Takeover::Unknown), (0, 2));
        assert_eq!(named_generations(2, Takeover::Unspecified), (2, 0));
    }

    #[test]
    fn later_generation_ends_only_what_it_continues() {
        let of = |generation, key| Succession::of(&third(), &hello(generation, key));
        assert_eq!(of(1, Some(0)), Some(Succession::Continues(3)), "the first one has no key");
        assert_eq!(of(2, Some(20)), Some(Succession::Continues(3)));
        assert_eq!(of(2, Some(21)), Some(Succession::OtherHistory(3)));
        assert_eq!(of(3, Some(30)), None);
        assert_eq!(of(3, Some(31)), Some(Succession::OtherHistory(3)));
        assert_eq!(of(4, Some(40)), Some(Succession::Earlier));
        // A version that does not name its key.
        assert_eq!(of(2, None), Some(Succession::Continues(3)));
        let elsewhere = HelloRequest { cluster: Bytes::new(), ..hello(2, Some(20)) };
        assert_eq!(Succession::of(&third(), &elsewhere), None);
    }
}
