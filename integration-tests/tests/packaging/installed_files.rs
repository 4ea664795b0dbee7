//! The Debian package: built, installed below a directory, and run from there by its units and its guide.

use crate::truth::EXE;
use archon_integration_tests::NotifiedMember;
use archon_integration_tests::ports::free_addresses;
use archon_testkit::skipped;
use archon_tidy::root;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Runs a program that must succeed; returns its output.
#[track_caller]
fn run(command: &mut Command) -> String {
    let ran = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(ran.status.success(), "{command:?}: {}{}", said(&ran.stdout), said(&ran.stderr));
    said(&ran.stdout)
}

/// Builds the package around the program under test.
fn build(directory: &Path) -> PathBuf {
    let package = directory.join("archon.deb");
    let mut command = Command::new(root().join("packaging/build"));
    command.args(["deb", EXE, "--no-strip", "--fast", "--offline", "--output"]).arg(&package);
    run(command.env("CARGO_TARGET_DIR", directory.join("target")));
    package
}

/// Installed files below one directory.
struct InstalledFiles {
    root: PathBuf,
}

impl InstalledFiles {
    fn dpkg(&self, arguments: &[&str]) -> String {
        let root = format!("--root={}", self.root.display());
        // Neither `systemd` nor `libc6` is installed below the directory; scripts see DPKG_ROOT.
        let forced = "--force-depends,script-chrootless";
        run(Command::new("dpkg").args([&root, forced, "--log=/dev/null"]).args(arguments).env("LC_ALL", "C"))
    }

    fn new(root: PathBuf) -> Self {
        for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
            fs::create_dir_all(root.join(folder)).expect("a directory");
        }
        fs::write(root.join("var/lib/dpkg/status"), "").expect("a file");
        Self { root }
    }

    fn path(&self, installed: &str) -> PathBuf {
        self.root.join(installed.trim_start_matches('/'))
    }

    #[track_caller]
    fn read(&self, installed: &str) -> String {
        fs::read_to_string(self.path(installed)).unwrap_or_else(|error| panic!("{installed}: {error}"))
    }

    /// Replaces a setting in a file, as an editor would.
    #[track_caller]
    fn set(&self, file: &str, key: &str, value: &str) {
        let text = self.read(file);
        let is_key = |line: &&str| line.trim_start_matches("# ").starts_with(&format!("{key} = "));
        let line = text.lines().find(is_key).unwrap_or_else(|| panic!("{file}: no {key}"));
        fs::write(self.path(file), text.replacen(line, &format!("{key} = {value}"), 1)).expect("a file");
    }

    /// Returns the command of a unit, with every path moved below the directory.
    #[track_caller]
    fn command(&self, unit: &str, instance: &str) -> Vec<String> {
        let text = self.read(&format!("/usr/lib/systemd/system/{unit}"));
        let command = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("ExecStart=");
        let below = |word: &str| match word.starts_with('/') {
            true => self.path(word).display().to_string(),
            false => word.to_owned(),
        };
        command.replace("%i", instance).split_whitespace().map(below).collect()
    }

    fn archon(&self, coordinators: &str, arguments: &[&str]) -> String {
        run(Command::new(self.path("/usr/bin/archon")).args(["--coordinators", coordinators]).args(arguments))
    }
}

#[test]
fn installed_package_runs_a_cluster_and_removal_keeps_data() {
    let has = |program: &str, argument: &str| {
        Command::new(program).arg(argument).output().is_ok_and(|ran| ran.status.success())
    };
    if !has("cargo-deb", "--version") || !has("dpkg-shlibdeps", "--version") || !has("systemd-sysusers", "--version") {
        return skipped("the package is not built: cargo-deb, or Debian's dpkg-dev or systemd, is not installed");
    }
    if !rustix::process::geteuid().is_root() {
        return skipped("the package is not installed below a directory: only root may give files to others");
    }
    let directory = TempDir::new().expect("a directory");
    let package = build(directory.path());
    let machine = InstalledFiles::new(directory.path().join("machine"));
    machine.dpkg(&["--install", package.to_str().expect("a path")]);
    for user in ["archon:", "archon-coordinator:", "archon-participant:"] {
        assert!(machine.read("/etc/passwd").lines().any(|line| line.starts_with(user)), "{user}");
    }

    for file in [
        "bash-completion/completions/archon",
        "zsh/vendor-completions/_archon",
        "fish/vendor_completions.d/archon.fish",
    ] {
        let script = machine.read(&format!("/usr/share/{file}"));
        assert!(script.contains("participant"), "{file}");
    }
    for page in ["archon", "archon-node", "archon-kv-put", "archon-lock", "archon-participant"] {
        // Compressed, unless the package was built in a hurry.
        let files = ["1", "1.gz"].map(|ending| machine.path(&format!("/usr/share/man/man1/{page}.{ending}")));
        assert!(files.iter().any(|file| file.is_file()), "{page}");
    }
    let version = run(Command::new(machine.path("/usr/bin/archon")).arg("version"));
    assert!(version.contains(", commit ") && version.contains(", protocols "), "{version}");

    // As in the guide: numbers, addresses, peers; settings common to all nodes in one file, the rest in one file each.
    let addresses = free_addresses(6);
    let (coordinators_at, nodes_at) = addresses.split_at(3);
    let listed = |entries: Vec<String>| format!("{entries:?}");
    let peers = listed((1..).zip(coordinators_at).map(|(id, address)| format!("{id}={address}")).collect());
    let log = directory.path();
    let mut members = Vec::new();
    for (id, address) in (1..).zip(coordinators_at) {
        let file = format!("/etc/archon/coordinator-{id}.toml");
        fs::copy(machine.path("/etc/archon/coordinator.toml"), machine.path(&file)).expect("a copy");
        machine.set(&file, "id", &id.to_string());
        machine.set(&file, "listen", &format!("{address:?}"));
        machine.set(&file, "peers", &peers);
        machine.set(&file, "data_dir", &format!("{:?}", machine.path(&format!("/var/lib/archon-coordinator/c{id}"))));
        let command = machine.command("archon-coordinator.service", "").into_iter();
        let command: Vec<_> = command.map(|word| word.replace("/etc/archon/coordinator.toml", &file)).collect();
        members.push(NotifiedMember::start_command(&format!("c{id}"), &command, &[], log));
    }
    machine.set("/etc/archon/node.toml", "coordinators", &listed(coordinators_at.to_vec()));
    for (name, address) in ["athens", "byzantium", "corinth"].into_iter().zip(nodes_at) {
        let command = machine.command("archon-node@.service", name);
        let listen = [("ARCHON_LISTEN", address.clone())];
        members.push(NotifiedMember::start_command(name, &command, &listen, log));
    }
    members.iter().for_each(|member| member.wait("READY=1"));

    let known = coordinators_at.join(",");
    machine.archon(&known, &["kv", "put", "handshake", "hello"]);
    assert_eq!(machine.archon(&known, &["kv", "get", "handshake"]).trim(), "hello");
    machine.archon(&known, &["check"]);
    machine.archon(&known, &["table", "create", "payments", "--partitions", "2", "--lease"]);
    let settings = [
        ("ARCHON_TABLES", "payments".to_owned()),
        ("ARCHON_ADDRESS", "127.0.0.1:8080".to_owned()),
        ("ARCHON_COORDINATORS", known.clone()),
        ("ARCHON_AGENT_LISTEN", "127.0.0.1:0".to_owned()),
    ];
    let command = machine.command("archon-participant@.service", "billing-1");
    let participant = NotifiedMember::start_command("billing-1", &command, &settings, log);
    participant.wait("READY=1");
    participant.stop();
    // Nodes first, as on any machine that shuts down.
    while let Some(member) = members.pop() {
        member.stop();
    }

    machine.dpkg(&["--remove", "archon"]);
    assert!(!machine.path("/usr/bin/archon").exists(), "the package is removed");
    assert!(machine.read("/etc/archon/node.toml").contains(&coordinators_at[0]), "settings stay until they are purged");
    machine.dpkg(&["--purge", "archon"]);
    assert!(!machine.path("/etc/archon/node.toml").exists(), "settings are purged");
    assert!(machine.path("/var/lib/archon/athens").is_dir(), "data stays");
}
