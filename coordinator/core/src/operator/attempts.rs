//! Attempts of an administrative request, which is decided again if the rows of its decision change before the commit.

use crate::command::Command;
use crate::state::ClusterState;
use crate::state::response::Response;
use archon_types::{ErrorKind, RequestId};
use uuid::Uuid;

/// Maximum number of attempts of one request. Each takes a commit, and a row changes far less often than that.
const ATTEMPTS_MAX: u32 = 8;

/// The next attempt of a request. The state keeps the answer of every attempt, so each has an id of its own. A request
/// that is sent again goes through the same attempts, and takes effect once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    id: RequestId,
    /// Answer of the attempt before it.
    refused: Option<Vec<Response>>,
}

impl Attempt {
    /// Returns the next attempt of a request.
    ///
    /// # Errors
    /// The responses, if the request has been answered or its attempts are used up.
    pub fn next(state: &ClusterState, request: RequestId) -> Result<Self, Vec<Response>> {
        let mut refused = None;
        for number in 0..ATTEMPTS_MAX {
            let id = id_of(request, number);
            let Some(kept) = state.answers.iter().rev().find(|kept| kept.request == id) else {
                return Ok(Self { id, refused });
            };
            if !Self::is_overtaken(&kept.responses) {
                return Err(kept.responses.clone());
            }
            refused = Some(kept.responses.clone());
        }
        Err(refused.unwrap_or_default())
    }

    /// Returns the id under which to commit this command.
    ///
    /// # Errors
    /// The responses of the attempt before, if the command must not be decided again.
    pub fn id_for(self, command: &Command) -> Result<RequestId, Vec<Response>> {
        match self.refused {
            Some(refused) if !may_repeat(command) => Err(refused),
            _ => Ok(self.id),
        }
    }

    /// Returns true if a change of the rows came before the commit, so that another attempt may succeed.
    pub fn is_overtaken(responses: &[Response]) -> bool {
        let is_stale = |response: &Response| response.refusal().is_some_and(|why| why.kind == ErrorKind::StaleVersion);
        !responses.is_empty() && responses.iter().all(is_stale)
    }
}

/// Returns the id of an attempt; the first one has the id of the request. Random ids are too far apart for attempts of
/// two requests to have the same one.
fn id_of(request: RequestId, attempt: u32) -> RequestId {
    RequestId::new(Uuid::from_u128(request.get().as_u128().wrapping_add(attempt.into())))
}

/// Returns false for a command that loses data, as an operator accepts the loss for the rows as they were, and for a
/// change of the quorum, which was decided by the health of its members as well.
const fn may_repeat(command: &Command) -> bool {
    !matches!(command, Command::NodeLost { .. } | Command::AcceptLoss { .. } | Command::ChangeQuorum { .. })
}
