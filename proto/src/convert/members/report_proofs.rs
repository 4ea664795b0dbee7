//! Proven content of relayed reports and outcomes, in clusters with authentication: the bytes over which both ends
//! compute the proof. It is the message itself, without its proof: a new field is used only once all members support
//! its protocol, so no end drops an unknown field.

use crate::v1;
use bytes::Bytes;
use prost::Message as _;

/// Size of the random number of each request in bytes, which binds an answer to this very request.
pub const NONCE_BYTES: usize = 16;

/// First byte of reports. No statement about heartbeats begins with it.
const REPORTS: u8 = 5;
/// First byte of outcomes.
const OUTCOMES: u8 = 6;

/// Returns the proven content of reports.
pub fn reports_statement(request: &v1::ReportRequest) -> Vec<u8> {
    let unproven = v1::ReportRequest { proof: Bytes::new(), ..request.clone() };
    begun(REPORTS, &unproven.encode_to_vec())
}

/// Returns the proven content of the outcomes of a request: the request and its outcomes.
pub fn outcomes_statement(request: &v1::ReportRequest, response: &v1::ReportResponse) -> Vec<u8> {
    let unproven = v1::ReportResponse { proof: Bytes::new(), ..response.clone() };
    begun(OUTCOMES, &[&request.proof[..], &unproven.encode_to_vec()].concat())
}

fn begun(begin: u8, bytes: &[u8]) -> Vec<u8> {
    [&[begin][..], bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn proof_binds_an_answer_to_its_request() {
        let request = |nonce: u8, reports: usize| v1::ReportRequest {
            nonce: Bytes::copy_from_slice(&[nonce; NONCE_BYTES]),
            reports: vec![v1::ReplicaReport::default(); reports],
            ..v1::ReportRequest::default()
        };
        let said: BTreeSet<_> = [request(1, 1), request(2, 1), request(1, 2)].iter().map(reports_statement).collect();
        assert_eq!(said.len(), 3);
        let proven = v1::ReportRequest { proof: Bytes::from_static(&[7; 32]), ..request(1, 1) };
        assert_eq!(reports_statement(&proven), reports_statement(&request(1, 1)), "the proof is not proven");
        let other = v1::ReportRequest { proof: Bytes::from_static(&[8; 32]), ..request(1, 1) };
        let response = |outcomes: usize, table_version| v1::ReportResponse {
            outcomes: vec![v1::ReportOutcome::default(); outcomes],
            table_version,
            proof: Bytes::new(),
        };
        let answers =
            [(&proven, response(1, 3)), (&other, response(1, 3)), (&proven, response(2, 3)), (&proven, response(1, 4))];
        let said: BTreeSet<_> = answers.iter().map(|(request, answer)| outcomes_statement(request, answer)).collect();
        assert_eq!(said.len(), 4);
    }
}
