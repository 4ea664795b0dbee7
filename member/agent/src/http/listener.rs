//! Places where an agent listens: loopback, a socket in the file system, or any address with TLS.

use crate::config::{AgentError, Listen};
use archon_client::{Tls, Transport};
use archon_security::connection_limit::{ConnectionLimit, Entry};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Maximum number of connections with TLS, anonymous ones included; half of them of one address.
const CONNECTIONS_MAX: usize = 256;

/// An open listener.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Arc<Tls>, Arc<ConnectionLimit>),
    /// The socket is removed with its guard.
    Unix(UnixListener, SocketFile),
}

/// A connection.
pub(crate) enum Connection {
    Tcp(TcpStream),
    Tls(TcpStream, Arc<Tls>, Entry),
    Unix(UnixStream),
}

impl Listener {
    /// Listens.
    ///
    /// # Errors
    /// The address is beyond loopback and there is no TLS, or the certificate names no host; it is not available.
    pub(crate) async fn open(listen: &Listen, transport: &Transport) -> Result<Self, AgentError> {
        match listen {
            Listen::Address(address) => {
                let tls = if address.ip().is_loopback() { None } else { Some(server_tls(*address, transport)?) };
                let listener = TcpListener::bind(address).await;
                let listener = listener.map_err(|source| AgentError::Listen { address: *address, source })?;
                Ok(match tls {
                    None => Self::Tcp(listener),
                    Some(tls) => Self::Tls(listener, tls, ConnectionLimit::new(CONNECTIONS_MAX)),
                })
            }
            Listen::Socket(path) => {
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
            Self::Tls(listener, tls, limit) => {
                let (stream, from) = listener.accept().await?;
                Ok(Connection::Tls(stream, Arc::clone(tls), limit.enter(from.ip())))
            }
            Self::Unix(listener, _) => Ok(Connection::Unix(listener.accept().await?.0)),
        }
    }
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
        let listen = Listen::Socket(path.clone());
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
