//! Before a founder with an empty log takes part, it asks its peers whom they know: a quorum that already knows its id with
//! another data directory must never get its vote (a wiped disk forgets what it voted).

use super::Waiting;
use crate::error::CoordinatorError;
use crate::raft::{Answers, Asked, LocalVoter, ask_all, check_distances};
use archon_proto::v1::{HelloResponse, Standing};
use archon_security::Transport;
use std::collections::BTreeMap;
use std::time::Duration;
use tonic::{Code, Status};
use uuid::Uuid;

/// Pause between two rounds of questions.
const ROUND_INTERVAL: Duration = Duration::from_millis(50);
/// A peer that starts with this one is given this many rounds before it is said to be missing.
const GRACE_ROUNDS: u32 = 20;
/// Rounds of measurements that end this one because another coordinator is too far away.
const FAR_ROUNDS: u32 = 3;
/// How often the waiting is told again while nothing changes.
const REPORT_ROUNDS: u32 = 600;

/// How a founder may take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Founding {
    /// The voter set exists and names this data directory.
    Member,
    /// Nobody has a voter set: everybody's data directories, this one's included.
    Fresh(BTreeMap<u64, Uuid>),
}

/// Asks all peers until it is clear how to take part. Waits as long as it takes: an empty voter that cannot tell must not
/// vote. What it waits for is kept in `waiting`.
///
/// # Errors
/// `WipedVoter`; `TooFar`; or `Refused` when every peer refuses this coordinator.
pub(crate) async fn found(
    transport: &Transport,
    local_voter: &LocalVoter,
    peers: &BTreeMap<u64, String>,
    waiting: &Waiting,
) -> Result<Founding, CoordinatorError> {
    let mut reported: Vec<String> = Vec::new();
    let (mut round, mut far_rounds) = (0, 0);
    loop {
        let answers = ask_all(transport, local_voter, peers, &Asked::default()).await;
        if let Some(founding) = judge(local_voter, peers, &answers)? {
            // Without timely heartbeat answers a quorum would hold elections without end.
            let measured = match founding {
                Founding::Fresh(_) => match check_distances(transport, local_voter, peers).await {
                    Ok(measured) => measured,
                    // A busy machine answers late for a moment.
                    Err(far) => {
                        far_rounds += 1;
                        if far_rounds >= FAR_ROUNDS {
                            return Err(far.into());
                        }
                        waiting.set(far.to_string());
                        false
                    }
                },
                Founding::Member => true,
            };
            if measured {
                return Ok(founding);
            }
            tokio::time::sleep(ROUND_INTERVAL).await;
            continue;
        }
        let missing = missing(local_voter, peers, &answers);
        round += 1;
        if round >= GRACE_ROUNDS && (missing != reported || round % REPORT_ROUNDS == 0) {
            tracing::warn!(waiting_for = missing.join(", "), "the quorum is made when all its coordinators run");
            reported.clone_from(&missing);
        }
        waiting.set(text(&missing));
        tokio::time::sleep(ROUND_INTERVAL).await;
    }
}

/// What is waited for, in words.
fn text(missing: &[String]) -> String {
    format!("a quorum is made when all its coordinators run, and {}", missing.join(", "))
}

/// Every other coordinator that is not known to be ready, and what is the matter with it.
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
    use crate::raft::Spoken;
    use bytes::Bytes;
    use std::sync::Arc;

    fn local_voter() -> LocalVoter {
        let expected = Arc::new([1, 2, 3].into());
        LocalVoter {
            id: 3,
            storage: Uuid::from_u128(33),
            quorum: Uuid::from_u128(9),
            expected,
            spoken: Spoken::default(),
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
    fn a_wiped_voter_is_refused_even_if_others_are_fresh() {
        let judged =
            judge(&local_voter(), &peers(), &[(1, fresh(1)), (2, initialized(2, Standing::OtherDirectory))].into());
        assert!(matches!(judged, Err(CoordinatorError::WipedVoter { id: 3, .. })), "{judged:?}");
        let judged = judge(&local_voter(), &peers(), &[(2, initialized(2, Standing::Member))].into()).unwrap();
        assert_eq!(judged, Some(Founding::Member));
    }

    #[test]
    fn a_quorum_is_made_only_when_all_are_known_to_be_fresh() {
        let one = judge(&local_voter(), &peers(), &[(1, fresh(1)), (2, Err(Status::unavailable("")))].into()).unwrap();
        assert_eq!(one, None);
        let all = judge(&local_voter(), &peers(), &[(1, fresh(1)), (2, fresh(2))].into()).unwrap();
        let storages = [(1, Uuid::from_u128(11)), (2, Uuid::from_u128(22)), (3, Uuid::from_u128(33))];
        assert_eq!(all, Some(Founding::Fresh(storages.into())));
    }

    #[test]
    fn all_refusing_ends_it_and_one_refusing_does_not() {
        let no = || Err(Status::failed_precondition("another peer list"));
        assert_eq!(judge(&local_voter(), &peers(), &[(1, no()), (2, fresh(2))].into()).unwrap(), None);
        let all = judge(&local_voter(), &peers(), &[(1, no()), (2, no())].into());
        assert!(matches!(all, Err(CoordinatorError::Refused { .. })), "{all:?}");
    }

    #[test]
    fn one_of_three_was_missing_and_the_asker_was_named_instead() {
        let other_list = Err(Status::failed_precondition("another peer list"));
        let answers = [(1, fresh(1)), (2, Err(Status::unavailable("")))].into();
        assert_eq!(missing(&local_voter(), &peers(), &answers), ["coordinator 2 at 127.0.0.1:2 does not answer"]);
        let text = text(&missing(&local_voter(), &peers(), &[(1, fresh(1)), (2, other_list)].into()));
        assert!(text.contains("when all its coordinators run"), "{text}");
        assert!(text.ends_with("coordinator 2 at 127.0.0.1:2 refuses this one: another peer list"), "{text}");
    }
}
