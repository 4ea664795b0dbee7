//! Authorities, and issued certificates as `archon-security` reads them.

use archon_certificates::{Authority, Host, IssuedCredentials, write_credentials};
use archon_security::{Certificate, Credentials, CredentialsError, Identity};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(crate) const YEAR: Duration = DAY.saturating_mul(365);

/// Noon of a day, in whole seconds: certificates have no fractions.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000)
}

pub(crate) fn authority() -> Authority {
    Authority::create("test", now()).unwrap()
}

pub(crate) fn identity(text: &str) -> Identity {
    text.parse().unwrap()
}

pub(crate) fn hosts(texts: &[&str]) -> Vec<Host> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// Returns the hosts that a certificate of this identity must have.
pub(crate) fn some_hosts(of: &Identity) -> Vec<Host> {
    if of.role().is_server() { hosts(&["localhost"]) } else { Vec::new() }
}

pub(crate) fn issue(authority: &Authority, text: &str) -> IssuedCredentials {
    let identity = identity(text);
    authority.issue(&identity, &some_hosts(&identity), 90 * DAY, now()).unwrap()
}

pub(crate) fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

pub(crate) fn read(pem: &str) -> Certificate {
    Certificate::read(&der(pem)).unwrap()
}

/// Writes the credentials and loads them as a process does.
pub(crate) fn load(issued: &IssuedCredentials, at: SystemTime) -> Result<Credentials, CredentialsError> {
    let directory = tempfile::tempdir().unwrap();
    write_credentials(directory.path(), issued, false).unwrap();
    Credentials::load(directory.path(), at)
}

pub(crate) fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
