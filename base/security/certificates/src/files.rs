//! Files of issued certificates, keys and requests.

use crate::authority::{AUTHORITY_KEY_FILE, IssuedCredentials};
use crate::error::CertificatesError;
use crate::request::SigningRequest;
use archon_security::{AUTHORITIES_FILE, CERTIFICATE_FILE, Certificate, Identity, KEY_FILE, certificates, check_kept};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fs;
use std::path::Path;

/// File of a certificate request, beside its key.
pub const REQUEST_FILE: &str = "request.csr";

/// Writes credentials to a directory, which is created if it does not exist. A process that runs with the previous
/// files loads the new ones within ten seconds.
///
/// # Errors
/// A file exists and `replace` is not set, it belongs to another identity, or an I/O error.
pub fn write_credentials(directory: &Path, issued: &IssuedCredentials, replace: bool) -> Result<(), CertificatesError> {
    let files = [
        // The certificate goes last: until it changes, a running process does not load the new key.
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

/// Writes a request and its key to a directory, which is created if it does not exist. An existing key is never
/// overwritten: a process may be using it, and could not restart until the request is signed.
///
/// # Errors
/// A key exists, or an I/O error.
pub fn write_request(directory: &Path, requested: &SigningRequest) -> Result<(), CertificatesError> {
    let [key_file, request_file] = [KEY_FILE, REQUEST_FILE].map(|name| directory.join(name));
    check_not_authority(directory)?;
    if is_there(&key_file) {
        return Err(CertificatesError::KeyExists(key_file));
    }
    make_directory(directory)?;
    write(&key_file, &requested.key_pem)?;
    write(&request_file, &requested.request_pem)
}

/// Writes one certificate to a file.
///
/// # Errors
/// The file exists and `replace` is not set, it belongs to another identity, or an I/O error.
pub fn write_certificate(file: &Path, certificate_pem: &str, replace: bool) -> Result<(), CertificatesError> {
    check_free(file, replace)?;
    check_same(file, certificate_pem)?;
    write(file, certificate_pem)
}

/// Returns whether the path exists, including dangling links.
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

/// Rejects a renewal for another identity, whose key would be lost. Unreadable files belong to no identity.
fn check_same(file: &Path, certificate_pem: &str) -> Result<(), CertificatesError> {
    let of =
        |certificate: &CertificateDer<'_>| -> Option<Identity> { Certificate::read(certificate).ok()?.identity.ok() };
    let found = certificates(file).ok().and_then(|found| of(&found[0]));
    let wanted = CertificateDer::from_pem_slice(certificate_pem.as_bytes()).ok().and_then(|wanted| of(&wanted));
    match (found, wanted) {
        (Some(found), Some(wanted)) if found != wanted => {
            Err(CertificatesError::OtherIdentity { file: file.to_owned(), found, wanted })
        }
        _ => Ok(()),
    }
}

/// Creates the directory of a key if it does not exist. Rejects a directory that another user owns or can write to:
/// that user could read or replace the key.
pub(crate) fn make_directory(directory: &Path) -> Result<(), CertificatesError> {
    archon_durable::create_directory(directory)
        .map_err(|source| CertificatesError::Write { file: directory.to_owned(), source })?;
    Ok(check_kept(directory, &[])?)
}

/// Writes a whole file with mode 0600.
pub(crate) fn write(file: &Path, content: &str) -> Result<(), CertificatesError> {
    archon_durable::replace(file, content.as_bytes())
        .map_err(|source| CertificatesError::Write { file: file.to_owned(), source })
}
