//! Whether the certificate of whoever is at the other end of a connection is still believed while the connection stands.
//!
//! A handshake looks at the authorities that are believed at that moment, and at the certificates that were withdrawn. When an authority is
//! removed, because its key was stolen or another has taken over, those whom it has let in are still connected: at their next word they
//! are looked at again. So are all when a certificate is withdrawn. One that ends turns away whoever has shown it, too, unless that is a
//! coordinator or a node: those of a cluster end on one day, and all data would be out of reach in the same minute.

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
/// How long whoever has shown a certificate that was withdrawn may still listen: an admin who withdraws the own one hears that it is done,
/// for which nodes are waited for. Its next word ends the connection at once.
const LISTENS: Duration = Duration::from_secs(4);

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

    /// A time within the spread.
    fn some_time(&self) -> Duration {
        let spread = u64::try_from(self.spread.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(RandomState::new().hash_one(0).checked_rem(spread).unwrap_or(0))
    }
}

/// When somebody is turned away, and why.
#[derive(Debug)]
struct End {
    at: Instant,
    /// Its next word ends it before that.
    at_word: bool,
    why: String,
}

impl End {
    fn error(&self) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, self.why.clone())
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
    ends: Option<End>,
    /// When its certificate ends.
    not_after: SystemTime,
    /// When it is turned away since that has ended; those of coordinators and nodes are taken for as long as they are connected.
    expires: Option<SystemTime>,
    /// The address that was dialled, if it was, and who dialled.
    dialled: Option<(Arc<Tls>, Arc<str>)>,
}

impl VerifiedPeer {
    /// Somebody with whom a handshake was done just now. `seen`: the version of the authorities before that; `not_after`: when its
    /// certificate ends.
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
            // Those of many clients were issued together.
            expires: ends.then(|| not_after.checked_add(authorities.some_time())).flatten(),
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
            by.shut_out.refused(&self.identity, &refused, Instant::now());
        }
    }

    /// It says something, and so it does take the certificate of who dialled.
    pub(crate) fn answered(&self) {
        if let Some((by, _)) = &self.dialled {
            by.shut_out.answered(&self.identity);
        }
    }

    /// Fails once nobody vouches for it any more, or its certificate was withdrawn or has ended. Asked at each read.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        let version = self.authorities.version();
        if version != self.seen {
            self.seen = version;
            self.ends = self.look();
        }
        // By the clock that dates go by, which also counts while a machine sleeps.
        if self.expires.is_some_and(|end| SystemTime::now() >= end) {
            let why = TlsError::Certificate(format!("that of {} has expired; renew it", self.identity));
            self.ends = Some(End { at: Instant::now(), at_word: true, why: why.to_string() });
        }
        match &self.ends {
            Some(end) if Instant::now() >= end.at => Err(end.error()),
            _ => Ok(()),
        }
    }

    /// Fails if it is not to say anything any more. Asked at each word.
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
        // Whether it still holds is another matter.
        let at = SystemTime::now().min(self.not_after);
        let vouched = verify(&believed, &self.chain, &self.identity, at).is_ok();
        let why = || format!("no authority in ca.crt vouches for the certificate of {} any more", self.identity);
        (!vouched).then(|| End { at: Instant::now() + self.authorities.some_time(), at_word: false, why: why() })
    }
}
