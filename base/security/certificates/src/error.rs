//! Errors of issuing certificates.

use archon_security::{CredentialsError, Identity, date};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use thiserror::Error;

/// Reason why a certificate is not issued or not written. Each names the input or file, and the remedy.
#[derive(Debug, Error)]
pub enum CertificatesError {
    /// A file in a directory of credentials has the wrong content.
    #[error(transparent)]
    Content(#[from] CredentialsError),
    /// The directory holds no authority.
    #[error("{}: {source}; an authority's directory holds ca.crt and ca.key, as `archon cert ca` writes them", file.display())]
    NoAuthority {
        /// The missing file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The authority is expired or not yet valid.
    #[error("{subject} holds from {} until {}, and now it is {}: make another one (`archon cert ca`)", date(*.not_before), date(*.not_after), date(*.now))]
    AuthorityDate {
        /// Subject of the authority.
        subject: String,
        /// Begin of its validity.
        not_before: SystemTime,
        /// End of its validity.
        not_after: SystemTime,
        /// Current time.
        now: SystemTime,
    },
    /// Invalid cluster name.
    #[error("{0}")]
    Cluster(String),
    /// A server without a host: certificates are checked against the dialled host.
    #[error("{0} is a server, and clients check its host name: give at least one --host")]
    NoHost(Identity),
    /// A host for an identity that is not a server.
    #[error("{0} is not reached by others, so its certificate names no host: leave --host out")]
    HostUnwanted(Identity),
    /// Validity outside of a day to ten years.
    #[error("a certificate cannot hold for {} s: it must be a day to ten years", .0.as_secs())]
    Period(Duration),
    /// The clock shows a date that certificates cannot express.
    #[error("the clock of this machine shows {} s since 1970, which a certificate cannot express", .0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())]
    Clock(SystemTime),
    /// The request cannot be signed.
    #[error("the request cannot be signed: {0}")]
    Request(String),
    /// The file exists, and overwriting was not requested.
    #[error("{} is there already, and is not overwritten unless that is asked for (--force, to renew it)", .0.display())]
    Exists(PathBuf),
    /// The authority exists. It is never overwritten, because it cannot be recreated.
    #[error("{} exists already: an authority is never overwritten, because all its certificates would become useless; \
             choose another directory", .0.display())]
    AuthorityExists(PathBuf),
    /// The key exists, and a process may be using it.
    #[error("{} exists already, and a process may be using it: choose another directory; or let the existing request \
             be signed again to renew the certificate of this key", .0.display())]
    KeyExists(PathBuf),
    /// The file holds a certificate of another identity.
    #[error("{} holds the certificate of {found}, but this one is for {wanted}: choose another directory", file.display())]
    OtherIdentity {
        /// The existing certificate.
        file: PathBuf,
        /// Identity of the existing certificate.
        found: Identity,
        /// Identity of the new certificate.
        wanted: Identity,
    },
    /// Keys of members and the authority's key must not share a directory.
    #[error("{} is the authority's directory: choose another one for what it issues", .0.display())]
    IsAuthority(PathBuf),
    /// A file cannot be written.
    #[error("writing {}: {source}", file.display())]
    Write {
        /// The file or directory.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The library fails to make a key or certificate.
    #[error("making a key or a certificate failed: {0}")]
    Making(String),
}

impl From<rcgen::Error> for CertificatesError {
    fn from(error: rcgen::Error) -> Self {
        Self::Making(error.to_string())
    }
}
