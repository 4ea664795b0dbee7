//! Credentials in directories.

use archon_certificates::{Authority, Host, Issued, validity, write_credentials};
use archon_security::{Expected, Identity, Protocol, Stream, Tls, TlsError};
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// An authority that holds as long as any test needs.
pub(crate) fn authority() -> Authority {
    Authority::create("test", SystemTime::now() - 365 * DAY).unwrap()
}

pub(crate) fn identity(text: &str) -> Identity {
    text.parse().unwrap()
}

/// Issued now; servers are reached at 127.0.0.1.
pub(crate) fn issue(authority: &Authority, who: &str) -> Issued {
    issue_at(authority, who, SystemTime::now())
}

pub(crate) fn issue_at(authority: &Authority, who: &str, now: SystemTime) -> Issued {
    let who = identity(who);
    let hosts: &[Host] = if who.role().is_server() { &["127.0.0.1".parse().unwrap()] } else { &[] };
    authority.issue(&who, hosts, validity(who.role()), now).unwrap()
}

/// One that ends then; servers are reached at 127.0.0.1.
pub(crate) fn issue_until(authority: &Authority, who: &str, until: SystemTime) -> Issued {
    let who = identity(who);
    let hosts: &[Host] = if who.role().is_server() { &["127.0.0.1".parse().unwrap()] } else { &[] };
    authority.issue(&who, hosts, DAY, until - DAY).unwrap()
}

pub(crate) fn directory(issued: &Issued) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    write_credentials(directory.path(), issued, false).unwrap();
    directory
}

/// The credentials of one process, and the directory that must stay as long as they are used.
pub(crate) fn tls(issued: &Issued) -> (TempDir, Arc<Tls>) {
    let directory = directory(issued);
    let tls = Tls::open(directory.path()).unwrap();
    (directory, tls)
}

pub(crate) fn replace(directory: &Path, issued: &Issued) {
    write_credentials(directory, issued, true).unwrap();
}

pub(crate) fn uri(text: &str) -> SanType {
    SanType::URI(Ia5String::try_from(text).unwrap())
}

/// A certificate that no `archon cert` issues, of an authority of its own.
pub(crate) fn handmade(names: Vec<SanType>, usages: &[ExtendedKeyUsagePurpose]) -> Issued {
    handmade_until(names, usages, DAY)
}

/// The same, from now on for that long.
pub(crate) fn handmade_until(names: Vec<SanType>, usages: &[ExtendedKeyUsagePurpose], valid_for: Duration) -> Issued {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let authorities_pem = params.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(params, authority_key);
    let mut params = CertificateParams::default();
    params.subject_alt_names = names;
    params.extended_key_usages = usages.to_vec();
    params.not_after = (SystemTime::now() + valid_for).into();
    let key = KeyPair::generate().unwrap();
    let certificate_pem = params.signed_by(&key, &issuer).unwrap().pem();
    Issued { certificate_pem, key_pem: key.serialize_pem(), authorities_pem }
}

/// Two ends of a connection on loopback: who dialled, and who listened.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialling = TcpStream::connect(listener.local_addr().unwrap());
    let (dialled, accepted) = tokio::join!(dialling, listener.accept());
    (dialled.unwrap(), accepted.unwrap().0)
}

/// The outcome of a handshake on both sides.
pub(crate) async fn shake(
    client: &Tls,
    server: &Tls,
    host: &str,
    expected: &Expected,
) -> (Result<Stream, TlsError>, Result<Stream, TlsError>) {
    let (dialled, accepted) = pair().await;
    tokio::join!(client.connect(dialled, host, expected, Protocol::Frames), server.accept(accepted))
}

/// One byte there and back: with TLS 1.3 whoever dialled hears only now that its certificate was refused.
pub(crate) async fn echo(dialled: &mut Stream, accepted: &mut Stream) -> io::Result<()> {
    dialled.write_all(b"?").await?;
    dialled.flush().await?;
    let mut byte = [0];
    accepted.read_exact(&mut byte).await?;
    accepted.write_all(&byte).await?;
    accepted.flush().await?;
    dialled.read_exact(&mut byte).await?;
    assert_eq!(&byte, b"?");
    Ok(())
}
