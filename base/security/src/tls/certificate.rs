//! Certificate content: identity, validity and hosts.

use crate::callers::identity::{Identity, IdentityError};
use rustls::pki_types::CertificateDer;
use std::time::{Duration, SystemTime};
use thiserror::Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

/// A parsed certificate. Parsing does not verify it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Subject, for people.
    pub subject: String,
    /// Issuer, for people.
    pub issuer: String,
    /// Identity of the holder; a certificate authority has none.
    pub identity: Result<Identity, NoIdentity>,
    /// Names and addresses of the holder.
    pub hosts: Vec<String>,
    /// The certificate can sign others.
    pub is_authority: bool,
    /// Begin of validity.
    pub not_before: SystemTime,
    /// End of validity.
    pub not_after: SystemTime,
}

/// Reason why a certificate has no identity.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NoIdentity {
    /// It has no URI among its names.
    #[error("it names no identity: it has no URI such as archon:///node/athens among its alternative names")]
    Missing,
    /// It has several URIs.
    #[error("it names {0} URIs; one is allowed")]
    Several(usize),
    /// Its URI is not an Archon identity.
    #[error(transparent)]
    Wrong(#[from] IdentityError),
}

/// Bytes that are not a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("it cannot be read as a certificate: {0}")]
pub struct NotACertificate(String);

impl Certificate {
    /// Parses a certificate from untrusted bytes.
    ///
    /// # Errors
    /// The bytes are not a certificate.
    pub fn read(der: &CertificateDer<'_>) -> Result<Self, NotACertificate> {
        let (_, parsed) = X509Certificate::from_der(der).map_err(|error| NotACertificate(error.to_string()))?;
        let (mut uris, mut hosts) = (Vec::new(), Vec::new());
        for extension in parsed.extensions() {
            let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else { continue };
            for name in &names.general_names {
                match name {
                    GeneralName::URI(uri) => uris.push(*uri),
                    GeneralName::DNSName(host) => hosts.push((*host).to_owned()),
                    GeneralName::IPAddress(bytes) => hosts.extend(ip_of(bytes)),
                    _ => {}
                }
            }
        }
        let identity = match &uris[..] {
            [] => Err(NoIdentity::Missing),
            [uri] => Identity::of_uri(uri).map_err(NoIdentity::Wrong),
            several => Err(NoIdentity::Several(several.len())),
        };
        Ok(Self {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            identity,
            hosts,
            is_authority: parsed.is_ca(),
            not_before: time_of(parsed.validity().not_before),
            not_after: time_of(parsed.validity().not_after),
        })
    }
}

fn ip_of(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|six| std::net::Ipv6Addr::from(six).to_string())
}

/// Converts a time; times before 1970 become 1970.
fn time_of(time: ASN1Time) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
}

/// Formats a time for people: `Mon, 22 Feb 2027 13:45:00 +0000`.
pub fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let said = i64::try_from(seconds).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    said.and_then(|time| time.to_rfc2822().ok()).unwrap_or_else(|| format!("{seconds} s after 1970"))
}
