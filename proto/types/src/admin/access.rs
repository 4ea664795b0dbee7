//! Rights of clients to the rows of tables, and of participants to the partitions of lease tables.

use crate::admin::open_enum::words;
use crate::common::limits::{WEIGHTS, check_name};
use crate::error::{ErrorDetail, ErrorKind};
use crate::ids::{Millis, TableId, Version};
use crate::operations::op::Op;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of rights of all clients together: each node receives the whole list whenever one changes.
pub const RIGHTS_MAX: usize = 16_384;
/// Maximum number of identities with revoked certificates; they travel with the rights.
pub const WITHDRAWN_MAX: usize = 4_096;
/// Revokes the certificates of an identity whenever they begin; for identities that are never reused.
pub const WHENEVER: Millis = Millis::new(u64::MAX);

/// Protocol that introduced the right to own partitions of a lease table.
pub const OWN_SINCE: u32 = 2;

words! {
    /// A right of a client to the rows of a table, or of a participant to the partitions of a lease table.
    #[derive(Serialize, Deserialize)]
    pub enum Right: "right" {
        /// Own partitions of a lease table: the right of a participant. It gives no right to rows, so it is the lowest.
        Own = "own",
        /// Read rows.
        Read = "read",
        /// Read and write rows; it includes reading, because increments and conditional writes reveal values.
        Write = "write",
    }
}

impl Right {
    /// Returns the right that an operation requires.
    pub const fn of(op: &Op) -> Self {
        if op.is_read() { Self::Read } else { Self::Write }
    }

    /// Returns the permission as part of a sentence.
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Own => "own partitions of",
            Self::Read => "read",
            Self::Write => "write to",
        }
    }
}

/// Clients and tables that a right applies to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Scope {
    /// Name in the certificate of a client, or of a participant if the right is [`Right::Own`]; `None`: all of them.
    pub client: Option<String>,
    /// Table; `None`: every table, including future ones.
    pub table: Option<TableId>,
}

impl Scope {
    /// Validates untrusted input.
    ///
    /// # Errors
    /// `InvalidArgument`, if no client can have that name.
    pub fn check(&self) -> Result<(), ErrorDetail> {
        self.client.as_ref().map_or(Ok(()), |name| check_name("client", name))
    }
}

/// Granted rights and revoked certificates. Rights must be granted explicitly.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Access {
    everyone: ClientRights,
    clients: BTreeMap<String, ClientRights>,
    /// By identity (`admin/alice`): certificates that begin before this moment are revoked. Omitted while empty,
    /// because the first protocol does not know this field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "read_withdrawn")]
    withdrawn: BTreeMap<String, Millis>,
}

/// Reads stored revocations. Earlier versions also recorded removed coordinators there, by [`WHENEVER`]; those are now
/// derived from the members of the quorum.
fn read_withdrawn<'de, D: Deserializer<'de>>(stored: D) -> Result<BTreeMap<String, Millis>, D::Error> {
    let mut withdrawn = BTreeMap::<String, Millis>::deserialize(stored)?;
    withdrawn.retain(|_, moment| *moment != WHENEVER);
    Ok(withdrawn)
}

/// Rights of one client, or of all clients.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct ClientRights {
    everywhere: Option<Right>,
    tables: BTreeMap<TableId, Right>,
    /// Limits of weight of the grants [`Right::Own`] that have one. Omitted while empty, because the first protocol does
    /// not know this field.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    weights_max: BTreeMap<TableId, u32>,
}

impl ClientRights {
    fn to(&self, table: TableId) -> Option<Right> {
        self.everywhere.max(self.tables.get(&table).copied())
    }

    fn granted(&self, table: Option<TableId>) -> Option<Right> {
        table.map_or(self.everywhere, |table| self.tables.get(&table).copied())
    }

    /// Sets the right, without a limit of weight.
    fn set(&mut self, table: Option<TableId>, right: Option<Right>) {
        if let Some(table) = table {
            self.weights_max.remove(&table);
        }
        match (table, right) {
            (None, right) => self.everywhere = right,
            (Some(table), Some(right)) => drop(self.tables.insert(table, right)),
            (Some(table), None) => drop(self.tables.remove(&table)),
        }
    }

    fn forget(&mut self, table: TableId) {
        self.set(Some(table), None);
    }

    /// Returns the highest weight that these rights permit in a lease table, if they include its partitions.
    fn own_weight(&self, table: TableId) -> Option<u32> {
        let owns = self.granted(Some(table)) == Some(Right::Own);
        owns.then(|| self.weights_max.get(&table).copied().unwrap_or(*WEIGHTS.end()))
    }

    fn is_empty(&self) -> bool {
        self.everywhere.is_none() && self.tables.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = (Option<TableId>, Right)> {
        let everywhere = self.everywhere.map(|right| (None, right));
        everywhere.into_iter().chain(self.tables.iter().map(|(table, right)| (Some(*table), *right)))
    }
}

impl Access {
    /// Returns the right of a client to the rows of a table, from its own grants and those to every client.
    pub fn right(&self, client: &str, table: TableId) -> Option<Right> {
        self.everyone.to(table).max(self.clients.get(client).and_then(|rights| rights.to(table)))
    }

    /// Returns the right of a client to the rows of every table, including tables that do not exist.
    pub fn right_to_every_table(&self, client: &str) -> Option<Right> {
        self.everyone.everywhere.max(self.clients.get(client).and_then(|rights| rights.everywhere))
    }

    /// Returns true if the participant may own partitions of this lease table.
    pub fn may_own(&self, participant: &str, table: TableId) -> bool {
        self.own_weight(participant, table).is_some()
    }

    /// Returns the highest weight that the participant may have in this lease table, from its own grant and the grant
    /// to every participant; `None` without a grant. Without a limit it is the highest of [`WEIGHTS`].
    pub fn own_weight(&self, participant: &str, table: TableId) -> Option<u32> {
        self.everyone.own_weight(table).max(self.clients.get(participant).and_then(|rights| rights.own_weight(table)))
    }

    /// Returns the limit of weight of the grant for exactly this scope; `None` without a limit.
    pub fn weight_max(&self, scope: &Scope) -> Option<u32> {
        let rights = scope.client.as_ref().map_or(Some(&self.everyone), |client| self.clients.get(client));
        rights.and_then(|rights| rights.weights_max.get(&scope.table?).copied())
    }

    /// Limits the weight of the grant [`Right::Own`] for exactly this scope. Without such a grant it does nothing.
    pub fn limit_weight(&mut self, scope: &Scope, weight_max: u32) {
        let rights = scope.client.as_ref().map_or(Some(&mut self.everyone), |client| self.clients.get_mut(client));
        if let (Some(rights), Some(table)) = (rights, scope.table)
            && rights.granted(Some(table)) == Some(Right::Own)
        {
            rights.weights_max.insert(table, weight_max);
        }
    }

    /// Returns the right granted for exactly this scope.
    pub fn granted(&self, scope: &Scope) -> Option<Right> {
        let rights = scope.client.as_ref().map_or(Some(&self.everyone), |client| self.clients.get(client));
        rights.and_then(|rights| rights.granted(scope.table))
    }

    /// Sets the right for exactly this scope, replacing the previous one and its limit of weight.
    pub fn set(&mut self, scope: &Scope, right: Option<Right>) {
        let Some(client) = &scope.client else { return self.everyone.set(scope.table, right) };
        let rights = self.clients.entry(client.clone()).or_default();
        rights.set(scope.table, right);
        if rights.is_empty() {
            self.clients.remove(client);
        }
    }

    /// Returns true if a right was granted for exactly this table.
    pub fn has_table(&self, table: TableId) -> bool {
        std::iter::once(&self.everyone).chain(self.clients.values()).any(|rights| rights.tables.contains_key(&table))
    }

    /// Removes all rights to a table.
    pub fn forget_table(&mut self, table: TableId) {
        self.everyone.forget(table);
        self.clients.retain(|_, rights| {
            rights.forget(table);
            !rights.is_empty()
        });
    }

    /// Returns all granted rights: those of every client first, then by client name.
    pub fn all(&self) -> impl Iterator<Item = (Scope, Right)> {
        let of = |client: Option<&String>, rights: &ClientRights| {
            let client = client.cloned();
            let all: Vec<_> = rights.all().collect();
            all.into_iter().map(move |(table, right)| (Scope { client: client.clone(), table }, right))
        };
        of(None, &self.everyone).chain(self.clients.iter().flat_map(move |(client, rights)| of(Some(client), rights)))
    }

    /// Returns the number of granted rights.
    pub fn len(&self) -> usize {
        let count = |rights: &ClientRights| usize::from(rights.everywhere.is_some()) + rights.tables.len();
        count(&self.everyone) + self.clients.values().map(count).sum::<usize>()
    }

    /// Returns the revocations by identity: certificates that begin before the moment are revoked.
    pub const fn withdrawn(&self) -> &BTreeMap<String, Millis> {
        &self.withdrawn
    }

    /// Revokes the certificates of an identity that begin before a moment, replacing its previous revocation; `None`
    /// removes the revocation.
    pub fn set_withdrawn(&mut self, identity: &str, begins_before: Option<Millis>) {
        match begins_before {
            Some(moment) => drop(self.withdrawn.insert(identity.to_owned(), moment)),
            None => drop(self.withdrawn.remove(identity)),
        }
    }

    /// Returns true if no right was granted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Checks the form of an identity (`admin/alice`) without knowledge of the roles.
///
/// # Errors
/// `InvalidArgument`, if the identity cannot exist.
pub fn check_identity(identity: &str) -> Result<(), ErrorDetail> {
    let Some((role, name)) = identity.split_once('/') else {
        let why = format!("{identity:?} is not an identity such as admin/alice or node/athens");
        return Err(ErrorDetail::new(ErrorKind::InvalidArgument, why));
    };
    check_name("role's", role)?;
    check_name(role, name)
}

/// All rights as of a version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessList {
    /// Log index of the last change.
    pub version: Version,
    /// Rights and revocations.
    pub access: Arc<Access>,
}

/// Names the holder of a right in a sentence: a participant if the right is [`Right::Own`], otherwise a client.
pub fn grantee_text(name: Option<&str>, right: Option<Right>) -> String {
    match (name, right) {
        (Some(name), Some(Right::Own)) => format!("participant/{name}"),
        (None, Some(Right::Own)) => "every participant".to_owned(),
        (name, _) => client_text(name),
    }
}

/// Explains why a participant may not own partitions of `table`, and what to do.
pub fn own_denial(participant: &str, table: &str) -> String {
    format!(
        "participant/{participant} may not own partitions of table {table}: it was not granted that; an admin grants \
         it by \
         `archon access grant own --participant {participant} --table {table}`"
    )
}

/// Explains why a participant may not have `weight` in `table`, and what to do. `weight_max` is the limit of its grants.
pub fn weight_denial(participant: &str, table: &str, weight: u32, weight_max: u32) -> String {
    format!(
        "participant/{participant} may not have weight {weight} in table {table}: the limit of its grant is \
         {weight_max}; use a weight of {weight_max} or less, or an admin raises the limit by `archon access grant own \
         --participant {participant} --table {table} --weight-max {weight}`"
    )
}

/// Returns the end of a sentence about a grant with this limit of weight; empty without one.
pub fn weight_limit_text(weight_max: Option<u32>) -> String {
    weight_max.map_or_else(String::new, |weight| format!(" up to weight {weight}"))
}

/// Names one client, or every client, in a sentence.
pub fn client_text(client: Option<&str>) -> String {
    client.map_or_else(|| "every client".to_owned(), |name| format!("client/{name}"))
}

/// Explains why a client lacks a right to the rows of `table` (a table name) and who can grant it. `has` is its present
/// right.
pub fn denial(client: &str, wanted: Right, table: &str, has: Option<Right>) -> String {
    let has = match has {
        Some(right) => format!("may {} it only", right.verb()),
        None => "was granted no right to it".to_owned(),
    };
    // Writers request the routes first, so without this hint they would get two refusals, one right after the other.
    let more = if wanted == Right::Read { ", or `grant write` where it writes as well" } else { "" };
    format!(
        "client/{client} may not {} table {table}: it {has}; an admin grants it by `archon access grant {} --client \
         {client} --table \
         {table}`{more}",
        wanted.verb(),
        wanted.as_str(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn scope(client: Option<&str>, table: Option<u64>) -> Scope {
        Scope { client: client.map(str::to_owned), table: table.map(TableId::new) }
    }

    #[test]
    fn rights_must_be_granted_explicitly() {
        let (mut access, orders, bills) = (Access::default(), TableId::new(1), TableId::new(2));
        assert_eq!((access.right("shop", orders), access.is_empty()), (None, true));
        access.set(&scope(Some("shop"), Some(1)), Some(Right::Read));
        assert_eq!((access.right("shop", orders), access.right("shop", bills)), (Some(Right::Read), None));
        assert_eq!(access.right("shopper", orders), None);
        access.set(&scope(Some("shop"), None), Some(Right::Write));
        assert_eq!(
            (access.right("shop", orders), access.right("shop", bills)),
            (Some(Right::Write), Some(Right::Write))
        );
        access.set(&scope(None, Some(2)), Some(Right::Read));
        assert_eq!((access.right("anybody", orders), access.right("anybody", bills)), (None, Some(Right::Read)));
        access.set(&scope(Some("shop"), None), None);
        assert_eq!((access.right("shop", orders), access.right("shop", bills)), (Some(Right::Read), Some(Right::Read)));
        assert!(access.has_table(bills));
        access.forget_table(bills);
        assert!(!access.has_table(bills));
        assert_eq!((access.right("shop", bills), access.len()), (None, 1));
        access.forget_table(orders);
        assert!(access.is_empty());
        assert_eq!(access, Access::default(), "nothing is left of a client without rights");
    }

    #[test]
    fn own_is_for_one_table_and_gives_no_right_to_rows() {
        let (mut access, jobs, bills) = (Access::default(), TableId::new(1), TableId::new(2));
        access.set(&scope(Some("billing"), Some(1)), Some(Right::Own));
        assert!(access.may_own("billing", jobs) && !access.may_own("billing", bills) && !access.may_own("other", jobs));
        assert!(access.right("billing", jobs) < Some(Right::Read));
        access.set(&scope(Some("billing"), None), Some(Right::Write));
        assert!(!access.may_own("billing", bills), "rights to rows are a client's of that name");
        access.set(&scope(None, Some(2)), Some(Right::Own));
        assert!(access.may_own("other", bills));
    }

    #[test]
    fn weight_limit_is_highest_of_own_grants() {
        let (mut access, jobs) = (Access::default(), TableId::new(1));
        let (mine, everyone) = (scope(Some("billing"), Some(1)), scope(None, Some(1)));
        access.limit_weight(&mine, 4);
        assert_eq!((access.weight_max(&mine), access.is_empty()), (None, true), "there is no grant to limit");
        access.set(&mine, Some(Right::Own));
        assert_eq!(access.own_weight("billing", jobs), Some(10_000));
        access.limit_weight(&mine, 4);
        assert_eq!((access.own_weight("billing", jobs), access.own_weight("other", jobs)), (Some(4), None));
        access.set(&everyone, Some(Right::Own));
        access.limit_weight(&everyone, 9);
        assert_eq!((access.own_weight("billing", jobs), access.own_weight("other", jobs)), (Some(9), Some(9)));
        access.set(&mine, Some(Right::Own));
        assert_eq!((access.weight_max(&mine), access.own_weight("billing", jobs)), (None, Some(10_000)));
        access.limit_weight(&mine, 4);
        access.forget_table(jobs);
        assert_eq!(access, Access::default(), "a dropped table leaves no limit");
    }

    #[test]
    fn identity_is_a_role_and_a_name() {
        for right in ["admin/alice", "coordinator/3", "node/athens-1"] {
            assert_eq!(check_identity(right), Ok(()), "{right}");
        }
        for wrong in ["", "alice", "/alice", "admin/", "admin/a/b", "admin/*", "a b/c"] {
            assert_eq!(check_identity(wrong).map_err(|error| error.kind), Err(ErrorKind::InvalidArgument), "{wrong}");
        }
    }

    #[test]
    fn denial_names_the_missing_right_and_the_remedy() {
        assert_eq!(
            denial("shop", Right::Write, "orders", Some(Right::Read)),
            "client/shop may not write to table orders: it may read it only; an admin grants it by `archon access \
             grant \
             write --client shop --table orders`"
        );
        let said = denial("shop", Right::Read, "orders", None);
        assert!(said.contains("was granted no right to it"), "{said}");
    }

    #[test]
    fn denial_of_read_also_names_grant_write() {
        let said = denial("shop", Right::Read, "orders", None);
        assert!(said.ends_with("--table orders`, or `grant write` where it writes as well"), "{said}");
        assert!(
            !denial("shop", Right::Write, "orders", None).contains("grant write`"),
            "that is what it names already"
        );
    }

    fn scopes() -> impl Strategy<Value = Scope> {
        (proptest::option::of("[ab]"), proptest::option::of(1u64..3))
            .prop_map(|(client, table)| scope(client.as_deref(), table))
    }

    proptest! {
        /// Compares with a plain list.
        #[test]
        fn client_has_highest_right_granted_to_it_or_to_all(
            changes in proptest::collection::vec((scopes(), proptest::option::of(proptest::sample::select(Right::ALL))), 0..20),
        ) {
            let (mut access, mut list) = (Access::default(), BTreeMap::new());
            for (scope, right) in changes {
                access.set(&scope, right);
                match right {
                    Some(right) => drop(list.insert(scope.clone(), right)),
                    None => drop(list.remove(&scope)),
                }
                prop_assert_eq!(access.granted(&scope), right);
            }
            prop_assert_eq!(access.all().collect::<BTreeMap<_, _>>(), list.clone());
            prop_assert_eq!(access.len(), list.len());
            for client in ["a", "b", "c"] {
                for table in [1, 2, 3].map(TableId::new) {
                    let covers = |scope: &Scope| {
                        scope.client.as_deref().is_none_or(|name| name == client) && scope.table.is_none_or(|id| id == table)
                    };
                    let most = list.iter().filter(|(scope, _)| covers(scope)).map(|(_, right)| *right).max();
                    prop_assert_eq!(access.right(client, table), most);
                }
            }
            let tables: BTreeSet<TableId> = list.keys().filter_map(|scope| scope.table).collect();
            for table in tables {
                access.forget_table(table);
            }
            prop_assert!(access.all().all(|(scope, _)| scope.table.is_none()));
        }
    }
}
