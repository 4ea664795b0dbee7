//! Written files, and files that are not overwritten.

use crate::support::{authority, hosts, identity, issue, mode, now};
use archon_certificates::{
    CertificatesError, directory_name, request, write_certificate, write_cluster, write_credentials, write_request,
};
use archon_security::Credentials;
use std::fs;

#[test]
fn credentials_are_readable_by_owner_only() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("below/athens");
    write_credentials(&directory, &issue(&authority(), "node/athens"), false).unwrap();
    assert_eq!(mode(&directory), 0o700);
    let mut found: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    found.sort();
    assert_eq!(found, ["ca.crt", "tls.crt", "tls.key"]);
    assert!(found.iter().all(|name| mode(&directory.join(name)) == 0o600));
}

#[test]
fn renewal_needs_replace_flag_and_same_identity() {
    let directory = tempfile::tempdir().unwrap();
    let authority = authority();
    let files = ["ca.crt", "tls.crt", "tls.key"].map(|name| directory.path().join(name));
    write_credentials(directory.path(), &issue(&authority, "node/athens"), false).unwrap();
    let before = files.each_ref().map(|file| fs::read(file).unwrap());
    let renewed = issue(&authority, "node/athens");

    let refused = write_credentials(directory.path(), &renewed, false).unwrap_err();
    assert!(matches!(refused, CertificatesError::Exists(_)) && refused.to_string().contains("--force"), "{refused}");
    for (who, replace) in [("node/sparta", true), ("client/athens", true)] {
        let refused = write_credentials(directory.path(), &issue(&authority, who), replace).unwrap_err();
        assert!(matches!(refused, CertificatesError::OtherIdentity { .. }), "{refused}");
        assert!(refused.to_string().contains("node/athens") && refused.to_string().contains(who), "{refused}");
    }
    assert_eq!(files.each_ref().map(|file| fs::read(file).unwrap()), before, "nothing was touched");

    write_credentials(directory.path(), &renewed, true).unwrap();
    assert_eq!(fs::read_to_string(&files[1]).unwrap(), renewed.certificate_pem);
    assert_eq!(fs::read_to_string(&files[2]).unwrap(), renewed.key_pem);
    // A single existing file is enough, and nothing is written partially.
    for file in &files[..2] {
        fs::remove_file(file).unwrap();
    }
    assert!(matches!(
        write_credentials(directory.path(), &renewed, false),
        Err(CertificatesError::Exists(file)) if file == files[2]
    ));
    assert!(!files[0].exists() && !files[1].exists());
}

#[test]
fn keys_of_members_and_authority_need_own_directories() {
    let directory = tempfile::tempdir().unwrap();
    let authority = authority();
    authority.write(directory.path()).unwrap();
    let asked = request(&identity("client/shop"), &[]).unwrap();
    for refused in [
        write_credentials(directory.path(), &issue(&authority, "client/shop"), true),
        write_request(directory.path(), &asked),
    ] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, CertificatesError::IsAuthority(_)), "{refused}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn request_does_not_overwrite_existing_key() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = [(); 2].map(|()| request(&identity("client/shop"), &[]).unwrap());
    write_request(directory.path(), &first).unwrap();
    assert_eq!(mode(&directory.path().join("tls.key")), 0o600);
    assert_eq!(fs::read_to_string(directory.path().join("request.csr")).unwrap(), first.request_pem);
    let refused = write_request(directory.path(), &second).unwrap_err();
    assert!(matches!(refused, CertificatesError::KeyExists(_)), "{refused}");
    assert_eq!(fs::read_to_string(directory.path().join("tls.key")).unwrap(), first.key_pem);
}

#[test]
fn certificate_replaces_older_one_of_same_identity() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("athens.crt");
    let authority = authority();
    let [first, second, other] = ["node/athens", "node/athens", "node/sparta"].map(|who| issue(&authority, who));
    write_certificate(&file, &first.certificate_pem, false).unwrap();
    assert!(matches!(write_certificate(&file, &second.certificate_pem, false), Err(CertificatesError::Exists(_))));
    let refused = write_certificate(&file, &other.certificate_pem, true);
    assert!(matches!(refused, Err(CertificatesError::OtherIdentity { .. })));
    write_certificate(&file, &second.certificate_pem, true).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), second.certificate_pem);
}

#[test]
fn write_cluster_issues_all_credentials() {
    let root = tempfile::tempdir().unwrap();
    let members = [("coordinator/1", &["127.0.0.1"][..]), ("node/athens", &["127.0.0.1", "::1"]), ("admin/alice", &[])]
        .map(|(who, at)| (identity(who), hosts(at)));
    write_cluster(root.path(), "demo", &members, now()).unwrap();
    for (who, name) in members.iter().map(|(who, _)| who).zip(["coordinator-1", "athens", "alice"]) {
        assert_eq!(directory_name(who), name);
        assert_eq!(&Credentials::load(&root.path().join(name), now()).unwrap().identity, who);
        assert!(!root.path().join(name).join("ca.key").exists());
    }
    let twice = [identity("node/rhodes"), identity("participant/rhodes")].map(|who| {
        let at = if who.role().is_server() { hosts(&["127.0.0.1"]) } else { Vec::new() };
        (who, at)
    });
    assert!(matches!(write_cluster(root.path(), "demo", &twice, now()), Err(CertificatesError::Exists(_))));
}
