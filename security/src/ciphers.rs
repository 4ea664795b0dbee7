//! Which ciphers are spoken.

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};

/// Those of the library, AES with a key of 128 bits first: nobody guesses that either, and it has ten rounds for each block where a key of
/// 256 bits has fourteen. Whoever speaks another one alone is understood.
pub(crate) fn provider() -> CryptoProvider {
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    CryptoProvider { cipher_suites, ..default_provider() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_of_the_library_is_spoken() {
        let (ours, theirs) = (provider().cipher_suites, default_provider().cipher_suites);
        assert!(theirs.iter().all(|suite| ours.contains(suite)) && ours.len() == theirs.len(), "{theirs:?}");
    }
}
