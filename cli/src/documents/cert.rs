//! Documents of `archon cert`.

use schemars::JsonSchema;
use serde::Serialize;

/// A certificate in a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct CertificateSummary {
    /// The file; of one that a member shows, the member's address.
    pub(crate) file: String,
    /// Who it is of, as `node/athens`; null of an authority, and of what Archon has not issued.
    pub(crate) identity: Option<String>,
    /// Whether it is of an authority, which vouches for others.
    pub(crate) is_authority: bool,
    /// Who it is of, for people.
    pub(crate) holder: String,
    /// Who issued it, for people.
    pub(crate) issuer: String,
    /// SHA-256 of the authority that has signed it, of those in the `ca.crt` beside it or of whoever looks; null of an authority, and if it
    /// is none of them. Two authorities of one cluster may be called the same.
    pub(crate) authority_fingerprint: Option<String>,
    /// Names and addresses under which its holder is reached; those who are not reached by others have none.
    pub(crate) hosts: Vec<String>,
    /// From when it holds. Unix time.
    pub(crate) begins_at_ms: u64,
    /// Until when it holds. Unix time.
    pub(crate) expires_at_ms: u64,
    /// SHA-256 of it: 32 pairs of hexadecimal digits, with colons between.
    pub(crate) fingerprint: String,
}

/// What a directory of credentials holds, which fits together and can be used now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct CertificateCheck {
    /// The certificate.
    pub(crate) certificate: CertificateSummary,
    /// The authorities that are believed.
    pub(crate) authorities: Vec<CertificateSummary>,
    /// Whether the certificate should be renewed.
    pub(crate) certificate_ends_soon: bool,
    /// Whether another authority should take over.
    pub(crate) authority_ends_soon: bool,
}

/// What the members of a cluster show to whoever connects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct MemberCertificates {
    /// Coordinators, then nodes.
    pub(crate) members: Vec<ShownCertificate>,
}

/// What a member shows to whoever connects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct ShownCertificate {
    /// Who is expected, as `node/athens`.
    pub(crate) member: String,
    /// Where.
    pub(crate) address: String,
    /// The certificate that it shows; absent if there was none to see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<CertificateSummary>,
    /// Whether that should be renewed.
    pub(crate) ends_soon: bool,
    /// Why it could not be used, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// A request for a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct CertificateRequest {
    /// The file.
    pub(crate) file: String,
    /// Who it is for, as `node/athens`.
    pub(crate) identity: String,
    /// Names and addresses under which that one is reached.
    pub(crate) hosts: Vec<String>,
}
