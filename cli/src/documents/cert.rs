//! Documents of `archon cert`.

use schemars::JsonSchema;
use serde::Serialize;

/// A certificate in a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct CertificateSummary {
    /// The file.
    pub(crate) file: String,
    /// Who it is of, as `node/athens`; null of an authority, and of what Archon has not issued.
    pub(crate) identity: Option<String>,
    /// Whether it is of an authority, which vouches for others.
    pub(crate) is_authority: bool,
    /// Who it is of, for people.
    pub(crate) holder: String,
    /// Who issued it, for people.
    pub(crate) issuer: String,
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
