//! `archon cert` as a black box: the life of a cluster's certificates, and the reaction to invalid input.

use crate::program::command;
use archon_certificates::{Authority, write_credentials};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, SystemTime};

/// Result of a command line that was run in a directory.
#[derive(Debug)]
struct CommandOutput {
    code: i32,
    stdout: String,
    stderr: String,
}

impl CommandOutput {
    fn says(&self, parts: &[&str]) -> &Self {
        let all = format!("{}{}", self.stdout, self.stderr);
        assert!(parts.iter().all(|part| all.contains(part)), "{parts:?} are not in: {all}");
        self
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

fn archon(directory: &Path, line: &str, code: i32) -> CommandOutput {
    let ran = command().current_dir(directory).args(line.split(' ')).output();
    let Output { status, stdout, stderr } = ran.expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let ran = CommandOutput { code: status.code().expect("no signal"), stdout: text(stdout), stderr: text(stderr) };
    assert_eq!(ran.code, code, "archon {line}: {}{}", ran.stdout, ran.stderr);
    ran
}

/// Returns a directory with an authority in `ca`.
fn with_authority() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    archon(directory.path(), "cert ca --cluster shop", 0);
    directory
}

#[test]
fn authority_issues_all_certificates_of_a_cluster() {
    let root = tempfile::tempdir().expect("a directory");
    let at = root.path();
    let made = archon(at, "cert ca --cluster shop", 0);
    made.says(&["Archon authority of shop", "keep ca/ca.key away from the members", "(in 365"]);
    assert_eq!(fs::metadata(at.join("ca/ca.key")).expect("a key").permissions().mode() & 0o777, 0o600);
    archon(at, "cert coordinator 1 --host c1.example.org --host 10.0.0.1", 0)
        .says(&["wrote coordinator-1: coordinator/1, reached at c1.example.org, 10.0.0.1, until", "(in 90 days)"]);
    archon(at, "cert node athens --host athens.example.org,::1", 0).says(&["node/athens", "athens.example.org, ::1"]);
    for (line, identity, days) in [
        ("participant billing-3", "participant/billing-3", "(in 90 days)"),
        ("client shop --days 365", "client/shop", "(in 365 days)"),
        ("operator dashboard", "operator/dashboard", "(in 30 days)"),
        ("admin alice --out people/alice", "admin/alice", "(in 30 days)"),
    ] {
        archon(at, &format!("cert {line}"), 0).says(&[identity, days]);
    }

    archon(at, "cert show athens", 0).says(&[
        "athens/tls.crt: node/athens",
        "CN=Archon authority of shop",
        "athens.example.org, ::1",
        "SHA-256 ",
        "athens/ca.crt: the authority CN=Archon authority of shop",
    ]);
    let shown = archon(at, "cert show people/alice/tls.crt -o json", 0).json();
    assert_eq!((&shown[0]["identity"], &shown[0]["is_authority"]), (&"admin/alice".into(), &false.into()), "{shown}");
    assert_eq!(shown[0]["fingerprint"].as_str().map(str::len), Some(95), "{shown}");
    assert!(shown[0]["expires_at_ms"].as_u64() > shown[0]["begins_at_ms"].as_u64(), "{shown}");

    for directory in ["coordinator-1", "athens", "billing-3", "shop", "dashboard", "people/alice"] {
        archon(at, &format!("cert check {directory}"), 0).says(&["until"]);
    }
    let checked = archon(at, "cert check athens -o json", 0).json();
    assert_eq!(checked["certificate"]["identity"], "node/athens", "{checked}");
    assert_eq!(checked["certificate_ends_soon"], false, "{checked}");
    assert_eq!(checked["authorities"].as_array().map(Vec::len), Some(1), "{checked}");
}

#[test]
fn existing_files_are_overwritten_only_to_renew_them() {
    let root = with_authority();
    let at = root.path();
    archon(at, "cert ca", 4).says(&["never overwritten"]);
    archon(at, "cert node athens --host a", 0);
    let before = fs::read(at.join("athens/tls.key")).expect("a key");
    archon(at, "cert node athens --host a", 4).says(&["is there already", "--force"]);
    archon(at, "cert node sparta --host a --out athens --force", 4).says(&["node/athens", "node/sparta"]);
    archon(at, "cert client athens --force", 4).says(&["client/athens"]);
    archon(at, "cert client shop --out ca --force", 4).says(&["is the authority's directory"]);
    archon(at, "cert request node/athens --host a --out athens", 4)
        .says(&["athens/tls.key", "a process may be using it"]);
    assert_eq!(fs::read(at.join("athens/tls.key")).expect("a key"), before);
    archon(at, "cert node athens --host a --days 20 --force", 0);
    assert_ne!(fs::read(at.join("athens/tls.key")).expect("a key"), before);
    archon(at, "cert check athens", 0);
}

#[test]
fn renewal_keeps_hosts_and_reports_dropped_ones() {
    let root = with_authority();
    let at = root.path();
    archon(at, "cert node athens", 2).says(&["--host"]);
    archon(at, "cert node athens --force", 2).says(&["--host"]);
    archon(at, "cert node athens --host athens.example.org,10.0.0.7", 0);
    let kept = archon(at, "cert node athens --force", 0);
    assert!(!kept.stderr.contains("was reached"), "{kept:?}");
    let hosts = |shown: &serde_json::Value| shown[0]["hosts"].clone();
    let expected = serde_json::json!(["athens.example.org", "10.0.0.7"]);
    assert_eq!(hosts(&archon(at, "cert show athens/tls.crt -o json", 0).json()), expected);
    archon(at, "cert node athens --host 10.9.9.9 --force", 0).says(&[
        "node/athens was reached at athens.example.org, 10.0.0.7, and is reached at 10.9.9.9",
        "connections to athens.example.org, 10.0.0.7 will be refused",
    ]);
}

#[test]
fn request_is_signed_after_confirmation_or_matching_identity() {
    let root = with_authority();
    let at = root.path();
    archon(at, "cert request node/athens --host athens.example.org --out there", 0).says(&[
        "there/request.csr",
        "node/athens",
        "tls.crt",
    ]);
    fs::copy(at.join("there/request.csr"), at.join("athens.csr")).expect("sent");
    archon(at, "cert sign athens.csr", 4).says(&[
        "nothing was signed",
        "node/athens, reached at athens.example.org",
        "archon cert sign athens.csr --yes",
    ]);
    archon(at, "cert sign athens.csr --as node/athens", 4).says(&["nothing was signed"]);
    assert!(!at.join("athens.crt").exists());
    archon(at, "cert sign athens.csr --yes", 0).says(&["wrote athens.crt: node/athens", "as tls.crt", "ca/ca.crt"]);
    fs::copy(at.join("athens.crt"), at.join("there/tls.crt")).expect("sent");
    archon(at, "cert check there", 1).says(&["ca.crt"]);
    fs::copy(at.join("ca/ca.crt"), at.join("there/ca.crt")).expect("sent");
    archon(at, "cert check there", 0).says(&["there: node/athens, until"]);

    // Renewed for the same key, and issued to another identity by the choice of the signer.
    archon(at, "cert sign athens.csr --yes", 4).says(&["athens.crt is there already"]);
    let signed = archon(at, "cert sign athens.csr --yes --days 10 --force -o json", 0).json();
    assert_eq!(signed["hosts"], serde_json::json!(["athens.example.org"]), "{signed}");
    archon(at, "cert sign athens.csr --as node/sparta --host 10.0.0.7 --out sparta.crt", 0)
        .says(&["sparta.crt: node/sparta, reached at 10.0.0.7"]);
    archon(at, "cert sign athens.csr --as client/shop --out shop.crt", 0).says(&["shop.crt: client/shop, until"]);
    archon(at, "cert sign athens.csr --as client/shop --host a --out x.crt", 2).says(&["leave --host out"]);
    archon(at, "cert sign athens.csr --as king/shop", 2).says(&["role is none of"]);

    fs::write(at.join("garbage.csr"), "garbage").expect("written");
    archon(at, "cert sign garbage.csr --yes", 1).says(&["cannot be signed"]);
    fs::write(at.join("huge.csr"), vec![b'x'; 3 << 20]).expect("written");
    archon(at, "cert sign huge.csr --yes", 1).says(&["more than 65536 bytes"]);
    archon(at, "cert sign absent.csr --yes", 3).says(&["absent.csr"]);
}

#[test]
fn check_names_the_faulty_file_and_its_fault() {
    let root = with_authority();
    let at = root.path();
    archon(at, "cert node athens --host a --days 90", 0);
    archon(at, "cert node sparta --host a", 0);
    archon(at, "cert check athens", 0);
    archon(at, "cert check absent", 1).says(&["ca.crt"]);
    archon(at, "cert show absent", 3).says(&["absent"]);
    archon(at, "cert show athens/tls.key", 1).says(&["holds no certificate"]);
    fs::create_dir(at.join("empty")).expect("made");
    archon(at, "cert show empty", 3).says(&["neither tls.crt nor ca.crt"]);

    fs::copy(at.join("sparta/tls.key"), at.join("athens/tls.key")).expect("copied");
    archon(at, "cert check athens", 1).says(&["tls.key", "not the key of the certificate"]);
    let failed = archon(at, "cert check athens -o json", 1).json();
    assert_eq!((&failed["error"]["kind"], &failed["error"]["exit_code"]), (&"failed".into(), &1.into()), "{failed}");
    archon(at, "cert check sparta", 0);
    fs::set_permissions(at.join("sparta/tls.key"), fs::Permissions::from_mode(0o644)).expect("changed");
    archon(at, "cert check sparta", 1).says(&["others may read", "chmod 600"]);
}

/// Returns the time `days` days ago.
fn ago(days: u64) -> SystemTime {
    SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60)
}

#[test]
fn usable_but_expiring_credentials_are_reported() {
    let root = tempfile::tempdir().expect("a directory");
    let at = root.path();
    let alice = "admin/alice".parse().expect("an identity");
    let issue = |authority: &Authority, directory: &str, issued: u64, days: u32| {
        let valid_for = Duration::from_secs(u64::from(days) * 24 * 60 * 60);
        let issued = authority.issue(&alice, &[], valid_for, ago(issued)).expect("issued");
        write_credentials(&at.join(directory), &issued, false).expect("written");
    };
    let authority = Authority::create("shop", ago(400)).expect("an authority");
    for (directory, issued, days, code) in [
        ("new-90", 55, 90, 0),
        ("old-90", 65, 90, 4),
        ("new-30", 15, 30, 0),
        ("old-30", 25, 30, 4),
        ("past", 40, 30, 1),
    ] {
        issue(&authority, directory, issued, days);
        let said = archon(at, &format!("cert check {directory}"), code);
        match code {
            0 => assert!(said.stderr.is_empty(), "{}", said.stderr),
            4 => drop(said.says(&["admin/alice, until", "renew the certificate"])),
            _ => drop(said.says(&["expired", "renew it"])),
        }
    }
    archon(at, "cert show past", 0).says(&["(10 days ago: expired)"]);
    let soon = archon(at, "cert check old-90 -o json", 4).json();
    assert_eq!((&soon["certificate_ends_soon"], &soon["authority_ends_soon"]), (&true.into(), &false.into()), "{soon}");

    // An authority that expires soon, beside one that does not.
    let ending = Authority::create("shop", ago(3_500)).expect("an authority");
    ending.write(&at.join("ca")).expect("written");
    archon(at, "cert client shop --days 365", 0).says(&[
        "client/shop",
        "(in 152 days)",
        "it expires with its \
                authority",
    ]);
    archon(at, "cert check shop", 4).says(&["the authority expires soon"]);
    let both = [ending.believed_pem(), authority.believed_pem()].concat();
    fs::write(at.join("ca/ca.crt"), both).expect("written");
    archon(at, "cert client shop --force", 0);
    archon(at, "cert check shop", 0);
    assert_eq!(archon(at, "cert show shop -o json", 0).json().as_array().map(Vec::len), Some(3));
    Authority::create("shop", ago(3_700)).expect("an authority").write(&at.join("gone")).expect("written");
    archon(at, "cert client shop --ca gone --out other", 4).says(&["archon cert ca"]);
}

#[test]
fn invalid_lines_are_usage_errors_with_a_correction() {
    let root = tempfile::tempdir().expect("a directory");
    let at = root.path();
    archon(at, "cert node athens --host a", 3).says(&["ca/ca.crt", "archon cert ca"]);
    archon(at, "cert ca", 0);
    for (line, part) in [
        ("cert node athens", "--host"),
        ("cert node athens --host athens:7201", "leave the port out: athens"),
        ("cert node athens --host [::1]:7201", "leave the port out: ::1"),
        ("cert node athens --host *.example.org", "no pattern"),
        ("cert node 7 --host a", "add a letter"),
        ("cert coordinator one --host a", "one"),
        ("cert coordinator 0 --host a", "0"),
        ("cert client shop --host a", "--host"),
        ("cert client shop --days 0", "write a number from 1 to 3650"),
        ("cert client .hidden", "do not begin with"),
        ("cert request athens --host a --out x", "ROLE/NAME"),
        ("cert request node/athens --out x", "--host"),
        ("cert request client/shop --host a --out x", "leave --host out"),
        ("cert king athens", "king"),
        ("cert ca --cluster a!b --out other", "letters, digits"),
        ("cert", "Usage"),
    ] {
        archon(at, line, 2).says(&[part]);
    }
    assert_eq!(fs::read_dir(at).expect("a directory").count(), 1, "nothing was made but the authority");
    fs::set_permissions(at.join("ca/ca.key"), fs::Permissions::from_mode(0o644)).expect("changed");
    archon(at, "cert client shop", 1).says(&["ca/ca.key", "others may read", "chmod 600"]);
}

#[test]
fn every_cert_help_has_an_example_and_fits_a_terminal() {
    let verbs =
        ["ca", "coordinator", "node", "participant", "client", "operator", "admin", "request", "sign", "show", "check"];
    for verb in verbs.map(|verb| format!("cert {verb}")).iter().chain([&"cert".to_owned()]) {
        let help = archon(Path::new("."), &format!("{verb} --help"), 0).stdout;
        assert!(help.contains("Examples:") && help.contains(&format!("  archon {verb} ")), "{verb}: {help}");
        let long: Vec<&str> = help.lines().filter(|line| line.chars().count() > 100).collect();
        assert!(long.is_empty(), "{verb}: {long:#?}");
    }
}
