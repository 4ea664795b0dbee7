//! The revoked certificates, for a process that accepts connections and is sent no pushes.

use crate::coordinators::Coordinators;
use crate::learned::LearnedCoordinators;
use archon_proto::convert::members::revocations::{Revocations, RevocationsQuery};
use archon_proto::v1;
use archon_security::{Tls, withdrawn_certificates};
use archon_types::{Backoff, ErrorDetail, Version};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Maximum time for which a poll waits for a newer list.
const POLL_WAIT: Duration = Duration::from_secs(10);
/// Additional time-out of a poll.
const POLL_SLACK: Duration = Duration::from_secs(2);

/// Has the credentials refuse revoked certificates, as of the newest list of the leading coordinator, while it is polled.
/// While no coordinator answers, the last list stays in force, as at nodes. The addresses of the coordinators are `learned`.
pub async fn follow_revocations(coordinators: &Coordinators, tls: &Tls, learned: &LearnedCoordinators) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    let mut version = Version::ZERO;
    let mut is_warned = false;
    loop {
        let begun = Instant::now();
        let wait_ms = u32::try_from(POLL_WAIT.as_millis()).unwrap_or(u32::MAX);
        let request = v1::RevocationsRequest::from(RevocationsQuery { version, wait_ms });
        let timeout = POLL_WAIT + POLL_SLACK;
        let answer = coordinators.call(timeout, request, async |mut client, request| client.revocations(request).await);
        let answer = answer.await.and_then(|wire| Revocations::try_from(wire).map_err(ErrorDetail::from));
        let Revocations { list, coordinators: addresses } = match answer {
            Ok(answer) => answer,
            Err(detail) => {
                if !std::mem::replace(&mut is_warned, true) {
                    tracing::warn!(%detail, "certificates that are revoked from now on are still accepted; trying again");
                }
                sleep(backoff.next(rand::random())).await;
                continue;
            }
        };
        if std::mem::take(&mut is_warned) {
            tracing::info!("revoked certificates are known again");
        }
        learned.learn(addresses);
        // A former leader that answers late has an older list.
        let newer = list.filter(|list| list.version > version);
        if let Some(list) = &newer {
            version = list.version;
            tls.withdraw(withdrawn_certificates(&list.access));
        }
        if newer.is_some() || begun.elapsed() >= POLL_WAIT / 2 {
            backoff.reset();
        } else {
            // A stopping coordinator answers at once.
            sleep(backoff.next(rand::random())).await;
        }
    }
}
