//! A participant's long poll for the revoked certificates.

use crate::convert::members::duties::check_wait;
use crate::convert::{ConvertError, bounded};
use crate::v1;
use archon_types::limits::COORDINATORS_MAX;
use archon_types::{AccessList, Version};

/// A request for a list of revoked certificates newer than a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RevocationsQuery {
    /// Version of the list that the caller applies; zero before the first.
    pub version: Version,
    /// Maximum wait for a newer list, up to [`WAIT_MS_MAX`](super::duties::WAIT_MS_MAX).
    pub wait_ms: u32,
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revocations {
    /// The newer list, without rights of clients; `None` if there is none.
    pub list: Option<AccessList>,
    /// Addresses of the coordinators.
    pub coordinators: Vec<String>,
}

impl From<RevocationsQuery> for v1::RevocationsRequest {
    fn from(query: RevocationsQuery) -> Self {
        Self { version: query.version.get(), wait_ms: query.wait_ms }
    }
}

impl TryFrom<v1::RevocationsRequest> for RevocationsQuery {
    type Error = ConvertError;

    fn try_from(wire: v1::RevocationsRequest) -> Result<Self, ConvertError> {
        check_wait(wire.wait_ms, "RevocationsRequest.wait_ms")?;
        Ok(Self { version: Version::new(wire.version), wait_ms: wire.wait_ms })
    }
}

impl From<Revocations> for v1::RevocationsResponse {
    fn from(answer: Revocations) -> Self {
        let revoked = answer.list.map(|list| without_rights(list.into()));
        Self { revoked, coordinators: answer.coordinators }
    }
}

impl TryFrom<v1::RevocationsResponse> for Revocations {
    type Error = ConvertError;

    fn try_from(wire: v1::RevocationsResponse) -> Result<Self, ConvertError> {
        bounded(wire.coordinators.len(), COORDINATORS_MAX, "RevocationsResponse.coordinators")?;
        let list = wire.revoked.map(|list| AccessList::try_from(without_rights(list))).transpose()?;
        Ok(Self { list, coordinators: wire.coordinators })
    }
}

/// Rights of clients are not for participants.
fn without_rights(list: v1::AccessList) -> v1::AccessList {
    v1::AccessList { rights: Vec::new(), ..list }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::members::duties::WAIT_MS_MAX;
    use archon_types::{Millis, Right, Scope};
    use std::sync::Arc;

    #[test]
    fn revocation_polls_and_answers_round_trip() {
        let query = RevocationsQuery { version: Version::new(5), wait_ms: WAIT_MS_MAX };
        assert_eq!(RevocationsQuery::try_from(v1::RevocationsRequest::from(query)), Ok(query));
        let too_long = v1::RevocationsRequest { wait_ms: WAIT_MS_MAX + 1, ..query.into() };
        assert!(RevocationsQuery::try_from(too_long).is_err());
        let mut list = AccessList { version: Version::new(6), ..AccessList::default() };
        Arc::make_mut(&mut list.access).set_withdrawn("admin/alice", Some(Millis::new(7)));
        for list in [None, Some(list)] {
            let answer = Revocations { list, coordinators: vec!["127.0.0.1:1".to_owned()] };
            assert_eq!(Revocations::try_from(v1::RevocationsResponse::from(answer.clone())), Ok(answer));
        }
    }

    #[test]
    fn revocations_do_not_reveal_rights_of_clients() {
        let mut list = AccessList { version: Version::new(6), ..AccessList::default() };
        let shop = Scope { client: Some("shop".into()), table: None };
        Arc::make_mut(&mut list.access).set(&shop, Some(Right::Write));
        let wire = v1::RevocationsResponse::from(Revocations { list: Some(list), coordinators: Vec::new() });
        assert!(wire.revoked.is_some_and(|list| list.version == 6 && list.rights.is_empty()));
    }
}
