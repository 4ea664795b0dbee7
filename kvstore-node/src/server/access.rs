//! Client permissions on this node, as pushed by the coordinators.

use crate::tables::Tables;
use arc_swap::ArcSwapOption;
use archon_security::{Caller, WithdrawnCertificates, withdrawn_certificates};
use archon_types::{AccessList, ErrorDetail, ErrorKind, PartitionId, Right, TableId, Version};
use std::sync::Arc;

/// The newest list of client rights.
#[derive(Debug, Default)]
pub(crate) struct ClientAccess(ArcSwapOption<AccessList>);

impl ClientAccess {
    /// Stores the list of a push, unless it is older.
    pub(crate) fn take(&self, list: AccessList) {
        let list = Arc::new(list);
        self.0.rcu(|held| match held {
            Some(held) if held.version >= list.version => Some(Arc::clone(held)),
            _ => Some(Arc::clone(&list)),
        });
    }

    /// Returns the version of the list.
    pub(crate) fn version(&self) -> Version {
        self.0.load().as_ref().map_or(Version::ZERO, |list| list.version)
    }

    /// Returns the revoked certificates.
    pub(crate) fn withdrawn(&self) -> WithdrawnCertificates {
        self.0.load().as_ref().map_or_else(WithdrawnCertificates::new, |list| withdrawn_certificates(&list.access))
    }

    /// Returns the present permissions of a caller.
    pub(crate) fn of<'a>(&self, caller: &'a Caller, call: &'a str) -> Permissions<'a> {
        // Other callers need no lookup, and most callers of a plaintext node are no clients.
        let list = caller.client().and_then(|_| self.0.load_full());
        Permissions { caller, call, list, denied: None }
    }
}

/// Permissions of one caller at one moment.
pub(crate) struct Permissions<'a> {
    caller: &'a Caller,
    call: &'a str,
    list: Option<Arc<AccessList>>,
    /// Last refusal, kept because many operations of one message get the same one.
    denied: Option<(TableId, Right, ErrorDetail)>,
}

impl Permissions<'_> {
    /// Refuses a client without this right to every table, with the same error for an unknown table as for one that it
    /// has no right to.
    pub(crate) fn check_unknown(&self, name: &str, right: Right) -> Result<(), ErrorDetail> {
        let Some(client) = self.caller.client() else { return Ok(()) };
        let Some(list) = &self.list else { return Err(no_list()) };
        self.caller.check_right(list.access.right_to_every_table(client), right, name, self.call)
    }

    /// Refuses the caller without this right to a table, or if the table was dropped: its rights went with it.
    pub(crate) fn check(&mut self, tables: &Tables, table: TableId, right: Right) -> Result<(), ErrorDetail> {
        let Some(client) = self.caller.client() else { return Ok(()) };
        let Some(list) = &self.list else { return Err(no_list()) };
        let has = list.access.right(client, table);
        if has >= Some(right) {
            return Ok(());
        }
        if let Some((of, wanted, detail)) = &self.denied
            && (*of, *wanted) == (table, right)
        {
            return Err(detail.clone());
        }
        if let Some(dropped) = tables.dropped(PartitionId::new(table, 0)) {
            return Err(dropped);
        }
        self.caller.check_right(has, right, &tables.table_name(table), self.call).inspect_err(|detail| {
            self.denied = Some((table, right, detail.clone()));
        })
    }
}

fn no_list() -> ErrorDetail {
    let why = "this node has not received the rights of clients yet";
    ErrorDetail::new(ErrorKind::Unavailable, why).with_retry_after_ms(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_security::{Identity, Refusals, Role};
    use archon_types::{Scope, TableList};
    use std::net::{IpAddr, Ipv4Addr};

    const ORDERS: TableId = TableId::new(1);

    fn caller(role: Role, name: &str) -> Caller {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let identity = Identity::new(role, name).unwrap();
        Caller::new(address, address, Some(Arc::new(identity)), Arc::new(Refusals::default()))
    }

    fn list(version: u64, right: Option<Right>) -> AccessList {
        let mut list = AccessList { version: Version::new(version), ..AccessList::default() };
        Arc::make_mut(&mut list.access).set(&Scope { client: Some("shop".into()), table: Some(ORDERS) }, right);
        list
    }

    fn kind(access: &ClientAccess, caller: &Caller, right: Right) -> Option<ErrorKind> {
        access
            .of(caller, "a call")
            .check(&Tables::new(Vec::new(), archon_types::Version::ZERO), ORDERS, right)
            .err()
            .map(|error| error.kind)
    }

    #[test]
    fn node_without_rights_list_makes_only_clients_wait() {
        let (access, shop) = (ClientAccess::default(), caller(Role::Client, "shop"));
        assert_eq!(kind(&access, &shop, Right::Read), Some(ErrorKind::Unavailable));
        for role in [Role::Admin, Role::Node] {
            assert_eq!(kind(&access, &caller(role, "athens"), Right::Write), None);
        }
        assert_eq!(kind(&access, &Caller::NOBODY, Right::Write), None, "by plaintext nobody is anybody");
        access.take(list(5, Some(Right::Read)));
        assert_eq!(
            (kind(&access, &shop, Right::Read), kind(&access, &shop, Right::Write)),
            (None, Some(ErrorKind::Refused))
        );
        assert_eq!(kind(&access, &caller(Role::Client, "other"), Right::Read), Some(ErrorKind::Refused));
    }

    #[test]
    fn unknown_name_is_refused_like_a_table_without_right() {
        let (access, shop) = (ClientAccess::default(), caller(Role::Client, "shop"));
        let unknown = |client: &Caller, right| access.of(client, "a call").check_unknown("t9", right).err();
        assert_eq!(unknown(&shop, Right::Read).map(|error| error.kind), Some(ErrorKind::Unavailable));
        let mut rights = list(5, Some(Right::Write));
        let everywhere = Scope { client: Some("reports".into()), table: None };
        Arc::make_mut(&mut rights.access).set(&everywhere, Some(Right::Read));
        access.take(rights);
        // An existing table, by its number, which is its name while it is not known here.
        let tables = Tables::new(Vec::new(), Version::ZERO);
        let existing = access.of(&shop, "a call").check(&tables, TableId::new(9), Right::Read).unwrap_err();
        let refused = unknown(&shop, Right::Read).unwrap();
        assert_eq!((refused.kind, refused.message.replace("t9", "9")), (existing.kind, existing.message));
        let reports = caller(Role::Client, "reports");
        assert_eq!(
            (unknown(&reports, Right::Read), unknown(&caller(Role::Admin, "alice"), Right::Write)),
            (None, None)
        );
        assert_eq!(unknown(&reports, Right::Write).map(|error| error.kind), Some(ErrorKind::Refused));
    }

    #[test]
    fn late_push_does_not_restore_revoked_rights() {
        let (access, shop) = (ClientAccess::default(), caller(Role::Client, "shop"));
        access.take(list(7, None));
        access.take(list(5, Some(Right::Write)));
        assert_eq!(kind(&access, &shop, Right::Read), Some(ErrorKind::Refused));
        access.take(list(8, Some(Right::Write)));
        assert_eq!(kind(&access, &shop, Right::Write), None);
    }

    #[test]
    fn repeated_refusal_names_its_own_table() {
        let (access, shop, tables) = (
            ClientAccess::default(),
            caller(Role::Client, "shop"),
            Tables::new(Vec::new(), archon_types::Version::ZERO),
        );
        access.take(list(7, None));
        let mut permissions = access.of(&shop, "a call");
        let mut said = |table: u64| permissions.check(&tables, TableId::new(table), Right::Write).unwrap_err().message;
        assert!(said(1).contains("table 1") && said(1).contains("table 1") && said(2).contains("table 2"));
    }

    /// The table's rights went with it, so clients were advised to ask for a right to a table that no longer exists.
    #[test]
    fn dropped_table_is_reported_as_dropped() {
        let (access, shop, tables) = (
            ClientAccess::default(),
            caller(Role::Client, "shop"),
            Tables::new(Vec::new(), archon_types::Version::ZERO),
        );
        access.take(list(7, None));
        let list = TableList { version: Version::new(7), last: TableId::new(5), tables: vec![TableId::new(5)] };
        tables.merge(crate::tables::PushedUpdates { tables: Some(list), ..Default::default() });
        let refused = access.of(&shop, "a call").check(&tables, ORDERS, Right::Read).unwrap_err();
        assert!(refused.kind == ErrorKind::NotFound && refused.message.contains("dropped"), "{refused}");
    }
}
