//! Errors of TLS handshakes, with remedies.

use crate::callers::identity::Identity;
use crate::tls::expected_peer::ExpectedPeer;
use crate::tls::revocation_list::RevokedCertificate;
use rustls::{CertificateError, InvalidMessage};
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Reason why there is no encrypted connection.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The peer closed the connection, or it failed.
    #[error("the TLS handshake failed: {0}")]
    Broken(io::Error),
    /// The peer did not complete the handshake in time.
    #[error("no TLS handshake within {} s", .0.as_secs())]
    Silent(Duration),
    /// The peer speaks plaintext.
    #[error("it uses plaintext instead of TLS: was it started without --tls-dir?")]
    Plaintext,
    /// The certificate of the peer is not trusted.
    #[error("its certificate is refused: {0}")]
    Certificate(String),
    /// The certificate of the peer was revoked.
    #[error("its certificate is refused: {0}")]
    Revoked(RevokedCertificate),
    /// The peer rejects our certificate.
    #[error("it refuses this process's certificate: {0}")]
    Refused(String),
    /// The peer sent no certificate.
    #[error("it has shown no certificate")]
    NoCertificate,
    /// The certificate of the peer has no identity.
    #[error("its certificate is refused: {0}")]
    NoIdentity(String),
    /// The peer has another identity than expected.
    #[error("its certificate is of {found}, where {expected} is expected")]
    Stranger {
        /// Expected identity.
        expected: ExpectedPeer,
        /// Identity of the peer.
        found: Identity,
    },
    /// The dialled text is neither a name nor an address.
    #[error("{0:?} is not a valid host name for a certificate")]
    Host(String),
}

impl TlsError {
    /// Returns whether the peer was rejected because of its certificate or lack of one; such rejections are audited.
    /// Other errors are failed connections.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Certificate(_) | Self::NoIdentity(_) | Self::NoCertificate | Self::Revoked(_))
    }

    /// Returns the identity of the rejected peer, if known.
    pub const fn refused(&self) -> Option<&Identity> {
        match self {
            Self::Revoked(revoked) => Some(&revoked.identity),
            _ => None,
        }
    }

    /// Returns the remedy if one side rejects the other's certificate; `own` is the identity of this process.
    pub(crate) fn remedy(&self, own: &Identity) -> Option<String> {
        match self {
            Self::Refused(why) if why.contains(EXPIRED) => {
                Some("renew it: docs/operate/certificates.md, Renewing".to_owned())
            }
            Self::Refused(_) if is_of_withdrawal(self) => Some(format!(
                "issue a new one, or, if the key was not stolen, readmit it with `archon access readmit {own}`"
            )),
            Self::Refused(_) | Self::Certificate(_) | Self::NoIdentity(_) | Self::Stranger { .. } => {
                Some(COMPARE.to_owned())
            }
            Self::Revoked(_) => Some("that process needs a new certificate".to_owned()),
            _ => None,
        }
    }

    /// Converts the error of a handshake; `host` is the dialled host, if any.
    pub(crate) fn of_handshake(error: io::Error, host: Option<&str>) -> Self {
        let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) else {
            return Self::Broken(error);
        };
        match cause {
            rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
                match other.0.downcast_ref::<RevokedCertificate>() {
                    Some(revoked) => Self::Revoked(revoked.clone()),
                    None => Self::Certificate(other.to_string()),
                }
            }
            rustls::Error::InvalidCertificate(why) => Self::Certificate(reason(why, host)),
            rustls::Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::Plaintext,
            rustls::Error::NoCertificatesPresented => Self::NoCertificate,
            rustls::Error::AlertReceived(alert) => Self::Refused(refusal(&format!("{alert:?}"))),
            _ => Self::Broken(error),
        }
    }
}

fn reason(why: &CertificateError, host: Option<&str>) -> String {
    match why {
        // Authorities of two clusters can share a name: then the signature does not match.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no certificate authority in ca.crt has signed it: is it of another cluster?".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            let host = host.unwrap_or("the address");
            format!("{why}; a certificate must name the host under which its holder is reached (--host {host})")
        }
        other => other.to_string(),
    }
}

/// Marks errors about the peer's certificate.
const REFUSED: &str = "its certificate is refused";
/// Marks errors about our certificate.
const REFUSES: &str = "it refuses this process's certificate";
/// Marks peers that speak plaintext.
const PLAINTEXT: &str = "it uses plaintext instead of TLS";
/// Alert name of an expired certificate.
const EXPIRED: &str = "CertificateExpired";
/// Alert name of a revoked certificate: revocation here uses no CRL, so the library sends this general alert.
const WITHDRAWN: &str = "CertificateUnknown";

/// Describes an alert, of which the library reports only the name.
fn refusal(alert: &str) -> String {
    match alert {
        // The signature does not match if two authorities (of two clusters, or an old and a new one) share a name.
        "UnknownCA" | "DecryptError" | "BadCertificate" => {
            format!("no certificate authority that it trusts has signed it ({alert})")
        }
        WITHDRAWN => format!("it was withdrawn ({alert})"),
        // The alert does not distinguish the two.
        EXPIRED => {
            format!("it has expired, or does not hold yet by the clock there ({alert}); renew it, or set the clock")
        }
        "CertificateRequired" => format!("it was shown none ({alert})"),
        _ => alert.to_owned(),
    }
}

/// Extracts the alert from the text of a library error, which keeps the words but not the error value.
pub fn refused_in_words(text: &str) -> Option<TlsError> {
    let (_, after) = text.split_once("received fatal alert: ")?;
    let name: String = after.chars().take_while(char::is_ascii_alphanumeric).collect();
    (!name.is_empty()).then(|| TlsError::Refused(refusal(&name)))
}

/// Returns whether an error text says that one side rejects the other's certificate.
pub fn is_of_certificates(text: &str) -> bool {
    [REFUSED, REFUSES].iter().any(|said| text.contains(said))
}

/// Returns whether the peer rejects our certificate because it was revoked.
pub(crate) fn is_of_withdrawal(error: &TlsError) -> bool {
    matches!(error, TlsError::Refused(why) if why.contains(WITHDRAWN))
}

/// Returns whether an error text describes a state that lasts until a certificate, `ca.crt` or the TLS setting
/// changes: one side rejects the other's certificate, or speaks no TLS. The peer has not read a request by then.
pub fn is_refused_for_good(text: &str) -> bool {
    // Other alert names may be added.
    const FINAL: [&str; 6] = [EXPIRED, WITHDRAWN, "UnknownCA", "DecryptError", "BadCertificate", "CertificateRequired"];
    let refused = text.split_once(REFUSES).is_some_and(|(_, why)| FINAL.iter().any(|alert| why.contains(alert)));
    refused || text.contains(REFUSED) || text.contains(PLAINTEXT)
}

/// Remedy for these errors.
pub const COMPARE: &str =
    "compare `archon cert show DIR` with that member's: docs/operate/certificates.md, What goes wrong";

/// Extracts the TLS error from the I/O error that ended a connection.
pub fn in_words(error: &io::Error) -> Option<TlsError> {
    let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    match cause {
        rustls::Error::AlertReceived(alert) => Some(TlsError::Refused(refusal(&format!("{alert:?}")))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_of_unknown_authority_are_explained() {
        for alert in ["DecryptError", "UnknownCA"] {
            let said = refused_in_words(&format!("received fatal alert: {alert}")).map(|error| error.to_string());
            let said = said.unwrap_or_default();
            assert!(said.contains("no certificate authority that it trusts has signed it"), "{said}");
            assert!(said.contains(alert) && is_of_certificates(&said), "{said}");
        }
        assert!(is_of_certificates(&TlsError::Certificate("why".into()).to_string()));
        assert!(refused_in_words("Connection refused (os error 111)").is_none());
        assert!(!is_of_certificates("127.0.0.1:7101: Connection refused (os error 111)"));
    }

    #[test]
    fn permanent_certificate_errors_are_not_retried() {
        let refused = |alert: &str| TlsError::Refused(refusal(alert)).to_string();
        for said in [
            refused("CertificateExpired"),
            refused("CertificateUnknown"),
            refused("UnknownCA"),
            refused("CertificateRequired"),
            TlsError::Certificate("why".into()).to_string(),
            TlsError::Plaintext.to_string(),
        ] {
            assert!(is_refused_for_good(&format!("127.0.0.1:7101: {said}")), "{said}");
        }
        for said in [refused("InternalError"), TlsError::Silent(Duration::from_secs(5)).to_string(), "closed".into()] {
            assert!(!is_refused_for_good(&said), "{said}");
        }
    }
}
