//! Checks of grants and revocations of client rights, and of revocations of certificates.

use crate::command::Command;
use crate::state::ClusterState;
use crate::state::node_row::NodeRow;
use crate::state::protocols::WITHDRAWN_SINCE;
use archon_types::limits::WEIGHTS;
use archon_types::{
    AccessList, ErrorDetail, ErrorKind, Millis, NodeId, OWN_SINCE, Participant, Right, Scope, Table, TableContent,
    TableId, WHENEVER, check_identity, weight_denial,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Change of a right by an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessChange {
    /// Grants the right; a higher existing right stays.
    Grant(Right),
    /// Grants [`Right::Own`] up to this weight; replaces the previous limit. A grant without it has no limit.
    GrantOwn {
        /// Highest weight that the participant may have in the table.
        weight_max: u32,
    },
    /// Revokes the right. Revoking read also revokes write.
    Revoke(Right),
}

impl AccessChange {
    /// Returns the right after the change.
    fn after(self, before: Option<Right>) -> Option<Right> {
        match self {
            Self::Grant(right) => before.max(Some(right)),
            Self::GrantOwn { .. } => before.max(Some(Right::Own)),
            Self::Revoke(Right::Write) => before.min(Some(Right::Read)),
            Self::Revoke(Right::Read) => before.filter(|right| *right == Right::Own),
            Self::Revoke(Right::Own) => before.filter(|right| *right != Right::Own),
        }
    }

    /// Returns the limit of weight after the change.
    const fn weight_after(self, before: Option<u32>) -> Option<u32> {
        match self {
            Self::GrantOwn { weight_max } => Some(weight_max),
            Self::Grant(Right::Own) | Self::Revoke(Right::Own) => None,
            Self::Grant(_) | Self::Revoke(_) => before,
        }
    }

    /// Returns true if the change is about the right to own.
    const fn is_of_own(self) -> bool {
        matches!(self, Self::GrantOwn { .. } | Self::Grant(Right::Own) | Self::Revoke(Right::Own))
    }
}

/// Checks a limit of weight: it is in the range of weights, and belongs to the right to own one table.
///
/// # Errors
/// `InvalidArgument`, with the range or the right.
pub(crate) fn check_weight_max(scope: &Scope, right: Option<Right>, weight_max: u32) -> Result<(), ErrorDetail> {
    let invalid = |why: String| Err(ErrorDetail::new(ErrorKind::InvalidArgument, why));
    if !WEIGHTS.contains(&weight_max) {
        let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
        return invalid(format!(
            "the limit of weight {weight_max} must be {least} to {most}; the default weight is 100"
        ));
    }
    if right != Some(Right::Own) || scope.table.is_none() {
        return invalid("a limit of weight belongs to the right `own` of one lease table".to_owned());
    }
    Ok(())
}

/// Returns the command that changes a right; `None` if it needs no change.
///
/// # Errors
/// If the name is invalid for a client, or the table does not hold the subject of the right: rows, or leases to own.
pub fn check_access(state: &ClusterState, scope: &Scope, change: AccessChange) -> Result<Option<Command>, ErrorDetail> {
    scope.check()?;
    let table = scope.table.and_then(|table| state.tables.get(&table));
    let grants_own = change.is_of_own() && !matches!(change, AccessChange::Revoke(_));
    match (change, table) {
        (_, None) if change.is_of_own() => {
            let why = "the right `own` is granted for one lease table: name it";
            return Err(ErrorDetail::new(ErrorKind::InvalidArgument, why));
        }
        (_, Some(_)) if grants_own && state.protocol < OWN_SINCE => {
            let why = format!(
                "the cluster uses protocol {}, and the right `own` needs {OWN_SINCE}; until then every participant has \
                 it: see `archon upgrade status`",
                state.protocol
            );
            return Err(ErrorDetail::new(ErrorKind::Refused, why));
        }
        (_, Some(table)) if grants_own && table.holds == TableContent::Data => {
            let why =
                format!("table {} has rows and no leases to own: grant read or write of it to clients", table.name);
            return Err(ErrorDetail::new(ErrorKind::Refused, why));
        }
        (AccessChange::Grant(Right::Read | Right::Write), Some(table)) if table.holds == TableContent::Lease => {
            let why = format!(
                "table {} is a lease table without rows; every identity may query the owners; grant `own` to \
                 participants",
                table.name
            );
            return Err(ErrorDetail::new(ErrorKind::Refused, why));
        }
        _ => {}
    }
    let before = state.access.granted(scope);
    let after = change.after(before);
    let weight_before = state.access.weight_max(scope);
    let weight_max = change.weight_after(weight_before);
    if let Some(weight) = weight_max {
        check_weight_max(scope, after, weight)?;
    }
    let command = Command::SetAccess { scope: scope.clone(), before, after, weight_before, weight_max };
    Ok(((before, weight_before) != (after, weight_max)).then_some(command))
}

/// Returns the command that revokes the certificates of an identity that begin before `begins_before`, or restores all;
/// `None` if it needs no change. A revocation stays until it is lifted: a time before the present one changes nothing.
///
/// # Errors
/// If the identity is invalid, or the coordinator was removed permanently.
pub fn check_withdrawal(
    state: &ClusterState,
    identity: &str,
    begins_before: Option<Millis>,
) -> Result<Option<Command>, ErrorDetail> {
    check_identity(identity)?;
    let before = state.access.withdrawn().get(identity).copied();
    if begins_before.is_none() && state.coordinators.removed().any(|removed| removed == identity) {
        let why = format!("{identity} was removed from the quorum, and its number is never reused");
        return Err(ErrorDetail::new(ErrorKind::Refused, why));
    }
    let after = begins_before.map(|moment| before.map_or(moment, |before| before.max(moment)));
    let command = Command::Withdraw { identity: identity.to_owned(), before, after };
    Ok((before != after).then_some(command))
}

/// Certificates of one identity that members refuse, by two independent facts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RefusedCertificates {
    /// An admin revoked those that begin before this.
    pub begins_before: Option<Millis>,
    /// The coordinator was removed from the quorum. Nodes refuse all of its certificates; coordinators let it ask about
    /// its removal, unless the certificates were revoked as well.
    pub removed: bool,
}

impl ClusterState {
    /// Returns the certificates that members refuse, by identity.
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

    /// Returns true if this member is a participant with a certificate that was not granted the partitions of the lease
    /// table. It is kept from them like by a bar. Before [`OWN_SINCE`] every participant may own them.
    pub(crate) fn lacks_grant(&self, member: NodeId, table: TableId) -> bool {
        let Some(row) = self.participants.get(&member) else { return false };
        row.certified && self.protocol >= OWN_SINCE && !self.access.may_own(&row.node.name, table)
    }

    /// Returns the weight of a participant among those of a lease table: its own, up to the limit of its grant.
    pub(crate) fn weight_in(&self, table: TableId, row: &NodeRow) -> u32 {
        let limit = self.weight_limit(table, row).unwrap_or(u32::MAX);
        row.node.weight.min(limit).max(1)
    }

    fn weight_limit(&self, table: TableId, row: &NodeRow) -> Option<u32> {
        let applies = row.certified && self.protocol >= OWN_SINCE;
        applies.then(|| self.access.own_weight(&row.node.name, table)).flatten()
    }

    /// Checks that an operator may set the weight of a member: a grant of a participant with a certificate may limit it.
    ///
    /// # Errors
    /// `Refused`, with the table and the limit.
    pub(crate) fn check_weight(&self, row: &NodeRow, weight: u32) -> Result<(), ErrorDetail> {
        let participant = row.participant.as_ref().filter(|_| row.certified);
        let why = participant.and_then(|participant| self.weight_not_granted(&row.node.name, participant, weight));
        why.map_or(Ok(()), |why| Err(ErrorDetail::new(ErrorKind::Refused, why)))
    }

    /// Explains why a participant with a certificate may not serve its tables with this weight: the limit of a grant is
    /// lower. Returns `None` if it may. Tables that were not granted do not count.
    pub fn weight_not_granted(&self, name: &str, participant: &Participant, weight: u32) -> Option<String> {
        let served = participant.tables.iter().filter_map(|served| self.table_by_name(served));
        let limits = served.filter_map(|table| Some((table, self.access.own_weight(name, table.id)?)));
        let (table, limit) = limits.min_by_key(|(_, limit)| *limit).filter(|_| self.protocol >= OWN_SINCE)?;
        (weight > limit).then(|| weight_denial(name, &table.name, weight, limit))
    }

    /// Returns a lease table that a participant with a certificate wants to serve, if it was granted none of the
    /// existing ones.
    pub fn not_granted(&self, name: &str, participant: &Participant) -> Option<&Table> {
        let served = participant.tables.iter().filter_map(|served| self.table_by_name(served));
        let leased: Vec<&Table> = served.filter(|table| table.holds == TableContent::Lease).collect();
        let granted = self.protocol < OWN_SINCE || leased.iter().any(|table| self.access.may_own(name, table.id));
        leased.first().copied().filter(|_| !granted)
    }

    /// Returns true if the participant was not granted all of the tables that it serves.
    pub(crate) fn lacks_any_grant(&self, member: NodeId) -> bool {
        let served = self.participants.get(&member).and_then(|row| row.participant.as_ref());
        let served = served.map_or(&[][..], |participant| participant.tables.as_slice());
        let tables = served.iter().filter_map(|name| self.table_by_name(name));
        tables.filter(|table| table.holds == TableContent::Lease).any(|table| self.lacks_grant(member, table.id))
    }

    /// Returns rights and refused certificates, as nodes apply them.
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
