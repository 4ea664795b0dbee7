//! Features of the integration tests: `cargo test -p archon-integration-tests` compiles what `--workspace` has compiled.

use archon_tidy::{dependency_key, files_below, root, source};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use toml::{Table, Value};

const TESTS: &str = "archon-integration-tests";
/// Tables of what a crate depends on when it is not the one that is tested, and the table of its tests.
const NORMAL: &[&str] = &["dependencies", "build-dependencies"];
const DEV: &str = "dev-dependencies";

/// Every manifest of the workspace, by the key of its crate.
fn manifests() -> BTreeMap<String, Table> {
    let paths =
        files_below(&root(), &["Cargo.toml"]).into_iter().filter(|path| path.parent() != Some(root().as_path()));
    let read = paths.map(|path| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let manifest: Table = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (key(&manifest), manifest)
    });
    read.collect()
}

/// Returns the key under which other crates depend on the crate of a manifest.
fn key(manifest: &Table) -> String {
    dependency_key(manifest["package"]["name"].as_str().expect("a name"))
}

fn strings(value: Option<&Value>) -> impl Iterator<Item = &str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// Pairs of a crate and a feature that these tables of a manifest enable; what it enables of itself, with all that follows.
fn enabled(manifest: &Table, tables: &[&str], workspace: &Table) -> BTreeSet<(String, String)> {
    let own = key(manifest);
    let mut pairs = BTreeSet::new();
    for table in tables {
        for (dependency, value) in manifest.get(*table).and_then(Value::as_table).into_iter().flatten() {
            let inherited = value.get("workspace").and_then(|_| workspace.get(dependency)?.get("features"));
            let features = strings(value.get("features")).chain(strings(inherited));
            pairs.extend(features.map(|feature| (dependency.clone(), feature.to_owned())));
        }
    }
    let mut open: Vec<String> = pairs.iter().filter(|(of, _)| *of == own).map(|(_, feature)| feature.clone()).collect();
    while let Some(feature) = open.pop() {
        for follows in strings(manifest.get("features").and_then(|features| features.get(&feature))) {
            match follows.split_once('/') {
                Some((of, feature)) => drop(pairs.insert((of.to_owned(), feature.to_owned()))),
                None => open.push(follows.to_owned()),
            }
        }
    }
    pairs
}

/// Crates of the workspace that a program of the integration tests has.
fn closure(all: &BTreeMap<String, Table>) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut open = vec![(TESTS, true)];
    while let Some((name, is_first)) = open.pop() {
        if !all.contains_key(name) || (!found.insert(name) && !is_first) {
            continue;
        }
        let tables = NORMAL.iter().chain(is_first.then_some(&DEV));
        for table in tables.filter_map(|table| all[name].get(*table)?.as_table()) {
            open.extend(table.keys().map(|dependency| (dependency.as_str(), false)));
        }
    }
    found
}

/// Cargo compiles a crate once per set of features, and `-p` leaves out what other crates' tests enable.
#[test]
fn integration_tests_enable_what_tests_of_the_workspace_enable() {
    let all = manifests();
    assert!(all.len() > 25, "found only {} manifests", all.len());
    let closure = closure(&all);
    let used: BTreeSet<&String> = closure
        .iter()
        .flat_map(|name| NORMAL.iter().chain((*name == TESTS).then_some(&DEV)).map(|table| all[*name].get(*table)))
        .filter_map(|table| table?.as_table())
        .flat_map(Table::keys)
        .collect();
    let root: Table = source("Cargo.toml").parse().expect("the workspace's manifest");
    let workspace = root["workspace"]["dependencies"].as_table().expect("a table");
    let mut has = enabled(&all[TESTS], &[NORMAL, &[DEV]].concat(), workspace);
    has.extend(closure.iter().flat_map(|name| enabled(&all[*name], NORMAL, workspace)));
    let mut missing = BTreeSet::new();
    for manifest in all.values() {
        let others = enabled(manifest, &[NORMAL, &[DEV]].concat(), workspace);
        missing.extend(others.into_iter().filter(|pair| used.contains(&pair.0) && !has.contains(pair)));
    }
    assert!(missing.is_empty(), "add to the dev-dependencies of {TESTS}: {missing:?}");
}
