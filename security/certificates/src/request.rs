//! Asking for a certificate without showing its key.

use crate::certify;
use crate::error::CertificatesError;
use crate::host::Host;
use archon_security::Identity;
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, KeyPair, PublicKey,
    PublicKeyData as _, SanType,
};

/// A request that is longer is none: an ordinary one has less than a thousand bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// What a key on the curve P-256 has, not compressed.
const P256_KEY_BYTES: usize = 65;

/// A request and the key that it is for, which stays where it was made.
#[derive(Clone)]
pub struct Requested {
    /// The request (PKCS #10), for whoever signs.
    pub request_pem: String,
    /// The key.
    pub key_pem: String,
}

impl std::fmt::Debug for Requested {
    /// Without the key.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Requested").field("request_pem", &self.request_pem).finish_non_exhaustive()
    }
}

/// Asks for a certificate, with a new key.
///
/// # Errors
/// If a server has no host, or somebody else has one.
pub fn request(identity: &Identity, hosts: &[Host]) -> Result<Requested, CertificatesError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, identity.name());
    params.subject_alt_names = certify::names(identity, hosts)?;
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    Ok(Requested { request_pem: params.serialize_request(&key)?.pem()?, key_pem: key.serialize_pem() })
}

/// A request that somebody has sent. Whoever made it had the key; nothing else in it is certain.
#[derive(Debug)]
pub struct Request {
    identity: Identity,
    hosts: Vec<Host>,
    public_key: PublicKey,
}

impl Request {
    /// What these bytes ask for. They may come from anybody.
    ///
    /// # Errors
    /// If they are no request in PEM, are not signed by the key they are for, or do not name one identity.
    pub fn read(pem: &[u8]) -> Result<Self, CertificatesError> {
        let wrong = |why: String| CertificatesError::Request(why);
        if pem.len() > REQUEST_BYTES_MAX {
            return Err(wrong(format!("it has more than {REQUEST_BYTES_MAX} bytes")));
        }
        let text = std::str::from_utf8(pem).map_err(|_| wrong("it is not PEM".to_owned()))?;
        if !text.contains("-----BEGIN CERTIFICATE REQUEST-----") {
            return Err(wrong(
                "it is not PEM with a block that begins with -----BEGIN CERTIFICATE REQUEST-----".to_owned(),
            ));
        }
        let CertificateSigningRequestParams { params, public_key } =
            CertificateSigningRequestParams::from_pem(text).map_err(|error| wrong(error.to_string()))?;
        // The library takes the kind of key for that of the signature, and would certify another one wrongly.
        if public_key.algorithm() != &rcgen::PKCS_ECDSA_P256_SHA256 || public_key.der_bytes().len() != P256_KEY_BYTES {
            return Err(wrong("its key is not on the curve P-256, as `archon cert request` makes them".to_owned()));
        }
        let (mut uris, mut hosts) = (Vec::new(), Vec::new());
        for name in &params.subject_alt_names {
            match name {
                SanType::URI(uri) => uris.push(uri.as_str()),
                SanType::DnsName(host) => {
                    hosts.push(host.as_str().parse().map_err(|error: crate::HostError| wrong(error.to_string()))?);
                }
                SanType::IpAddress(address) => hosts.push(Host::Address(*address)),
                other => return Err(wrong(format!("it asks for a name that Archon has no use for: {other:?}"))),
            }
        }
        let [uri] = uris[..] else {
            return Err(wrong(format!("it names {} URIs, where one says who it is for", uris.len())));
        };
        let identity = Identity::of_uri(uri).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { identity, hosts, public_key })
    }

    /// Who it says it is for.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where it says that one is reached.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    pub(crate) const fn public_key(&self) -> &PublicKey {
        &self.public_key
    }
}
