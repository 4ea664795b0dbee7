//! Tests of damage to each file of an LSM tree.

use super::conformance::{ALL_KEYS, config, put, space};
use super::*;
use archon_types::ScanOrder;
use std::fs;
use std::path::{Path, PathBuf};

/// Last bytes of a table that are damaged one by one: its contents and trailer. Of the others, every third is.
const TAIL_BYTES: usize = 400;
const ROWS: [(&[u8], &[u8]); 3] = [(b"\x01a", b"1"), (b"\x01c", b"3"), (b"\x01d", b"4")];
const REMOVED: &[u8] = b"\x01b";

/// Files of a tree, by their paths in it.
type Files = Vec<(PathBuf, Vec<u8>)>;

/// Returns the files of a tree with tables in two levels.
fn tree_files() -> Files {
    let root = tempfile::tempdir().unwrap();
    let engine = LsmEngine::open(root.path(), &config(EngineKind::Lsm)).unwrap();
    engine.write(&[put(1, b"\x01a", b"0"), put(1, REMOVED, b"2"), put(1, b"\x01d", b"4")]).unwrap();
    engine.sync().unwrap();
    engine
        .write(&[put(1, b"\x01a", b"1"), Change { value: None, ..put(1, REMOVED, b"") }, put(1, b"\x01c", b"3")])
        .unwrap();
    engine.sync().unwrap();
    drop(engine);
    let tree = root.path().join("tree");
    let folders = [tree.clone(), tree.join("tables")];
    let paths = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    let files = paths.filter(|path| path.is_file());
    files.map(|path| (path.strip_prefix(&tree).unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

/// Opens an engine on these files, and expects the rows, or an error that counts as damage.
fn check_rows(directory: &Path, files: &Files, what: &str) {
    let _ = fs::remove_dir_all(directory.join("tree"));
    for note in ["archon-damage", "archon-panic"] {
        let _ = fs::remove_file(directory.join(note));
    }
    fs::create_dir_all(directory.join("tree/tables")).unwrap();
    for (path, bytes) in files {
        fs::write(directory.join("tree").join(path), bytes).unwrap();
    }
    let refuse = |error: EngineError| assert!(error.is_damage(), "{what}: {error}");
    let engine = match LsmEngine::open(directory, &config(EngineKind::Lsm)) {
        Ok(engine) => engine,
        Err(error) => return refuse(error),
    };
    match engine.page(space(1), ALL_KEYS, ScanOrder::Ascending, PageLimit::PAGE) {
        Ok(page) => {
            let rows: Vec<_> = page.rows.iter().map(|row| (&row.key[..], &row.value[..])).collect();
            assert_eq!(rows, ROWS, "{what}");
        }
        Err(error) => refuse(error),
    }
    let expected = ROWS.iter().map(|(key, value)| (*key, Some(*value))).chain([(REMOVED, None)]);
    for (key, value) in expected {
        match engine.get(space(1), key) {
            Ok(found) => assert_eq!(found.as_deref(), value, "{what}: {key:?}"),
            Err(error) => refuse(error),
        }
    }
}

#[test]
fn damage_to_any_file_of_a_tree_loses_no_row_silently() {
    let root = tempfile::tempdir().unwrap();
    let files = tree_files();
    check_rows(root.path(), &files, "whole");
    for (index, (path, whole)) in files.iter().enumerate() {
        let is_table = path.starts_with("tables");
        let check = |bytes: Vec<u8>, what: String| {
            let mut damaged = files.clone();
            damaged[index].1 = bytes;
            check_rows(root.path(), &damaged, &format!("{} {what}", path.display()));
        };
        for at in 0..whole.len() {
            let is_sparse = is_table && at + TAIL_BYTES < whole.len() && at % 3 != 0;
            let masks: &[u8] = if is_table { &[0xFF] } else { &[0xFF, 1] };
            for mask in masks.iter().filter(|_| !is_sparse) {
                let mut bytes = whole.clone();
                bytes[at] ^= mask;
                check(bytes, format!("with byte {at} ^ {mask}"));
            }
        }
        for length in [0, 1, whole.len() / 2, whole.len() - 1] {
            check(whole[..length].to_vec(), format!("with {length} bytes"));
        }
        let mut missing = files.clone();
        missing.remove(index);
        check_rows(root.path(), &missing, &format!("{} missing", path.display()));
    }
}
