//! Documents of `archon cert`.

use schemars::JsonSchema;
use serde::Serialize;

/// A certificate in a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct CertificateSummary {
    /// Path of the file; the address of the member for a certificate that a member presents.
    pub(crate) file: String,
    /// Identity, such as `node/athens`; null for an authority, and for certificates not issued for Archon.
    pub(crate) identity: Option<String>,
    /// True for the certificate of an authority.
    pub(crate) is_authority: bool,
    /// Subject of the certificate, as text.
    pub(crate) holder: String,
    /// Issuer of the certificate, as text.
    pub(crate) issuer: String,
    /// SHA-256 fingerprint of the issuing authority, if it is in the `ca.crt` beside the certificate or in that of the
    /// caller; null otherwise, and for an authority. Two authorities of one cluster may have the same name.
    pub(crate) authority_fingerprint: Option<String>,
    /// Host names and addresses of its holder; empty for members without a listener.
    pub(crate) hosts: Vec<String>,
    /// Begin of validity, Unix time in milliseconds.
    pub(crate) begins_at_ms: u64,
    /// End of validity, Unix time in milliseconds.
    pub(crate) expires_at_ms: u64,
    /// SHA-256 fingerprint: 32 pairs of hexadecimal digits, separated by colons.
    pub(crate) fingerprint: String,
}

/// Contents of a directory of usable credentials.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct CertificateCheck {
    /// The certificate.
    pub(crate) certificate: CertificateSummary,
    /// Trusted authorities.
    pub(crate) authorities: Vec<CertificateSummary>,
    /// True if the certificate should be renewed.
    pub(crate) certificate_ends_soon: bool,
    /// True if the authority should be replaced soon.
    pub(crate) authority_ends_soon: bool,
}

/// Certificates that the members of a cluster present.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct MemberCertificates {
    /// Coordinators, then nodes.
    pub(crate) members: Vec<ShownCertificate>,
}

/// Certificate that a member presents.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct ShownCertificate {
    /// Expected identity, such as `node/athens`.
    pub(crate) member: String,
    /// Address as HOST:PORT.
    pub(crate) address: String,
    /// Presented certificate; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<CertificateSummary>,
    /// True if the certificate should be renewed.
    pub(crate) ends_soon: bool,
    /// Reason why the certificate cannot be used, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// A request for a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
pub(crate) struct CertificateRequest {
    /// The file.
    pub(crate) file: String,
    /// Requested identity, such as `node/athens`.
    pub(crate) identity: String,
    /// Host names and addresses in the request.
    pub(crate) hosts: Vec<String>,
}
