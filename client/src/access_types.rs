//! Documents about rights of clients. Their JSON names are a contract, as in `admin_types`.

use archon_proto::v1;
use archon_types::text::into_plain;
use archon_types::{Right, Word};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What clients may do to the rows of tables, where certificates say who they are. What is not in it no client may.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AccessSummary {
    /// The version of all rights: a log index, another one after each change.
    pub access_version: u64,
    /// What was granted: to every client first, then by the client's name.
    pub rights: Vec<AccessRight>,
    /// What the client may do to the table by all of these, if both were named and it may do anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may: Option<Word<Right>>,
    /// Certificates that count no more, by whose they are; of one client if that was named, and none if a table was.
    #[serde(default)]
    pub withdrawn: Vec<WithdrawnCertificates>,
}

/// Certificates that count no more, though the cluster's authority has signed them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WithdrawnCertificates {
    /// Whose: `admin/alice`.
    pub identity: String,
    /// An admin withdrew those that begin before this moment (`not before`), Unix time; absent: none was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_before_at_ms: Option<u64>,
    /// Removed from the quorum: none of the coordinator's certificates counts. Coordinators let it ask whether it was removed,
    /// unless its certificate was withdrawn as well.
    #[serde(default)]
    pub removed: bool,
}

/// What withdrawing certificates, or having them count again, did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CertificatesWithdrawn {
    /// Whose certificates: `admin/alice`.
    pub identity: String,
    /// Whether it was not so already.
    pub changed: bool,
    /// What counts no more now; absent: all certificates count that the authority has signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn_now: Option<WithdrawnCertificates>,
    /// The version of all rights as they are now.
    pub access_version: u64,
    /// Live nodes that do not go by it yet; at most twenty are named.
    pub nodes_behind: Vec<String>,
    /// How many live nodes do not go by it yet.
    pub nodes_behind_count: u32,
}

/// A right that was granted.
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
    /// What it may do; who may write may read.
    pub may: Word<Right>,
}

/// What granting a right, or taking one back, did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AccessChanged {
    /// The client's name; absent: every client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The table's name; absent: every table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Whether it was not so already.
    pub changed: bool,
    /// What is granted now for exactly this; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Word<Right>>,
    /// What the client may do to the table by all that is granted, if both were named and it may do anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may: Option<Word<Right>>,
    /// The version of all rights as they are now.
    pub access_version: u64,
    /// Live nodes that do not go by it yet; at most twenty are named.
    pub nodes_behind: Vec<String>,
    /// How many live nodes do not go by it yet.
    pub nodes_behind_count: u32,
}

impl From<v1::ListAccessResponse> for AccessSummary {
    fn from(wire: v1::ListAccessResponse) -> Self {
        Self {
            access_version: wire.version,
            rights: wire.rights.into_iter().map(Into::into).collect(),
            may: wire.right.as_deref().map(Word::read),
            withdrawn: wire.withdrawn.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::WithdrawnCertificates> for WithdrawnCertificates {
    fn from(wire: v1::WithdrawnCertificates) -> Self {
        Self { identity: into_plain(wire.identity), begins_before_at_ms: wire.begins_before_ms, removed: wire.removed }
    }
}

impl CertificatesWithdrawn {
    pub(crate) fn new(identity: String, wire: v1::WithdrawResponse) -> Self {
        Self {
            identity,
            changed: wire.changed,
            withdrawn_now: wire.withdrawn.map(Into::into),
            access_version: wire.version,
            nodes_behind: wire.nodes_behind.into_iter().map(|node| into_plain(node.name)).collect(),
            nodes_behind_count: wire.nodes_behind_count,
        }
    }
}

impl From<v1::AccessRight> for AccessRight {
    fn from(wire: v1::AccessRight) -> Self {
        let (table_id, table) = wire.table.map(|table| (table.id, into_plain(table.name))).unzip();
        Self { client: wire.client.map(into_plain), table_id, table, may: Word::read(&wire.right) }
    }
}

impl AccessChanged {
    pub(crate) fn new(client: Option<String>, table: Option<String>, wire: v1::SetAccessResponse) -> Self {
        Self {
            client,
            table,
            changed: wire.changed,
            granted: wire.granted.as_deref().map(Word::read),
            may: wire.right.as_deref().map(Word::read),
            access_version: wire.version,
            nodes_behind: wire.nodes_behind.into_iter().map(|node| into_plain(node.name)).collect(),
            nodes_behind_count: wire.nodes_behind_count,
        }
    }
}
