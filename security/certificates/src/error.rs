//! Why no certificate is issued.

use archon_security::{CredentialsError, Identity, date};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use thiserror::Error;

/// Why a certificate is not issued, or not written. Each names the input or the file, and what to do.
#[derive(Debug, Error)]
pub enum CertificatesError {
    /// What a directory holds is not what should be there.
    #[error(transparent)]
    Content(#[from] CredentialsError),
    /// A directory is no authority's.
    #[error("{}: {source}; an authority's directory holds ca.crt and ca.key, as `archon cert ca` writes them", file.display())]
    NoAuthority {
        /// The file that is missing.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// An authority that holds no more, or not yet, vouches for nobody.
    #[error("{subject} holds from {} until {}, and now it is {}: make another one (`archon cert ca`)", date(*.not_before), date(*.not_after), date(*.now))]
    AuthorityDate {
        /// Which.
        subject: String,
        /// It holds from then.
        not_before: SystemTime,
        /// It holds until then.
        not_after: SystemTime,
        /// It is now.
        now: SystemTime,
    },
    /// The cluster may not be called so.
    #[error("{0}")]
    Cluster(String),
    /// Nobody could reach this server.
    #[error(
        "{0} is reached by others, whose certificates are checked against the host that is dialled: name one at least (--host)"
    )]
    NoHost(Identity),
    /// Nobody reaches this one.
    #[error("{0} is not reached by others, so its certificate names no host: leave --host out")]
    HostUnwanted(Identity),
    /// A certificate cannot hold for so long.
    #[error("a certificate cannot hold for {} s: it must be a day to ten years", .0.as_secs())]
    Period(Duration),
    /// A date that certificates cannot say.
    #[error("the clock of this machine says {} s since 1970, which no certificate can say", .0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs())]
    Clock(SystemTime),
    /// What was to be signed cannot be.
    #[error("the request cannot be signed: {0}")]
    Request(String),
    /// Something is there, and nobody has said that it may go.
    #[error("{} is there already, and is not overwritten unless that is asked for (--force, to renew it)", .0.display())]
    Exists(PathBuf),
    /// A file that is never overwritten, since it cannot be made again.
    #[error("{} is there already: an authority is never overwritten, or nobody could be vouched for any more; choose another directory", .0.display())]
    AuthorityExists(PathBuf),
    /// A key is there, with which somebody may be running.
    #[error("{} is there already, and somebody may be running with it: choose another directory; or have the request signed again to renew the certificate of this key", .0.display())]
    KeyExists(PathBuf),
    /// Credentials of somebody else.
    #[error("{} holds the certificate of {found}, and this one is of {wanted}: choose another directory", file.display())]
    SomebodyElse {
        /// The certificate that is there.
        file: PathBuf,
        /// Whose it is.
        found: Identity,
        /// Whose the new one is.
        wanted: Identity,
    },
    /// Keys of members do not belong where the authority's is, and it not where they are.
    #[error("{} is the authority's directory: choose another one for what it issues", .0.display())]
    IsAuthority(PathBuf),
    /// A file cannot be written.
    #[error("writing {}: {source}", file.display())]
    Write {
        /// The file, or directory.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The library that makes keys and certificates fails.
    #[error("making a key or a certificate failed: {0}")]
    Making(String),
}

impl From<rcgen::Error> for CertificatesError {
    fn from(error: rcgen::Error) -> Self {
        Self::Making(error.to_string())
    }
}
