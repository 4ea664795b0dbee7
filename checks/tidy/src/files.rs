//! Files of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
///
/// # Panics
/// If this crate is not in `checks/` of it.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace root").to_owned()
}

/// Prefix of published packages instead of `archon-`, with which other projects have crates in the registry (ADR 0099).
pub const PUBLISHED_PREFIX: &str = "archonkv-";

/// Returns the key under which the manifests of the workspace name a package: its name with the prefix `archon-`.
#[must_use]
pub fn dependency_key(package: &str) -> String {
    package.strip_prefix(PUBLISHED_PREFIX).map_or_else(|| package.to_owned(), |rest| format!("archon-{rest}"))
}

/// Returns the text of a file of the workspace.
///
/// # Panics
/// If it cannot be read.
#[must_use]
#[track_caller]
pub fn source(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the sorted names of the entries of a folder of the workspace.
///
/// # Panics
/// If it cannot be read.
#[must_use]
#[track_caller]
pub fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let name = |entry: fs::DirEntry| entry.file_name().to_str().expect("a name").to_owned();
    let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry"))).collect();
    names.sort();
    names
}

/// Returns all files below a folder with one of these endings, sorted. Skips `target`, `node_modules` and names that begin with a dot.
///
/// # Panics
/// If it cannot be read.
#[must_use]
pub fn files_below(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&name) {
            found.extend(files_below(&path, ends));
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
    found
}
