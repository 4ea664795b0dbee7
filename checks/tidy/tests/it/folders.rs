//! Sizes of folders: a reader sees the files of a folder at a glance.

use archon_tidy::{files_below, root};
use std::collections::BTreeMap;

/// Most source files side by side in one folder.
const FILES_MAX: usize = 25;

#[test]
fn folders_hold_few_files_side_by_side() {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    for path in files_below(&root(), &[".rs", ".js", ".ts", ".css", ".py", ".proto", ".sh"]) {
        let folder = path.parent().and_then(|folder| folder.strip_prefix(root()).ok()).expect("below the root");
        *folders.entry(folder.display().to_string()).or_default() += 1;
    }
    assert!(folders.len() > 100, "found only {} folders", folders.len());
    let wrong: Vec<String> = folders
        .iter()
        .filter(|(_, files)| **files > FILES_MAX)
        .map(|(folder, files)| format!("{folder}: {files} files, and {FILES_MAX} are allowed"))
        .collect();
    assert!(wrong.is_empty(), "group the files by feature into folders:\n{}", wrong.join("\n"));
}
