//! Registration with the leading coordinator, and leaving.

use crate::clock::Clock;
use crate::coordinators::Coordinators;
use archon_member::{RegistrationAttempts, RetryDecision};
use archon_proto::convert::members::session::{Member, Registration, RegistrationResult};
use archon_proto::v1;
use archon_types::{Backoff, ErrorDetail, ErrorKind, Incarnation};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const REGISTER_DEADLINE: Duration = Duration::from_secs(4);
const LEAVE_DEADLINE: Duration = Duration::from_secs(2);
/// Interval at which an unchanged reason for a missing registration is logged.
const SAY_AGAIN: Duration = Duration::from_secs(5);

/// Registers the member, however long it takes; returns `None` if `end` comes first. `registration` builds each
/// attempt from the incarnation that is assumed to be on record; `ready` is awaited before each, as a member that sends no
/// heartbeats would be failed as soon as it is registered; `refused` gets each refusal that a later attempt may
/// overcome.
///
/// # Errors
/// A refusal that no later attempt can overcome.
pub async fn register(
    coordinators: &Coordinators,
    clock: &dyn Clock,
    mut registering: RegistrationAttempts,
    registration: impl Fn(Option<Incarnation>) -> Registration,
    ready: impl AsyncFn(),
    refused: impl Fn(&ErrorDetail),
    end: &CancellationToken,
) -> Result<Option<RegistrationResult>, ErrorDetail> {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    let mut reported: Option<(ErrorKind, Instant)> = None;
    let began = Instant::now();
    loop {
        tokio::select! {
            () = ready() => {}
            () = end.cancelled() => return Ok(None),
        }
        let request = v1::RegisterRequest::from(registration(registering.expects()));
        let attempt =
            coordinators.call(REGISTER_DEADLINE, request, async |mut client, request| client.register(request).await);
        let answer = tokio::select! {
            answer = attempt => answer,
            () = end.cancelled() => return Ok(None),
        };
        let detail = match answer.and_then(|response| RegistrationResult::try_from(response).map_err(ErrorDetail::from))
        {
            Ok(registered) => return Ok(Some(registered)),
            Err(detail) => detail,
        };
        match registering.refused(&detail, clock.now()) {
            RetryDecision::Never => return Err(detail),
            RetryDecision::AtOnce => continue,
            RetryDecision::Later => {}
        }
        let known = reported.is_some_and(|(kind, at)| kind == detail.kind && at.elapsed() < SAY_AGAIN);
        if !known {
            let waited_s = began.elapsed().as_secs();
            match severity(detail.kind, began.elapsed()) {
                Severity::Warning => {
                    tracing::warn!(kind = %detail.kind, waited_s, "not registered yet: {}", detail.message)
                }
                Severity::Notice => {
                    tracing::info!(kind = %detail.kind, waited_s, "not registered yet: {}", detail.message)
                }
            }
            reported = Some((detail.kind, Instant::now()));
        }
        refused(&detail);
        let pause = detail
            .retry_after_ms
            .map_or_else(|| backoff.next(rand::random()), |ms| Duration::from_millis(ms.min(1_000)));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = end.cancelled() => return Ok(None),
        }
    }
}

/// The level at which a failed registration is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Severity {
    Notice,
    Warning,
}

/// Returns `Warning` for failures that an operator has to end: a conflict of names or histories, and coordinators that have not answered for
/// a while, perhaps because their addresses are wrong.
fn severity(kind: ErrorKind, waited: Duration) -> Severity {
    match kind {
        ErrorKind::NameTaken | ErrorKind::OtherHistory => Severity::Warning,
        ErrorKind::Unreachable | ErrorKind::DeadlineExceeded if waited >= SAY_AGAIN => Severity::Warning,
        _ => Severity::Notice,
    }
}

/// Leaves the cluster: the member no longer leads any partition, so the coordinator need not wait for the lease to
/// expire. The caller's lease must have ended before.
pub async fn leave(coordinators: &Coordinators, member: Member) {
    let request = v1::LeaveRequest::from(member);
    let answer = coordinators.call(LEAVE_DEADLINE, request, async |mut client, request| client.leave(request).await);
    match answer.await {
        Ok(_) => tracing::info!("left the cluster cleanly"),
        Err(detail) => tracing::info!(kind = %detail.kind, "left without the coordinator's answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootClock;
    use archon_security::Transport;
    use archon_types::{BootId, Register, StorageId};
    use std::sync::Mutex;
    use uuid::Uuid;

    #[test]
    fn unreachable_coordinators_are_a_warning_after_a_while() {
        assert_eq!(severity(ErrorKind::Unreachable, Duration::ZERO), Severity::Notice);
        assert_eq!(severity(ErrorKind::Unreachable, SAY_AGAIN), Severity::Warning);
        assert_eq!(severity(ErrorKind::NoQuorum, SAY_AGAIN), Severity::Notice);
        assert_eq!(severity(ErrorKind::NameTaken, Duration::ZERO), Severity::Warning);
    }

    #[tokio::test]
    async fn member_that_is_not_ready_does_not_register() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let coordinators = Coordinators::new(vec![address], Transport::default(), Vec::new);
        let (end, order) = (CancellationToken::new(), Mutex::new(Vec::new()));
        let registration = |_| {
            order.lock().unwrap().push("attempt");
            let (storage, boot) = (StorageId::new(Uuid::from_u128(1)), BootId::new(Uuid::from_u128(2)));
            Registration { cluster: None, register: Register::new("athens", "127.0.0.1:1", storage, boot) }
        };
        let ready = async || {
            tokio::task::yield_now().await;
            order.lock().unwrap().push("ready");
        };
        let registered =
            register(&coordinators, &BootClock, RegistrationAttempts::new(None), registration, ready, |_| {}, &end);
        tokio::select! {
            registered = registered => panic!("nothing answers here: {registered:?}"),
            accepted = listener.accept() => accepted.map(drop).unwrap(),
        }
        assert_eq!(order.lock().unwrap()[..2], ["ready", "attempt"]);
        let never = std::future::pending::<()>;
        let ended = register(
            &coordinators,
            &BootClock,
            RegistrationAttempts::new(None),
            |_| panic!("it is not ready"),
            never,
            |_| {},
            &end,
        );
        end.cancel();
        assert!(ended.await.unwrap().is_none(), "the end does not wait for it");
    }
}
