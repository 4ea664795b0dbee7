//! What is issued, in files.

use crate::authority::{AUTHORITY_KEY_FILE, Issued};
use crate::error::CertificatesError;
use crate::request::Requested;
use archon_security::{AUTHORITIES_FILE, CERTIFICATE_FILE, Certificate, Identity, KEY_FILE, certificates, check_kept};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs;
use std::path::Path;

/// A request for a certificate, beside the key that it is for.
pub const REQUEST_FILE: &str = "request.csr";

/// Writes what a process is given into a directory of its own, which is made if it is not there. A process that runs with what was
/// there takes it within ten seconds.
///
/// # Errors
/// If something is there and `replace` was not said, if it is somebody else's, or the file system's.
pub fn write_credentials(directory: &Path, issued: &Issued, replace: bool) -> Result<(), CertificatesError> {
    let files = [
        // The certificate last: until it is there, what runs does not take a new key for its own.
        (KEY_FILE, &issued.key_pem),
        (AUTHORITIES_FILE, &issued.authorities_pem),
        (CERTIFICATE_FILE, &issued.certificate_pem),
    ];
    check_not_authority(directory)?;
    for (name, _) in files {
        check_free(&directory.join(name), replace)?;
    }
    check_same(&directory.join(CERTIFICATE_FILE), &issued.certificate_pem)?;
    make_directory(directory)?;
    files.into_iter().try_for_each(|(name, content)| write(&directory.join(name), content))
}

/// Writes a request and its key into a directory, which is made if it is not there. A key is never overwritten: somebody may be
/// running with it, and could not start again until the request is signed.
///
/// # Errors
/// If there is one already, or the file system's.
pub fn write_request(directory: &Path, requested: &Requested) -> Result<(), CertificatesError> {
    let [key_file, request_file] = [KEY_FILE, REQUEST_FILE].map(|name| directory.join(name));
    check_not_authority(directory)?;
    if is_there(&key_file) {
        return Err(CertificatesError::KeyExists(key_file));
    }
    make_directory(directory)?;
    write(&key_file, &requested.key_pem)?;
    write(&request_file, &requested.request_pem)
}

/// Writes one certificate into a file.
///
/// # Errors
/// If it is there and `replace` was not said, if it is somebody else's, or the file system's.
pub fn write_certificate(file: &Path, certificate_pem: &str, replace: bool) -> Result<(), CertificatesError> {
    check_free(file, replace)?;
    check_same(file, certificate_pem)?;
    write(file, certificate_pem)
}

/// Whether there is anything by this name, be it a link that leads nowhere.
pub(crate) fn is_there(file: &Path) -> bool {
    fs::symlink_metadata(file).is_ok()
}

fn check_free(file: &Path, replace: bool) -> Result<(), CertificatesError> {
    match is_there(file) && !replace {
        true => Err(CertificatesError::Exists(file.to_owned())),
        false => Ok(()),
    }
}

fn check_not_authority(directory: &Path) -> Result<(), CertificatesError> {
    match is_there(&directory.join(AUTHORITY_KEY_FILE)) {
        true => Err(CertificatesError::IsAuthority(directory.to_owned())),
        false => Ok(()),
    }
}

/// Renewing is for the one who was there before: another's key would be gone for good. What cannot be read is nobody's.
fn check_same(file: &Path, certificate_pem: &str) -> Result<(), CertificatesError> {
    let of =
        |certificate: &CertificateDer<'_>| -> Option<Identity> { Certificate::read(certificate).ok()?.identity.ok() };
    let found = certificates(file).ok().and_then(|found| of(&found[0]));
    let wanted = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok().and_then(|wanted| of(&wanted));
    match (found, wanted) {
        (Some(found), Some(wanted)) if found != wanted => {
            Err(CertificatesError::SomebodyElse { file: file.to_owned(), found, wanted })
        }
        _ => Ok(()),
    }
}

/// Makes the directory of a key, if it is not there. One that another user owns or may write to is refused: that user could read or
/// replace the key.
pub(crate) fn make_directory(directory: &Path) -> Result<(), CertificatesError> {
    archon_durable::create_directory(directory)
        .map_err(|source| CertificatesError::Write { file: directory.to_owned(), source })?;
    Ok(check_kept(directory, &[])?)
}

/// A whole file, with mode 0600.
pub(crate) fn write(file: &Path, content: &str) -> Result<(), CertificatesError> {
    archon_durable::replace(file, content.as_bytes())
        .map_err(|source| CertificatesError::Write { file: file.to_owned(), source })
}
