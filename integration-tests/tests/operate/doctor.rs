//! `archon doctor` on real clusters and real directories of this machine: healthy parts are reported as such, and
//! problems with a remedy.

use crate::EXE;
use archon_client::Role;
use archon_integration_tests::cluster::{CommandOutput, TIMEOUT};
use archon_integration_tests::{Cluster, Options, ProcessExt as _, contract};
use archon_testkit::{check, wait_for};
use serde_json::Value;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Runs the command; returns the exit code and the validated document.
fn doctor(cluster: &Cluster, arguments: &[&str]) -> (i32, Value) {
    let ran = cluster.archon(&[&["doctor", "-o", "json"], arguments].concat());
    (ran.code, document(&ran))
}

fn document(ran: &CommandOutput) -> Value {
    let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    contract::check("doctor", &document).unwrap_or_else(|error| panic!("{error}\n{document:#}"));
    document
}

/// Returns the findings of a kind, each with verdict and text.
fn findings(document: &Value, code: &str) -> Vec<(String, String)> {
    let all = document["findings"].as_array().expect("a list");
    let of_kind = all.iter().filter(|finding| finding["code"] == code);
    of_kind
        .map(|finding| {
            let verdict = finding["verdict"].as_str().expect("a word").to_owned();
            if verdict == "warning" || verdict == "error" {
                assert!(finding["remedy"].is_string(), "nothing to do about {finding}");
            }
            (verdict, finding.to_string())
        })
        .collect()
}

#[track_caller]
fn one(document: &Value, code: &str, verdict: &str, part: &str) {
    let found = findings(document, code);
    let holds = found.iter().any(|(is, said)| is == verdict && said.contains(part));
    assert!(holds, "no {code} that is {verdict} and says {part:?}: {found:#?}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

#[test]
fn doctor_finds_no_error_until_a_coordinator_stops() {
    let mut cluster = Cluster::start(EXE, &Options { replication: 3, ..Options::default() });
    cluster.wait_whole(3);
    let (code, document) = wait_for("a cluster without an error", TIMEOUT, || {
        let (code, document) = doctor(&cluster, &[]);
        let errors = document["findings"].as_array().expect("a list").iter().filter(|one| one["verdict"] == "error");
        check(errors.count() == 0, || format!("{document:#}"))?;
        Ok::<_, String>((code, document))
    })
    .0;
    assert_eq!(code, 0, "{document:#}");
    one(&document, "quorum", "ok", "one more may fail");
    one(&document, "version", "ok", "each of 6 members runs archon");
    one(&document, "clock_set", "ok", "the clocks of 6 members agree");
    one(&document, "open_files", "ok", "the cluster");
    one(&document, "alert", "ok", "nothing needs attention");
    one(&document, "directory", "not_checked", "--data-dir");
    assert!(!findings(&document, "disk_sync").is_empty(), "{document:#}");

    // A running node, by the configuration file that it could have been started with.
    let data = cluster.node_data("athens");
    let file = cluster.directory().join("athens.toml");
    let settings =
        format!("name = 'athens'\nlisten = '{}'\ndata_dir = '{}'\n", cluster.node_address("athens"), text(&data));
    std::fs::write(&file, settings).expect("written");
    let (_, document) = doctor(&cluster, &["--config", text(&file)]);
    one(&document, "configuration", "ok", "node/athens");
    one(&document, "directory", "ok", "private");
    one(&document, "directory_lock", "ok", &format!("process {} uses it", cluster.node("athens").pid()));
    one(&document, "port", "ok", "node/athens of archon listens there");
    assert_eq!(
        std::fs::read_dir(&data).expect("a directory").flatten().filter(|file| file.file_name() == "LOCK").count(),
        1
    );
    // The address of another node.
    let (code, document) = doctor(&cluster, &["--config", text(&file), "--listen", cluster.node_address("cyrene")]);
    assert_eq!((code, document["verdict"].as_str()), (11, Some("error")));
    one(&document, "port", "error", "node/cyrene listens there instead of node/athens");

    assert!(cluster.take_coordinator(2).terminate(TIMEOUT).success());
    wait_for("the coordinator that stopped to be told", TIMEOUT, || {
        let (code, document) = doctor(&cluster, &[]);
        let told = findings(&document, "alert");
        let holds =
            |(verdict, said): &(String, String)| verdict == "warning" && said.contains("CoordinatorUnreachable");
        check(code == 0 && told.iter().any(holds), || format!("{document:#}"))
    });
    let away = doctor(&cluster, &[]).1;
    one(&away, "quorum", "warning", "none of them may fail");
    one(&away, "member", "warning", "coordinator/3");

    assert!(cluster.take_coordinator(1).terminate(TIMEOUT).success());
    wait_for("the loss of the majority to be told", TIMEOUT, || {
        let (code, document) = doctor(&cluster, &[]);
        let told = findings(&document, "quorum");
        let holds = |(verdict, said): &(String, String)| {
            verdict == "error"
                && (said.contains("no coordinator leads") || said.contains("claims to lead without a majority"))
        };
        check(code == 11 && told.iter().any(holds), || format!("{document:#}"))
    });
    let none = cluster.archon(&["doctor"]);
    for address in &cluster.coordinator_addresses()[1..] {
        assert!(none.stdout.contains(&format!("({address})")), "{}", none.stdout);
    }
}

#[test]
fn doctor_with_tls_uses_the_members_credentials() {
    let cluster = Cluster::start(EXE, &Options { tls: true, ..Options::default() });
    let own = cluster.credentials(Role::Node, "delos");
    let file = cluster.directory().join("delos.toml");
    let configure = |listen: &str| {
        let coordinators = cluster.coordinator_addresses().join("', '");
        let settings = format!(
            "name = 'delos'\nlisten = '{listen}'\ncoordinators = ['{coordinators}']\ntls_dir = '{}'\n",
            text(&own)
        );
        std::fs::write(&file, settings).expect("written");
    };
    let look = || document(&cluster.archon_as(None, &["doctor", "-o", "json", "--config", text(&file)]));
    configure("127.0.0.1:0");
    let looked = look();
    one(&looked, "certificate", "ok", "node/delos, until");
    one(&looked, "quorum", "not_checked", "those of an operator or admin with --tls-dir");
    assert_ne!(looked["verdict"], "error", "{looked:#}");
    // The certificate names the address owner.
    configure(cluster.node_address("athens"));
    one(&look(), "port", "error", "node/athens listens there instead of node/delos");
    // An administrator sees everything, the machine's own credentials as well.
    let (_, looked) = doctor(&cluster, &["--config", text(&file)]);
    one(&looked, "certificate", "ok", "node/delos, until");
    one(&looked, "certificate", "ok", "each of 6 members presents its own valid certificate");
    one(&looked, "quorum", "ok", "one more may fail");
    // A key that others can read.
    std::fs::set_permissions(own.join("tls.key"), std::fs::Permissions::from_mode(0o644)).expect("changed");
    one(&look(), "certificate", "error", "others may read this key");
}

#[test]
fn doctor_reports_bad_places_and_used_ports_offline() {
    let ran = |arguments: &[&str]| {
        let mut command = std::process::Command::new(EXE);
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ARCHON_")).for_each(|(name, _)| {
            command.env_remove(name);
        });
        let output = command.args(["doctor", "-o", "json"]).args(arguments).output().expect("it starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        let ran = CommandOutput { code: output.status.code().unwrap_or(-1), stdout, stderr };
        (ran.code, document(&ran))
    };
    let (code, document) = ran(&[]);
    assert_eq!(code, 0, "{document:#}");
    one(&document, "quorum", "not_checked", "no coordinator is named");

    // No user can create a file there, root included.
    let (code, document) = ran(&["--data-dir", "/sys/kernel"]);
    assert_eq!(code, 11, "{document:#}");
    one(&document, "directory", "error", "cannot create a file in /sys/kernel");
    one(&document, "disk_sync", "not_checked", "/sys/kernel");

    if is_in_memory("/dev/shm") {
        let (code, document) = ran(&["--data-dir", "/dev/shm/archon-data-that-is-not-there"]);
        assert_eq!(code, 11, "{document:#}");
        one(&document, "file_system", "error", "tmpfs is in memory");
        one(&document, "directory", "ok", "can be created in /dev/shm");
    } else {
        archon_testkit::skipped("no file system in memory at /dev/shm");
    }

    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    let (code, document) = ran(&["--listen", &address]);
    assert_eq!(code, 11, "{document:#}");
    one(&document, "port", "error", "a process listens there that is not a member");
    drop(taken);
    let (_, document) = ran(&["--listen", &address]);
    one(&document, "port", "ok", "the port is free");

    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("node.toml");
    std::fs::write(&file, "name = 'athens'\nlisen = '127.0.0.1:1'\n").expect("written");
    let (code, document) = ran(&["--config", text(&file)]);
    assert_eq!(code, 11, "{document:#}");
    one(&document, "configuration", "error", "did you mean `listen`?");
}

fn is_in_memory(path: &str) -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').skip(1).take(2).eq([path, "tmpfs"]))
}
