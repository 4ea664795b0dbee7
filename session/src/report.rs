//! Reports: facts on their way to the coordinator, repeated until each is answered.

use crate::coordinators::Coordinators;
use crate::link::connect;
use archon_proto::convert::error::detail_of;
use archon_proto::convert::report::{Outcomes, REPORTS_MAX, Reports};
use archon_proto::convert::report_proofs::{NONCE_BYTES, outcomes_statement, reports_statement};
use archon_proto::convert::session::Member;
use archon_proto::v1;
use archon_proto::v1::carrier_client::CarrierClient;
use archon_security::{BeatKey, Expected, Transport};
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{Backoff, ErrorDetail, ErrorKind, RelayAddress, Report};
use bytes::Bytes;
use std::time::Duration;
use tokio::time::timeout;
use tonic::Request;

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

/// Who passes reports on where no coordinator can be called (PROTOCOL rule 82).
pub trait ReportRelays {
    /// The relays that are to be asked, one after the other; none: nobody passes anything on.
    fn relays(&self) -> Vec<RelayAddress>;

    /// What is passed on is proven with this, where members say who they are.
    fn key(&self) -> Option<&BeatKey>;
}

/// Nobody passes anything on.
#[derive(Clone, Copy, Debug)]
pub struct NoRelays;

impl ReportRelays for NoRelays {
    fn relays(&self) -> Vec<RelayAddress> {
        Vec::new()
    }

    fn key(&self) -> Option<&BeatKey> {
        None
    }
}

/// Tells facts for as long as it is polled.
pub async fn reports(coordinators: &Coordinators, member: Member, facts: &impl Facts, relays: &impl ReportRelays) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        let batch = facts.peek(REPORTS_MAX);
        if batch.is_empty() {
            facts.filled().await;
            continue;
        }
        let request = v1::ReportRequest::from(Reports { member, reports: batch.clone() });
        let unanswered = match tell(coordinators, request, relays).await {
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

/// Tells the coordinators, or a relay that passes it on if none of them can be called.
async fn tell(
    coordinators: &Coordinators,
    request: v1::ReportRequest,
    relays: &impl ReportRelays,
) -> Result<v1::ReportResponse, ErrorDetail> {
    let direct = coordinators.call(DEADLINE, request.clone(), async |mut client, request| client.report(request).await);
    let mut last = match direct.await {
        Err(detail) if is_out_of_reach(&detail) => detail,
        answered => return answered,
    };
    for relay in relays.relays() {
        match by_relay(coordinators.transport(), &relay, request.clone(), relays.key()).await {
            Ok(response) => return Ok(response),
            Err(detail) => last = detail,
        }
    }
    Err(last)
}

/// Whether a coordinator may lead that cannot be called from here. Where none leads at all, nobody is asked to look for one.
fn is_out_of_reach(detail: &ErrorDetail) -> bool {
    match detail.kind {
        ErrorKind::Unreachable | ErrorKind::DeadlineExceeded => true,
        ErrorKind::NotCoordinatorLeader => detail.leader.is_some(),
        _ => false,
    }
}

/// Has a relay pass them on. What it answers counts only if it is proven, if there is a key.
async fn by_relay(
    transport: &Transport,
    relay: &RelayAddress,
    mut request: v1::ReportRequest,
    key: Option<&BeatKey>,
) -> Result<v1::ReportResponse, ErrorDetail> {
    if let Some(key) = key {
        request.nonce = Bytes::copy_from_slice(&rand::random::<[u8; NONCE_BYTES]>());
        request.proof = key.prove(&reports_statement(&request));
    }
    let ask = async {
        let channel = connect(transport, &relay.address, Expected::Node(relay.name.clone())).await?;
        let mut client = CarrierClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut asked = Request::new(request.clone());
        asked.set_timeout(DEADLINE);
        client.report(asked).await.map_err(|status| detail_of(&status))
    };
    let late = || ErrorDetail::new(ErrorKind::DeadlineExceeded, format!("{} did not answer in time", relay.name));
    let response = timeout(DEADLINE, ask).await.map_err(|_| late())??.into_inner();
    if key.is_none_or(|key| key.proves(&outcomes_statement(&request, &response), &response.proof)) {
        return Ok(response);
    }
    let why = format!("{} brought outcomes of reports that no coordinator gave it", relay.name);
    tracing::warn!(relay = relay.name, "discarded outcomes of reports: no coordinator gave them to the relay");
    Err(ErrorDetail::new(ErrorKind::Refused, why))
}
