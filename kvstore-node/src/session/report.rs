//! Reports: facts on their way to the coordinator, repeated until each is answered.

use super::leader::Coordinators;
use crate::shared::{Life, Shared};
use archon_proto::convert::report::{Outcomes, REPORTS_MAX, Reports};
use archon_proto::v1;
use archon_types::{Backoff, ErrorKind, Fact};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(2);

/// Whether a report so answered is to be sent again. A report of an epoch that is over never comes true again, although
/// an *operation* so answered may succeed elsewhere: kept, it would block a stopping node until its patience ends.
/// `StaleVersion` says that the row changed while the report was on its way into the log; but for requests, which name the
/// version they are about, that takes nothing away from what is reported, and the replica would repeat it much later.
fn asks_again(fact: &Fact, kind: ErrorKind) -> bool {
    match kind {
        ErrorKind::StaleEpoch => false,
        ErrorKind::StaleVersion => !matches!(fact, Fact::CaughtUp { .. } | Fact::Silent { .. }),
        kind => kind.is_retryable(),
    }
}

/// Sends reports for as long as it is polled.
pub(super) async fn reports(shared: &Shared, coordinators: &Coordinators, life: &Life) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        let batch = shared.reports.peek(REPORTS_MAX);
        if batch.is_empty() {
            shared.reports.filled().await;
            continue;
        }
        let request = v1::ReportRequest::from(Reports { member: life.member, reports: batch.clone() });
        let answer = coordinators
            .call(DEADLINE, async |mut client, patience| {
                let mut request = tonic::Request::new(request.clone());
                request.set_timeout(patience);
                client.report(request).await
            })
            .await;
        let unanswered = match answer {
            Ok(response) => {
                let outcomes = Outcomes::from(response).outcomes;
                let mut unanswered = batch.len().saturating_sub(outcomes.len());
                for (report, outcome) in batch.iter().zip(outcomes) {
                    match outcome {
                        Some(detail) if asks_again(&report.fact, detail.kind) => unanswered += 1,
                        outcome => {
                            if let Some(detail) = outcome {
                                tracing::debug!(partition = %report.partition, fact = ?report.fact, kind = %detail.kind, message = %detail.message, "report refused");
                            }
                            shared.reports.answered(report);
                            shared.metrics.reports.add(1);
                        }
                    }
                }
                unanswered
            }
            Err(detail) => {
                tracing::debug!(kind = %detail.kind, message = %detail.message, reports = batch.len(), "reports not answered");
                batch.len()
            }
        };
        if unanswered == 0 {
            backoff.reset();
        } else {
            tokio::time::sleep(backoff.next(rand::random())).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_an_epoch_that_is_over_is_not_sent_for_ever() {
        assert!(!asks_again(&Fact::Released, ErrorKind::StaleEpoch));
        assert!(!asks_again(&Fact::Released, ErrorKind::NotFound));
        assert!(asks_again(&Fact::Released, ErrorKind::NoQuorum));
    }

    #[test]
    fn a_release_that_another_change_of_the_row_overtook_is_sent_again() {
        assert!(asks_again(&Fact::Released, ErrorKind::StaleVersion));
        assert!(asks_again(&Fact::Online, ErrorKind::StaleVersion));
        assert!(!asks_again(&Fact::Silent { followers: Vec::new() }, ErrorKind::StaleVersion), "it is answered");
    }
}
