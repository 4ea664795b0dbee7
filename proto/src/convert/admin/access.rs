//! Rights of clients and revoked certificates, as sent to nodes.

use crate::convert::ids::non_zero;
use crate::convert::{ConvertError, bounded, checked};
use crate::v1;
use archon_types::limits::check_name;
use archon_types::{AccessList, Millis, RIGHTS_MAX, Right, Scope, TableId, Version, WITHDRAWN_MAX};
use archon_types::{WHENEVER, check_identity};
use std::sync::Arc;

/// Returns the revocation of an identity's certificates.
fn withdrawn(identity: &str, begins_before: Millis) -> v1::WithdrawnCertificates {
    let begins_before_ms = (begins_before != WHENEVER).then(|| begins_before.get());
    v1::WithdrawnCertificates { identity: identity.to_owned(), begins_before_ms, removed: begins_before_ms.is_none() }
}

/// Leaves out rights to own: coordinators check them, and their number is not bounded as that of the others is.
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
        // Those of removed coordinators are added.
        bounded(wire.withdrawn.len(), 2 * WITHDRAWN_MAX, "AccessList.withdrawn")?;
        let mut list = Self { version: Version::new(wire.version), ..Self::default() };
        for of in wire.rights {
            checked(of.client.as_deref().map_or(Ok(()), |name| check_name("client", name)), "ClientRight.client")?;
            let table = of.table.map(|table| non_zero(table, "ClientRight.table")).transpose()?;
            let scope = Scope { client: of.client, table: table.map(TableId::new) };
            // A right that only newer coordinators know grants nothing here.
            if let Ok(right) = of.right.parse() {
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

    fn rights() -> impl Strategy<Value = Right> {
        proptest::sample::select(Right::ALL)
    }

    proptest! {
        #[test]
        fn access_lists_round_trip_through_bytes(
            granted in proptest::collection::vec((proptest::option::of("[a-z]{1,3}"), proptest::option::of(1u64..), rights()), 0..9),
            withdrawn in proptest::collection::vec(("(admin|node|coordinator)/[a-z0-9]{1,3}", proptest::option::of(1u64..)), 0..9),
        ) {
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
        }

        #[test]
        fn any_bytes_are_handled_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(wire) = v1::AccessList::decode(bytes.as_slice()) {
                let _ = AccessList::try_from(wire);
            }
        }
    }

    #[test]
    fn invalid_access_lists_are_refused() {
        let of = v1::ClientRight { right: "read".into(), ..Default::default() };
        let many = v1::AccessList { version: 1, rights: vec![of.clone(); RIGHTS_MAX + 1], ..Default::default() };
        assert!(AccessList::try_from(many).unwrap_err().to_string().contains("AccessList.rights"));
        // Regression: a push with a right that only newer nodes know was refused, with the rest of its content.
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
}
