//! The files of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

/// All files below a folder whose names end with one of these, in order; neither what was built nor what begins with a dot.
///
/// # Panics
/// If it cannot be read.
pub fn files_below(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(files_below(&path, ends));
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
    found
}
