//! Credential files that change while a process uses them.

use crate::support::{authority, directory, echo, identity, issue, issue_at, issue_until, replace, shake, tls as open};
use archon_certificates::{Authority, IssuedCredentials};
use archon_security::{CERTIFICATE_FILE, ExpectedPeer, KEY_FILE, Tls, Transport};
use rustls::pki_types::pem::PemObject as _;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Period over which connections of a peer that is no longer trusted end.
const SPREAD: Duration = Duration::from_secs(2);

/// Returns the end of the certificate in use, which identifies it.
fn end(tls: &Tls) -> SystemTime {
    tls.credentials().certificate.not_after
}

/// Opens the credentials of a server that ends such connections within [`SPREAD`].
fn open_server(issued: &IssuedCredentials) -> (TempDir, Arc<Tls>) {
    let directory = directory(issued);
    let tls = Tls::open_with_spread(directory.path(), SPREAD).unwrap();
    (directory, tls)
}

/// Issues a renewed certificate of the same identity; it ends a day earlier, to distinguish it.
fn renewed(authority: &Authority, who: &str) -> IssuedCredentials {
    let who = identity(who);
    let hosts = ["127.0.0.1".parse().unwrap()];
    authority.issue(&who, &hosts, 89 * crate::support::DAY, SystemTime::now()).unwrap()
}

#[test]
fn renewed_certificate_is_loaded_at_next_check() {
    let authority = authority();
    let (directory, tls) = open(&issue(&authority, "node/athens"));
    let before = end(&tls);
    replace(directory.path(), &renewed(&authority, "node/athens"));
    tls.look();
    assert_eq!(end(&tls), before, "it was looked a moment ago");
    tls.look_now();
    assert!(end(&tls) < before);
    assert_eq!(tls.not_taken(), None);
}

/// Also if the new files have the length and age of the old ones, so that only their inodes differ.
#[test]
fn replaced_links_are_detected() {
    let authority = authority();
    let root = tempfile::tempdir().unwrap();
    let old = issue(&authority, "node/athens");
    let as_long = |new: &IssuedCredentials| new.certificate_pem.len() == old.certificate_pem.len();
    let new = std::iter::repeat_with(|| renewed(&authority, "node/athens")).take(1_000).find(as_long).unwrap();
    let then = SystemTime::now();
    for (name, issued) in [("one", &old), ("two", &new)] {
        let directory = root.path().join(name);
        archon_certificates::write_credentials(&directory, issued, false).unwrap();
        for entry in fs::read_dir(&directory).unwrap() {
            fs::File::options().write(true).open(entry.unwrap().path()).unwrap().set_modified(then).unwrap();
        }
    }
    let link = root.path().join("now");
    std::os::unix::fs::symlink("one", &link).unwrap();
    let tls = Tls::open(&link).unwrap();
    let before = end(&tls);
    // As Kubernetes does it: one rename for all files.
    let aside = root.path().join("aside");
    std::os::unix::fs::symlink("two", &aside).unwrap();
    fs::rename(&aside, &link).unwrap();
    tls.look_now();
    assert!(end(&tls) < before);
}

#[test]
fn invalid_pair_is_not_loaded_and_reason_is_reported() {
    let authority = authority();
    let (directory, tls) = open(&issue(&authority, "node/athens"));
    let before = end(&tls);
    let file = |name: &str| directory.path().join(name);
    let not_taken = |part: &str| {
        tls.look_now();
        let why = tls.not_taken().unwrap_or_else(|| panic!("nothing was said; {part} was expected"));
        assert!(why.contains(part), "{part}: {why}");
        assert_eq!(end(&tls), before, "the old one is used");
    };
    let aside = |path: &Path| path.with_extension("aside");

    // The certificate is renewed before its key; nothing is loaded until both are there.
    let new = renewed(&authority, "node/athens");
    fs::rename(file(CERTIFICATE_FILE), aside(&file(CERTIFICATE_FILE))).unwrap();
    not_taken("tls.crt");
    fs::write(file(CERTIFICATE_FILE), &new.certificate_pem).unwrap();
    not_taken("tls.key: it is not the key of the certificate");
    fs::write(file(CERTIFICATE_FILE), "garbage").unwrap();
    not_taken("holds no certificate");

    // The previous file is restored, with the same inode.
    fs::rename(aside(&file(CERTIFICATE_FILE)), file(CERTIFICATE_FILE)).unwrap();
    tls.look_now();
    assert_eq!(tls.not_taken(), None, "what is there is what is used");
    assert_eq!(end(&tls), before);

    fs::write(file(CERTIFICATE_FILE), &new.certificate_pem).unwrap();
    not_taken("tls.key");
    fs::write(file(KEY_FILE), &new.key_pem).unwrap();
    tls.look_now();
    assert_eq!(tls.not_taken(), None);
    assert!(end(&tls) < before);
}

#[test]
fn certificate_of_another_identity_is_not_loaded() {
    let authority = authority();
    let (directory, tls) = open(&issue(&authority, "node/athens"));
    fs::remove_file(directory.path().join(CERTIFICATE_FILE)).unwrap();
    replace(directory.path(), &issue(&authority, "node/sparta"));
    tls.look_now();
    assert_eq!(tls.identity(), identity("node/athens"));
    let why = tls.not_taken().unwrap();
    assert!(why.contains("node/sparta") && why.contains("node/athens") && why.contains("restart"), "{why}");
}

#[test]
fn renewal_without_the_advertised_host_is_rejected() {
    let authority = authority();
    let (directory, tls) = open(&issue(&authority, "node/athens"));
    let before = end(&tls);
    let transport = Transport::Tls(Arc::clone(&tls));
    transport.check_reached("127.0.0.1:7211", |_| String::new()).unwrap();
    // A second address, of another listener, does not replace the first.
    transport.check_reached("10.9.9.9:6379", |_| String::new()).unwrap_err();
    let hosts = ["10.9.9.9".parse().unwrap()];
    let elsewhere = authority.issue(&identity("node/athens"), &hosts, crate::support::DAY, SystemTime::now()).unwrap();
    replace(directory.path(), &elsewhere);
    tls.look_now();
    assert_eq!(
        tls.not_taken().as_deref(),
        Some(
            "others connect to 127.0.0.1:7211, and the certificate names only 10.9.9.9; issue it again with --host \
             127.0.0.1"
        )
    );
    assert_eq!(end(&tls), before, "the old one is used");
    assert!(tls.certificate().not_taken, "heartbeats report it");
    replace(directory.path(), &renewed(&authority, "node/athens"));
    tls.look_now();
    assert!(tls.not_taken().is_none() && end(&tls) < before);
}

#[test]
fn renewal_with_a_withdrawn_certificate_is_rejected() {
    let authority = authority();
    let (directory, tls) = open(&issue(&authority, "node/athens"));
    let before = end(&tls);
    let older = issue_at(&authority, "node/athens", SystemTime::now() - 2 * crate::support::DAY);
    tls.withdraw([(identity("node/athens"), Some(SystemTime::now() - crate::support::DAY))].into());
    replace(directory.path(), &older);
    tls.look_now();
    let why = tls.not_taken().unwrap();
    assert!(why.contains("tls.crt") && why.contains("was withdrawn") && why.contains("issue it again"), "{why}");
    assert_eq!(end(&tls), before, "the old one is used");
}

/// Phases: all trust both authorities, then get a certificate of the new one, then trust only the new one. Peers that
/// are one phase apart accept each other.
#[tokio::test]
async fn change_of_authority_rejects_no_peer() {
    let (old, new) = (authority(), authority());
    let both = [old.believed_pem(), new.believed_pem()].concat();
    let (athens, server) = open(&issue(&old, "node/athens"));
    let (shop, client) = open(&issue(&old, "client/shop"));
    let steps = [(&old, both.as_str()), (&new, &both), (&new, new.believed_pem())];
    for (number, (issuer, believed)) in steps.into_iter().enumerate() {
        for (directory, tls, who) in [(&athens, &server, "node/athens"), (&shop, &client, "client/shop")] {
            let mut issued = issue(issuer, who);
            issued.authorities_pem = believed.to_owned();
            replace(directory.path(), &issued);
            tls.look_now();
            assert_eq!(tls.not_taken(), None, "step {number}");
            let shown = fs::read(directory.path().join(CERTIFICATE_FILE)).unwrap();
            let shown = rustls::pki_types::CertificateDer::from_pem_slice(&shown).unwrap();
            assert_eq!(archon_security::Certificate::read(&shown).unwrap(), tls.credentials().certificate);
            let (dialled, accepted) = shake(&client, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
            echo(&mut dialled.unwrap(), &mut accepted.unwrap()).await.unwrap();
        }
    }
    // A peer that missed all phases is rejected.
    let (_late, late) = open(&issue(&old, "client/late"));
    let (dialled, accepted) = shake(&late, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    assert!(dialled.is_err() && accepted.is_err());
}

/// Otherwise a user who can write to the directory makes a running member trust their own authority.
#[test]
fn new_authorities_writable_by_others_are_not_loaded() {
    use std::os::unix::fs::PermissionsExt as _;
    let ours = authority();
    let (directory, tls) = open(&issue(&ours, "node/athens"));
    let file = directory.path().join("ca.crt");
    fs::write(&file, [ours.believed_pem(), authority().believed_pem()].concat()).unwrap();
    for (path, open, private) in [(&*file, 0o666, 0o600), (directory.path(), 0o777, 0o700)] {
        fs::set_permissions(path, fs::Permissions::from_mode(open)).unwrap();
        tls.look_now();
        let why = tls.not_taken().unwrap();
        assert!(why.contains(&path.display().to_string()) && why.contains("other users may write"), "{why}");
        fs::set_permissions(path, fs::Permissions::from_mode(private)).unwrap();
    }
    tls.look_now();
    assert_eq!(tls.not_taken(), None);
}

/// Otherwise an operator's certificate stays usable while its connections last. Those of nodes stay open: their
/// certificates often expire on the same day.
#[tokio::test]
async fn expired_certificate_closes_connections_of_operators() {
    let authority = authority();
    let (_athens, server) = open_server(&issue(&authority, "node/athens"));
    let soon = |who: &str| {
        let until = SystemTime::now() + Duration::from_secs(3);
        issue_until(&authority, who, until)
    };
    let [(_watch, operator), (_sparta, node)] = ["operator/watch", "node/sparta"].map(|who| open(&soon(who)));
    let connected = async |client: &Tls| {
        let (dialled, accepted) = shake(client, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
        (dialled.unwrap(), accepted.unwrap())
    };
    let (mut of_operator, mut of_node) = (connected(&operator).await, connected(&node).await);
    echo(&mut of_operator.0, &mut of_operator.1).await.unwrap();
    let until = tokio::time::Instant::now() + Duration::from_secs(40);
    let error = loop {
        assert!(tokio::time::Instant::now() < until, "still served");
        if let Err(error) = echo(&mut of_operator.0, &mut of_operator.1).await {
            break error;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(node.credentials().certificate.not_after < SystemTime::now(), "it was ended before its time");
    assert!(error.to_string().contains("that of operator/watch has expired"), "{error}");
    // Also after all peers are verified again.
    server.withdraw([(identity("admin/alice"), None)].into());
    echo(&mut of_node.0, &mut of_node.1).await.unwrap();
    let (_, accepted) = shake(&node, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
    assert!(accepted.is_err(), "nobody is let in anew by it");
}

/// Otherwise a connected peer stays connected after its authority is removed.
#[tokio::test]
async fn removed_authority_closes_connections() {
    let (old, new) = (authority(), authority());
    let (athens, server) = open_server(&issue(&old, "node/athens"));
    let (_shop, client) = open(&issue(&old, "client/shop"));
    let connected = async || {
        let (dialled, accepted) = shake(&client, &server, "127.0.0.1", &ExpectedPeer::Servers).await;
        (dialled.unwrap(), accepted.unwrap())
    };
    let (mut whole, mut split) = (connected().await, connected().await);
    let (mut read, mut write) = split.1.into_split();
    let believe = |issuer: &Authority, believed: &str| {
        let mut issued = issue(issuer, "node/athens");
        issued.authorities_pem = believed.to_owned();
        replace(athens.path(), &issued);
        server.look_now();
        assert_eq!(server.not_taken(), None);
    };
    // A renewed or added authority closes no connections.
    believe(&old, old.believed_pem());
    believe(&new, &[old.believed_pem(), new.believed_pem()].concat());
    for _ in 0..100 {
        echo(&mut whole.0, &mut whole.1).await.unwrap();
    }
    believe(&new, new.believed_pem());
    let (mut turned_away, mut told) = ([false; 2], Vec::new());
    let until = tokio::time::Instant::now() + Duration::from_secs(40);
    while turned_away != [true; 2] {
        assert!(tokio::time::Instant::now() < until, "still served: {turned_away:?}");
        if !turned_away[0] {
            let outcome = echo(&mut whole.0, &mut whole.1).await;
            turned_away[0] = outcome.is_err();
            told.extend(outcome.err());
        }
        if !turned_away[1] {
            let said = async {
                split.0.write_all(b"x").await?;
                read.read_u8().await?;
                write.write_all(b"y").await?;
                write.flush().await
            };
            let outcome: io::Result<()> = said.await;
            turned_away[1] = outcome.is_err();
            told.extend(outcome.err());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for error in told {
        let said = error.to_string();
        assert!(said.contains("no authority in ca.crt has signed the certificate of client/shop"), "{said}");
    }
}
