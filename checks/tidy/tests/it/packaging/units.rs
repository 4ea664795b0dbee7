//! systemd units.

use archon_tidy::packaging::units::Unit;
use archon_tidy::source;
use std::collections::BTreeSet;

/// A restart does not help after wrong usage or a refused directory; it may after a failed disk or a kill.
#[test]
fn unit_restarts_a_member_unless_useless() {
    for unit in Unit::all() {
        assert_eq!(unit.value("Service", "Restart"), "on-failure");
        let prevents = unit.codes("RestartPreventExitStatus");
        assert_eq!(prevents, BTreeSet::from([2, 4]), "{}", unit.name);
        // Each is explained on a line of its own.
        for code in &prevents {
            assert!(unit.text.contains(&format!("\n#   {code}  ")), "{}: why not after {code}?", unit.name);
        }
        // 128 plus the number of the signal that came twice.
        assert_eq!(unit.codes("SuccessExitStatus"), BTreeSet::from([130, 143]), "{}", unit.name);
        assert_eq!(unit.value("Service", "KillSignal"), "SIGTERM");
    }
}

#[test]
fn unit_keeps_data_in_a_writable_place() {
    for unit in Unit::all() {
        // A compromised node must not read the key of a coordinator, which is an administrator's.
        let (user, others) = match unit.command()[0] {
            "coordinator" => ("archon-coordinator", &["/var/lib/archon"][..]),
            "participant" => ("archon-participant", &["/var/lib/archon", "/var/lib/archon-coordinator"][..]),
            _ => ("archon", &["/var/lib/archon-coordinator"][..]),
        };
        let hidden = unit.value("Service", "InaccessiblePaths");
        for other in others {
            assert!(hidden.split_whitespace().any(|path| path == format!("-{other}")), "{}: {hidden}", unit.name);
        }
        for (key, value) in [("ProtectSystem", "strict"), ("UMask", "0077"), ("User", user), ("Group", user)] {
            assert_eq!(unit.value("Service", key), value, "{}", unit.name);
        }
        assert_eq!(unit.value("Service", "NoNewPrivileges"), "true");
        assert_eq!(unit.value("Service", "Type"), "notify");
        let command = unit.command();
        if command[0] == "participant" {
            // It keeps no data, and its settings are variables.
            // Each instance has its own, with the user of that instance as owner.
            assert_eq!(unit.value("Service", "RuntimeDirectory"), format!("{user}/%i"));
            assert_eq!(unit.value("Service", "EnvironmentFile"), "/etc/archon/participant-%i.env");
            continue;
        }
        assert!(unit.value("Service", "LimitNOFILE").parse::<u64>().is_ok_and(|files| files > 65_536));
        assert_eq!(unit.value("Service", "StateDirectory"), user, "{}", unit.name);
        let after = |flag: &str| command.iter().skip_while(|word| **word != flag).nth(1).copied();
        let file = after("--config").and_then(|path| path.strip_prefix("/etc/archon/")).expect("a file of settings");
        let example: toml::Table = source(&format!("docs/operate/examples/{file}")).parse().expect("TOML");
        let data = after("--data-dir").or(example["data_dir"].as_str()).expect("a data directory");
        assert!(data.starts_with(&format!("/var/lib/{user}/")), "{}: {data}", unit.name);
    }
    let users = source("packaging/systemd/archon.sysusers");
    let lines: Vec<_> = users.lines().filter(|line| !line.starts_with('#')).collect();
    let made = |line: &str, user: &str| {
        line.starts_with(&format!("u {user} ")) && line.ends_with(&format!(" /var/lib/{user}"))
    };
    let [node, coordinator, participant] = lines[..] else { panic!("{users}") };
    assert!(participant.starts_with("u archon-participant ") && participant.ends_with(" /nonexistent"), "{users}");
    assert!(made(node, "archon") && made(coordinator, "archon-coordinator"), "{users}");
}
