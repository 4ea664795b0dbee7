//! Checks of a founder with an empty log before it takes part: it asks its peers for the members they know. A quorum
//! that already knows its id with another data directory must never get its vote (a wiped disk loses the record of its
//! votes).

use super::WaitReason;
use crate::error::CoordinatorError;
use crate::quorum::timing::TooFar;
use crate::raft::{Answers, FarStreaks, HelloQuestions, LocalVoter, ask_all, check_distance};
use archon_proto::v1::{HelloResponse, Standing};
use archon_security::Transport;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::{Code, Status};
use uuid::Uuid;

/// Pause between two rounds of questions.
const ROUND_INTERVAL: Duration = Duration::from_millis(50);
/// Number of rounds that a peer starting with this one gets before it is reported as missing.
const GRACE_ROUNDS: u32 = 20;
/// Number of rounds of measurements in which the round trip to a coordinator must be too long before this one ends:
/// about half a minute. Machines that start together are busy for a while, and answer late.
const FAR_ROUNDS: u32 = 15;
/// Pause before a round trip that was too long is measured again.
const FAR_INTERVAL: Duration = Duration::from_secs(1);
/// Number of rounds after which an unchanged wait is logged again.
const REPORT_ROUNDS: u32 = 600;

/// Ways for a founder to take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Founding {
    /// The voter set exists and names this data directory.
    Member,
    /// There is no voter set anywhere: contains all data directories, including this one.
    Fresh(BTreeMap<u64, Uuid>),
}

/// Asks all peers until the way to take part is clear, without a time limit: an empty voter that does not know it must
/// not vote. The reason of the wait is kept in `waiting`.
///
/// # Errors
/// `WipedVoter`; `TooFar`; or `Refused` when every peer refuses this coordinator.
pub(crate) async fn found(
    transport: &Transport,
    local_voter: &LocalVoter,
    peers: &BTreeMap<u64, String>,
    waiting: &WaitReason,
) -> Result<Founding, CoordinatorError> {
    let mut reported: Vec<String> = Vec::new();
    let mut distances = Distances::new(local_voter.id, peers);
    let mut round = 0;
    loop {
        let answers = ask_all(transport, local_voter, peers, &HelloQuestions::default()).await;
        if let Some(founding) = judge(local_voter, peers, &answers)? {
            if founding == Founding::Member {
                return Ok(founding);
            }
            // Without timely heartbeat answers a quorum would hold elections without end.
            let measured = join_all(
                distances
                    .unmeasured
                    .iter()
                    .map(async |(id, address)| (*id, check_distance(transport, local_voter, *id, address).await)),
            );
            distances.note(measured.await);
            if distances.unmeasured.is_empty() {
                return Ok(founding);
            }
            if let Some(far) = distances.far(FAR_ROUNDS) {
                return Err(far.clone().into());
            }
            waiting.set(distances.text());
            let pause = if distances.far(1).is_some() { FAR_INTERVAL } else { ROUND_INTERVAL };
            tokio::time::sleep(pause).await;
            continue;
        }
        // A coordinator that starts again is busy again.
        distances.far = FarStreaks::default();
        let missing = missing(local_voter, peers, &answers);
        round += 1;
        if round >= GRACE_ROUNDS && (missing != reported || round % REPORT_ROUNDS == 0) {
            tracing::warn!(
                waiting_for = missing.join(", "),
                "the quorum is founded when all its coordinators are \
                                                       running"
            );
            reported.clone_from(&missing);
        }
        waiting.set(text(&missing));
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
}

/// Measured round trips to the other coordinators.
struct Distances {
    /// Coordinators to which no round trip that fits has been measured, with their addresses.
    unmeasured: BTreeMap<u64, String>,
    /// Their round trips that were too long.
    far: FarStreaks,
}

impl Distances {
    fn new(own_id: u64, peers: &BTreeMap<u64, String>) -> Self {
        let mut unmeasured = peers.clone();
        unmeasured.remove(&own_id);
        Self { unmeasured, far: FarStreaks::default() }
    }

    /// Notes a round of measurements. One round trip that fits is enough: only delays can make a measurement too long.
    fn note(&mut self, measured: impl IntoIterator<Item = (u64, Result<bool, TooFar>)>) {
        for (id, measured) in measured {
            if measured == Ok(true) {
                self.unmeasured.remove(&id);
            }
            if self.far.note(id, measured) == 1
                && let Some(far) = self.far.of(id, 1)
            {
                tracing::warn!("{far}; the round trip is measured again");
            }
        }
    }

    /// Returns the first coordinator to which the round trip was too long in this number of rounds.
    fn far(&self, rounds: u32) -> Option<&TooFar> {
        self.unmeasured.keys().find_map(|id| self.far.of(*id, rounds))
    }

    /// Describes the coordinators that are not measured.
    fn text(&self) -> String {
        let describe = |(id, address): (&u64, &String)| match self.far.of(*id, 1) {
            Some(far) => far.to_string(),
            None => format!("the round trip to coordinator {id} at {address} is not measured yet"),
        };
        self.unmeasured.iter().map(describe).collect::<Vec<_>>().join(", ")
    }
}

/// Describes the reasons of the wait.
fn text(missing: &[String]) -> String {
    format!("a quorum is founded when all its coordinators are running, and {}", missing.join(", "))
}

/// Lists every other coordinator that is not known to be ready, with the reason.
fn missing(local_voter: &LocalVoter, peers: &BTreeMap<u64, String>, answers: &Answers) -> Vec<String> {
    let others = peers.iter().filter(|(id, _)| **id != local_voter.id);
    let missing = others.filter_map(|(id, address)| match answers.get(id) {
        Some(Ok(_)) => None,
        Some(Err(status)) if status.code() == Code::FailedPrecondition => {
            Some(format!("coordinator {id} at {address} refuses this one: {}", status.message()))
        }
        Some(Err(_)) | None => Some(format!("coordinator {id} at {address} does not answer")),
    });
    missing.collect()
}

fn judge(
    local_voter: &LocalVoter,
    peers: &BTreeMap<u64, String>,
    answers: &Answers,
) -> Result<Option<Founding>, CoordinatorError> {
    let mut storages: BTreeMap<u64, Uuid> = [(local_voter.id, local_voter.storage)].into();
    let mut member = false;
    for (id, answer) in answers {
        let Ok(answer) = answer else { continue };
        if answer.initialized {
            match answer.standing() {
                Standing::OtherDirectory => {
                    return Err(CoordinatorError::WipedVoter { id: local_voter.id, found: local_voter.storage });
                }
                Standing::Retired => return Err(CoordinatorError::Removed { id: local_voter.id }),
                Standing::Member => member = true,
                Standing::Unspecified => {}
            }
        } else if let Ok(storage) = Uuid::from_slice(&answer.storage) {
            storages.insert(*id, storage);
        }
    }
    if member {
        return Ok(Some(Founding::Member));
    }
    if storages.len() == peers.len() {
        return Ok(Some(Founding::Fresh(storages)));
    }
    let refused = |answer: &Result<HelloResponse, Status>| match answer {
        Err(status) if status.code() == Code::FailedPrecondition => Some(status.message().to_owned()),
        _ => None,
    };
    let refusals: BTreeMap<u64, String> =
        answers.iter().filter_map(|(id, answer)| Some((*id, refused(answer)?))).collect();
    match refusals.into_iter().next() {
        Some((id, why)) if answers.values().all(|answer| refused(answer).is_some()) => {
            let peer = peers.get(&id).cloned().unwrap_or_default();
            Err(CoordinatorError::Refused { peer, why })
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::ProtocolSupport;
    use bytes::Bytes;
    use std::sync::Arc;

    fn local_voter() -> LocalVoter {
        let expected = Arc::new([1, 2, 3].into());
        LocalVoter {
            id: 3,
            storage: Uuid::from_u128(33),
            quorum: Uuid::from_u128(9),
            expected,
            spoken: ProtocolSupport::default(),
            timing: Default::default(),
            marks: crate::raft::KeptMarks::none(3, Uuid::from_u128(33)),
            checksums: crate::raft::Checksums::new(3),
        }
    }

    fn peers() -> BTreeMap<u64, String> {
        (1..=3).map(|id| (id, format!("127.0.0.1:{id}"))).collect()
    }

    fn bytes(id: u128) -> Bytes {
        Bytes::copy_from_slice(Uuid::from_u128(id).as_bytes())
    }

    fn fresh(id: u64) -> Result<HelloResponse, Status> {
        Ok(HelloResponse { id, storage: bytes(u128::from(id) * 11), ..HelloResponse::default() })
    }

    fn initialized(id: u64, standing: Standing) -> Result<HelloResponse, Status> {
        Ok(HelloResponse { id, initialized: true, standing: standing.into(), ..HelloResponse::default() })
    }

    #[test]
    fn wiped_voter_is_refused_even_if_others_are_fresh() {
        let judged =
            judge(&local_voter(), &peers(), &[(1, fresh(1)), (2, initialized(2, Standing::OtherDirectory))].into());
        assert!(matches!(judged, Err(CoordinatorError::WipedVoter { id: 3, .. })), "{judged:?}");
        let judged = judge(&local_voter(), &peers(), &[(2, initialized(2, Standing::Member))].into()).unwrap();
        assert_eq!(judged, Some(Founding::Member));
    }

    #[test]
    fn quorum_is_founded_only_if_all_are_known_to_be_fresh() {
        let one = judge(&local_voter(), &peers(), &[(1, fresh(1)), (2, Err(Status::unavailable("")))].into()).unwrap();
        assert_eq!(one, None);
        let all = judge(&local_voter(), &peers(), &[(1, fresh(1)), (2, fresh(2))].into()).unwrap();
        let storages = [(1, Uuid::from_u128(11)), (2, Uuid::from_u128(22)), (3, Uuid::from_u128(33))];
        assert_eq!(all, Some(Founding::Fresh(storages.into())));
    }

    #[test]
    fn founding_ends_only_if_all_peers_refuse() {
        let no = || Err(Status::failed_precondition("another peer list"));
        assert_eq!(judge(&local_voter(), &peers(), &[(1, no()), (2, fresh(2))].into()).unwrap(), None);
        let all = judge(&local_voter(), &peers(), &[(1, no()), (2, no())].into());
        assert!(matches!(all, Err(CoordinatorError::Refused { .. })), "{all:?}");
    }

    #[test]
    fn founder_refuses_a_distance_after_many_rounds_only() {
        let far = |id| {
            let (address, timing) = (format!("127.0.0.1:{id}"), Default::default());
            Err(TooFar { id, address, round_trip: Duration::from_millis(80), timing })
        };
        let mut distances = Distances::new(3, &peers());
        distances.note([(1, Ok(true)), (2, far(2))]);
        assert_eq!(distances.unmeasured.keys().collect::<Vec<_>>(), [&2]);
        assert!(
            distances.text().starts_with("coordinator 2 at 127.0.0.1:2 answers after 80 ms"),
            "{}",
            distances.text()
        );
        // A round without an answer proves nothing.
        for _ in 0..FAR_ROUNDS {
            distances.note([(2, Ok(false))]);
        }
        for _ in 2..FAR_ROUNDS {
            distances.note([(2, far(2))]);
        }
        assert_eq!(distances.far(FAR_ROUNDS), None);
        distances.note([(2, far(2))]);
        assert_eq!(distances.far(FAR_ROUNDS).map(|far| far.id), Some(2));
        // One round trip that fits is enough.
        distances.note([(2, Ok(true))]);
        assert!(distances.unmeasured.is_empty() && distances.far(1).is_none());
    }

    #[test]
    fn missing_coordinator_is_named() {
        let other_list = Err(Status::failed_precondition("another peer list"));
        let answers = [(1, fresh(1)), (2, Err(Status::unavailable("")))].into();
        assert_eq!(missing(&local_voter(), &peers(), &answers), ["coordinator 2 at 127.0.0.1:2 does not answer"]);
        let text = text(&missing(&local_voter(), &peers(), &[(1, fresh(1)), (2, other_list)].into()));
        assert!(text.contains("when all its coordinators are running"), "{text}");
        assert!(text.ends_with("coordinator 2 at 127.0.0.1:2 refuses this one: another peer list"), "{text}");
    }
}
