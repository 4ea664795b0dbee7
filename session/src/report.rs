//! Reports: facts on their way to the coordinator, repeated until each is answered.

use crate::coordinators::Coordinators;
use archon_proto::convert::report::{Outcomes, REPORTS_MAX, Reports};
use archon_proto::convert::session::Member;
use archon_proto::v1;
use archon_types::{Backoff, ErrorKind, Report};
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(2);

/// Facts that wait to be told.
pub trait Facts {
    /// Copies up to `count` of them; they stay until they are answered.
    fn peek(&self, count: usize) -> Vec<Report>;

    /// One was answered: taken, or refused with an error of this kind. Returns whether it is done with.
    fn answered(&self, report: &Report, refused: Option<ErrorKind>) -> bool;

    /// Waits until one was put in since the last wait.
    fn filled(&self) -> impl Future<Output = ()>;
}

/// Tells facts for as long as it is polled.
pub async fn reports(coordinators: &Coordinators, member: Member, facts: &impl Facts) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        let batch = facts.peek(REPORTS_MAX);
        if batch.is_empty() {
            facts.filled().await;
            continue;
        }
        let request = v1::ReportRequest::from(Reports { member, reports: batch.clone() });
        let answer = coordinators.call(DEADLINE, request, async |mut client, request| client.report(request).await);
        let unanswered = match answer.await {
            Ok(response) => {
                let outcomes = Outcomes::from(response).outcomes;
                let mut unanswered = batch.len().saturating_sub(outcomes.len());
                for (report, outcome) in batch.iter().zip(outcomes) {
                    if !facts.answered(report, outcome.as_ref().map(|detail| detail.kind)) {
                        unanswered += 1;
                        continue;
                    }
                    if let Some(detail) = outcome {
                        tracing::debug!(partition = %report.partition, fact = ?report.fact, kind = %detail.kind, message = %detail.message, "report refused");
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
