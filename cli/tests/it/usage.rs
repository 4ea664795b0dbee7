//! The command line as a black box: invalid input, and exit codes without a cluster.

use crate::program::{HANG, archon, code, stderr};
use assert_cmd::Command;
use std::net::TcpListener;

/// Returns an address without a listener: bound for a moment, so that it is known to be free, then released.
fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").to_string()
}

#[test]
fn unknown_flag_or_verb_is_a_usage_error() {
    for line in [
        &["status", "--verbos"][..],
        &["top", "--every", "5"],
        &["top", "--every", "100ms"],
        &["statu"],
        &["rebalance", "apply", "--wait-timeout", "5s"],
        &["kv", "put", "key-without-value"],
        &["kv", "bench"],
        &["bench", "put", "--no-load"],
        &["bench"],
        &["bench", "put", "--clients", "0"],
        &["bench", "put", "--duration", "1s", "--operations", "5"],
        &["bench", "get", "--distribution", "zipfian:2"],
        &["bench", "failover", "--pid", "1", "--coordinators", "127.0.0.1:1"],
        &["bench", "failover", "--pid", "1", "--local"],
        &["bench", "failover", "--disturb", "stop", "--coordinators", "127.0.0.1:1"],
        &["bench", "rebalance", "--local", "--clients", "3"],
        &["bench", "rebalance", "--local", "--rate", "3"],
        &["bench", "rebalance", "--keys", "1000", "--beside-cp"],
        &["bench", "rebalance", "--engine", "sled"],
        &["bench", "put", "--threads", "2", "--coordinators", "127.0.0.1:1"],
        &["kv", "cas", "k", "v"],
        &["kv", "scan", "x", "--prefix", "y"],
        &["rebalance", "apply", "--dry-run", "--wait"],
        &["cert", "admin", "alice", "--days", "0"],
        &["cert", "admin", "alice", "--days", "-1"],
        &["cert", "admin", "alice", "--days", "0.5"],
        &["cert", "admin", "alice", "--days", "3651"],
        &["node", "drain"],
        &["node", "drain", "athens", "--dry-run", "--wait"],
        &["node", "drain", "athens", "--wait-timeout", "5s"],
        &["node", "cordon", "a b"],
        &["partition", "describe", "16384"],
        &["partition", "force-leader", "-1"],
        &["kv", "cas", "k", "v", "--revision", "-1"],
        &["kv", "incr", "n", "1.5"],
        &["kv", "incr", "n", "9223372036854775808"],
        &["kv", "batch", "/no/such/file", "--coordinators", "127.0.0.1:1"],
        &["table", "create", "orders", "--partitions", "0", "--replication", "1"],
        &["table", "describe"],
        &["table", "describe", "a b"],
        &["table", "drop"],
        &["table", "drop", "a b", "--yes"],
        &["--timeout", "5", "status"],
        &["node", "--name", "athens", "list", "--coordinators", "127.0.0.1:1"],
        &[],
    ] {
        let output = archon(line);
        assert_eq!(code(&output), 2, "{line:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{line:?} wrote to standard output");
    }
    assert!(stderr(&archon(&["statu"])).contains("status"), "a near verb is suggested");
}

#[test]
fn verbs_of_other_programs_are_answered_with_ours() {
    for (verb, here) in [
        ("health", "archon status"),
        ("members", "archon node list"),
        ("nodes", "archon node list"),
        ("get", "archon kv get KEY"),
        ("put", "archon kv put KEY VALUE"),
    ] {
        let output = archon(&[verb, "x"]);
        assert_eq!(code(&output), 2, "{verb}: {output:?}");
        assert!(stderr(&output).contains(here), "{verb}: {}", stderr(&output));
    }
    let listed = archon(&["kv", "ls"]);
    assert!(code(&listed) == 2 && stderr(&listed).contains("archon kv scan PREFIX"), "{listed:?}");
}

#[test]
fn endpoints_is_an_alias_of_coordinators() {
    let output = archon(&["status", "--endpoints", &nobody(), "--timeout", "300ms"]);
    assert!(matches!(code(&output), 5 | 6), "{output:?}");
}

#[test]
fn invalid_address_is_a_usage_error_with_a_correction() {
    for bad in ["nowhere", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", "a b:1"] {
        let output = archon(&["status", "--coordinators", bad]);
        assert_eq!(code(&output), 2, "{bad}: {output:?}");
        assert!(stderr(&output).contains("127.0.0.1:7101"), "{bad}: {}", stderr(&output));
    }
}

#[test]
fn missing_address_error_names_flag_and_variable() {
    for line in [&["status"][..], &["kv", "get", "k"]] {
        let output = archon(line);
        assert_eq!(code(&output), 2);
        let said = stderr(&output);
        assert!(said.contains("--coordinators") && said.contains("ARCHON_COORDINATORS"), "{said}");
    }
}

#[test]
fn plaintext_beyond_this_machine_needs_a_flag() {
    let output = archon(&["status", "--coordinators", "192.0.2.1:7101"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("--insecure"), "{}", stderr(&output));
    let data = tempfile::tempdir().expect("a temporary directory");
    let data = data.path().to_str().expect("a path in UTF-8");
    let peers = ["--id", "1", "--peers", "1=127.0.0.1:7101", "--data-dir", data];
    let output = archon(&[&["coordinator", "--listen", "0.0.0.0:7101"][..], &peers].concat());
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(stderr(&output).contains("--insecure"), "{}", stderr(&output));
}

#[test]
fn agent_that_others_could_reach_is_refused() {
    let plain = ["participant", "--table", "jobs", "--name", "w1", "--address", "127.0.0.1:8080"];
    let plain = [&plain[..], &["--coordinators", "127.0.0.1:1"]].concat();
    for (more, why) in [
        (&["--listen", "0.0.0.0:7700"][..], "on loopback only, not on 0.0.0.0:7700"),
        (&["--listen", "7700"], "write ip:port, as in 127.0.0.1:7700, or unix:/path"),
        (&["--listen", "127.0.0.1:0", "--exec", "worker"], "--exec"),
        (&["--service-lease", "50ms"], "100ms and 1h"),
    ] {
        let output = archon(&[&plain[..], more].concat());
        assert_eq!(code(&output), 2, "{more:?}: {output:?}");
        assert!(stderr(&output).contains(why), "{more:?}: {}", stderr(&output));
    }
    let remote = ["participant", "--table", "jobs", "--name", "w1", "--address", "127.0.0.1:8080"];
    let output = archon(&[&remote[..], &["--coordinators", "192.0.2.1:7101"]].concat());
    assert!(code(&output) == 2 && stderr(&output).contains("--insecure"), "{output:?}");
}

#[test]
fn lock_without_a_command_or_with_wrong_times_is_refused() {
    for (line, why) in [
        (&["lock", "job"][..], "COMMAND"),
        (&["lock", "job", "true"], "true"),
        (&["lock", "--", "true"], "NAME"),
        (&["lock", "", "--", "true"], "key"),
        (&["lock", "job", "--wait", "5", "--", "true"], "a time needs a unit"),
        (&["lock", "job", "--wait", "5s", "--no-wait", "--", "true"], "--no-wait"),
        (&["lock", "job", "--lease", "999ms", "--", "true"], "1s to 1h"),
        (&["lock", "job", "--lease", "2h", "--", "true"], "1s to 1h"),
        (&["lock", "job", "--table", "a/b", "--", "true"], "--table"),
    ] {
        let output = archon(line);
        assert_eq!(code(&output), 2, "{line:?}: {output:?}");
        assert!(stderr(&output).contains(why), "{line:?}: {}", stderr(&output));
    }
    let unreachable = archon(&["lock", "job", "--coordinators", &nobody(), "--timeout", "300ms", "--", "true"]);
    assert_eq!(code(&unreachable), 5, "{unreachable:?}");
}

#[test]
fn map_files_that_no_proxy_could_use_are_refused() {
    let plain = ["participant", "--name", "w1", "--address", "10.0.0.7:8080", "--coordinators", "127.0.0.1:1"];
    for (more, why) in [
        (&["--table", "jobs", "--write-map", "owners.txt"][..], "ends neither with .json, for Envoy, nor with .map"),
        (&["--table", "jobs", "--table", "carts", "--write-map", "a.json"], "write --write-map jobs=a.json"),
        (&["--table", "jobs", "--write-map", "carts=a.json"], "which no --table names"),
        (&["--table", "jobs", "--write-map", "a.json", "--write-map", "jobs=a.json"], "twice"),
        (&["--table", "jobs", "--write-map", "/nosuch/a.json"], "/nosuch is not a directory"),
    ] {
        let output = archon(&[&plain[..], more].concat());
        assert_eq!(code(&output), 2, "{more:?}: {output:?}");
        assert!(stderr(&output).contains(why), "{more:?}: {}", stderr(&output));
    }
}

#[test]
fn terminal_verbs_name_the_alternative_without_a_terminal() {
    for line in [&["top"][..], &["top", "-o", "json"]] {
        let output = archon(&[line, &["--coordinators", &nobody()]].concat());
        assert_eq!(code(&output), 2, "{line:?}: {output:?}");
        assert!(stderr(&output).contains("`archon status`"), "{line:?}: {}", stderr(&output));
    }
}

/// Every verb that needs the cluster ends with 5 (or 6) within its time-out if no coordinator is reachable.
#[test]
fn unreachable_coordinators_end_within_the_time_out() {
    let address = nobody();
    let lines = [
        &["status"][..],
        &["node", "list"],
        &["table", "list"],
        &["table", "drop", "orders", "--yes"],
        &["partition", "list"],
        &["rebalance", "plan"],
        &["rebalance", "cancel"],
        &["node", "drain", "athens", "--wait"],
        &["node", "remove", "athens"],
        &["node", "lost", "athens", "--accept-data-loss"],
        &["partition", "describe", "3"],
        &["partition", "force-leader", "3", "--accept-data-loss"],
        &["kv", "get", "k"],
        &["kv", "put", "k", "v"],
        &["kv", "cas", "k", "v", "--revision", "0"],
        &["kv", "incr", "n", "-3"],
        &["kv", "scan", "--prefix", "-x"],
        &["kv", "scan", "x"],
        &["bench", "put"],
        &["bench", "get"],
    ];
    let end_within_time_out = |line: &[&str]| {
        let output = archon(&[line, &["--coordinators", &address, "--timeout", "700ms"]].concat());
        assert!(matches!(code(&output), 5 | 6), "{line:?}: {output:?}");
        assert!(stderr(&output).contains("timed out after 700 ms"), "{line:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("next: "), "{line:?} gives no remedy: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{line:?} wrote to standard output");
    };
    // They wait, so they do it side by side.
    let end_within_time_out = &end_within_time_out;
    std::thread::scope(|scope| {
        for line in lines {
            scope.spawn(move || end_within_time_out(line));
        }
    });
}

#[test]
fn invalid_keys_and_values_are_rejected_before_any_call() {
    let address = nobody();
    let long = "k".repeat(4097);
    for key in ["", long.as_str()] {
        let output = archon(&["kv", "put", key, "v", "--coordinators", &address]);
        assert_eq!(code(&output), 2, "a key of {} bytes: {output:?}", key.len());
    }
    let mut command = Command::cargo_bin("archon").expect("the binary is built");
    command.args(["kv", "put", "k", "-", "--coordinators", &address]).timeout(HANG);
    let output = command.write_stdin(vec![b'v'; 1024 * 1024 + 1]).output().expect("the binary runs");
    assert_eq!(code(&output), 2, "an oversized value from standard input: {output:?}");
    assert!(stderr(&output).contains("1 MiB"), "{}", stderr(&output));
}

#[test]
fn batch_is_checked_line_by_line_before_any_call() {
    let address = nobody();
    for (text, part) in [
        ("put k v\nfetch k\n", "standard input, line 2"),
        ("cas k one v\n", "is not a revision"),
        ("get \"k\n", "JSON string"),
    ] {
        let mut command = Command::cargo_bin("archon").expect("the binary is built");
        command.args(["kv", "batch", "--coordinators", &address]).timeout(HANG);
        let output = command.write_stdin(text).output().expect("the binary runs");
        assert_eq!(code(&output), 2, "{text:?}: {output:?}");
        assert!(stderr(&output).contains(part), "{text:?}: {}", stderr(&output));
    }
}

#[test]
fn configuration_file_is_checked_with_line_and_suggestion() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("node.toml");
    std::fs::write(&path, "name = \"athens\"\nlisten = \"127.0.0.1:0\"\ncordinators = [\"127.0.0.1:1\"]\n")
        .expect("written");
    let path = path.to_str().expect("a path in UTF-8");
    let output = archon(&["node", "--config", path]);
    assert_eq!(code(&output), 2);
    let said = stderr(&output);
    for part in [path, "line 3", "cordinators", "did you mean `coordinators`?"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn invalid_log_filter_is_a_usage_error() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let data = data.path().to_str().expect("a path in UTF-8");
    let line = ["node", "--name", "a", "--listen", "127.0.0.1:0", "--coordinators", "127.0.0.1:1", "--data-dir", data];
    for filter in ["loud=maybe=perhaps", "inof", ""] {
        let output = archon(&[&line[..], &["--log", filter]].concat());
        assert_eq!(code(&output), 2, "{output:?}");
        assert!(stderr(&output).contains("--log"), "{}", stderr(&output));
    }
}

/// A process of the demonstration does not start without its parent.
#[cfg(target_os = "linux")]
#[test]
fn orphan_of_the_demonstration_does_not_start() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let data = data.path().to_str().expect("a path in UTF-8");
    let mut command = Command::cargo_bin("archon").expect("the binary is built");
    command.args([
        "node",
        "--name",
        "a",
        "--listen",
        "127.0.0.1:0",
        "--coordinators",
        "127.0.0.1:1",
        "--data-dir",
        data,
    ]);
    // Process 1 is never the parent of a test.
    let output = command.env("ARCHON_PARENT_PID", "1").timeout(HANG).output().expect("the binary runs");
    assert_eq!(code(&output), 1, "{output:?}");
    assert!(stderr(&output).contains("has ended"), "{}", stderr(&output));
}

#[test]
fn adding_a_coordinator_is_explained_by_its_start_command() {
    for verb in ["add", "join"] {
        let output = archon(&["quorum", verb]);
        let said = stderr(&output);
        assert_eq!(code(&output), 2, "{said}");
        assert!(said.contains("archon coordinator --id N") && !said.contains("set-address"), "{said}");
    }
}

/// A fault in the options of a table by ranges is reported for the faulty option.
#[test]
fn fault_of_a_table_by_ranges_is_reported_once() {
    let create = |options: &[&str]| {
        let output = archon(&[&["table", "create", "times", "--coordinators", "127.0.0.1:1"], options].concat());
        assert_eq!(code(&output), 2, "{options:?}: {output:?}");
        stderr(&output)
    };
    let text = create(&["--replication", "1"]);
    assert!(text.contains("--partitions <N>") && text.contains("--range"), "{text}");
    let text = create(&["--split-at", "a", "--replication", "1"]);
    let (missing, _) = text.split_once("Usage:").expect("how it is used");
    assert!(missing.contains("--range") && !missing.contains("--partitions"), "{text}");
    for wrong in ["", "a,,b", "a,"] {
        let text = create(&["--range", "--replication", "1", "--split-at", wrong]);
        assert!(text.contains("--split-at") && text.contains("a key is empty"), "{wrong:?}: {text}");
    }
    let text = create(&["--range", "--replication", "1", "--split-above", "99999999TiB"]);
    assert!(text.contains("is too large"), "{text}");
}

#[test]
fn key_that_is_no_utf_8_is_reported_with_its_position() {
    use std::os::unix::ffi::OsStrExt as _;
    let key = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let mut command = Command::cargo_bin("archon").expect("the binary is built");
    command.args(["kv", "get", "--coordinators", "127.0.0.1:1"]).arg(key);
    let output = command.timeout(HANG).output().expect("the binary runs");
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains(r#"argument 5, "caf\xE9", is not UTF-8"#), "{output:?}");
}
