use super::*;

pub(crate) fn piece(partition: u32, begin: &str, end: Option<&str>) -> Piece {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let keys = KeyRange { begin: bytes(begin), end: end.map(bytes) };
    let sum = FileSum { bytes: 40, blocks: 1, entries: 2, crc32c: 7 };
    Piece::new((partition, 3, 9, 1_000), &keys, format!("data/t1-{partition:06}.entries"), sum)
}

pub(crate) fn table(keys: KeysBy, partitions_total: u32, pieces: Vec<Piece>) -> TableBackup {
    let table = TableSummary {
        id: 1,
        name: "orders".into(),
        partitions_total,
        keys: keys.into(),
        split_above_bytes: None,
        split_above_rate: None,
        merge_below_bytes: None,
        replication: 3,
        holds: TableContent::Data.into(),
        version: 9,
    };
    TableBackup { table, pieces }
}

pub(crate) fn manifest(tables: Vec<TableBackup>) -> Manifest {
    Manifest {
        format: FORMAT,
        archon_version: "0.1.0".into(),
        cluster_id: "a cluster".into(),
        generation: 1,
        generation_key: None,
        begun_at_ms: 1,
        finished_at_ms: 2,
        tables,
    }
}

#[test]
fn truncated_or_damaged_manifest_is_rejected() {
    let written = manifest(vec![table(KeysBy::Range, 2, vec![piece(0, "", Some("m")), piece(1, "m", None)])]);
    let sealed = seal(&written).unwrap();
    assert_eq!(unseal::<Manifest>(MANIFEST, &sealed).unwrap(), written);
    for length in 0..sealed.len() {
        assert!(unseal::<Manifest>(MANIFEST, &sealed[..length]).is_err(), "cut off after {length} bytes");
    }
    for bit in 0..sealed.len() * 8 {
        let mut damaged = sealed.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(unseal::<Manifest>(MANIFEST, &damaged).is_err(), "bit {} of byte {}", bit % 8, bit / 8);
    }
}

#[test]
fn newer_manifest_is_rejected_by_format_number() {
    let sealed = seal(&serde_json::json!({ "format": 9, "shape": "of another kind" })).unwrap();
    assert!(matches!(unseal::<Manifest>(MANIFEST, &sealed), Err(BackupError::Newer { found: 9, known: 2, .. })));
}

#[test]
fn incomplete_or_overlapping_pieces_are_rejected() {
    let check = |keys, partitions, pieces| manifest(vec![table(keys, partitions, pieces)]).check();
    let (hash, range) = (KeysBy::Hash, KeysBy::Range);
    check(hash, 2, vec![piece(0, "", None), piece(1, "", None)]).unwrap();
    check(range, 9, vec![piece(4, "", Some("m")), piece(2, "m", None)]).unwrap();
    for (keys, pieces) in [
        (hash, vec![piece(0, "", None)]),
        (hash, vec![piece(0, "", None), piece(0, "", None)]),
        (range, vec![]),
        (range, vec![piece(0, "", Some("m"))]),
        (range, vec![piece(0, "a", None)]),
        (range, vec![piece(0, "", Some("m")), piece(1, "n", None)]),
        (range, vec![piece(0, "", None), piece(1, "m", None)]),
    ] {
        assert!(check(keys, 2, pieces.clone()).is_err(), "{pieces:?}");
    }
}

#[test]
fn untrusted_manifest_is_bounded_and_without_control_chars() {
    let mut huge = table(KeysBy::Hash, u32::MAX, vec![piece(0, "", None)]);
    assert!(manifest(vec![huge.clone()]).check().is_err());
    huge.table.partitions_total = 1;
    manifest(vec![huge.clone()]).check().unwrap();
    huge.table.name = "a\u{1b}]0;title".into();
    let named = manifest(vec![huge]).check().unwrap_err().to_string();
    assert!(named.contains("table name") && !named.contains('\u{1b}'), "{named}");
    let version = Manifest { archon_version: "1\u{9b}2J".into(), ..manifest(vec![]) }.check().unwrap_err().to_string();
    assert!(version.contains("control characters") && !version.contains('\u{9b}'), "{version}");
}

#[test]
fn keys_of_any_bytes_round_trip_as_hex() {
    for bytes in [&[][..], &[0], &[255, 0, 16], b"key"] {
        assert_eq!(hex::decode(&hex::encode(bytes)).as_deref(), Some(bytes));
    }
    assert_eq!((hex::decode("a"), hex::decode("zz")), (None, None));
}
