//! Revoked certificates: the authority signed them, but the key was stolen or the holder has left.

use crate::callers::identity::Identity;
use crate::tls::certificate::{Certificate, date};
use archon_types::WHENEVER;
use archon_types::{Access, Millis};
use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Revoked certificates by identity: all of them for `None`, otherwise those that begin before that moment.
pub type WithdrawnCertificates = BTreeMap<Identity, Option<SystemTime>>;

/// Returns the certificates that an access list revokes. Identities with unknown roles are skipped.
pub fn withdrawn_certificates(access: &Access) -> WithdrawnCertificates {
    let all = access.withdrawn().iter();
    let begins = |moment: Millis| {
        (moment != WHENEVER).then(|| UNIX_EPOCH.checked_add(Duration::from_millis(moment.get()))).flatten()
    };
    all.filter_map(|(identity, moment)| Some((identity.parse().ok()?, begins(*moment)))).collect()
}

/// A revoked certificate.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("that of {identity}, which begins {}, was withdrawn; see `archon access list`", date(*.begins))]
pub struct RevokedCertificate {
    /// Its identity.
    pub identity: Identity,
    /// Begin of its validity.
    pub begins: SystemTime,
}

/// Revoked certificates that this process knows of.
#[derive(Debug, Default)]
pub(crate) struct RevocationList(RwLock<Arc<WithdrawnCertificates>>);

impl RevocationList {
    /// Replaces the set; returns whether it has changed.
    pub(crate) fn replace(&self, withdrawn: WithdrawnCertificates) -> bool {
        let mut held = self.0.write();
        let is_news = **held != withdrawn;
        if is_news {
            *held = Arc::new(withdrawn);
        }
        is_news
    }

    /// Rejects a certificate of `identity` that begins at `begins`, if it is revoked.
    pub(crate) fn check(&self, identity: &Identity, begins: SystemTime) -> Result<(), RevokedCertificate> {
        match self.0.read().get(identity) {
            Some(until) if until.is_none_or(|until| begins < until) => {
                Err(RevokedCertificate { identity: identity.clone(), begins })
            }
            _ => Ok(()),
        }
    }

    /// Rejects a revoked certificate. One without identity is rejected elsewhere.
    pub(crate) fn check_certificate(&self, certificate: &CertificateDer<'_>) -> Result<(), RevokedCertificate> {
        if self.0.read().is_empty() {
            return Ok(());
        }
        match Certificate::read(certificate) {
            Ok(Certificate { identity: Ok(identity), not_before, .. }) => self.check(&identity, not_before),
            _ => Ok(()),
        }
    }
}

/// Checks revocation during the handshake, so that a rejected peer learns the reason.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    pub(crate) authorities: Arc<dyn ClientCertVerifier>,
    pub(crate) withdrawn: Arc<RevocationList>,
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authorities.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.authorities.verify_client_cert(end, between, now)?;
        // Its alert is `CertificateUnknown`, which the library sends for no other reason.
        self.withdrawn
            .check_certificate(end)
            .map_err(|revoked| CertificateError::Other(OtherError(Arc::new(revoked))))?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}
