//! Whether the certificate of whoever is at the other end of a connection is still believed while the connection stands.
//!
//! A handshake looks at the authorities that are believed at that moment. When one is removed, because its key was stolen or another has
//! taken over, those whom it has let in are still connected: at their next word they are looked at again.

use crate::credentials::verify;
use crate::identity::Identity;
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

/// The authorities that are believed now, shared by a process's connections.
#[derive(Debug)]
pub(crate) struct Authorities {
    /// Rises with each change.
    version: AtomicU64,
    believed: RwLock<Arc<RootCertStore>>,
    spread: Duration,
}

impl Authorities {
    /// These.
    pub(crate) fn new(believed: Arc<RootCertStore>) -> Self {
        Self { version: AtomicU64::new(0), believed: RwLock::new(believed), spread: SPREAD }
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
            self.version.fetch_add(1, Ordering::Release);
        }
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
    /// When it is turned away, if nobody vouches for it.
    ends: Option<Instant>,
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
        Self { authorities: Arc::clone(authorities), chain, identity: Arc::clone(identity), seen, ends: None }
    }

    /// Fails once nobody vouches for it any more. Asked at each read.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        let version = self.authorities.version();
        if version != self.seen {
            self.seen = version;
            let believed = Arc::clone(&self.authorities.believed.read());
            let vouched = verify(&believed, &self.chain, &self.identity, SystemTime::now()).is_ok();
            self.ends = (!vouched).then(|| self.authorities.some_moment());
        }
        match self.ends {
            Some(ends) if Instant::now() >= ends => {
                let why = format!("no authority in ca.crt vouches for the certificate of {} any more", self.identity);
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            _ => Ok(()),
        }
    }
}
