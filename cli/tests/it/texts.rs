//! Texts that the program prints about itself: help, version, completions and manual pages.

use crate::program::{HANG, archon, code, stderr};
use archon_types::ProtocolRange;
use assert_cmd::Command;

#[test]
fn usage_line_omits_options_set_by_the_environment() {
    let mut command = Command::cargo_bin("archon").expect("the binary is built");
    command.env("ARCHON_COORDINATORS", "127.0.0.1:1").args(["kv", "put", "a"]).timeout(HANG);
    let output = command.output().expect("the binary runs");
    let said = stderr(&output);
    assert_eq!(code(&output), 2, "{said}");
    assert!(said.contains("archon kv put") && said.contains("<VALUE>") && !said.contains("--coordinators"), "{said}");
}

#[test]
fn help_of_table_create_recommends_a_partition_count() {
    let help = archon(&["table", "create", "--help"]);
    let text = String::from_utf8_lossy(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("8 to 10 or more per node or participant"), "{text}");
}

#[test]
fn version_is_printed_for_people_and_programs() {
    let version = env!("CARGO_PKG_VERSION");
    let json: serde_json::Value = serde_json::from_slice(&archon(&["version", "--json"]).stdout).expect("JSON");
    assert_eq!(json["archon_version"], version);
    let ProtocolRange { oldest, newest } = ProtocolRange::SPOKEN;
    assert_eq!(
        (json["protocol_min"].as_u64(), json["protocol_max"].as_u64()),
        (Some(oldest.into()), Some(newest.into()))
    );
    let commit = json["commit"].as_str().unwrap_or("unknown");
    let expected = format!("archon {version}, commit {commit}, protocols {oldest} to {newest}\n");
    assert_eq!(String::from_utf8_lossy(&archon(&["version"]).stdout), expected);
}

/// The build script runs in copies of the folder: of a clone, of a crate, of neither.
#[test]
fn build_script_finds_the_commit_with_and_without_git() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let script = directory.path().join("script");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/build.rs");
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let compiled = Command::new(compiler).args(["--edition", "2024", source, "-o"]).arg(&script).output();
    assert!(compiled.expect("rustc starts").status.success());
    let folder = directory.path().join("other/cli");
    std::fs::create_dir_all(&folder).expect("a directory");
    let run = |commit: &str| {
        let mut command = Command::new(&script);
        command
            .current_dir(&folder)
            .env_remove("PROFILE")
            .env("ARCHON_COMMIT", commit)
            .env("GIT_CEILING_DIRECTORIES", directory.path());
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("a text");
        text.lines().find_map(|line| line.strip_prefix("cargo:rustc-env=ARCHON_BUILT_COMMIT=").map(str::to_owned))
    };
    assert_eq!(run(""), None);
    assert_eq!(run("no commit"), None);
    std::fs::write(
        folder.join(".cargo_vcs_info.json"),
        "{\n  \"git\": {\n    \"sha1\": \"0123456789abcdef\"\n  },\n  \"path_in_vcs\": \"cli\"\n}",
    )
    .expect("a file");
    assert_eq!(run("").as_deref(), Some("0123456789abcdef"));
    assert_eq!(run("abcdef0123").as_deref(), Some("abcdef0123"));
    std::fs::write(folder.join(".cargo_vcs_info.json"), "{\"git\": {\"sha1\": \"0123456789abcdef\", \"dirty\": true}}")
        .expect("a file");
    assert_eq!(run(""), None, "changed files belong to no commit");
    std::fs::remove_file(folder.join(".cargo_vcs_info.json")).expect("a file");

    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]).args(arguments);
        let output = command.current_dir(directory.path().join("other")).output().expect("git starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("a text").trim().to_owned()
    };
    if Command::new("git").arg("--version").output().is_err() {
        return;
    }
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    assert_eq!(run(""), Some(git(&["rev-parse", "HEAD"])));
    let elsewhere = directory.path().join("other/vendored");
    std::fs::create_dir_all(&elsewhere).expect("a directory");
    let other = Command::new(&script).current_dir(&elsewhere).env_remove("ARCHON_COMMIT").output().expect("it starts");
    assert!(!String::from_utf8_lossy(&other.stdout).contains("ARCHON_BUILT_COMMIT"), "another repository: {other:?}");
}

#[test]
fn manual_has_a_page_for_each_command() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let pages = directory.path().join("man1");
    let output = archon(&["manual", pages.to_str().expect("a path")]);
    assert_eq!(code(&output), 0, "{output:?}");
    for page in ["archon.1", "archon-kv-put.1", "archon-participant.1"] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH NAME") && text.contains("OPTIONS"), "{page}: {text}");
    }
    let file = pages.join("archon.1/below");
    assert_eq!(code(&archon(&["manual", file.to_str().expect("a path")])), 1);
}

#[test]
fn every_help_succeeds_and_has_an_example() {
    for verb in [
        &["demo"][..],
        &["coordinator"],
        &["node"],
        &["node", "list"],
        &["node", "describe"],
        &["node", "cordon"],
        &["node", "uncordon"],
        &["node", "drain"],
        &["node", "undrain"],
        &["node", "remove"],
        &["node", "lost"],
        &["status"],
        &["top"],
        &["table"],
        &["table", "list"],
        &["table", "describe"],
        &["table", "create"],
        &["table", "drop"],
        &["partition"],
        &["partition", "list"],
        &["partition", "locate"],
        &["partition", "describe"],
        &["partition", "force-leader"],
        &["rebalance"],
        &["rebalance", "plan"],
        &["rebalance", "apply"],
        &["rebalance", "status"],
        &["rebalance", "cancel"],
        &["kv"],
        &["kv", "put"],
        &["kv", "get"],
        &["kv", "del"],
        &["kv", "cas"],
        &["kv", "incr"],
        &["kv", "batch"],
        &["kv", "scan"],
        &["kv", "export"],
        &["kv", "import"],
        &["bench"],
        &["bench", "put"],
        &["bench", "get"],
        &["bench", "mixed"],
        &["bench", "scan"],
        &["bench", "failover"],
        &["bench", "rebalance"],
        &["doctor"],
        &["events"],
        &["completion"],
        &["version"],
        &[],
    ] {
        let output = archon(&[verb, &["--help"]].concat());
        assert_eq!(code(&output), 0, "{verb:?}");
        let help = String::from_utf8_lossy(&output.stdout);
        assert!(help.contains("Examples:"), "{verb:?} --help has no example");
        let call = format!("  archon {}", verb.join(" "));
        assert!(help.contains(call.trim_end()), "{verb:?} --help has no example of itself");
    }
}

#[test]
fn completion_scripts_name_the_verbs() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = archon(&["completion", shell]);
        assert_eq!(code(&output), 0, "{shell}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("rebalance"), "{shell}");
    }
    assert_eq!(code(&archon(&["completion", "tcsh-but-not-quite"])), 2);
}
