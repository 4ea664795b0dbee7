//! Tests of directories that cannot be opened, or that belong to another engine.

use super::conformance::{ALL_KEYS, config, on_each, open, put, space, value};
use super::*;
use archon_types::ScanOrder;
use std::path::{Path, PathBuf};

/// Overwrites a file that the engine needs to open with nonsense, longer than the eight bytes below which sled starts
/// over.
fn spoil(kind: EngineKind, directory: &Path) -> PathBuf {
    let file = match kind {
        EngineKind::Sled => "conf",
        EngineKind::Lsm => "tree/current",
    };
    std::fs::write(directory.join(file), NONSENSE).unwrap();
    file.into()
}

const NONSENSE: &[u8] = b"longer than the eight bytes below which sled starts afresh";

#[test]
fn engine_that_does_not_open_is_set_aside_whole() {
    on_each(|kind, directory| {
        let beside = |number| directory.with_file_name(format!("engine.quarantined-{number}"));
        open(kind, directory).write(&[put(1, b"\x01a", b"1")]).unwrap();
        let spoiled = spoil(kind, directory);
        let (engine, aside) = open_or_quarantine(directory, &config(kind)).unwrap();
        let aside = aside.unwrap();
        assert_eq!(aside, beside(1));
        assert_eq!(std::fs::read(aside.join(spoiled)).unwrap(), NONSENSE);
        assert_eq!(engine.spaces().unwrap(), []);
        drop(engine);
        std::fs::remove_file(directory.join("archon-engine")).unwrap();
        let (_, aside) = open_or_quarantine(directory, &config(kind)).unwrap();
        assert_eq!(aside.unwrap(), beside(2));
    });
}

#[test]
fn other_format_other_engine_or_refusal_is_not_set_aside() {
    on_each(|kind, directory| {
        let held = open(kind, directory);
        let impatient = EngineConfig { lock_wait: std::time::Duration::ZERO, ..config(kind) };
        let second = open_or_quarantine(directory, &impatient).map(|_| ());
        assert!(matches!(second, Err(EngineError::Io { .. })), "{second:?}");
        drop(held);
        for wanted in EngineKind::ALL.into_iter().filter(|other| *other != kind) {
            let other = open_or_quarantine(directory, &config(wanted)).map(|_| ());
            assert!(
                matches!(&other, Err(EngineError::OtherEngine { found, .. }) if *found == kind.name()),
                "{kind} as {wanted}: {other:?}"
            );
        }
        std::fs::write(directory.join("archon-engine"), "archon-engine fjall 4\n").unwrap();
        let unknown = open_or_quarantine(directory, &config(kind)).map(|_| ());
        assert!(matches!(&unknown, Err(EngineError::UnknownEngine { found, .. }) if found == "fjall"), "{unknown:?}");
        std::fs::write(directory.join("archon-engine"), format!("archon-engine {kind} 5\n")).unwrap();
        let newer = open_or_quarantine(directory, &config(kind)).map(|_| ());
        assert!(matches!(newer, Err(EngineError::NewerFormat { found: 5, .. })), "{newer:?}");
        for format in [1, 2, 3] {
            std::fs::write(directory.join("archon-engine"), format!("archon-engine {kind} {format}\n")).unwrap();
            let older = open_or_quarantine(directory, &config(kind)).map(|_| ());
            assert!(
                matches!(&older, Err(EngineError::OlderFormat { found, known: 4, .. }) if *found == format),
                "{older:?}"
            );
        }
        assert_eq!(std::fs::read_dir(directory.parent().unwrap()).unwrap().count(), 1);
    });
}

#[test]
fn directory_keeps_its_engine_by_default() {
    on_each(|kind, directory| {
        let engine = open(kind, directory);
        engine.write(&[put(1, b"\x01a", b"1")]).unwrap();
        engine.sync().unwrap();
        drop(engine);
        let (engine, aside) = open_or_quarantine(directory, &EngineConfig::default()).unwrap();
        assert_eq!((engine.get(space(1), b"\x01a").unwrap().as_deref(), aside), (Some(&b"1"[..]), None), "{kind}");
    });
}

/// Damage anywhere in the engine's largest file may or may not be noticed, but never ends the process.
#[test]
fn damaged_file_is_an_error_or_is_set_aside() {
    on_each(|kind, directory| {
        let engine = open(kind, directory);
        let rows: Vec<_> = (0..200_u8).map(|at| put(1, &[1, at], &value(3_000, at))).collect();
        engine.write(&rows).unwrap();
        engine.sync().unwrap();
        drop(engine);
        let file = largest_file(directory);
        let whole = std::fs::read(&file).unwrap();
        let used = whole.iter().rposition(|byte| *byte != 0).unwrap();
        let everywhere: Vec<_> = (0..used).step_by(997).collect();
        let places = (0..used).step_by(used / 50).chain(used - 20..used).map(|at| vec![at]);
        for damaged in places.chain([everywhere]) {
            let mut bytes = whole.clone();
            damaged.iter().for_each(|at| bytes[*at] ^= 0x55);
            std::fs::write(&file, bytes).unwrap();
            let aside = match open_or_quarantine(directory, &config(kind)) {
                Ok((engine, aside)) => {
                    let _ = engine.page(space(1), ALL_KEYS, ScanOrder::Ascending, PageLimit::bytes(usize::MAX));
                    aside
                }
                Err(error) => panic!("{error}"),
            };
            if let Some(aside) = aside {
                std::fs::remove_dir_all(directory).unwrap();
                std::fs::rename(aside, directory).unwrap();
            }
        }
    });
}

fn largest_file(directory: &Path) -> PathBuf {
    let paths = |directory: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let (mut files, mut found) = (Vec::new(), paths(directory));
    while let Some(path) = found.pop() {
        match path.is_dir() {
            true => found.extend(paths(&path)),
            false => files.push(path),
        }
    }
    files.retain(|path| !path.ends_with("archon-reserve"));
    files.into_iter().max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap()
}
