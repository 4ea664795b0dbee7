//! Credentials of a process: the files of one directory, loaded and checked.

use crate::callers::identity::Identity;
use crate::tls::certificate::{Certificate, NoIdentity, NotACertificate, date};
use crate::tls::kept::check_kept;
use archon_types::AuthorityPrint;
use ring::digest;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use thiserror::Error;

/// File of the trusted authorities: one, or two during a change of authority.
pub const AUTHORITIES_FILE: &str = "ca.crt";
/// File of the process's certificate, followed by intermediate certificates.
pub const CERTIFICATE_FILE: &str = "tls.crt";
/// File of the certificate's private key, readable by its owner only.
pub const KEY_FILE: &str = "tls.key";
/// Maximum size of these files.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The content of a directory of credentials, checked for consistency and validity.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Identity of this process.
    pub identity: Identity,
    /// Its certificate.
    pub certificate: Certificate,
    /// The authority that signed the certificate.
    pub authority: Option<AuthorityPrint>,
    /// Earliest expiry of the trusted authorities.
    pub authorities_expire: SystemTime,
    pub(crate) authorities: Arc<RootCertStore>,
    pub(crate) certified: Arc<CertifiedKey>,
}

/// Reason why a directory of credentials cannot be used. Each names the file and the remedy.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// A file is missing or unreadable.
    #[error("{}: {source}; a directory of credentials holds {AUTHORITIES_FILE}, {CERTIFICATE_FILE} and {KEY_FILE}, as \
             `archon cert` writes them", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Others can read the key.
    #[error("{}: others may read this key (mode {mode:o}); run `chmod 600` on it, and replace it if others may have \
             read it", file.display())]
    KeyReadable {
        /// The file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Others can replace the trusted authorities.
    #[error("{}: other users may write to it (mode {mode:o}) and replace the trusted authorities; run `chmod go-w` on \
             it, and check its contents (`archon cert show`)", path.display())]
    OthersWrite {
        /// The file or directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Another user owns the file or directory, and can replace the trusted authorities.
    #[error("{}: it belongs to user {owner}, who can replace the trusted authorities of this process of user {me}; run \
             this process as that user, or `chown` it to root or to the user of the process", path.display())]
    OthersOwn {
        /// The file or directory.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
        /// User id of this process.
        me: u32,
    },
    /// A file has the wrong content.
    #[error("{}: {why}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// A certificate is expired or not yet valid.
    #[error("{}: the certificate of {whose} {}", file.display(), period(*.not_before, *.not_after, *.now))]
    Date {
        /// The file.
        file: PathBuf,
        /// Its identity or subject.
        whose: String,
        /// Begin of validity.
        not_before: SystemTime,
        /// End of validity.
        not_after: SystemTime,
        /// Current time.
        now: SystemTime,
    },
}

/// Describes why a certificate is not valid now, and the remedy. If its begin is in the future, the clock is usually
/// wrong: certificates begin when they are issued.
fn period(not_before: SystemTime, not_after: SystemTime, now: SystemTime) -> String {
    let clock = format!("the clock of this machine, which shows {}", date(now));
    match now < not_before {
        true => format!("holds only from {}; check {clock}", date(not_before)),
        false => format!("expired {}; renew it, or check {clock}", date(not_after)),
    }
}

impl Credentials {
    /// Loads and checks a directory.
    ///
    /// # Errors
    /// The file that is wrong, and the reason.
    pub fn load(directory: &Path, now: SystemTime) -> Result<Self, CredentialsError> {
        let files = [AUTHORITIES_FILE, CERTIFICATE_FILE, KEY_FILE];
        check_kept(directory, &files[..2])?;
        let [authorities_file, certificate_file, key_file] = files.map(|name| directory.join(name));
        let (authorities, authorities_expire) = authorities(&authorities_file, now)?;
        let chain = certificates(&certificate_file)?;
        let certificate = read(&certificate_file, &chain[0])?;
        let wrong = |why: String| CredentialsError::Content { file: certificate_file.clone(), why };
        let identity = certificate.identity.clone().map_err(|error: NoIdentity| wrong(error.to_string()))?;
        check_date(&certificate_file, &identity.to_string(), &certificate, now)?;
        let certified = Arc::new(certified(chain, &certificate_file, &key_file)?);
        let authorities = Arc::new(authorities);
        verify(&authorities, &certified.cert, &identity, now).map_err(|error| {
            wrong(format!("the certificate of {identity} is not one that {AUTHORITIES_FILE} vouches for: {error}"))
        })?;
        let believed = certificates(&authorities_file)?;
        let authority = authority_of(&certified.cert[0], &believed).and_then(|place| believed.get(place)).map(print_of);
        Ok(Self { identity, certificate, authority, authorities_expire, authorities, certified })
    }

    /// Returns whether clients that dial `host` accept this certificate.
    pub(crate) fn names(&self, host: &str) -> bool {
        let Ok(name) = ServerName::try_from(host) else { return false };
        let parsed = self.certified.cert.first().map(ParsedCertificate::try_from);
        matches!(parsed, Some(Ok(parsed)) if verify_server_name(&parsed, &name).is_ok())
    }
}

/// Reads a file of at most [`FILE_BYTES_MAX`].
fn content(file: &Path) -> Result<Vec<u8>, CredentialsError> {
    use std::io::Read;
    let unreadable = |source| CredentialsError::Unreadable { file: file.to_owned(), source };
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(unreadable)?;
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(unreadable(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes")))),
        false => Ok(bytes),
    }
}

/// Reads the certificates of a file.
///
/// # Errors
/// The file is unreadable, is not PEM, or holds no certificate.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let wrong = |why: String| CredentialsError::Content { file: file.to_owned(), why };
    let bytes = content(file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.map_err(|error| wrong(format!("it is not PEM: {error}")))?;
    match found.is_empty() {
        true => Err(wrong("it holds no certificate (a block -----BEGIN CERTIFICATE-----)".to_owned())),
        false => Ok(found),
    }
}

fn read(file: &Path, certificate: &CertificateDer<'_>) -> Result<Certificate, CredentialsError> {
    let wrong = |error: NotACertificate| CredentialsError::Content { file: file.to_owned(), why: error.to_string() };
    Certificate::read(certificate).map_err(wrong)
}

fn check_date(file: &Path, whose: &str, certificate: &Certificate, now: SystemTime) -> Result<(), CredentialsError> {
    let Certificate { not_before, not_after, .. } = *certificate;
    match not_before <= now && now <= not_after {
        true => Ok(()),
        false => {
            Err(CredentialsError::Date { file: file.to_owned(), whose: whose.to_owned(), not_before, not_after, now })
        }
    }
}

/// Returns the valid authorities of a file and their earliest expiry. Expired ones are skipped as long as one is
/// valid: that is the last phase of a change of authority.
fn authorities(file: &Path, now: SystemTime) -> Result<(RootCertStore, SystemTime), CredentialsError> {
    let wrong = |why: String| CredentialsError::Content { file: file.to_owned(), why };
    let (mut store, mut expire, mut expired) = (RootCertStore::empty(), None::<SystemTime>, None);
    for certificate in certificates(file)? {
        let said = read(file, &certificate)?;
        if !said.is_authority {
            return Err(wrong(format!(
                "the certificate of {} does not belong to a certificate authority",
                said.subject
            )));
        }
        if let Err(error) = check_date(file, &said.subject, &said, now) {
            expired = Some(error);
            continue;
        }
        store.add(certificate).map_err(|error| wrong(format!("{}: {error}", said.subject)))?;
        expire = Some(expire.map_or(said.not_after, |first| first.min(said.not_after)));
    }
    match (expire, expired) {
        (Some(expire), _) => Ok((store, expire)),
        (None, Some(error)) => Err(error),
        (None, None) => Err(wrong("it holds no certificate".to_owned())),
    }
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    certificate_file: &Path,
    key_file: &Path,
) -> Result<CertifiedKey, CredentialsError> {
    let wrong = |why: String| CredentialsError::Content { file: key_file.to_owned(), why };
    let bytes = secret(key_file)?;
    let key =
        PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| wrong(format!("it holds no key in PEM: {error}")))?;
    CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong(format!("it is not the key of the certificate in {}", certificate_file.display()))
        }
        other => wrong(format!("the key cannot be used: {other}")),
    })
}

/// Reads a file that holds a key.
///
/// # Errors
/// Others can read the file, or this process cannot.
pub fn secret(file: &Path) -> Result<Vec<u8>, CredentialsError> {
    check_secret(file)?;
    content(file)
}

/// Rejects a key that others can read. The group may read files of root: containers mount secrets this way.
#[cfg(unix)]
fn check_secret(file: &Path) -> Result<(), CredentialsError> {
    use std::os::unix::fs::MetadataExt;
    let unreadable = |source| CredentialsError::Unreadable { file: file.to_owned(), source };
    let found = std::fs::metadata(file).map_err(unreadable)?;
    let (mode, allowed) = (found.mode() & 0o777, if found.uid() == 0 { 0o740 } else { 0o700 });
    match mode & !allowed {
        0 => Ok(()),
        _ => Err(CredentialsError::KeyReadable { file: file.to_owned(), mode }),
    }
}

#[cfg(not(unix))]
fn check_secret(_: &Path) -> Result<(), CredentialsError> {
    Ok(())
}

/// Returns the position of the authority that signed a certificate, expired or not. Authorities of one cluster can
/// share a name.
pub fn authority_of(certificate: &CertificateDer<'static>, authorities: &[CertificateDer<'static>]) -> Option<usize> {
    let said = Certificate::read(certificate).ok()?;
    let identity = said.identity.ok()?;
    authorities.iter().position(|authority| {
        let mut store = RootCertStore::empty();
        let added = store.add(authority.clone()).is_ok();
        added && verify(&Arc::new(store), std::slice::from_ref(certificate), &identity, said.not_after).is_ok()
    })
}

/// Returns the id that distinguishes an authority from the others of its cluster.
fn print_of(authority: &CertificateDer<'_>) -> AuthorityPrint {
    let hash = digest::digest(&digest::SHA256, authority);
    let mut print = [0; 8];
    print.iter_mut().zip(hash.as_ref()).for_each(|(to, from)| *to = *from);
    AuthorityPrint(print)
}

/// Verifies a chain as a server does, and also as a client does if the identity is a server's.
pub(crate) fn verify(
    authorities: &Arc<RootCertStore>,
    chain: &[CertificateDer<'static>],
    identity: &Identity,
    now: SystemTime,
) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let algorithms = provider.signature_verification_algorithms.all;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(authorities), provider).build();
    let verifier = verifier.map_err(|error| rustls::Error::General(error.to_string()))?;
    let (end, between) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
    let now = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO));
    verifier.verify_client_cert(end, between, now)?;
    if identity.role().is_server() {
        let end = ParsedCertificate::try_from(end)?;
        verify_server_cert_signed_by_trust_anchor(&end, authorities, between, now, algorithms)?;
    }
    Ok(())
}
