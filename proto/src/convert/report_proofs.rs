//! What reports that a relay passes on, and their outcomes, are proven by where members say who they are: the bytes over which both ends take
//! the proof. It is the message itself, without its proof: nothing is said in it before all speak the protocol that it belongs to, so
//! no end drops a field that it does not know.

use crate::v1;
use bytes::Bytes;
use prost::Message as _;

/// Bytes of what is drawn for each request, so that an answer is one to this very request.
pub const NONCE_BYTES: usize = 16;

/// Begins reports. No statement about heartbeats begins so.
const REPORTS: u8 = 5;
/// Begins outcomes.
const OUTCOMES: u8 = 6;

/// What is proven of reports.
pub fn reports_statement(request: &v1::ReportRequest) -> Vec<u8> {
    let unproven = v1::ReportRequest { proof: Bytes::new(), ..request.clone() };
    begun(REPORTS, &unproven.encode_to_vec())
}

/// What is proven of the outcomes of a request: which one, and what came of it.
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
    fn an_answer_is_to_one_request_and_nothing_of_either_can_be_changed_on_the_way() {
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
