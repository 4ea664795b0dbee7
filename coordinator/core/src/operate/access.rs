//! Rights of clients: what granting one, or taking one back, does. Certificates that count no more.

use crate::command::Command;
use crate::state::ClusterState;
use archon_types::access::{WHENEVER, check_identity};
use archon_types::{AccessList, ErrorDetail, ErrorKind, Holds, Millis, Right, Scope};
use std::sync::Arc;

/// What an operator wants of a right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessChange {
    /// It is to be had, whatever was granted before: who may write goes on to.
    Grant(Right),
    /// It is not to be had any more. Without reading there is no writing either.
    Revoke(Right),
}

impl AccessChange {
    /// What is granted afterwards.
    fn after(self, before: Option<Right>) -> Option<Right> {
        match self {
            Self::Grant(right) => before.max(Some(right)),
            Self::Revoke(Right::Write) => before.min(Some(Right::Read)),
            Self::Revoke(Right::Read) => None,
        }
    }
}

/// What changes a right; `None` if it is so already.
///
/// # Errors
/// If no client can have that name, or there is nothing of the table that clients could read.
pub fn check_access(state: &ClusterState, scope: &Scope, change: AccessChange) -> Result<Option<Command>, ErrorDetail> {
    scope.check()?;
    let table = scope.table.and_then(|table| state.tables.get(&table));
    if let (Some(table), AccessChange::Grant(_)) = (table.filter(|table| table.holds == Holds::Lease), change) {
        let why = format!(
            "table {} is of leases: it has no rows, and whoever has a certificate may ask who owns them",
            table.name
        );
        return Err(ErrorDetail::new(ErrorKind::Refused, why));
    }
    let before = state.access.granted(scope);
    let after = change.after(before);
    let command = Command::SetAccess { scope: scope.clone(), before, after };
    Ok((before != after).then_some(command))
}

/// What withdraws the certificates of an identity that begin before `begins_before`, or has all count again; `None` if it is so already.
/// What was withdrawn stays so until it is to count again: a moment that lies before the one that holds changes nothing.
///
/// # Errors
/// If nobody can be called so, or a coordinator was removed for good.
pub fn check_withdrawal(
    state: &ClusterState,
    identity: &str,
    begins_before: Option<Millis>,
) -> Result<Option<Command>, ErrorDetail> {
    check_identity(identity)?;
    let before = state.access.withdrawn().get(identity).copied();
    if before == Some(WHENEVER) && begins_before.is_none() {
        let why = format!("{identity} was removed from the quorum, and its number is not given again");
        return Err(ErrorDetail::new(ErrorKind::Refused, why));
    }
    let after = begins_before.map(|moment| before.map_or(moment, |before| before.max(moment)));
    let command = Command::Withdraw { identity: identity.to_owned(), before, after };
    Ok((before != after).then_some(command))
}

impl ClusterState {
    /// Every right, for those who go by them.
    pub fn access_list(&self) -> AccessList {
        AccessList { version: self.access_version, access: Arc::clone(&self.access) }
    }
}
