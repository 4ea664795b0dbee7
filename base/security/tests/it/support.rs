//! Credentials in directories.

use archon_certificates::{Authority, Host, IssuedCredentials, validity, write_credentials};
use archon_security::{ExpectedPeer, Identity, Protocol, Stream, Tls, TlsError};
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

/// Creates an authority that is valid for the whole test.
pub(crate) fn authority() -> Authority {
    Authority::create("test", SystemTime::now() - 365 * DAY).unwrap()
}

pub(crate) fn identity(text: &str) -> Identity {
    text.parse().unwrap()
}

/// Issues credentials that begin now; servers are reached at 127.0.0.1.
pub(crate) fn issue(authority: &Authority, who: &str) -> IssuedCredentials {
    issue_at(authority, who, SystemTime::now())
}

pub(crate) fn issue_at(authority: &Authority, who: &str, now: SystemTime) -> IssuedCredentials {
    let who = identity(who);
    let hosts: &[Host] = if who.role().is_server() { &["127.0.0.1".parse().unwrap()] } else { &[] };
    authority.issue(&who, hosts, validity(who.role()), now).unwrap()
}

/// Issues credentials that end at `until`; servers are reached at 127.0.0.1.
pub(crate) fn issue_until(authority: &Authority, who: &str, until: SystemTime) -> IssuedCredentials {
    let who = identity(who);
    let hosts: &[Host] = if who.role().is_server() { &["127.0.0.1".parse().unwrap()] } else { &[] };
    authority.issue(&who, hosts, DAY, until - DAY).unwrap()
}

pub(crate) fn directory(issued: &IssuedCredentials) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    write_credentials(directory.path(), issued, false).unwrap();
    directory
}

/// Opens the credentials of a process, and returns the directory, which must exist while they are used.
pub(crate) fn tls(issued: &IssuedCredentials) -> (TempDir, Arc<Tls>) {
    let directory = directory(issued);
    let tls = Tls::open(directory.path()).unwrap();
    (directory, tls)
}

pub(crate) fn replace(directory: &Path, issued: &IssuedCredentials) {
    write_credentials(directory, issued, true).unwrap();
}

pub(crate) fn uri(text: &str) -> SanType {
    SanType::URI(Ia5String::try_from(text).unwrap())
}

/// Makes a certificate that `archon cert` never issues, signed by its own authority.
pub(crate) fn handmade(names: Vec<SanType>, usages: &[ExtendedKeyUsagePurpose]) -> IssuedCredentials {
    handmade_until(names, usages, DAY)
}

/// Does the same with a validity that begins now.
pub(crate) fn handmade_until(
    names: Vec<SanType>,
    usages: &[ExtendedKeyUsagePurpose],
    valid_for: Duration,
) -> IssuedCredentials {
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
    IssuedCredentials { certificate_pem, key_pem: key.serialize_pem(), authorities_pem }
}

/// Returns both ends of a connection on loopback: the dialling one, then the accepting one.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialling = TcpStream::connect(listener.local_addr().unwrap());
    let (dialled, accepted) = tokio::join!(dialling, listener.accept());
    (dialled.unwrap(), accepted.unwrap().0)
}

/// Returns the outcome of a handshake on both sides.
pub(crate) async fn shake(
    client: &Tls,
    server: &Tls,
    host: &str,
    expected: &ExpectedPeer,
) -> (Result<Stream, TlsError>, Result<Stream, TlsError>) {
    let (dialled, accepted) = pair().await;
    tokio::join!(client.connect(dialled, host, expected, Protocol::Frames), server.accept(accepted))
}

/// Sends one byte in both directions: with TLS 1.3 the client learns only now that its certificate was rejected.
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
