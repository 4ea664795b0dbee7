//! Proofs of heartbeats and their answers that another member carries (PROTOCOL rule 71).

use archon_types::{BootId, StorageId};
use bytes::Bytes;
use ring::{digest, hmac};

/// Key shared by a member and the coordinators only: the ids of the member's data directory and process, as sent in
/// its registration. Proofs are HMAC-SHA256 (RFC 2104).
#[derive(Clone, Debug)]
pub struct BeatKey(hmac::Key);

impl BeatKey {
    /// Creates the key of a member that registered with these ids.
    pub fn new(storage: StorageId, boot: BootId) -> Self {
        let ids = [*storage.get().as_bytes(), *boot.get().as_bytes()].concat();
        Self(hmac::Key::new(hmac::HMAC_SHA256, &ids))
    }

    /// Returns the proof of a statement, 32 bytes.
    pub fn prove(&self, statement: &[u8]) -> Bytes {
        Bytes::copy_from_slice(hmac::sign(&self.0, statement).as_ref())
    }

    /// Returns the SHA-256 digest (32 bytes) that represents bytes in a statement.
    pub fn digest(bytes: &[u8]) -> Bytes {
        Bytes::copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref())
    }

    /// Returns whether `proof` proves the statement, in constant time.
    pub fn proves(&self, statement: &[u8], proof: &[u8]) -> bool {
        hmac::verify(&self.0, statement, proof).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn proof_is_bound_to_statement_and_member() {
        let key =
            |storage, boot| BeatKey::new(StorageId::new(Uuid::from_u128(storage)), BootId::new(Uuid::from_u128(boot)));
        let proof = key(1, 2).prove(b"it lives");
        assert!(key(1, 2).proves(b"it lives", &proof));
        assert!(!key(1, 2).proves(b"it leaves", &proof));
        for other in [key(2, 2), key(1, 1), key(2, 1)] {
            assert!(!other.proves(b"it lives", &proof), "of another directory or process");
        }
        for bad in [&proof[..31], &[], &[0; 32]] {
            assert!(!key(1, 2).proves(b"it lives", bad));
        }
    }
}
