//! One administrative call: its caller, its progress, and the audit record of a change.

use super::budget;
use crate::audit::{Audit, Change, LineKind, Outcome, Record};
use crate::clock::wall_now;
use archon_coordinator_core::Actor;
use archon_documents::{Effect, MethodCall};
use archon_proto::convert::ids::request_id;
use archon_proto::v1;
use archon_security::{Caller, Role};
use archon_types::{ErrorDetail, ErrorKind, RequestId};
use parking_lot::Mutex;
use std::time::Duration;
use tonic::Request;

/// Progress of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It has not reached the leader.
    Asked,
    /// The state is checking it, or has refused it.
    Judged,
    /// There was nothing to commit.
    Idle,
    /// It is in the log, and may be committed even if the answer is an error.
    Proposed,
    /// It is committed.
    Done,
}

/// A call. When it has ended, or its caller has disconnected, its outcome is recorded.
pub(super) struct Call<'a> {
    audit: &'a Audit,
    caller: Caller,
    /// Time limit.
    pub(super) within: Duration,
    /// Cluster named in the request, if any.
    cluster: Option<v1::ClusterRef>,
    /// Id that a retry repeats, so that the call takes effect once; nil for a call that only reads.
    request: RequestId,
    stage: Mutex<Stage>,
    /// Taken once it is recorded.
    record: Mutex<Option<Record>>,
}

impl<'a> Call<'a> {
    /// Creates the call `path` for this request.
    pub(super) fn new<T: Change>(audit: &'a Audit, path: &'static str, request: &Request<T>) -> Self {
        let asked = request.get_ref();
        let audited = Some((asked.subject(), asked.wanted()));
        let id = request_id(asked.request_id(), "request_id").ok();
        Self::begin(audit, path, Caller::of(request), budget(request.metadata()), id, audited)
    }

    /// Creates a call with a document; `document` is `None` if the request holds none that its method can read.
    pub(super) fn with_document<T: MethodCall>(
        audit: &'a Audit,
        request: &Request<v1::AdminRequest>,
        document: Option<&T>,
    ) -> Self {
        let audited = match document {
            Some(document) if document.effect() == Effect::Reads => None,
            Some(document) => Some((document.subject(), document.wanted())),
            None if T::METHOD.effect == Effect::Reads => None,
            None => Some(("unknown".to_owned(), None)),
        };
        let id = request_id(&request.get_ref().request_id, "request_id").ok();
        let mut call = Self::begin(audit, T::METHOD.path, Caller::of(request), budget(request.metadata()), id, audited);
        call.cluster.clone_from(&request.get_ref().cluster);
        call
    }

    fn begin(
        audit: &'a Audit,
        path: &'static str,
        caller: Caller,
        within: Duration,
        id: Option<RequestId>,
        audited: Option<(String, Option<String>)>,
    ) -> Self {
        let record = audited.map(|(subject, asked)| Record {
            at: wall_now(),
            what: LineKind::Change,
            who: caller.identity.as_ref().map(|identity| identity.to_string()),
            from: Some(caller.address),
            via: caller.via.as_ref().map(|speaker| speaker.to_string()),
            call: Some(path.to_owned()),
            subject: Some(subject),
            asked,
            outcome: Outcome::Done,
            request_id: id.map(|id| id.to_string()),
            left_out: 0,
            dropped: 0,
        });
        let (cluster, request) = (None, id.unwrap_or_default());
        Self { audit, caller, within, cluster, request, stage: Mutex::new(Stage::Asked), record: Mutex::new(record) }
    }

    /// Returns the cluster named in the request, if any.
    pub(super) const fn cluster(&self) -> Option<&v1::ClusterRef> {
        self.cluster.as_ref()
    }

    /// Returns the id that a retry repeats.
    pub(super) const fn request(&self) -> RequestId {
        self.request
    }

    /// Returns the caller as log and events name it.
    pub(super) fn who(&self) -> Actor {
        let Caller { identity, via, address, .. } = &self.caller;
        let [identity, via] = [identity, via].map(|one| one.as_ref().map(|identity| identity.to_string()));
        Actor::Admin { identity, from: *address, via }
    }

    /// Refuses a caller that uses another name.
    pub(super) fn check_name(&self, call: &str, role: Role, name: &str) -> Result<(), ErrorDetail> {
        self.caller.check_name(call, role, name)
    }

    /// Records its progress.
    pub(super) fn reaches(&self, stage: Stage) {
        *self.stage.lock() = stage;
    }

    /// Ends it, with its error if there is one.
    pub(super) fn end(self, error: Option<&ErrorDetail>) {
        self.keep(outcome(*self.stage.lock(), error));
    }

    fn keep(&self, outcome: Option<Outcome>) {
        if let (Some(record), Some(outcome)) = (self.record.lock().take(), outcome) {
            self.audit.keep(Record { outcome, ..record });
        }
    }
}

impl Drop for Call<'_> {
    /// Records the outcome after the caller has stopped waiting: entries given to the log proceed.
    fn drop(&mut self) {
        let outcome = match *self.stage.lock() {
            Stage::Proposed => {
                Some(Outcome::Unknown { message: "the caller disconnected before the answer".to_owned() })
            }
            Stage::Done => Some(Outcome::Done),
            Stage::Asked | Stage::Judged | Stage::Idle => None,
        };
        self.keep(outcome);
    }
}

/// Returns the outcome to record for a call with this progress and error; `None` for a call that changed nothing, or
/// that another coordinator records.
fn outcome(stage: Stage, error: Option<&ErrorDetail>) -> Option<Outcome> {
    let refused = |error: &ErrorDetail| Outcome::Refused { kind: error.kind, message: error.message.clone() };
    match (stage, error) {
        (Stage::Done, _) => Some(Outcome::Done),
        (Stage::Idle, _) | (Stage::Asked | Stage::Judged | Stage::Proposed, None) => None,
        (Stage::Asked, Some(error)) => Some(refused(error)).filter(|_| error.kind == ErrorKind::InvalidArgument),
        (Stage::Judged, Some(error)) => Some(refused(error)),
        (Stage::Proposed, Some(error)) => Some(match error.kind {
            // It was never given to the log.
            ErrorKind::Overloaded | ErrorKind::ReadOnly | ErrorKind::InvalidArgument => refused(error),
            _ => Outcome::Unknown { message: error.message.clone() },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(stage: Stage, kind: Option<ErrorKind>) -> &'static str {
        let error = kind.map(|kind| ErrorDetail::new(kind, "why"));
        match outcome(stage, error.as_ref()) {
            None => "nothing",
            Some(Outcome::Done) => "done",
            Some(Outcome::Refused { .. }) => "refused",
            Some(Outcome::Unknown { .. }) => "unknown",
        }
    }

    #[test]
    fn audit_records_the_known_outcome_of_a_change() {
        assert_eq!(recorded(Stage::Done, None), "done");
        assert_eq!(
            recorded(Stage::Done, Some(ErrorKind::NoQuorum)),
            "done",
            "an error after the commit changes nothing"
        );
        assert_eq!(recorded(Stage::Judged, Some(ErrorKind::NotFound)), "refused");
        assert_eq!(recorded(Stage::Judged, Some(ErrorKind::NotEnoughNodes)), "refused");
        assert_eq!(recorded(Stage::Asked, Some(ErrorKind::InvalidArgument)), "refused");
        assert_eq!(recorded(Stage::Asked, Some(ErrorKind::NotCoordinatorLeader)), "nothing", "the leader records it");
        assert_eq!(recorded(Stage::Idle, None), "nothing");
        assert_eq!(recorded(Stage::Proposed, Some(ErrorKind::ReadOnly)), "refused");
        for unknown in [ErrorKind::NotCoordinatorLeader, ErrorKind::DeadlineExceeded, ErrorKind::ShuttingDown] {
            assert_eq!(recorded(Stage::Proposed, Some(unknown)), "unknown");
        }
    }
}
