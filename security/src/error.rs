//! Why a handshake fails, in words that say what to do.

use crate::expected::Expected;
use crate::identity::Identity;
use crate::withdrawn::Revoked;
use rustls::{CertificateError, InvalidMessage};
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Why there is no encrypted connection.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The other side is not there, or breaks off.
    #[error("the TLS handshake failed: {0}")]
    Broken(io::Error),
    /// The other side does not shake hands in time.
    #[error("no TLS handshake within {} s", .0.as_secs())]
    Silent(Duration),
    /// The other side speaks plaintext.
    #[error("it speaks plaintext, no TLS: was it started without --tls-dir?")]
    Plaintext,
    /// The other side's certificate is not one to be believed.
    #[error("its certificate is refused: {0}")]
    Certificate(String),
    /// The other side's certificate was withdrawn.
    #[error("its certificate is refused: {0}")]
    Revoked(Revoked),
    /// The other side refuses our certificate.
    #[error("it refuses this process's certificate: {0}")]
    Refused(String),
    /// The other side has shown no certificate.
    #[error("it has shown no certificate")]
    NoCertificate,
    /// The other side's certificate names nobody.
    #[error("its certificate is refused: {0}")]
    Nobody(String),
    /// The other side is somebody else.
    #[error("its certificate is of {found}, where {expected} is expected")]
    Stranger {
        /// Whom the address should lead to.
        expected: Expected,
        /// Who is there.
        found: Identity,
    },
    /// What was dialled is neither a name nor an address.
    #[error("{0:?} is no host that a certificate could be for")]
    Host(String),
}

impl TlsError {
    /// Whether the other side is refused for whom it shows that it is, or does not show: what those who watch over the cluster are to
    /// hear of. All else is a connection that came to nothing.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Certificate(_) | Self::Nobody(_) | Self::NoCertificate | Self::Revoked(_))
    }

    /// Who is refused, if it could be seen.
    pub const fn refused(&self) -> Option<&Identity> {
        match self {
            Self::Revoked(revoked) => Some(&revoked.identity),
            _ => None,
        }
    }

    /// What is to be done where one side does not take the other's certificate; `own` is who this process is.
    pub(crate) fn remedy(&self, own: &Identity) -> Option<String> {
        match self {
            Self::Refused(why) if why.contains(EXPIRED) => Some("renew it: docs/CERTIFICATES.md, Renewing".to_owned()),
            Self::Refused(_) if is_of_withdrawal(self) => Some(format!(
                "issue it again, or, if nobody else has its key, have it count again by `archon access readmit {own}`"
            )),
            Self::Refused(_) | Self::Certificate(_) | Self::Nobody(_) | Self::Stranger { .. } => {
                Some(COMPARE.to_owned())
            }
            Self::Revoked(_) => Some("whoever runs that process has to be given a new certificate".to_owned()),
            _ => None,
        }
    }

    /// What a failed handshake means; `host` was dialled, if any was.
    pub(crate) fn of_handshake(error: io::Error, host: Option<&str>) -> Self {
        let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) else {
            return Self::Broken(error);
        };
        match cause {
            rustls::Error::InvalidCertificate(CertificateError::Other(other)) => {
                match other.0.downcast_ref::<Revoked>() {
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
        // Authorities of two clusters may be called the same: then it is the signature that does not fit.
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

/// Of the other side's certificate.
const REFUSED: &str = "its certificate is refused";
/// Of this side's.
const REFUSES: &str = "it refuses this process's certificate";
/// Of the other side.
const PLAINTEXT: &str = "it speaks plaintext, no TLS";
/// Of a certificate that holds no more: the alert's name.
const EXPIRED: &str = "CertificateExpired";
/// Of one that was withdrawn: the library knows lists of its own, and for ours it sends what is left.
const WITHDRAWN: &str = "CertificateUnknown";

/// What the other side means by an alert, of which the library tells no more than the name.
fn refusal(alert: &str) -> String {
    match alert {
        // The signature does not fit where the authorities of two clusters, or an old and a new one, are called the same.
        "UnknownCA" | "DecryptError" | "BadCertificate" => {
            format!("no certificate authority that it believes has signed it ({alert})")
        }
        WITHDRAWN => format!("it was withdrawn ({alert})"),
        // The alert does not tell the two apart.
        EXPIRED => {
            format!("it has expired, or does not hold yet by the clock there ({alert}); renew it, or set the clock")
        }
        "CertificateRequired" => format!("it was shown none ({alert})"),
        _ => alert.to_owned(),
    }
}

/// The name of the alert in what libraries say of a connection that was ended by one, which keep the words and not the error.
pub fn refused_in_words(text: &str) -> Option<TlsError> {
    let (_, after) = text.split_once("received fatal alert: ")?;
    let name: String = after.chars().take_while(char::is_ascii_alphanumeric).collect();
    (!name.is_empty()).then(|| TlsError::Refused(refusal(&name)))
}

/// Whether what somebody was told is that one side does not take the other's certificate.
pub fn is_of_certificates(text: &str) -> bool {
    [REFUSED, REFUSES].iter().any(|said| text.contains(said))
}

/// Whether the other side refuses this process's certificate since it was withdrawn.
pub(crate) fn is_of_withdrawal(error: &TlsError) -> bool {
    matches!(error, TlsError::Refused(why) if why.contains(WITHDRAWN))
}

/// Whether what somebody was told is final until somebody changes a certificate, `ca.crt` or a switch: one side does not take the other's
/// certificate, or speaks no TLS. It is found out before the other side has read anything.
pub fn is_refused_for_good(text: &str) -> bool {
    // Alerts of other names may come later.
    const FINAL: [&str; 6] = [EXPIRED, WITHDRAWN, "UnknownCA", "DecryptError", "BadCertificate", "CertificateRequired"];
    let refused = text.split_once(REFUSES).is_some_and(|(_, why)| FINAL.iter().any(|alert| why.contains(alert)));
    refused || text.contains(REFUSED) || text.contains(PLAINTEXT)
}

/// What to do then.
pub const COMPARE: &str = "compare `archon cert show DIR` with that member's: docs/CERTIFICATES.md, What goes wrong";

/// What somebody hears of an error that a connection ended with: that of TLS is hidden in what the system's errors carry.
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
    fn whoever_was_left_behind_in_a_change_of_the_authority_was_told_the_name_of_an_alert() {
        for alert in ["DecryptError", "UnknownCA"] {
            let said = refused_in_words(&format!("received fatal alert: {alert}")).map(|error| error.to_string());
            let said = said.unwrap_or_default();
            assert!(said.contains("no certificate authority that it believes has signed it"), "{said}");
            assert!(said.contains(alert) && is_of_certificates(&said), "{said}");
        }
        assert!(is_of_certificates(&TlsError::Certificate("why".into()).to_string()));
        assert!(refused_in_words("Connection refused (os error 111)").is_none());
        assert!(!is_of_certificates("127.0.0.1:7101: Connection refused (os error 111)"));
    }

    #[test]
    fn what_changes_by_nobody_s_waiting_was_tried_again() {
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
