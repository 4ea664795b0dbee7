//! Places where an agent listens: loopback, a socket in the file system, or any address with TLS.

use crate::config::{AgentError, ListenAddress};
use archon_client::{Tls, Transport};
use archon_security::UnreadBudget;
use archon_security::connection_limit::{ConnectionLimit, Entry};
use socket2::{SockRef, TcpKeepalive};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Maximum number of connections with TLS, anonymous ones included; half of them of one address.
const CONNECTIONS_MAX: usize = 256;

/// Maximum bytes of answers that callers with TLS have not read.
const UNREAD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Time after which a peer counts as lost: it acknowledges nothing, or has no room for further data.
const LOST_AFTER: Duration = Duration::from_secs(60);

/// Credentials and limits of a listener with TLS.
#[derive(Clone)]
pub(crate) struct TlsDoor {
    pub(super) tls: Arc<Tls>,
    limit: Arc<ConnectionLimit>,
    pub(super) budget: UnreadBudget,
}

/// An open listener.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, TlsDoor),
    /// The socket is removed with its guard.
    Unix(UnixListener, SocketFile),
}

/// A connection.
pub(crate) enum Connection {
    Tcp(TcpStream),
    Tls(TcpStream, Entry, TlsDoor),
    Unix(UnixStream),
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// The address is beyond loopback and there is no TLS, or the certificate names no host; it is not available.
    pub(crate) async fn open(listen: &ListenAddress, transport: &Transport) -> Result<Self, AgentError> {
        match listen {
            ListenAddress::Address(address) => {
                let tls = if address.ip().is_loopback() { None } else { Some(server_tls(*address, transport)?) };
                let listener = TcpListener::bind(address).await;
                let listener = listener.map_err(|source| AgentError::Listen { address: *address, source })?;
                Ok(match tls {
                    None => Self::Tcp(listener),
                    Some(tls) => {
                        let (limit, budget) =
                            (ConnectionLimit::new(CONNECTIONS_MAX), UnreadBudget::new(UNREAD_BYTES_MAX));
                        Self::Tls(listener, TlsDoor { tls, limit, budget })
                    }
                })
            }
            ListenAddress::Socket(path) => {
                let failed = |why: String| AgentError::Socket { path: path.clone(), why };
                check_free(path).await.map_err(failed)?;
                let listener = bind(path).map_err(|error| failed(error.to_string()))?;
                Ok(Self::Unix(listener, SocketFile::new(path)))
            }
        }
    }

    /// Returns the address as clients write it.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Tcp(listener) | Self::Tls(listener, ..) => {
                listener.local_addr().map_or_else(|_| String::new(), |address| address.to_string())
            }
            Self::Unix(_, file) => format!("unix:{}", file.path.display()),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Connection> {
        match self {
            Self::Tcp(listener) => Ok(Connection::Tcp(listener.accept().await?.0)),
            Self::Tls(listener, door) => {
                let (stream, from) = listener.accept().await?;
                detect_lost_peer(&stream)?;
                Ok(Connection::Tls(stream, door.limit.enter(from.ip()), door.clone()))
            }
            Self::Unix(listener, _) => Ok(Connection::Unix(listener.accept().await?.0)),
        }
    }
}

/// Has the system end a connection to a peer that is lost or does not read, idle ones included.
fn detect_lost_peer(stream: &TcpStream) -> io::Result<()> {
    let stream = SockRef::from(stream);
    stream.set_tcp_keepalive(&TcpKeepalive::new().with_time(LOST_AFTER / 2).with_interval(LOST_AFTER / 6))?;
    stream.set_tcp_user_timeout(Some(LOST_AFTER))
}

/// Returns the credentials of a server beyond loopback.
fn server_tls(address: SocketAddr, transport: &Transport) -> Result<Arc<Tls>, AgentError> {
    let Some(tls) = transport.tls() else { return Err(AgentError::NotLoopback(address)) };
    let credentials = tls.credentials();
    if credentials.certificate.hosts.is_empty() {
        return Err(AgentError::NoHost { address, identity: credentials.identity });
    }
    Ok(Arc::clone(tls))
}

/// Path of an open socket, with its device and inode; dropping it removes the file unless another one has replaced it.
pub(crate) struct SocketFile {
    path: PathBuf,
    file: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: file_at(path) }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.file.is_some() && self.file == file_at(&self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns device and inode of a file.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Refuses a path that is another file, or the socket of a running process.
async fn check_free(path: &Path) -> Result<(), String> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err("the path is a file that is no socket; choose another path".to_owned());
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err("another process listens there; end it, or choose another path".to_owned()),
        // A socket that is not accepting, for example with a full queue, may belong to a running process.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
        Err(error) => {
            Err(format!("the path is a socket that may be in use ({error}); remove it, or choose another path"))
        }
    }
}

/// Binds in a directory that only this user can enter, and then moves the socket to its path: it is never open to
/// others.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let private = tempfile::Builder::new().prefix(".agent-").tempdir_in(parent)?;
    let first = private.path().join("s");
    let listener = UnixListener::bind(&first)?;
    fs::set_permissions(&first, fs::Permissions::from_mode(0o600))?;
    fs::rename(&first, path)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn plaintext_beyond_loopback_is_refused() {
        for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0"] {
            let opened = Listener::open(&address.parse().unwrap(), &Transport::plaintext(true)).await;
            assert!(matches!(opened, Err(AgentError::NotLoopback(_))), "{address}");
        }
    }

    #[tokio::test]
    async fn socket_is_private_and_replaces_only_dead_sockets() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.sock");
        let listen = ListenAddress::Socket(path.clone());
        let plaintext = Transport::default();
        let first = Listener::open(&listen, &plaintext).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = Listener::open(&listen, &plaintext).await.err().unwrap().to_string();
        assert!(second.contains("another process listens there"), "{second}");
        let Listener::Unix(first, file) = first else { panic!("a socket") };
        // As after a crash: the socket stays, and nothing listens.
        std::mem::forget(file);
        drop(first);
        drop(Listener::open(&listen, &plaintext).await.unwrap());
        assert!(!path.exists(), "it is removed at the end");
        let replaced = Listener::open(&listen, &plaintext).await.unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "data").unwrap();
        drop(replaced);
        assert!(path.exists(), "the file of another process stays");
        let other = Listener::open(&listen, &plaintext).await.err().unwrap().to_string();
        assert!(other.contains("no socket"), "{other}");
    }
}
