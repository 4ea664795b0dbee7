//! Fingerprints, which identify certificates.

use rustls::Tls13CipherSuite;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::pki_types::CertificateDer;
use std::fmt::Write as _;

/// Only the hash of this suite is used: the library is linked anyway.
const SUITE: &Tls13CipherSuite = match TLS13_AES_128_GCM_SHA256.tls13() {
    Some(suite) => suite,
    None => panic!("it is one of TLS 1.3"),
};

/// Returns SHA-256 of a certificate in the form of `openssl x509 -fingerprint -sha256`: `A1:B2:…`, 32 pairs of
/// digits.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let hash = SUITE.common.hash_provider.hash(certificate);
    let mut text = String::with_capacity(hash.as_ref().len() * 3);
    for (place, byte) in hash.as_ref().iter().enumerate() {
        let colon = if place == 0 { "" } else { ":" };
        let _ = write!(text, "{colon}{byte:02X}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_is_sha_256() {
        let said = fingerprint(&CertificateDer::from(b"abc".to_vec()));
        assert!(said.starts_with("BA:78:16:BF:8F:01:CF:EA") && said.len() == 95, "{said}");
    }
}
