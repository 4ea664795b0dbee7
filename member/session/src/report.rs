//! Reports to the coordinator, repeated until each is answered.

use crate::coordinators::Coordinators;
use crate::link::connect;
use archon_proto::convert::error::detail_of;
use archon_proto::convert::members::report::{Outcomes, REPORTS_MAX, Reports};
use archon_proto::convert::members::report_proofs::{NONCE_BYTES, outcomes_statement, reports_statement};
use archon_proto::convert::members::session::Member;
use archon_proto::v1;
use archon_proto::v1::carrier_client::CarrierClient;
use archon_security::{BeatKey, ExpectedPeer, Transport};
use archon_types::limits::MESSAGE_BYTES_MAX;
use archon_types::{Backoff, ErrorDetail, ErrorKind, RelayAddress, Report};
use bytes::Bytes;
use prost::Message as _;
use std::time::Duration;
use tokio::time::timeout;
use tonic::Request;

/// Maximum bytes of reports in one request, unless one report alone is longer.
const REPORTS_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 2;
/// Encoding overhead of a report in a request: a tag and a length.
const REPORT_OVERHEAD_BYTES: usize = 8;
const DEADLINE: Duration = Duration::from_secs(2);

/// Reports that wait to be sent.
pub trait Facts {
    /// Copies up to `count` of them; they stay until they are answered.
    fn peek(&self, count: usize) -> Vec<Report>;

    /// Handles the answer to a report: accepted, or rejected with an error of this kind. Returns whether the report
    /// is finished.
    fn answered(&self, report: &Report, refused: Option<ErrorKind>) -> bool;

    /// Waits until a report was added since the last wait.
    fn filled(&self) -> impl Future<Output = ()>;
}

/// Relays that forward reports when no coordinator is reachable (PROTOCOL rule 82).
pub trait ReportRelays {
    /// Returns the relays to try in order; none disables forwarding.
    fn relays(&self) -> Vec<RelayAddress>;

    /// Returns the key that proves forwarded reports, where members authenticate themselves.
    fn key(&self) -> Option<&BeatKey>;
}

/// Disables forwarding.
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

/// Sends reports while polled.
pub async fn reports(coordinators: &Coordinators, member: Member, facts: &impl Facts, relays: &impl ReportRelays) {
    let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
    loop {
        let mut batch = facts.peek(REPORTS_MAX);
        batch.truncate(count_that_fits(&batch));
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

/// Counts the leading reports that fit into one request, at least one. Reports can hold keys, and are then as long as
/// these.
fn count_that_fits(reports: &[Report]) -> usize {
    let mut bytes = 0;
    for (number, report) in reports.iter().enumerate() {
        bytes += v1::ReplicaReport::from(report.clone()).encoded_len() + REPORT_OVERHEAD_BYTES;
        if bytes > REPORTS_BYTES_MAX && number > 0 {
            return number;
        }
    }
    reports.len()
}

/// Sends reports to the coordinators, or to a relay that forwards them if no coordinator is reachable.
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

/// Returns whether a coordinator may lead that is not reachable from here. If there is no leader, relays are not
/// asked.
fn is_out_of_reach(detail: &ErrorDetail) -> bool {
    match detail.kind {
        ErrorKind::Unreachable | ErrorKind::DeadlineExceeded => true,
        ErrorKind::NotCoordinatorLeader => detail.leader.is_some(),
        _ => false,
    }
}

/// Forwards reports by a relay. If there is a key, the answer must be proven.
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
        let channel = connect(transport, &relay.address, ExpectedPeer::Node(relay.name.clone())).await?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Epoch, ExceededLimit, Fact, PartitionId, PlacementId, TableId, Version};

    fn outgrown(number: usize, key_bytes: usize) -> Report {
        let at = Bytes::from(vec![b'k'; key_bytes]);
        Report {
            partition: PartitionId::new(TableId::new(1), number as u32),
            placement: PlacementId::new(number as u64 + 1),
            epoch: Epoch::new(1),
            version: Version::new(1),
            fact: Fact::Outgrown { at, by: ExceededLimit::Bytes(1) },
        }
    }

    #[test]
    fn reports_of_one_request_fit_into_message() {
        for key_bytes in [1, archon_types::limits::KEY_BYTES_MAX] {
            let all: Vec<Report> = (0..REPORTS_MAX).map(|number| outgrown(number, key_bytes)).collect();
            let count = count_that_fits(&all);
            assert_eq!(count == REPORTS_MAX, key_bytes == 1, "{count} of {key_bytes} bytes");
            let reports = all[..count].iter().cloned().map(v1::ReplicaReport::from).collect();
            let request = v1::ReportRequest { reports, ..v1::ReportRequest::default() };
            assert!(request.encoded_len() <= REPORTS_BYTES_MAX);
        }
        assert_eq!(count_that_fits(&[outgrown(0, MESSAGE_BYTES_MAX)]), 1);
        assert_eq!(count_that_fits(&[]), 0);
    }
}
