//! Continued verification of the peer's certificate on open connections.
//!
//! A handshake checks the trusted authorities and revocations of that moment. After an authority is removed (because
//! its key was stolen, or after a change of authority) or a certificate is revoked, each peer is verified again on
//! its next request. Expiry of its certificate ends a connection as well, except those of coordinators and nodes:
//! certificates of a cluster often expire on the same day, which would make all data unavailable at once.

use crate::callers::identity::Identity;
use crate::tls::Tls;
use crate::tls::credentials::verify;
use crate::tls::error::{TlsError, in_words};
use crate::tls::revocation_list::RevocationList;
use parking_lot::RwLock;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Period after a change of authorities over which connections of peers that are no longer trusted are closed, at
/// random times: nearly all peers may be affected, and reconnect at once.
pub(crate) const SPREAD: Duration = Duration::from_secs(20);
/// Time for which the holder of a revoked certificate still receives data: an admin who revokes their own certificate
/// gets the answer, which waits for nodes. The next request ends the connection at once.
const LISTENS: Duration = Duration::from_secs(4);

/// The trusted authorities and revoked certificates, shared by the connections of a process.
#[derive(Debug)]
pub(crate) struct Authorities {
    /// Increases with each change.
    version: AtomicU64,
    believed: RwLock<Arc<RootCertStore>>,
    withdrawn: Arc<RevocationList>,
    spread: Duration,
}

impl Authorities {
    /// Creates the set with these authorities. Connections of peers that are no longer trusted end within `spread`.
    pub(crate) fn new(believed: Arc<RootCertStore>, withdrawn: Arc<RevocationList>, spread: Duration) -> Self {
        Self { version: AtomicU64::new(0), believed: RwLock::new(believed), withdrawn, spread }
    }

    /// Returns the current version.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Replaces the authorities.
    pub(crate) fn replace(&self, believed: &Arc<RootCertStore>) {
        let mut now = self.believed.write();
        if now.roots != believed.roots {
            *now = Arc::clone(believed);
            self.changed();
        }
    }

    /// Makes all connections verify their peer again.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns a random time within the spread.
    fn some_time(&self) -> Duration {
        let spread = u64::try_from(self.spread.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(RandomState::new().hash_one(0).checked_rem(spread).unwrap_or(0))
    }
}

/// End of a connection, and its reason.
#[derive(Debug)]
struct End {
    at: Instant,
    /// The next request ends the connection earlier.
    at_word: bool,
    why: String,
}

impl End {
    fn error(&self) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, self.why.clone())
    }
}

/// The peer of a connection, with the certificate from its handshake.
#[derive(Debug)]
pub(crate) struct VerifiedPeer {
    authorities: Arc<Authorities>,
    chain: Vec<CertificateDer<'static>>,
    identity: Arc<Identity>,
    /// Version of the authorities at the last verification.
    seen: u64,
    /// End of the connection, if its peer is no longer trusted.
    ends: Option<End>,
    /// End of the certificate's validity.
    not_after: SystemTime,
    /// Time at which expiry ends the connection; none for coordinators and nodes.
    expires: Option<SystemTime>,
    /// The credentials that dialled and the dialled address, for outgoing connections.
    dialled: Option<(Arc<Tls>, Arc<str>)>,
}

impl VerifiedPeer {
    /// Creates the peer of a completed handshake. `seen` is the version of the authorities before it; `not_after` is
    /// the end of its certificate.
    pub(crate) fn new(
        authorities: &Arc<Authorities>,
        seen: u64,
        chain: &[CertificateDer<'_>],
        identity: &Arc<Identity>,
        not_after: SystemTime,
    ) -> Self {
        let ends = !identity.role().is_server();
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Self {
            authorities: Arc::clone(authorities),
            chain,
            identity: Arc::clone(identity),
            seen,
            ends: None,
            not_after,
            // Certificates of many clients may have been issued together.
            expires: ends.then(|| not_after.checked_add(authorities.some_time())).flatten(),
            dialled: None,
        }
    }

    /// Records the dialled address.
    pub(crate) fn set_dialled(&mut self, by: &Arc<Tls>, address: &str) {
        self.dialled = Some((Arc::clone(by), address.into()));
    }

    /// Logs and records that a dialled peer ended the connection because it rejects our certificate. It does so after
    /// the handshake: only then has it seen the certificate.
    pub(crate) fn heard(&self, error: &io::Error) {
        if let Some((by, address)) = &self.dialled
            && let Some(refused @ TlsError::Refused(_)) = in_words(error)
        {
            by.complain(address, &refused);
            by.shut_out.refused(&self.identity, &refused, Instant::now());
        }
    }

    /// Records that a dialled peer answers, and so accepts our certificate.
    pub(crate) fn answered(&self) {
        if let Some((by, _)) = &self.dialled {
            by.shut_out.answered(&self.identity);
        }
    }

    /// Fails if the peer is no longer trusted, or its certificate is revoked or expired. Called on each read.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        let version = self.authorities.version();
        if version != self.seen {
            self.seen = version;
            self.ends = self.look();
        }
        // The wall clock, which dates refer to and which advances while a machine sleeps.
        if self.expires.is_some_and(|end| SystemTime::now() >= end) {
            let why = TlsError::Certificate(format!("that of {} has expired; renew it", self.identity));
            self.ends = Some(End { at: Instant::now(), at_word: true, why: why.to_string() });
        }
        match &self.ends {
            Some(end) if Instant::now() >= end.at => Err(end.error()),
            _ => Ok(()),
        }
    }

    /// Fails if the peer must not send further requests. Called on each read that returns data.
    pub(crate) fn check_word(&self) -> io::Result<()> {
        match &self.ends {
            Some(end) if end.at_word => Err(end.error()),
            _ => Ok(()),
        }
    }

    fn look(&self) -> Option<End> {
        let withdrawn = self.chain.first().map_or(Ok(()), |shown| self.authorities.withdrawn.check_certificate(shown));
        if let Err(revoked) = withdrawn {
            let why = TlsError::Revoked(revoked).to_string();
            return Some(End { at: Instant::now() + LISTENS, at_word: true, why });
        }
        let believed = Arc::clone(&self.authorities.believed.read());
        // Expiry is handled separately.
        let at = SystemTime::now().min(self.not_after);
        let vouched = verify(&believed, &self.chain, &self.identity, at).is_ok();
        let why = || format!("no authority in ca.crt has signed the certificate of {}", self.identity);
        (!vouched).then(|| End { at: Instant::now() + self.authorities.some_time(), at_word: false, why: why() })
    }
}
