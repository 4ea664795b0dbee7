//! Whether the certificate of whoever is at the other end of a connection is still believed while the connection stands.
//!
//! A handshake looks at the authorities that are believed at that moment, and at the certificates that were withdrawn. When an authority is
//! removed, because its key was stolen or another has taken over, those whom it has let in are still connected: at their next word they
//! are looked at again. So are all when a certificate is withdrawn.

use crate::credentials::verify;
use crate::error::{TlsError, in_words};
use crate::identity::Identity;
use crate::tls::Tls;
use crate::withdrawn::Withdrawn;
use parking_lot::RwLock;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// Within so long after a change those are turned away whom nobody vouches for any more, each at a moment of its own: in a change of
/// authorities that may be nearly everybody, who connects again at once.
const SPREAD: Duration = Duration::from_secs(20);

/// The authorities that are believed now, and what of theirs counts no more, shared by a process's connections.
#[derive(Debug)]
pub(crate) struct Authorities {
    /// Rises with each change.
    version: AtomicU64,
    believed: RwLock<Arc<RootCertStore>>,
    withdrawn: Arc<Withdrawn>,
    spread: Duration,
}

impl Authorities {
    /// These.
    pub(crate) fn new(believed: Arc<RootCertStore>, withdrawn: Arc<Withdrawn>) -> Self {
        Self { version: AtomicU64::new(0), believed: RwLock::new(believed), withdrawn, spread: SPREAD }
    }

    /// The version of what is believed now.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// These from now on.
    pub(crate) fn replace(&self, believed: &Arc<RootCertStore>) {
        let mut now = self.believed.write();
        if now.roots != believed.roots {
            *now = Arc::clone(believed);
            self.changed();
        }
    }

    /// Everybody is to be looked at again.
    pub(crate) fn changed(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A moment within the spread.
    fn some_moment(&self) -> Instant {
        let spread = u64::try_from(self.spread.as_millis()).unwrap_or(u64::MAX);
        let after = RandomState::new().hash_one(0).checked_rem(spread).unwrap_or(0);
        Instant::now() + Duration::from_millis(after)
    }
}

/// Whoever is at the other end of a connection, by the certificate that it showed in the handshake.
#[derive(Debug)]
pub(crate) struct VerifiedPeer {
    authorities: Arc<Authorities>,
    chain: Vec<CertificateDer<'static>>,
    identity: Arc<Identity>,
    /// The version of the authorities that vouched for it, or did not.
    seen: u64,
    /// When it is turned away, and why, if nobody vouches for it or its certificate was withdrawn.
    ends: Option<(Instant, String)>,
    /// The address that was dialled, if it was, and who dialled.
    dialled: Option<(Arc<Tls>, Arc<str>)>,
}

impl VerifiedPeer {
    /// Somebody with whom a handshake was done just now. `seen`: the version of the authorities before that.
    pub(crate) fn new(
        authorities: &Arc<Authorities>,
        seen: u64,
        chain: &[CertificateDer<'_>],
        identity: &Arc<Identity>,
    ) -> Self {
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Self {
            authorities: Arc::clone(authorities),
            chain,
            identity: Arc::clone(identity),
            seen,
            ends: None,
            dialled: None,
        }
    }

    /// It was dialled at this address.
    pub(crate) fn set_dialled(&mut self, by: &Arc<Tls>, address: &str) {
        self.dialled = Some((Arc::clone(by), address.into()));
    }

    /// Tells of a connection that ends because the other side does not take the certificate of who dialled: it says so once it has seen
    /// it, which is after the handshake.
    pub(crate) fn heard(&self, error: &io::Error) {
        if let Some((by, address)) = &self.dialled
            && let Some(refused @ TlsError::Refused(_)) = in_words(error)
        {
            by.complain(address, &refused);
        }
    }

    /// Fails once nobody vouches for it any more, or its certificate was withdrawn. Asked at each read.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        let version = self.authorities.version();
        if version != self.seen {
            self.seen = version;
            self.ends = self.look();
        }
        match &self.ends {
            Some((ends, why)) if Instant::now() >= *ends => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why.clone()))
            }
            _ => Ok(()),
        }
    }

    fn look(&self) -> Option<(Instant, String)> {
        let withdrawn = self.chain.first().map_or(Ok(()), |shown| self.authorities.withdrawn.check_certificate(shown));
        if let Err(revoked) = withdrawn {
            return Some((Instant::now(), TlsError::Revoked(revoked).to_string()));
        }
        let believed = Arc::clone(&self.authorities.believed.read());
        let vouched = verify(&believed, &self.chain, &self.identity, SystemTime::now()).is_ok();
        let why = || format!("no authority in ca.crt vouches for the certificate of {} any more", self.identity);
        (!vouched).then(|| (self.authorities.some_moment(), why()))
    }
}
