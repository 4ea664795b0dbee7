//! What `packaging/` says, held to what the program says of itself: flags, variables, exit codes, deadlines, ports.

mod containers;
mod debian;
mod installed;
mod kubernetes;
mod truth;
mod units;

use std::fs;
use std::path::{Path, PathBuf};

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace root").to_owned()
}

/// A file of the workspace.
#[track_caller]
fn source(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of what is in a folder of the workspace.
#[track_caller]
fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let name = |entry: fs::DirEntry| entry.file_name().to_str().expect("a name").to_owned();
    let mut names: Vec<_> = entries.map(|entry| name(entry.expect("an entry"))).collect();
    names.sort();
    names
}

/// A file that no test reads is held to nothing.
#[test]
fn every_file_is_read_by_a_test() {
    assert_eq!(names("packaging"), ["README.md", "debian", "docker", "kubernetes", "systemd"]);
    assert_eq!(names("packaging/systemd"), ["archon-coordinator.service", "archon-node@.service", "archon.sysusers"]);
    assert_eq!(names("packaging/debian"), ["postinst", "postrm", "prerm"]);
    assert_eq!(names("packaging/docker"), ["Dockerfile", "Dockerfile.dockerignore", "compose.yaml"]);
    assert_eq!(names("packaging/kubernetes"), ["base", "tls"]);
    let base = ["coordinator.yaml", "kustomization.yaml", "network-policy.yaml", "node.yaml"];
    assert_eq!(names("packaging/kubernetes/base"), base);
    assert_eq!(names("packaging/kubernetes/tls"), ["coordinator.yaml", "kustomization.yaml", "node.yaml"]);
}

/// Every command that the guide tells people to give the program is one.
#[test]
fn the_guide_names_verbs_and_flags_that_are() {
    let text = source("packaging/README.md");
    let commands: Vec<&str> =
        text.split('`').chain(text.lines()).filter_map(|part| part.trim().strip_prefix("archon ")).collect();
    assert!(commands.len() > 5, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split(['#', '\n']).next().unwrap_or_default().split_whitespace().collect();
        truth::check_command("packaging/README.md", &words);
    }
}
