//! Certificate authority of a cluster.

use crate::certify::{self, AUTHORITY_VALIDITY, Period};
use crate::error::CertificatesError;
use crate::files::{self, write};
use crate::host::Host;
use crate::request::Request;
use archon_security::{AUTHORITIES_FILE, Certificate, CredentialsError, Identity, certificates, check_kept, secret};
use rcgen::{Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// File of an authority's private key. A person who holds it can impersonate any identity of the cluster.
pub const AUTHORITY_KEY_FILE: &str = "ca.key";

/// Signs the certificates of the processes and people of one cluster.
#[derive(Debug)]
pub struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
    /// Certificate of this authority, followed by those of other trusted authorities (during a change of authority).
    believed_pem: String,
}

/// A certificate with its key and the trusted authorities: the credentials of one process.
#[derive(Clone)]
pub struct IssuedCredentials {
    /// The certificate.
    pub certificate_pem: String,
    /// Its key.
    pub key_pem: String,
    /// Certificates of the trusted authorities.
    pub authorities_pem: String,
}

impl std::fmt::Debug for IssuedCredentials {
    /// Omits the key.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Issued").field("certificate_pem", &self.certificate_pem).finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates an authority for the cluster with this name (shown to people). Valid for ten years.
    ///
    /// # Errors
    /// The name is not a valid cluster name.
    pub fn create(cluster: &str, now: SystemTime) -> Result<Self, CertificatesError> {
        let params = certify::authority(cluster, Period::of(AUTHORITY_VALIDITY, now)?)?;
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        let signed = params.self_signed(&key)?;
        let certificate =
            Certificate::read(signed.der()).map_err(|error| CertificatesError::Making(error.to_string()))?;
        // Built like an authority that is loaded, so that both sign alike.
        let issuer = Issuer::from_ca_cert_der(signed.der(), key)?;
        Ok(Self { certificate, issuer, believed_pem: signed.pem() })
    }

    /// Loads the authority in a directory. `ca.crt` may also hold certificates of other authorities; these become
    /// part of all issued credentials.
    ///
    /// # Errors
    /// The file that is wrong, and the reason.
    pub fn load(directory: &Path) -> Result<Self, CertificatesError> {
        let [certificate_file, key_file] = [AUTHORITIES_FILE, AUTHORITY_KEY_FILE].map(|name| directory.join(name));
        // The content is part of all issued credentials.
        check_kept(directory, &[AUTHORITIES_FILE])?;
        let believed = certificates(&certificate_file).map_err(no_authority)?;
        let wrong = |file: &Path, why: String| CredentialsError::Content { file: file.to_owned(), why };
        for certificate in &believed {
            let said = Certificate::read(certificate).map_err(|error| wrong(&certificate_file, error.to_string()))?;
            if !said.is_authority {
                let why = format!("the certificate of {} does not belong to a certificate authority", said.subject);
                return Err(wrong(&certificate_file, why).into());
            }
        }
        let key_pem = secret(&key_file).map_err(no_authority)?;
        let no_key = |why: String| wrong(&key_file, format!("it holds no key that can sign: {why}"));
        let key_der = PrivateKeyDer::from_pem_slice(&key_pem).map_err(|error| no_key(error.to_string()))?;
        let own = believed.iter().find(|certificate| is_key_of(&key_der, certificate)).ok_or_else(|| {
            wrong(&key_file, format!("it is the key of no certificate in {}", certificate_file.display()))
        })?;
        let certificate = Certificate::read(own).map_err(|error| wrong(&certificate_file, error.to_string()))?;
        let key = KeyPair::try_from(&key_der).map_err(|error| no_key(error.to_string()))?;
        let issuer = Issuer::from_ca_cert_der(own, key)?;
        let believed_pem = std::fs::read_to_string(&certificate_file)
            .map_err(|source| CertificatesError::NoAuthority { file: certificate_file.clone(), source })?;
        // This file is part of all issued credentials.
        if believed_pem.contains("PRIVATE KEY-----") {
            let why = "it holds a key, and everybody is given this file: leave only certificates in it".to_owned();
            return Err(wrong(&certificate_file, why).into());
        }
        Ok(Self { certificate, issuer, believed_pem })
    }

    /// Writes the authority to a directory, which is created if it does not exist.
    ///
    /// # Errors
    /// The directory already holds an authority, or an I/O error.
    pub fn write(&self, directory: &Path) -> Result<(), CertificatesError> {
        let [certificate_file, key_file] = [AUTHORITIES_FILE, AUTHORITY_KEY_FILE].map(|name| directory.join(name));
        for file in [&certificate_file, &key_file] {
            if files::is_there(file) {
                return Err(CertificatesError::AuthorityExists(file.clone()));
            }
        }
        files::make_directory(directory)?;
        // The key goes first: a certificate without a key would look like an authority.
        write(&key_file, &self.issuer.key().serialize_pem())?;
        write(&certificate_file, &self.believed_pem)
    }

    /// Returns the certificate of this authority.
    pub const fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns the certificates of the trusted authorities, this one first.
    pub fn believed_pem(&self) -> &str {
        &self.believed_pem
    }

    /// Issues a certificate with a new key. It is valid from five minutes ago and for `valid_for` (a day to ten
    /// years), but never beyond the end of the authority.
    ///
    /// # Errors
    /// A server has no host, another role has one, or the authority is not valid at `now`.
    pub fn issue(
        &self,
        identity: &Identity,
        hosts: &[Host],
        valid_for: Duration,
        now: SystemTime,
    ) -> Result<IssuedCredentials, CertificatesError> {
        let params = certify::member(identity, hosts, self.period(valid_for, now)?)?;
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
        Ok(IssuedCredentials {
            certificate_pem: params.signed_by(&key, &self.issuer)?.pem(),
            key_pem: key.serialize_pem(),
            authorities_pem: self.believed_pem.clone(),
        })
    }

    /// Signs a certificate for the public key of a request; returns PEM. Identity and hosts come from the arguments;
    /// only the key is taken from the request.
    ///
    /// # Errors
    /// As for [`Authority::issue`].
    pub fn sign(
        &self,
        request: &Request,
        identity: &Identity,
        hosts: &[Host],
        valid_for: Duration,
        now: SystemTime,
    ) -> Result<String, CertificatesError> {
        let params = certify::member(identity, hosts, self.period(valid_for, now)?)?;
        Ok(params.signed_by(request.public_key(), &self.issuer)?.pem())
    }

    /// Returns the validity period, limited by that of the authority.
    fn period(&self, valid_for: Duration, now: SystemTime) -> Result<Period, CertificatesError> {
        let Certificate { not_before, not_after, .. } = self.certificate;
        if !(not_before <= now && now < not_after) {
            let subject = self.certificate.subject.clone();
            return Err(CertificatesError::AuthorityDate { subject, not_before, not_after, now });
        }
        Ok(Period::of(valid_for, now)?.within(Period { not_before, not_after }))
    }
}

/// Maps a missing file in an authority's directory.
fn no_authority(error: CredentialsError) -> CertificatesError {
    match error {
        CredentialsError::Unreadable { file, source } => CertificatesError::NoAuthority { file, source },
        other => other.into(),
    }
}

fn is_key_of(key: &PrivateKeyDer<'static>, certificate: &CertificateDer<'static>) -> bool {
    let provider = rustls::crypto::ring::default_provider();
    CertifiedKey::from_der(vec![certificate.clone()], key.clone_key(), &provider).is_ok()
}
