//! Rights of clients: what granting one, or taking one back, does. Certificates that count no more.

use crate::command::Command;
use crate::coordinators::WITHDRAWN_SINCE;
use crate::state::ClusterState;
use archon_types::access::{WHENEVER, check_identity};
use archon_types::{AccessList, ErrorDetail, ErrorKind, Holds, Millis, Right, Scope};
use std::collections::BTreeMap;
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
    if begins_before.is_none() && state.coordinators.removed().any(|removed| removed == identity) {
        let why = format!("{identity} was removed from the quorum, and its number is not given again");
        return Err(ErrorDetail::new(ErrorKind::Refused, why));
    }
    let after = begins_before.map(|moment| before.map_or(moment, |before| before.max(moment)));
    let command = Command::Withdraw { identity: identity.to_owned(), before, after };
    Ok((before != after).then_some(command))
}

/// Certificates of one identity that members refuse, by two independent facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RefusedCertificates {
    /// An admin withdrew those that begin before this.
    pub begins_before: Option<Millis>,
    /// The coordinator was removed from the quorum. Nodes refuse all of its certificates; coordinators let it ask whether it was
    /// removed, unless they were withdrawn as well.
    pub removed: bool,
}

impl ClusterState {
    /// Certificates that members refuse, by identity.
    pub fn refused_certificates(&self) -> BTreeMap<String, RefusedCertificates> {
        let withdrawn =
            |begins_before: &Millis| RefusedCertificates { begins_before: Some(*begins_before), removed: false };
        let all = self.access.withdrawn().iter();
        let mut refused: BTreeMap<String, _> = all.map(|(whose, moment)| (whose.clone(), withdrawn(moment))).collect();
        if self.protocol >= WITHDRAWN_SINCE {
            self.coordinators.removed().for_each(|identity| refused.entry(identity).or_default().removed = true);
        }
        refused
    }

    /// Rights and refused certificates, as nodes go by them.
    pub fn access_list(&self) -> AccessList {
        let mut access = Arc::clone(&self.access);
        if self.protocol >= WITHDRAWN_SINCE {
            for identity in self.coordinators.removed() {
                Arc::make_mut(&mut access).set_withdrawn(&identity, Some(WHENEVER));
            }
        }
        AccessList { version: self.access_version, access }
    }
}
