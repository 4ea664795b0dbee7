//! What clients may do, and which certificates count no more: to nodes whole, and to operators.

use super::ids::{non_zero, request_id, uuid_bytes};
use super::{ConvertError, bounded, checked, required};
use crate::v1;
use crate::v1::set_access_request::Change;
use archon_types::access::{WHENEVER, check_identity};
use archon_types::limits::check_name;
use archon_types::{AccessList, Millis, RIGHTS_MAX, RequestId, Right, Scope, TableId, Version, WITHDRAWN_MAX};
use std::sync::Arc;

/// A request to grant a right, or to take one back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAccess {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// Whose; `None`: every client's.
    pub client: Option<String>,
    /// To which table, by its name; `None`: every table.
    pub table: Option<String>,
    /// Which.
    pub right: Right,
    /// Whether it is taken back.
    pub revoke: bool,
}

impl TryFrom<v1::SetAccessRequest> for SetAccess {
    type Error = ConvertError;

    fn try_from(wire: v1::SetAccessRequest) -> Result<Self, ConvertError> {
        check_names(wire.client.as_deref(), wire.table.as_deref())?;
        // Whoever forgets a name does not mean everybody.
        if wire.client.is_some() == wire.every_client {
            return Err(ConvertError::new("SetAccessRequest.client", "say either client or every_client"));
        }
        if wire.table.is_some() == wire.all_tables {
            return Err(ConvertError::new("SetAccessRequest.table", "say either table or all_tables"));
        }
        let (right, revoke) = match required(wire.change, "SetAccessRequest.change")? {
            Change::Grant(word) => (right(&word)?, false),
            Change::Revoke(word) => (right(&word)?, true),
        };
        let request = request_id(&wire.request_id, "SetAccessRequest.request_id")?;
        Ok(Self { request, client: wire.client, table: wire.table, right, revoke })
    }
}

impl From<SetAccess> for v1::SetAccessRequest {
    fn from(asked: SetAccess) -> Self {
        let word = asked.right.as_str().to_owned();
        Self {
            cluster: None,
            request_id: uuid_bytes(asked.request.get()),
            every_client: asked.client.is_none(),
            all_tables: asked.table.is_none(),
            client: asked.client,
            table: asked.table,
            change: Some(if asked.revoke { Change::Revoke(word) } else { Change::Grant(word) }),
        }
    }
}

/// A request to withdraw certificates, or to have them count again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Withdraw {
    /// Makes a retry have one effect.
    pub request: RequestId,
    /// Whose: `admin/alice`.
    pub identity: String,
    /// What is wanted of them.
    pub change: Withdrawal,
    /// Also of one by which a member talks that is at work.
    pub force: bool,
}

/// What is wanted of certificates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Withdrawal {
    /// Those that begin before now count no more.
    BeforeNow,
    /// Those that begin before then count no more.
    Before(Millis),
    /// All count again.
    Readmit,
}

impl TryFrom<v1::WithdrawRequest> for Withdraw {
    type Error = ConvertError;

    fn try_from(wire: v1::WithdrawRequest) -> Result<Self, ConvertError> {
        checked(check_identity(&wire.identity), "identity")?;
        let change = match (wire.readmit, wire.begins_before_ms) {
            (false, None) => Withdrawal::BeforeNow,
            (false, Some(moment)) => {
                Withdrawal::Before(Millis::new(non_zero(moment, "WithdrawRequest.begins_before_ms")?))
            }
            (true, None) => Withdrawal::Readmit,
            (true, Some(_)) => {
                return Err(ConvertError::new("WithdrawRequest.readmit", "say either readmit or begins_before_ms"));
            }
        };
        let request = request_id(&wire.request_id, "WithdrawRequest.request_id")?;
        Ok(Self { request, identity: wire.identity, change, force: wire.force })
    }
}

impl From<Withdraw> for v1::WithdrawRequest {
    fn from(asked: Withdraw) -> Self {
        let begins_before_ms = match asked.change {
            Withdrawal::Before(moment) => Some(moment.get()),
            Withdrawal::BeforeNow | Withdrawal::Readmit => None,
        };
        Self {
            cluster: None,
            request_id: uuid_bytes(asked.request.get()),
            identity: asked.identity,
            begins_before_ms,
            readmit: asked.change == Withdrawal::Readmit,
            force: asked.force,
        }
    }
}

/// What is withdrawn of an identity's certificates.
fn withdrawn(identity: &str, begins_before: Millis) -> v1::WithdrawnCertificates {
    let begins_before_ms = (begins_before != WHENEVER).then(|| begins_before.get());
    v1::WithdrawnCertificates { identity: identity.to_owned(), begins_before_ms, removed: begins_before_ms.is_none() }
}

/// Checks whom and what a request names.
///
/// # Errors
/// A name that no client or table can have.
pub fn check_names(client: Option<&str>, table: Option<&str>) -> Result<(), ConvertError> {
    checked(client.map_or(Ok(()), |name| check_name("client", name)), "client")?;
    checked(table.map_or(Ok(()), |name| check_name("table", name)), "table")
}

fn right(word: &str) -> Result<Right, ConvertError> {
    word.parse().map_err(|error: archon_types::UnknownWord| ConvertError::new("right", error.to_string()))
}

/// Without rights to own: coordinators judge those, and their number is not bounded as that of the others is.
impl From<AccessList> for v1::AccessList {
    fn from(list: AccessList) -> Self {
        let rights =
            list.access.all().filter(|(_, right)| *right != Right::Own).map(|(scope, right)| v1::ClientRight {
                client: scope.client,
                table: scope.table.map(TableId::get),
                right: right.as_str().to_owned(),
            });
        let withdrawn = list.access.withdrawn().iter().map(|(identity, moment)| withdrawn(identity, *moment));
        Self { version: list.version.get(), rights: rights.collect(), withdrawn: withdrawn.collect() }
    }
}

impl TryFrom<v1::AccessList> for AccessList {
    type Error = ConvertError;

    fn try_from(wire: v1::AccessList) -> Result<Self, ConvertError> {
        bounded(wire.rights.len(), RIGHTS_MAX, "AccessList.rights")?;
        // Those of removed coordinators come on top.
        bounded(wire.withdrawn.len(), 2 * WITHDRAWN_MAX, "AccessList.withdrawn")?;
        let mut list = Self { version: Version::new(wire.version), ..Self::default() };
        for of in wire.rights {
            check_names(of.client.as_deref(), None)?;
            let table = of.table.map(|table| non_zero(table, "ClientRight.table")).transpose()?;
            let scope = Scope { client: of.client, table: table.map(TableId::new) };
            // A word of a newer coordinator grants nothing here.
            if let Ok(right) = right(&of.right) {
                Arc::make_mut(&mut list.access).set(&scope, Some(right));
            }
        }
        for of in wire.withdrawn {
            checked(check_identity(&of.identity), "WithdrawnCertificates.identity")?;
            let moment = of.begins_before_ms.map_or(WHENEVER, Millis::new);
            Arc::make_mut(&mut list.access).set_withdrawn(&of.identity, Some(moment));
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use prost::Message;
    use uuid::Uuid;

    fn rights() -> impl Strategy<Value = Right> {
        proptest::sample::select(Right::ALL)
    }

    proptest! {
        #[test]
        fn requests_and_lists_round_trip_through_bytes(
            id in 1u128..,
            client in proptest::option::of("[a-z]{1,8}"),
            table in proptest::option::of("[a-z]{1,8}"),
            right in rights(),
            revoke in any::<bool>(),
            granted in proptest::collection::vec((proptest::option::of("[a-z]{1,3}"), proptest::option::of(1u64..), rights()), 0..9),
            withdrawn in proptest::collection::vec(("(admin|node|coordinator)/[a-z0-9]{1,3}", proptest::option::of(1u64..)), 0..9),
            change in proptest::option::of(proptest::option::of(1u64..)),
        ) {
            let asked = SetAccess { request: RequestId::new(Uuid::from_u128(id)), client, table, right, revoke };
            let bytes = v1::SetAccessRequest::from(asked.clone()).encode_to_vec();
            prop_assert_eq!(SetAccess::try_from(v1::SetAccessRequest::decode(bytes.as_slice()).unwrap()), Ok(asked));
            let (mut list, mut rows) = (AccessList { version: Version::new(7), ..AccessList::default() }, AccessList::default());
            for (client, table, right) in granted {
                Arc::make_mut(&mut list.access).set(&Scope { client, table: table.map(TableId::new) }, Some(right));
            }
            for (scope, right) in list.access.all().filter(|(_, right)| *right != Right::Own) {
                Arc::make_mut(&mut rows.access).set(&scope, Some(right));
            }
            rows.version = list.version;
            for (identity, moment) in withdrawn {
                let moment = Some(moment.map_or(WHENEVER, Millis::new));
                Arc::make_mut(&mut list.access).set_withdrawn(&identity, moment);
                Arc::make_mut(&mut rows.access).set_withdrawn(&identity, moment);
            }
            prop_assert_eq!(AccessList::try_from(v1::AccessList::from(list)), Ok(rows));
            let change = change.map_or(Withdrawal::Readmit, |moment| moment.map_or(Withdrawal::BeforeNow, |at| Withdrawal::Before(Millis::new(at))));
            let request = RequestId::new(Uuid::from_u128(id));
            let asked = Withdraw { request, identity: "admin/alice".into(), change, force: revoke };
            let bytes = v1::WithdrawRequest::from(asked.clone()).encode_to_vec();
            prop_assert_eq!(Withdraw::try_from(v1::WithdrawRequest::decode(bytes.as_slice()).unwrap()), Ok(asked));
        }

        #[test]
        fn any_bytes_are_handled_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(wire) = v1::SetAccessRequest::decode(bytes.as_slice()) {
                let _ = SetAccess::try_from(wire);
            }
            if let Ok(wire) = v1::WithdrawRequest::decode(bytes.as_slice()) {
                let _ = Withdraw::try_from(wire);
            }
            if let Ok(wire) = v1::AccessList::decode(bytes.as_slice()) {
                let _ = AccessList::try_from(wire);
            }
        }
    }

    #[test]
    fn bad_requests_and_lists_are_named() {
        let request_id = uuid_bytes(Uuid::from_u128(5));
        let good = v1::SetAccessRequest {
            request_id,
            client: Some("shop".into()),
            all_tables: true,
            change: Some(Change::Grant("read".into())),
            ..Default::default()
        };
        assert!(SetAccess::try_from(good.clone()).is_ok());
        let said = |wire: v1::SetAccessRequest| SetAccess::try_from(wire).unwrap_err().to_string();
        assert!(said(v1::SetAccessRequest { client: Some("*".into()), ..good.clone() }).contains("client"));
        assert!(said(v1::SetAccessRequest { table: Some(String::new()), ..good.clone() }).contains("table"));
        assert!(said(v1::SetAccessRequest { client: None, ..good.clone() }).contains("every_client"));
        assert!(said(v1::SetAccessRequest { every_client: true, ..good.clone() }).contains("every_client"));
        assert!(said(v1::SetAccessRequest { all_tables: false, ..good.clone() }).contains("all_tables"));
        assert!(said(v1::SetAccessRequest { change: None, ..good.clone() }).contains("SetAccessRequest.change"));
        let look = Some(Change::Revoke("look".into()));
        assert!(said(v1::SetAccessRequest { change: look, ..good }).contains("own, read, write"));
        let of = v1::ClientRight { right: "read".into(), ..Default::default() };
        let many = v1::AccessList { version: 1, rights: vec![of.clone(); RIGHTS_MAX + 1], ..Default::default() };
        assert!(AccessList::try_from(many).unwrap_err().to_string().contains("AccessList.rights"));
        // A push with a right that only newer nodes know was refused, with all that it brings besides.
        let newer = v1::AccessList {
            version: 1,
            rights: vec![v1::ClientRight { right: "look".into(), ..of.clone() }, of.clone()],
            ..Default::default()
        };
        assert_eq!(AccessList::try_from(newer).unwrap().access.len(), 1);
        let nowhere = v1::ClientRight { table: Some(0), ..of };
        let list = v1::AccessList { version: 1, rights: vec![nowhere], ..Default::default() };
        assert!(AccessList::try_from(list).is_err());
        let nobody = v1::WithdrawnCertificates { identity: "alice".into(), ..Default::default() };
        let list = v1::AccessList { version: 1, withdrawn: vec![nobody], ..Default::default() };
        assert!(AccessList::try_from(list).is_err());
    }

    #[test]
    fn a_request_to_withdraw_says_whose_and_what() {
        let request_id = uuid_bytes(Uuid::from_u128(5));
        let good = v1::WithdrawRequest { request_id, identity: "admin/alice".into(), ..Default::default() };
        assert_eq!(Withdraw::try_from(good.clone()).map(|asked| asked.change), Ok(Withdrawal::BeforeNow));
        for wrong in [
            v1::WithdrawRequest { identity: "alice".into(), ..good.clone() },
            v1::WithdrawRequest { begins_before_ms: Some(0), ..good.clone() },
            v1::WithdrawRequest { begins_before_ms: Some(7), readmit: true, ..good.clone() },
            v1::WithdrawRequest { request_id: bytes::Bytes::new(), ..good },
        ] {
            assert!(Withdraw::try_from(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
