//! Invalid directories of credentials, and the errors that name the file and reason.

use crate::support::{DAY, authority, directory, handmade, identity, issue, issue_at, uri};
use archon_certificates::Authority;
use archon_security::{Credentials, CredentialsError};
use rcgen::ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
use rcgen::SanType;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::SystemTime;

fn refused(directory: &Path, at: SystemTime, parts: &[&str]) -> CredentialsError {
    let error = Credentials::load(directory, at).expect_err("these cannot be used");
    let text = error.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} are not in: {text}");
    error
}

#[test]
fn valid_and_consistent_credentials_load() {
    let now = SystemTime::now();
    let directory = directory(&issue(&authority(), "node/athens"));
    let loaded = Credentials::load(directory.path(), now).unwrap();
    assert_eq!(loaded.identity, identity("node/athens"));
    assert_eq!(loaded.certificate.hosts, ["127.0.0.1"]);
    assert!(loaded.certificate.not_after > now + 89 * DAY && loaded.authorities_expire > now + 3_000 * DAY);
}

#[test]
fn expired_and_future_certificates_are_rejected_with_date() {
    let now = SystemTime::now();
    let authority = authority();
    let athens = directory(&issue_at(&authority, "node/athens", now - 100 * DAY));
    let error = refused(athens.path(), now, &["tls.crt", "node/athens", "expired", "renew it"]);
    assert!(matches!(error, CredentialsError::Date { .. }), "{error}");
    let sparta = directory(&issue_at(&authority, "node/sparta", now + 10 * DAY));
    let error = refused(sparta.path(), now, &["tls.crt", "node/sparta", "holds only from"]);
    assert!(matches!(error, CredentialsError::Date { .. }), "{error}");
}

#[test]
fn expired_authority_is_not_trusted() {
    let now = SystemTime::now();
    let (old, new) = (Authority::create("test", now - 3_700 * DAY).unwrap(), authority());
    let mut issued = issue(&new, "node/athens");
    issued.authorities_pem = old.believed_pem().to_owned();
    let error = refused(directory(&issued).path(), now, &["ca.crt", "Archon authority of test", "expired"]);
    assert!(matches!(error, CredentialsError::Date { .. }), "{error}");
    // Beside a valid one: the last phase of a change of authority.
    issued.authorities_pem = [old.believed_pem(), new.believed_pem()].concat();
    let loaded = Credentials::load(directory(&issued).path(), now).unwrap();
    assert_eq!(loaded.authorities_expire, new.certificate().not_after);
}

#[test]
fn certificate_of_authority_with_same_name_is_rejected() {
    let mut issued = issue(&authority(), "node/athens");
    issued.authorities_pem = authority().believed_pem().to_owned();
    let parts = ["tls.crt", "node/athens", "not one that ca.crt vouches for"];
    refused(directory(&issued).path(), SystemTime::now(), &parts);
}

#[test]
fn certificate_of_member_is_not_an_authority() {
    let mut issued = issue(&authority(), "node/athens");
    issued.authorities_pem = issued.certificate_pem.clone();
    refused(directory(&issued).path(), SystemTime::now(), &["ca.crt", "does not belong to a certificate authority"]);
}

#[test]
fn key_of_another_certificate_is_rejected() {
    let authority = authority();
    let mut issued = issue(&authority, "node/athens");
    issued.key_pem = issue(&authority, "node/athens").key_pem;
    refused(directory(&issued).path(), SystemTime::now(), &["tls.key", "not the key of the certificate in", "tls.crt"]);
}

#[test]
fn key_readable_by_others_is_rejected() {
    let directory = directory(&issue(&authority(), "node/athens"));
    let key = directory.path().join("tls.key");
    let root = std::os::unix::fs::MetadataExt::uid(&fs::metadata(&key).unwrap()) == 0;
    for (mode, taken) in [(0o600, true), (0o400, true), (0o604, false), (0o644, false), (0o660, false), (0o640, root)] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        if taken {
            assert!(Credentials::load(directory.path(), SystemTime::now()).is_ok(), "{mode:o}");
        } else {
            let error = refused(directory.path(), SystemTime::now(), &["tls.key", &format!("{mode:o}"), "chmod 600"]);
            assert!(matches!(error, CredentialsError::KeyReadable { .. }), "{error}");
        }
    }
}

/// Otherwise a user who can write there makes members and clients trust their own authority.
#[test]
fn authorities_writable_by_others_are_rejected() {
    let directory = directory(&issue(&authority(), "node/athens"));
    let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let usable = || Credentials::load(directory.path(), SystemTime::now());
    for (name, right) in [("ca.crt", 0o644), ("tls.crt", 0o644), ("", 0o755)] {
        let path = if name.is_empty() { directory.path().to_owned() } else { directory.path().join(name) };
        for mode in [right | 0o020, right | 0o002] {
            set(&path, mode);
            let parts = [
                &*path.display().to_string(),
                &format!("(mode {mode:o})"),
                "other users may write",
                "chmod \
                                                                 go-w",
            ];
            let error = refused(directory.path(), SystemTime::now(), &parts);
            assert!(matches!(error, CredentialsError::OthersWrite { .. }), "{error}");
        }
        set(&path, right);
        assert!(usable().is_ok(), "{name} that others may read");
    }
    // As Kubernetes mounts secrets: all users can create files, but not replace root's.
    set(directory.path(), 0o1777);
    assert!(usable().is_ok());
    set(directory.path(), 0o700);
    // A link into a directory that others can write to.
    let elsewhere = tempfile::tempdir().unwrap();
    let (file, led_to) = (directory.path().join("ca.crt"), elsewhere.path().join("ca.crt"));
    fs::rename(&file, &led_to).unwrap();
    std::os::unix::fs::symlink(&led_to, &file).unwrap();
    assert!(usable().is_ok());
    set(elsewhere.path(), 0o777);
    refused(directory.path(), SystemTime::now(), &[&elsewhere.path().display().to_string(), "other users may write"]);
}

#[test]
fn authorities_owned_by_another_user_are_rejected() {
    let directory = directory(&issue(&authority(), "node/athens"));
    let file = directory.path().join("ca.crt");
    if std::os::unix::fs::chown(&file, Some(4_711), None).is_err() {
        return; // Only root gives files to others.
    }
    let parts = ["ca.crt", "belongs to user 4711", "of user 0", "chown"];
    let error = refused(directory.path(), SystemTime::now(), &parts);
    assert!(matches!(error, CredentialsError::OthersOwn { .. }), "{error}");
}

#[test]
fn authorities_of_same_name_are_distinguished() {
    use archon_security::{authority_of, certificates};
    let (old, new) = (authority(), authority());
    let both = tempfile::NamedTempFile::new().unwrap();
    fs::write(&both, [old.believed_pem(), new.believed_pem()].concat()).unwrap();
    let both = certificates(both.path()).unwrap();
    for (issuer, who, place) in
        [(&old, "node/athens", Some(0)), (&new, "client/shop", Some(1)), (&authority(), "client/shop", None)]
    {
        let directory = directory(&issue_at(issuer, who, SystemTime::now() - 120 * DAY));
        let shown = certificates(&directory.path().join("tls.crt")).unwrap();
        assert_eq!(authority_of(&shown[0], &both), place, "{who}");
    }
}

#[test]
fn certificate_must_name_exactly_one_identity() {
    let now = SystemTime::now();
    let host = || SanType::DnsName("athens".try_into().unwrap());
    let both = [ServerAuth, ClientAuth];
    let right = handmade(vec![uri("archon:///node/athens"), host()], &both);
    assert!(Credentials::load(directory(&right).path(), now).is_ok());
    let two = vec![uri("archon:///node/athens"), uri("archon:///admin/alice")];
    for (names, part) in [
        (vec![host()], "names no identity"),
        (vec![], "names no identity"),
        (two, "names 2 URIs"),
        (vec![uri("https://athens")], "does not begin with archon:///"),
        (vec![uri("archon:///king/athens")], "role is none of"),
    ] {
        refused(directory(&handmade(names, &both)).path(), now, &["tls.crt", part]);
    }
}

#[test]
fn server_rejects_certificate_for_clients_only() {
    let now = SystemTime::now();
    for (who, usages, taken) in [
        ("node/athens", &[ClientAuth][..], false),
        ("coordinator/1", &[ClientAuth], false),
        ("node/athens", &[ServerAuth], false),
        ("client/shop", &[ServerAuth], false),
        ("client/shop", &[ClientAuth], true),
        ("node/athens", &[ClientAuth, ServerAuth], true),
    ] {
        let directory = directory(&handmade(vec![uri(&format!("archon:///{who}"))], usages));
        match taken {
            true => assert!(Credentials::load(directory.path(), now).is_ok(), "{who} {usages:?}"),
            false => drop(refused(directory.path(), now, &["tls.crt", who])),
        }
    }
}

#[test]
fn invalid_files_are_rejected_by_name() {
    let directory = directory(&issue(&authority(), "node/athens"));
    let huge = vec![b'x'; (1 << 20) + 1];
    let cut = b"-----BEGIN CERTIFICATE-----\nMIIB";
    let wrong = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for name in ["ca.crt", "tls.crt", "tls.key"] {
        let file = directory.path().join(name);
        let right = fs::read(&file).unwrap();
        let nothing = if name == "tls.key" { "holds no key" } else { "holds no certificate" };
        let broken = if name == "tls.key" { "holds no key" } else { "" };
        for (content, part) in [
            (&b""[..], nothing),
            (b"garbage", nothing),
            (&huge, "more than 1048576 bytes"),
            (cut, broken),
            (wrong, broken),
        ] {
            fs::write(&file, content).unwrap();
            refused(directory.path(), SystemTime::now(), &[name, part]);
        }
        fs::remove_file(&file).unwrap();
        let error = refused(directory.path(), SystemTime::now(), &[name, "archon cert"]);
        assert!(matches!(error, CredentialsError::Unreadable { .. }), "{error}");
        fs::write(&file, right).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(Credentials::load(directory.path(), SystemTime::now()).is_ok(), "{name} as it was");
    }
}
