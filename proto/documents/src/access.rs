//! Rights of clients and participants, and withdrawn certificates.

use crate::method::{Document, invalid, known};
use archon_types::limits::{WEIGHTS, check_name};
use archon_types::{ErrorDetail, OpenEnum, Right, check_identity, weight_limit_text};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rights of clients to the rows of tables, and of participants to lease tables. Without TLS clients have no identity, and no right is needed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AccessSummary {
    /// Version of all rights: a log index that rises with each change.
    pub access_version: u64,
    /// Granted rights: first those of every client, then by client name.
    pub rights: Vec<AccessRight>,
    /// Effective right of the client to the table, from all grants; absent if it has none, or if client or table was
    /// not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may: Option<OpenEnum<Right>>,
    /// Revoked certificates by identity; only those of the client if one was named, and none if a table was named.
    #[serde(default)]
    pub withdrawn: Vec<WithdrawnCertificates>,
}

/// Certificates that members refuse although the cluster's authority signed them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WithdrawnCertificates {
    /// The identity: `admin/alice`.
    pub identity: String,
    /// Certificates that begin (`not before`) before this moment are revoked, Unix time in milliseconds; absent if none
    /// was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_before_at_ms: Option<u64>,
    /// True for a coordinator that was removed from the quorum: all its certificates are refused. It may still ask
    /// whether it was removed, unless its certificate was revoked as well.
    #[serde(default)]
    pub removed: bool,
}

/// Effect of revoking or readmitting certificates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CertificatesWithdrawn {
    /// The identity: `admin/alice`.
    pub identity: String,
    /// False if the requested state was already in force.
    pub changed: bool,
    /// Certificates refused from now on; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn_now: Option<WithdrawnCertificates>,
    /// Version of all rights after the change: a log index.
    pub access_version: u64,
    /// Live nodes that do not apply the change yet, at most 20.
    pub nodes_behind: Vec<String>,
    /// Number of live nodes that do not apply the change yet.
    pub nodes_behind_count: u32,
}

/// A granted right.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AccessRight {
    /// The name in the certificate of the client, or of the participant if the right is `own`; absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The table's number; absent: every table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table_id: Option<u64>,
    /// The table's name; absent: every table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The right; `write` includes `read`.
    pub may: OpenEnum<Right>,
    /// Highest weight that the participant may have in the table; absent without a limit, and for other rights than `own`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_max: Option<u32>,
}

/// Effect of granting or revoking a right.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AccessChanged {
    /// The client's name; absent: every client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The table's name; absent: every table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// False if the requested state was already in force.
    pub changed: bool,
    /// Right granted now for exactly this client and table; absent if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<OpenEnum<Right>>,
    /// Highest weight that the grant for exactly this participant and table permits; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_max: Option<u32>,
    /// Effective right of the client to the table, from all grants; absent if it has none, or if client or table was
    /// not named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may: Option<OpenEnum<Right>>,
    /// Version of all rights after the change: a log index.
    pub access_version: u64,
    /// Live nodes that do not apply the change yet, at most 20.
    pub nodes_behind: Vec<String>,
    /// Number of live nodes that do not apply the change yet.
    pub nodes_behind_count: u32,
}

/// Lists granted rights; with a name, only those of that client, or for that table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ListAccess {
    /// Returns only rights of this client, including those of every client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Returns only rights for this table, including those for every table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

/// Grants or revokes a right.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SetAccess {
    /// The client's name; a participant's if the right is `own`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Every client, or every participant. Explicit, so that a forgotten name does not mean all of them.
    #[serde(default)]
    pub every_client: bool,
    /// The table's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Every table, future ones included. Explicit, as `every_client`.
    #[serde(default)]
    pub every_table: bool,
    /// The right.
    pub may: OpenEnum<Right>,
    /// Revokes the right instead; `read` also revokes `write`.
    #[serde(default)]
    pub revoke: bool,
    /// Highest weight that the participant may have in the table, 1 to 10,000; only to grant `own`. Absent: without a
    /// limit, also where the grant had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_max: Option<u32>,
}

/// Revokes certificates of an identity, or accepts all of them again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RevokeCertificates {
    /// The identity: `admin/alice`.
    pub identity: String,
    /// Revokes certificates that begin before this moment, Unix time in milliseconds; absent: now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_before_at_ms: Option<u64>,
    /// Accepts all certificates of the identity again instead.
    #[serde(default)]
    pub readmit: bool,
    /// Revokes even a certificate that a running member uses.
    #[serde(default)]
    pub force: bool,
}

impl SetAccess {
    /// A change of one right; without a name of every client, or to every table.
    pub fn new(may: Right, client: Option<&str>, table: Option<&str>, revoke: bool) -> Self {
        Self {
            client: client.map(str::to_owned),
            every_client: client.is_none(),
            table: table.map(str::to_owned),
            every_table: table.is_none(),
            may: may.into(),
            revoke,
            weight_max: None,
        }
    }

    /// A grant of [`Right::Own`] up to a weight; without a name to every participant.
    pub fn own_up_to(weight_max: u32, participant: Option<&str>, table: &str) -> Self {
        Self { weight_max: Some(weight_max), ..Self::new(Right::Own, participant, Some(table), false) }
    }

    /// The right.
    ///
    /// # Errors
    /// `InvalidArgument`, if this version does not know it.
    pub fn right(&self) -> Result<Right, ErrorDetail> {
        known(&self.may, "SetAccess.may")
    }
}

fn check_names(client: Option<&str>, table: Option<&str>) -> Result<(), ErrorDetail> {
    client.map_or(Ok(()), |name| check_name("client", name))?;
    table.map_or(Ok(()), |name| check_name("table", name))
}

impl Document for ListAccess {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_names(self.client.as_deref(), self.table.as_deref())
    }
}

impl Document for SetAccess {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_names(self.client.as_deref(), self.table.as_deref())?;
        if self.client.is_some() == self.every_client {
            return Err(invalid("SetAccess.client", "give either client or every_client"));
        }
        if self.table.is_some() == self.every_table {
            return Err(invalid("SetAccess.table", "give either table or every_table"));
        }
        let right = self.right()?;
        match self.weight_max {
            Some(weight) if !WEIGHTS.contains(&weight) => {
                let why = format!("{weight}; it must be {} to {}", WEIGHTS.start(), WEIGHTS.end());
                Err(invalid("SetAccess.weight_max", why))
            }
            Some(_) if self.revoke || right != Right::Own || self.table.is_none() => {
                Err(invalid("SetAccess.weight_max", "it belongs to a grant of own for one table"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn subject(&self) -> String {
        self.client.as_ref().map_or_else(|| "every client".to_owned(), |name| format!("client {name}"))
    }

    fn wanted(&self) -> Option<String> {
        let table = self.table.as_ref().map_or_else(|| "every table".to_owned(), |name| format!("table {name}"));
        let verb = if self.revoke { "revoke" } else { "grant" };
        let limit = weight_limit_text(self.weight_max);
        Some(format!("{verb} {} of {table}{limit}", self.may.as_str()))
    }
}

impl Document for RevokeCertificates {
    fn check(&self) -> Result<(), ErrorDetail> {
        check_identity(&self.identity)?;
        match self.begins_before_at_ms {
            Some(0) => Err(invalid("Withdraw.begins_before_at_ms", "0; it must be at least 1")),
            Some(_) if self.readmit => Err(invalid("Withdraw.readmit", "give either readmit or begins_before_at_ms")),
            Some(_) | None => Ok(()),
        }
    }

    fn subject(&self) -> String {
        self.identity.clone()
    }

    fn wanted(&self) -> Option<String> {
        Some(match (self.readmit, self.begins_before_at_ms) {
            (true, _) => "all certificates are accepted again".to_owned(),
            (false, None) => "certificates that begin before now are revoked".to_owned(),
            (false, Some(moment)) => format!("certificates that begin before {} are revoked", utc(moment)),
        })
    }
}

/// A moment as an audit line shows it: `2027-02-22T13:45:00Z`.
fn utc(unix_ms: u64) -> String {
    let (days, seconds) = (unix_ms / 86_400_000, unix_ms / 1_000 % 86_400);
    // Days are counted from 1 March of the year 0, so that a leap day ends its year.
    let from_march = days + 719_468;
    let (era, day_of_era) = (from_march / 146_097, from_march % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(request: &impl Document) -> String {
        request.check().unwrap_err().message
    }

    #[test]
    fn set_access_names_a_client_or_all_of_them() {
        let good = SetAccess::new(Right::Write, Some("shop"), None, false);
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.wanted().as_deref(), Some("grant write of every table"));
        assert!(problem(&SetAccess { client: None, ..good.clone() }).contains("every_client"));
        assert!(problem(&SetAccess { every_client: true, ..good.clone() }).contains("every_client"));
        assert!(problem(&SetAccess { every_table: false, ..good.clone() }).contains("every_table"));
        assert!(problem(&SetAccess { client: Some("a b".into()), ..good.clone() }).contains("a b"));
        let unknown = problem(&SetAccess { may: OpenEnum::read("look"), ..good });
        assert!(unknown.contains("\"look\" is not a valid right; use own, read, write"), "{unknown}");
    }

    #[test]
    fn weight_limit_belongs_to_a_grant_of_own() {
        let good = SetAccess::own_up_to(4, Some("billing-3"), "jobs");
        assert_eq!(good.check(), Ok(()));
        assert_eq!(good.wanted().as_deref(), Some("grant own of table jobs up to weight 4"));
        for weight in [0, 10_001] {
            assert!(problem(&SetAccess { weight_max: Some(weight), ..good.clone() }).contains("1 to 10000"));
        }
        assert!(problem(&SetAccess { revoke: true, ..good.clone() }).contains("weight_max"));
        assert!(problem(&SetAccess { may: Right::Read.into(), ..good }).contains("weight_max"));
    }

    #[test]
    fn withdraw_says_whose_and_what() {
        let good = RevokeCertificates {
            identity: "admin/alice".into(),
            begins_before_at_ms: None,
            readmit: false,
            force: false,
        };
        assert_eq!(good.check(), Ok(()));
        for wrong in [
            RevokeCertificates { identity: "alice".into(), ..good.clone() },
            RevokeCertificates { begins_before_at_ms: Some(0), ..good.clone() },
            RevokeCertificates { begins_before_at_ms: Some(7), readmit: true, ..good },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn moments_are_written_as_dates() {
        for (unix_ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_803_303_900_000, "2027-02-22T13:45:00Z"),
        ] {
            assert_eq!(utc(unix_ms), text);
        }
        assert!(!utc(u64::MAX).is_empty());
    }
}
