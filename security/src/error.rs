//! Why a handshake fails, in words that say what to do.

use crate::expected::Expected;
use crate::identity::Identity;
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
        matches!(self, Self::Certificate(_) | Self::Nobody(_) | Self::NoCertificate)
    }

    /// What a failed handshake means; `host` was dialled, if any was.
    pub(crate) fn of_handshake(error: io::Error, host: Option<&str>) -> Self {
        let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) else {
            return Self::Broken(error);
        };
        match cause {
            rustls::Error::InvalidCertificate(why) => Self::Certificate(reason(why, host)),
            rustls::Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => Self::Plaintext,
            rustls::Error::NoCertificatesPresented => Self::NoCertificate,
            rustls::Error::AlertReceived(alert) => Self::Refused(format!("{alert:?}")),
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

/// What somebody hears of an error that a connection ended with: that of TLS is hidden in what the system's errors carry.
pub fn in_words(error: &io::Error) -> Option<TlsError> {
    let cause = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    match cause {
        rustls::Error::AlertReceived(alert) => Some(TlsError::Refused(format!("{alert:?}"))),
        _ => None,
    }
}
