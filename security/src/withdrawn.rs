//! Certificates that count no more though the authority vouches for them: a key was stolen, or whoever had it is gone.

use crate::certificate::{Certificate, date};
use crate::identity::Identity;
use archon_types::access::WHENEVER;
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

/// Of whom certificates were withdrawn; `None`: every one, whenever it was issued, otherwise those that begin before that moment.
pub type WithdrawnCertificates = BTreeMap<Identity, Option<SystemTime>>;

/// What an access list says is withdrawn. An identity of a role that this version does not know is nobody here.
pub fn withdrawn_certificates(access: &Access) -> WithdrawnCertificates {
    let all = access.withdrawn().iter();
    let begins = |moment: Millis| {
        (moment != WHENEVER).then(|| UNIX_EPOCH.checked_add(Duration::from_millis(moment.get()))).flatten()
    };
    all.filter_map(|(identity, moment)| Some((identity.parse().ok()?, begins(*moment)))).collect()
}

/// A certificate that was withdrawn.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("that of {identity}, which begins {}, was withdrawn; `archon access list` says what counts", date(*.begins))]
pub struct Revoked {
    /// Whose it is.
    pub identity: Identity,
    /// When it begins.
    pub begins: SystemTime,
}

/// What was withdrawn, as far as this process has heard.
#[derive(Debug, Default)]
pub(crate) struct Withdrawn(RwLock<Arc<WithdrawnCertificates>>);

impl Withdrawn {
    /// This and no more. Returns whether that is news.
    pub(crate) fn replace(&self, withdrawn: WithdrawnCertificates) -> bool {
        let mut held = self.0.write();
        let is_news = **held != withdrawn;
        if is_news {
            *held = Arc::new(withdrawn);
        }
        is_news
    }

    /// Refuses a certificate of `identity` that begins then, if it was withdrawn.
    pub(crate) fn check(&self, identity: &Identity, begins: SystemTime) -> Result<(), Revoked> {
        match self.0.read().get(identity) {
            Some(until) if until.is_none_or(|until| begins < until) => {
                Err(Revoked { identity: identity.clone(), begins })
            }
            _ => Ok(()),
        }
    }

    /// The same of a certificate itself. One that names nobody is refused elsewhere.
    pub(crate) fn check_certificate(&self, certificate: &CertificateDer<'_>) -> Result<(), Revoked> {
        if self.0.read().is_empty() {
            return Ok(());
        }
        match Certificate::read(certificate) {
            Ok(Certificate { identity: Ok(identity), not_before, .. }) => self.check(&identity, not_before),
            _ => Ok(()),
        }
    }
}

/// Looks at what was withdrawn while hands are shaken, so that whoever is refused hears of it.
#[derive(Debug)]
pub(crate) struct ClientVerifier {
    pub(crate) authorities: Arc<dyn ClientCertVerifier>,
    pub(crate) withdrawn: Arc<Withdrawn>,
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
        // The alert of this is `CertificateUnknown`, which the library sends for nothing else.
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
