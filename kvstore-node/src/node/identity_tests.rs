//! Tests of faults that a data directory must survive or refuse.

use super::*;

fn open(path: &Path) -> Result<DataDirectory, IdentityError> {
    DataDirectory::open(path, "athens", ProtocolRange::SPOKEN, None)
}

fn cluster(number: u128) -> ClusterId {
    ClusterId::new(Uuid::from_u128(number))
}

/// A registration in a generation without a key.
fn life(incarnation: u64) -> (Incarnation, GenerationKey) {
    (Incarnation::new(incarnation), GenerationKey::NIL)
}

#[test]
fn identity_survives_and_is_minted_once() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("deep/er");
    let mut first = open(&path).unwrap();
    let storage = first.identity().storage_id;
    assert!(first.identity().cluster_id.is_nil());
    first.record_registration(cluster(1), NodeId::new(4), life(17)).unwrap();
    drop(first);
    let again = open(&path).unwrap();
    let expected = Identity {
        storage_id: storage,
        cluster_id: cluster(1),
        name: "athens".into(),
        node_id: NodeId::new(4),
        last_incarnation: Incarnation::new(17),
        generation_key: GenerationKey::NIL,
        protocol: PROTOCOL_FIRST,
    };
    assert_eq!(again.identity(), &expected);
}

#[test]
fn in_use_error_names_directory_and_process() {
    let root = tempfile::tempdir().unwrap();
    let held = open(root.path()).unwrap();
    let error = open(root.path()).unwrap_err();
    assert!(matches!(error, IdentityError::InUse { .. }));
    let text = error.to_string();
    assert!(text.contains(&root.path().display().to_string()), "{text}");
    assert!(text.contains(&format!("(process {})", std::process::id())), "{text}");
    drop(held);
    open(root.path()).unwrap();
}

#[test]
fn other_name_cluster_or_number_is_refused_unchanged() {
    let root = tempfile::tempdir().unwrap();
    let mut held = open(root.path()).unwrap();
    held.record_registration(cluster(1), NodeId::new(4), life(17)).unwrap();
    let wrong = held.record_registration(cluster(2), NodeId::new(4), life(18)).unwrap_err();
    assert!(matches!(wrong, IdentityError::WrongCluster { .. }));
    for (node, incarnation) in [(5, 18), (4, 16)] {
        let wrong = held.record_registration(cluster(1), NodeId::new(node), life(incarnation));
        assert!(matches!(wrong, Err(IdentityError::Contradiction { .. })));
    }
    drop(held);
    let before = fs::read(root.path().join(IDENTITY_FILE)).unwrap();
    let error = DataDirectory::open(root.path(), "sparta", ProtocolRange::SPOKEN, None).unwrap_err();
    assert!(error.to_string().contains("--name"), "{error}");
    let error = DataDirectory::open(root.path(), "athens", ProtocolRange::SPOKEN, Some(cluster(9))).unwrap_err();
    assert!(error.to_string().contains("--coordinators"), "{error}");
    assert_eq!(fs::read(root.path().join(IDENTITY_FILE)).unwrap(), before);
    DataDirectory::open(root.path(), "athens", ProtocolRange::SPOKEN, Some(cluster(1))).unwrap();
}

#[test]
fn newer_format_with_unknown_fields_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let newer = br#"{"magic": "archon-node", "format": 3, "who": "?"}"#;
    fs::write(root.path().join(IDENTITY_FILE), newer).unwrap();
    assert!(matches!(open(root.path()), Err(IdentityError::NewerFormat { found: 3, .. })));
    assert_eq!(fs::read(root.path().join(IDENTITY_FILE)).unwrap(), newer);
}

#[test]
fn damaged_or_missing_identity_is_reported() {
    for bad in [
        &b""[..],
        b"{",
        b"\xff\xfe",
        br#"{"magic": "other", "format": 1}"#,
        br#"{"magic": "archon-node", "format": 1}"#,
    ] {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(IDENTITY_FILE), bad).unwrap();
        assert!(matches!(open(root.path()), Err(IdentityError::Malformed { .. })), "{bad:?}");
    }
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(WAL_DIRECTORY)).unwrap();
    assert!(matches!(open(root.path()), Err(IdentityError::Missing { .. })));
    assert!(!root.path().join(IDENTITY_FILE).exists());
    assert!(!root.path().join(LOCK_FILE).exists(), "a refused directory stays as it was");
}

#[test]
fn coordinator_directory_is_named_as_such() {
    let root = tempfile::tempdir().unwrap();
    let theirs = br#"{"magic": "archon-coordinator", "format": 1, "coordinator": 1}"#;
    fs::write(root.path().join(IDENTITY_FILE), theirs).unwrap();
    let refused = open(root.path()).unwrap_err();
    assert!(matches!(refused, IdentityError::OfACoordinator { .. }), "{refused}");
    assert!(!root.path().join(LOCK_FILE).exists(), "a refused directory stays as it was");
}

#[test]
fn crash_before_first_rename_leaves_usable_directory() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join(TEMPORARY_FILE), b"{\"mag").unwrap();
    open(root.path()).unwrap();
}

#[test]
fn file_instead_of_directory_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file");
    fs::write(&path, b"").unwrap();
    assert!(matches!(open(&path), Err(IdentityError::NotADirectory { .. })));
}

#[test]
fn directory_of_newer_protocol_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let old = |path: &Path| DataDirectory::open(path, "athens", ProtocolRange::FIRST, None);
    let mut upgraded = open(root.path()).unwrap();
    upgraded.record_protocol(PROTOCOL_FIRST).unwrap();
    drop(upgraded);
    let text = || fs::read_to_string(root.path().join(IDENTITY_FILE)).unwrap();
    assert!(text().contains("\"format\": 1") && !text().contains("protocol"), "older versions read it: {}", text());
    drop(old(root.path()).unwrap());
    let mut upgraded = open(root.path()).unwrap();
    upgraded.record_protocol(2).unwrap();
    upgraded.record_protocol(1).unwrap();
    drop(upgraded);
    let before = text();
    assert!(before.contains("\"format\": 2"), "versions that know of no protocol refuse it: {before}");
    let error = old(root.path()).unwrap_err();
    assert!(matches!(error, IdentityError::OtherProtocol { found: 2, .. }), "{error}");
    assert!(
        error.to_string().contains("written by protocol 2, and this version speaks 1; start a version that speaks 2"),
        "{error}"
    );
    assert_eq!(text(), before);
    assert_eq!(open(root.path()).unwrap().identity().protocol, 2);
}

#[test]
fn registration_of_other_generation_key_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let key = |number| GenerationKey::new(Uuid::from_u128(number));
    let in_second = |place| Incarnation::new(archon_types::first_number(2) + place);
    let mut held = open(root.path()).unwrap();
    held.record_registration(cluster(1), NodeId::new(4), life(17)).unwrap();
    held.record_protocol(2).unwrap();
    held.record_registration(cluster(1), NodeId::new(4), (in_second(3), key(1))).unwrap();
    for other in [key(2), GenerationKey::NIL] {
        let refused = held.record_registration(cluster(1), NodeId::new(4), (in_second(9), other)).unwrap_err();
        assert!(matches!(refused, IdentityError::OtherHistory { generation: 2, .. }), "{refused}");
        assert!(refused.to_string().contains("--generation 3"), "{refused}");
    }
    drop(held);
    let mut again = open(root.path()).unwrap();
    assert_eq!((again.identity().last_incarnation, again.identity().generation_key), (in_second(3), key(1)));
    let third = (Incarnation::new(archon_types::first_number(3)), key(3));
    again.record_registration(cluster(1), NodeId::new(7), third).unwrap();
}
