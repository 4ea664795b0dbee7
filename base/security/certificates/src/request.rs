//! Certificate requests, which do not contain the key.

use crate::certify;
use crate::error::CertificatesError;
use crate::host::Host;
use archon_security::Identity;
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, KeyPair, PublicKey,
    PublicKeyData as _, SanType,
};

/// Maximum size of a request. A usual one has less than a thousand bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Length of an uncompressed P-256 public key.
const P256_KEY_BYTES: usize = 65;

/// A request and its key, which stays on the machine where it was made.
#[derive(Clone)]
pub struct SigningRequest {
    /// The request (PKCS #10) for the authority.
    pub request_pem: String,
    /// The key.
    pub key_pem: String,
}

impl std::fmt::Debug for SigningRequest {
    /// Omits the key.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Requested").field("request_pem", &self.request_pem).finish_non_exhaustive()
    }
}

/// Creates a certificate request with a new key.
///
/// # Errors
/// A server has no host, or another role has one.
pub fn request(identity: &Identity, hosts: &[Host]) -> Result<SigningRequest, CertificatesError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, identity.name());
    params.subject_alt_names = certify::names(identity, hosts)?;
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
    Ok(SigningRequest { request_pem: params.serialize_request(&key)?.pem()?, key_pem: key.serialize_pem() })
}

/// A received request. Its sender had the key; nothing else in it is certain.
#[derive(Debug)]
pub struct Request {
    identity: Identity,
    hosts: Vec<Host>,
    public_key: PublicKey,
}

impl Request {
    /// Reads a request from untrusted bytes.
    ///
    /// # Errors
    /// The bytes are not a PEM request, are not signed by their key, or do not name exactly one identity.
    pub fn read(pem: &[u8]) -> Result<Self, CertificatesError> {
        let wrong = |why: String| CertificatesError::Request(why);
        if pem.len() > REQUEST_BYTES_MAX {
            return Err(wrong(format!("it has more than {REQUEST_BYTES_MAX} bytes")));
        }
        let text = std::str::from_utf8(pem).map_err(|_| wrong("it is not PEM".to_owned()))?;
        if !text.contains("-----BEGIN CERTIFICATE REQUEST-----") {
            return Err(wrong("it is not PEM with a block -----BEGIN CERTIFICATE REQUEST-----".to_owned()));
        }
        let CertificateSigningRequestParams { params, public_key } =
            CertificateSigningRequestParams::from_pem(text).map_err(|error| wrong(error.to_string()))?;
        // The library derives the kind of key from that of the signature, and would certify another key wrongly.
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
            return Err(wrong(format!("it has {} URIs; exactly one must name the identity", uris.len())));
        };
        let identity = Identity::of_uri(uri).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { identity, hosts, public_key })
    }

    /// Returns the requested identity.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the requested hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    pub(crate) const fn public_key(&self) -> &PublicKey {
        &self.public_key
    }
}
