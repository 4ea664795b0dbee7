//! Reports: facts on their way to the coordinator, repeated until each is answered.

use crate::shared::{Life, Shared};
use archon_proto::convert::report::{Outcomes, REPORTS_MAX, Reports};
use archon_proto::v1;
use archon_session::Coordinators;
use archon_types::Backoff;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(2);

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
                    if !shared.reports.answered(report, outcome.as_ref().map(|detail| detail.kind)) {
                        unanswered += 1;
                        continue;
                    }
                    if let Some(detail) = outcome {
                        tracing::debug!(partition = %report.partition, fact = ?report.fact, kind = %detail.kind, message = %detail.message, "report refused");
                    }
                    shared.metrics.reports.add(1);
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
