//! Finds the commit that is compiled, for `archon version`.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=ARCHON_COMMIT");
    if let Some(commit) = from_environment().or_else(from_crate).or_else(from_git) {
        println!("cargo:rustc-env=ARCHON_BUILT_COMMIT={commit}");
    }
}

/// Returns a commit if the text is one, or begins with one.
fn commit(text: &str) -> Option<String> {
    let digits: String = text.trim().chars().take_while(char::is_ascii_hexdigit).collect();
    (7..=64).contains(&digits.len()).then_some(digits)
}

/// For builds of a copy without its history, such as a container image.
fn from_environment() -> Option<String> {
    commit(&env::var("ARCHON_COMMIT").ok()?)
}

/// `cargo package` writes the commit into the crate.
fn from_crate() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    // A package of changed files belongs to no commit.
    if text.contains("\"dirty\": true") {
        return None;
    }
    let (_, value) = text.split_once("\"sha1\"")?;
    commit(value.trim_start_matches([':', ' ', '"']))
}

/// Asks git, unless the repository is another one that contains this folder. Not in debug builds: each commit would compile
/// the command and all tests that link it again.
fn from_git() -> Option<String> {
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    if git(&["rev-parse", "--show-prefix"])? != "cli/" {
        return None;
    }
    // The log of HEAD changes with each commit and checkout. Cargo would run this program at each build if it were missing.
    for file in ["logs/HEAD", "HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
            break;
        }
    }
    commit(&git(&["rev-parse", "HEAD"])?)
}
