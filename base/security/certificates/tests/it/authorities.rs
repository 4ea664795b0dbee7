//! Authorities in directories.

use crate::support::{DAY, YEAR, authority, identity, issue, load, mode, now, set_mode};
use archon_certificates::{Authority, CertificatesError};
use archon_security::CredentialsError;
use std::fs;

#[test]
fn authority_is_owner_only_and_signs_after_reload() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("ca");
    let created = authority();
    created.write(&directory).unwrap();
    assert_eq!((mode(&directory), mode(&directory.join("ca.key"))), (0o700, 0o600));
    let loaded = Authority::load(&directory).unwrap();
    assert_eq!(loaded.certificate(), created.certificate());
    // Each accepts certificates that the other has signed.
    let mut issued = issue(&loaded, "node/athens");
    issued.authorities_pem = created.believed_pem().to_owned();
    assert_eq!(load(&issued, now()).unwrap().identity, identity("node/athens"));
}

#[test]
fn authority_is_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    authority().write(directory.path()).unwrap();
    let key = fs::read(directory.path().join("ca.key")).unwrap();
    fs::remove_file(directory.path().join("ca.crt")).unwrap();
    let error = authority().write(directory.path()).unwrap_err();
    assert!(matches!(error, CertificatesError::AuthorityExists(_)), "{error}");
    assert_eq!(fs::read(directory.path().join("ca.key")).unwrap(), key);
    assert!(!directory.path().join("ca.crt").exists());
}

#[test]
fn error_of_invalid_authority_names_file_and_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let [certificate, key] = ["ca.crt", "ca.key"].map(|name| directory.path().join(name));
    let refused = |parts: &[&str]| {
        let error = Authority::load(directory.path()).unwrap_err();
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{parts:?}: {text}");
        error
    };
    let missing = refused(&["ca.crt", "archon cert ca"]);
    assert!(matches!(missing, CertificatesError::NoAuthority { .. }), "{missing}");
    let made = authority();
    made.write(directory.path()).unwrap();
    let (right_certificate, right_key) = (fs::read(&certificate).unwrap(), fs::read(&key).unwrap());

    fs::remove_file(&key).unwrap();
    refused(&["ca.key", "archon cert ca"]);
    for (content, parts) in [
        (&b"garbage"[..], ["ca.key", "no key that can sign"]),
        (&[], ["ca.key", "no key that can sign"]),
        (&right_certificate, ["ca.key", "no key that can sign"]),
        (issue(&made, "client/shop").key_pem.as_bytes(), ["ca.key", "the key of no certificate"]),
        (&vec![b'x'; 2 << 20], ["ca.key", "more than 1048576 bytes"]),
    ] {
        fs::write(&key, content).unwrap();
        set_mode(&key, 0o600);
        refused(&parts);
    }
    fs::write(&key, &right_key).unwrap();
    for open in [0o640, 0o604, 0o644] {
        set_mode(&key, open);
        // The group may read root's files, as in containers.
        if open == 0o640 {
            continue;
        }
        let error = refused(&["ca.key", "others may read", "chmod 600"]);
        assert!(matches!(error, CertificatesError::Content(CredentialsError::KeyReadable { .. })), "{error}");
    }
    set_mode(&key, 0o600);
    let leaf = issue(&made, "client/shop").certificate_pem;
    let with_key = [&right_certificate[..], &right_key].concat();
    for (content, parts) in [
        (&b"garbage"[..], ["ca.crt", "holds no certificate"]),
        (leaf.as_bytes(), ["ca.crt", "does not belong to a certificate authority"]),
        (&with_key, ["ca.crt", "it holds a key"]),
        (authority().believed_pem().as_bytes(), ["ca.key", "the key of no certificate"]),
    ] {
        fs::write(&certificate, content).unwrap();
        refused(&parts);
    }
    fs::write(&certificate, &right_certificate).unwrap();
    assert!(Authority::load(directory.path()).is_ok(), "as it was");
}

#[test]
fn expired_authority_issues_nothing() {
    let directory = tempfile::tempdir().unwrap();
    Authority::create("test", now() - 11 * YEAR).unwrap().write(directory.path()).unwrap();
    let expired = Authority::load(directory.path()).unwrap();
    let error = expired.issue(&identity("client/shop"), &[], DAY, now()).unwrap_err();
    assert!(matches!(error, CertificatesError::AuthorityDate { .. }), "{error}");
}

/// During a change of authority both are trusted; the key decides which one signs.
#[test]
fn authority_issues_all_trusted_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (authority(), authority());
    new.write(directory.path()).unwrap();
    for bundle in [[new.believed_pem(), old.believed_pem()], [old.believed_pem(), new.believed_pem()]] {
        fs::write(directory.path().join("ca.crt"), bundle.concat()).unwrap();
        let loaded = Authority::load(directory.path()).unwrap();
        let mut issued = issue(&loaded, "node/athens");
        assert_eq!(issued.authorities_pem, bundle.concat());
        assert!(load(&issued, now()).is_ok());
        issued.authorities_pem = new.believed_pem().to_owned();
        assert!(load(&issued, now()).is_ok(), "the new one has signed");
        issued.authorities_pem = old.believed_pem().to_owned();
        assert!(load(&issued, now()).is_err());
    }
}
