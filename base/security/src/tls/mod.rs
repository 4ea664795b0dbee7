//! Mutual TLS: both sides show a certificate of the cluster's authority and check the identity in the other's.

pub(crate) mod certificate;
mod complaints;
pub(crate) mod credentials;
pub(crate) mod error;
pub(crate) mod expected_peer;
pub(crate) mod kept;
pub(crate) mod reached;
mod rejections;
pub(crate) mod revocation_list;
pub(crate) mod verified_peer;

use crate::callers::identity::{Identity, Role};
use crate::net::stream::{Io, Protocol, Stream};
use crate::tls::certificate::{Certificate, date};
use crate::tls::complaints::Complaints;
use crate::tls::credentials::{AUTHORITIES_FILE, CERTIFICATE_FILE, Credentials, CredentialsError, KEY_FILE};
use crate::tls::error::TlsError;
use crate::tls::expected_peer::ExpectedPeer;
use crate::tls::reached::{UnnamedAddress, host_of};
use crate::tls::rejections::Rejections;
use crate::tls::revocation_list::{ClientVerifier, RevocationList, WithdrawnCertificates};
use crate::tls::verified_peer::{Authorities, SPREAD, VerifiedPeer};
use arc_swap::ArcSwap;
use archon_types::{MemberCertificate, Millis};
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ServerConfig};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

/// Interval of checks for changed files.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Deadline of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a rejected peer to read the reason.
const PARTING_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of reads that drain data of a rejected peer.
const UNREAD_MAX: u32 = 64;

/// Credentials of a process, reloaded when the files of their directory change; no restart is needed.
#[derive(Debug)]
pub struct Tls {
    directory: PathBuf,
    now: ArcSwap<LoadedConfig>,
    authorities: Arc<Authorities>,
    withdrawn: Arc<RevocationList>,
    complaints: Complaints,
    pub(crate) shut_out: Rejections,
    looks: Mutex<FileCheck>,
    /// Addresses that other processes use for this one, once checked against the certificate.
    reached_at: Mutex<BTreeSet<Box<str>>>,
    /// Set if `looks` holds a reason why new files are not used; readable without its lock.
    is_not_taken: AtomicBool,
    /// Set while another thread checks the files.
    is_looked_at: AtomicBool,
}

#[derive(Debug)]
struct LoadedConfig {
    credentials: Credentials,
    server: Arc<ServerConfig>,
    /// For servers of HTTP/1.1 alone.
    http1_server: Arc<ServerConfig>,
    /// For gRPC and for frames.
    clients: [Arc<ClientConfig>; 2],
}

/// Last check of the files and its result.
#[derive(Debug)]
struct FileCheck {
    next: Instant,
    seen: Vec<Option<FileStamp>>,
    /// Reason why the files in the directory are not in use.
    not_taken: Option<Arc<str>>,
}

/// Attributes that reveal a changed file; a replaced link changes the inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct FileStamp {
    modified: Option<SystemTime>,
    bytes: u64,
    inode: u64,
}

impl Tls {
    /// Opens the credentials of a directory.
    ///
    /// # Errors
    /// They cannot be used now.
    pub fn open(directory: &Path) -> Result<Arc<Self>, CredentialsError> {
        Self::open_spread(directory, SPREAD)
    }

    /// As [`Tls::open`]; connections of peers that are no longer trusted end within `spread` instead of 20 s.
    ///
    /// # Errors
    /// As [`Tls::open`].
    #[cfg(feature = "testing")]
    pub fn open_with_spread(directory: &Path, spread: Duration) -> Result<Arc<Self>, CredentialsError> {
        Self::open_spread(directory, spread)
    }

    fn open_spread(directory: &Path, spread: Duration) -> Result<Arc<Self>, CredentialsError> {
        let seen = seen(directory);
        let withdrawn = Arc::<RevocationList>::default();
        let loaded = LoadedConfig::load(directory, &withdrawn)?;
        let looks = FileCheck { next: Instant::now() + LOOK_INTERVAL, seen, not_taken: None };
        Ok(Arc::new(Self {
            directory: directory.to_owned(),
            authorities: Arc::new(Authorities::new(
                Arc::clone(&loaded.credentials.authorities),
                Arc::clone(&withdrawn),
                spread,
            )),
            withdrawn,
            complaints: Complaints::default(),
            shut_out: Rejections::default(),
            now: ArcSwap::from_pointee(loaded),
            looks: Mutex::new(looks),
            reached_at: Mutex::default(),
            is_not_taken: AtomicBool::new(false),
            is_looked_at: AtomicBool::new(false),
        }))
    }

    /// Returns the directory of the credentials.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the identity of this process.
    pub fn identity(&self) -> Identity {
        self.now.load().credentials.identity.clone()
    }

    /// Returns the credentials in use.
    pub fn credentials(&self) -> Credentials {
        self.now.load().credentials.clone()
    }

    /// Returns the reason why the files in the directory are not in use, if so.
    pub fn not_taken(&self) -> Option<Arc<str>> {
        self.looks.lock().not_taken.clone()
    }

    /// Returns the certificate in use for heartbeats. Starts a check of the files on its own thread if one is due: a
    /// hanging directory must not delay heartbeats.
    pub fn certificate(self: &Arc<Self>) -> MemberCertificate {
        self.look_aside();
        let now = self.now.load();
        let used = &now.credentials.certificate;
        let not_taken = self.is_not_taken.load(Ordering::Relaxed);
        let (begins_at, expires_at) = (millis(used.not_before), millis(used.not_after));
        MemberCertificate { begins_at, expires_at, not_taken, authority: now.credentials.authority }
    }

    /// Checks the files if that is due, and loads new valid ones; otherwise keeps the old credentials and records the
    /// reason. Called by handshakes and by readers of the status.
    pub fn look(&self) {
        // Another thread is checking: use the current credentials.
        let Some(mut looks) = self.looks.try_lock() else { return };
        if Instant::now() >= looks.next {
            self.take(&mut looks);
        }
    }

    /// Checks the files on another thread; at most one runs at a time.
    fn look_aside(self: &Arc<Self>) {
        let is_due = self.looks.try_lock().is_some_and(|looks| Instant::now() >= looks.next);
        if !is_due || self.is_looked_at.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(self);
        let look = move || {
            this.look();
            this.is_looked_at.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("archon-credentials".to_owned()).spawn(look).is_err() {
            self.is_looked_at.store(false, Ordering::Release);
        }
    }

    /// Checks the files now.
    pub fn look_now(&self) {
        self.take(&mut self.looks.lock());
    }

    fn take(&self, looks: &mut FileCheck) {
        self.take_new(looks);
        self.is_not_taken.store(looks.not_taken.is_some(), Ordering::Relaxed);
    }

    fn take_new(&self, looks: &mut FileCheck) {
        looks.next = Instant::now() + LOOK_INTERVAL;
        let seen = seen(&self.directory);
        if seen == looks.seen {
            // The previous files may have been restored.
            looks.not_taken = None;
            return;
        }
        let loaded = LoadedConfig::load(&self.directory, &self.withdrawn).map_err(|error| error.to_string());
        match loaded.and_then(|loaded| self.check_usable(&loaded.credentials).map(|()| loaded)) {
            Ok(loaded) => {
                let identity = &loaded.credentials.identity;
                let until = date(loaded.credentials.certificate.not_after);
                tracing::info!(%identity, until, "took new credentials");
                let believed = Arc::clone(&loaded.credentials.authorities);
                self.now.store(Arc::new(loaded));
                self.authorities.replace(&believed);
                self.shut_out.forget();
                looks.not_taken = None;
                looks.seen = seen;
            }
            Err(why) => {
                // The next check repeats this: files are replaced one after the other.
                if looks.not_taken.as_deref() != Some(&*why) {
                    tracing::warn!("new credentials cannot be used, the old ones are kept: {why}");
                    looks.not_taken = Some(why.into());
                }
            }
        }
    }

    /// Rejects new credentials that would make other members reject this process, although they accept it now.
    fn check_usable(&self, new: &Credentials) -> Result<(), String> {
        let used = self.credentials();
        let file = self.directory.join(CERTIFICATE_FILE);
        if new.identity != used.identity {
            let (file, identity) = (file.display(), used.identity);
            return Err(format!(
                "{file} is of {}, and this process is {identity}: restart it to change its identity",
                new.identity
            ));
        }
        let accepts = |one: &Credentials| self.withdrawn.check(&one.identity, one.certificate.not_before);
        if let (Ok(()), Err(revoked)) = (accepts(&used), accepts(new)) {
            return Err(format!("{}: {revoked}; issue it again", file.display()));
        }
        let addresses = self.reached_at.lock();
        // A process that is not reachable anyway loses nothing.
        let mut reached = addresses.iter().filter(|address| used.names(host_of(address)));
        reached.try_for_each(|address| new.check_reached(address).map_err(|unnamed| unnamed.message(None)))
    }

    /// Rejects an address that the certificate in use does not name, and remembers it for renewals.
    ///
    /// # Errors
    /// The hosts that the certificate names.
    pub(crate) fn check_reached(&self, address: &str) -> Result<(), UnnamedAddress> {
        self.reached_at.lock().insert(address.into());
        self.credentials().check_reached(address)
    }

    /// Replaces the set of revoked certificates. Their holders get no new connections, and existing ones are closed
    /// on their next request.
    pub fn withdraw(&self, withdrawn: WithdrawnCertificates) {
        if self.withdrawn.replace(withdrawn) {
            self.authorities.changed();
        }
    }

    /// Returns a message if the certificate of this process was revoked: more than half of `coordinators` have
    /// rejected it for a while, on connections on which they authenticated themselves.
    pub fn shut_out(&self, coordinators: usize) -> Option<String> {
        let names = self.shut_out.by_most(coordinators, Instant::now())?;
        let identity = self.identity();
        Some(format!(
            "the certificate of {identity} was withdrawn, and coordinators {} refuse it: install a new one, or, if the \
             key was not stolen, readmit it with `archon access readmit {identity}`; then restart this process",
            names.join(", ")
        ))
    }

    /// Logs that the process at `address` rejects this member's certificate, or shows one that this member rejects,
    /// at most once per interval. Processes that are not members get the error as the answer to their request.
    pub(crate) fn complain(&self, address: &str, error: &TlsError) {
        let credentials = self.credentials();
        let is_member = matches!(credentials.identity.role(), Role::Coordinator | Role::Node | Role::Participant);
        let (Some(remedy), true) = (error.remedy(&credentials.identity), is_member) else { return };
        if !self.complaints.is_news(address, &error.to_string(), Instant::now()) {
            return;
        }
        let file = self.directory.join(CERTIFICATE_FILE);
        let (identity, ends) = (&credentials.identity, date(credentials.certificate.not_after));
        match error {
            TlsError::Refused(_) => {
                tracing::warn!(
                    "{address}: {error}; it was shown {}, of {identity}, until {ends}: {remedy}",
                    file.display()
                );
            }
            _ => tracing::warn!("{address}: {error}; {remedy}"),
        }
    }

    /// Does the server side of a handshake.
    ///
    /// # Errors
    /// The peer does not speak TLS, or no trusted authority signed its certificate.
    pub async fn accept(&self, stream: TcpStream) -> Result<Stream, TlsError> {
        self.accept_by(stream, |loaded| &loaded.server).await
    }

    /// Does the same for a server of HTTP/1.1: clients that prefer HTTP/2 must not choose it.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_http1(&self, stream: TcpStream) -> Result<Stream, TlsError> {
        self.accept_by(stream, |loaded| &loaded.http1_server).await
    }

    async fn accept_by(
        &self,
        stream: TcpStream,
        server: impl FnOnce(&LoadedConfig) -> &Arc<ServerConfig>,
    ) -> Result<Stream, TlsError> {
        self.look();
        // Read before the handshake: the authorities may change during it.
        let seen = self.authorities.version();
        let acceptor = TlsAcceptor::from(Arc::clone(server(&self.now.load())));
        // The limit of connections bounds concurrent handshakes. A separate limit would let strangers hold places for
        // as long as the timeout.
        let shaken = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream).into_fallible()).await;
        let stream = match shaken.map_err(|_| TlsError::Silent(HANDSHAKE_TIMEOUT))? {
            Ok(stream) => TlsStream::Server(stream),
            Err((error, stream)) => {
                part(stream).await;
                return Err(TlsError::of_handshake(error, None));
            }
        };
        let (peer, ends) = self.peer(&stream)?;
        Ok(self.stream(stream, peer, ends, seen))
    }

    /// Does the client side of a handshake with the process at `host`, whose certificate must name that host and be
    /// `expected`.
    ///
    /// # Errors
    /// It does not, or the peer does not speak TLS.
    pub async fn connect(
        &self,
        stream: TcpStream,
        host: &str,
        expected: &ExpectedPeer,
        protocol: Protocol,
    ) -> Result<Stream, TlsError> {
        self.look();
        let seen = self.authorities.version();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Host(host.to_owned()))?;
        let [grpc, frames] = &self.now.load().clients;
        let config = match protocol {
            Protocol::Grpc => grpc,
            Protocol::Frames => frames,
        };
        let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        let shaken = timeout(HANDSHAKE_TIMEOUT, connecting).await;
        let shaken = shaken.map_err(|_| TlsError::Silent(HANDSHAKE_TIMEOUT))?;
        let stream = TlsStream::Client(shaken.map_err(|error| TlsError::of_handshake(error, Some(host)))?);
        let (peer, ends) = self.peer(&stream)?;
        if !expected.is(&peer) {
            return Err(TlsError::Stranger { expected: expected.clone(), found: peer });
        }
        Ok(self.stream(stream, peer, ends, seen))
    }

    /// Returns the identity and the end of the peer's certificate. The handshake has verified the signature, possibly
    /// an earlier one if the session was resumed; so its validity is checked here.
    fn peer(&self, stream: &TlsStream<TcpStream>) -> Result<(Identity, SystemTime), TlsError> {
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).ok_or(TlsError::NoCertificate)?;
        let certificate = Certificate::read(shown).map_err(|error| TlsError::NoIdentity(error.to_string()))?;
        let Certificate { subject, not_before, not_after, identity, .. } = certificate;
        if not_after < SystemTime::now() {
            return Err(TlsError::Certificate(format!("that of {subject} expired {}; renew it", date(not_after))));
        }
        let identity = identity.map_err(|error| TlsError::NoIdentity(format!("{subject}: {error}")))?;
        self.withdrawn.check(&identity, not_before).map_err(TlsError::Revoked)?;
        Ok((identity, not_after))
    }

    /// Returns a connection to a peer whose certificate ends at `ends`; `seen` is the version of the authorities that
    /// verified it.
    fn stream(&self, stream: TlsStream<TcpStream>, peer: Identity, ends: SystemTime, seen: u64) -> Stream {
        let peer = Arc::new(peer);
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let verified = VerifiedPeer::new(&self.authorities, seen, chain, &peer, ends);
        Stream { io: Io::Tls(Box::new(stream), verified), peer: Some(peer) }
    }
}

/// Lets a rejected peer read the reason: closing a socket with unread data resets the connection and drops what was
/// sent.
async fn part(mut stream: TcpStream) {
    let parting = async {
        let _ = stream.shutdown().await;
        let mut unread = [0; 1024];
        for _ in 0..UNREAD_MAX {
            if !stream.read(&mut unread).await.is_ok_and(|read| read > 0) {
                return;
            }
        }
    };
    let _ = timeout(PARTING_TIMEOUT, parting).await;
}

/// Converts to Unix time; times before 1970 become 1970.
fn millis(time: SystemTime) -> Millis {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Millis::new(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl LoadedConfig {
    fn load(directory: &Path, withdrawn: &Arc<RevocationList>) -> Result<Self, CredentialsError> {
        let credentials = Credentials::load(directory, SystemTime::now())?;
        let wrong = |why: String| CredentialsError::Content { file: directory.join(AUTHORITIES_FILE), why };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let shown = Arc::new(SingleCertAndKey::from(Arc::clone(&credentials.certified)));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&credentials.authorities), Arc::clone(&provider));
        let authorities = verifier.build().map_err(|error| wrong(error.to_string()))?;
        let verifier = Arc::new(ClientVerifier { authorities, withdrawn: Arc::clone(withdrawn) });
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| wrong(error.to_string()))?;
        let mut server = server.with_client_cert_verifier(verifier).with_cert_resolver(Arc::clone(&shown) as _);
        server.alpn_protocols = Protocol::SERVED.map(<[u8]>::to_vec).to_vec();
        let client = |protocol: Protocol| -> Result<Arc<ClientConfig>, CredentialsError> {
            let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .map_err(|error| wrong(error.to_string()))?;
            let mut client = client
                .with_root_certificates(Arc::clone(&credentials.authorities))
                .with_client_cert_resolver(Arc::clone(&shown) as _);
            client.alpn_protocols = vec![protocol.alpn().to_vec()];
            Ok(Arc::new(client))
        };
        let clients = [client(Protocol::Grpc)?, client(Protocol::Frames)?];
        let mut http1_server = server.clone();
        http1_server.alpn_protocols = vec![Protocol::HTTP1.to_vec()];
        Ok(Self { credentials, server: Arc::new(server), http1_server: Arc::new(http1_server), clients })
    }
}

fn seen(directory: &Path) -> Vec<Option<FileStamp>> {
    [AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE].map(|file| seen_file(&directory.join(file))).to_vec()
}

fn seen_file(file: &Path) -> Option<FileStamp> {
    let found = std::fs::metadata(file).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&found);
    #[cfg(not(unix))]
    let inode = 0;
    Some(FileStamp { modified: found.modified().ok(), bytes: found.len(), inode })
}
