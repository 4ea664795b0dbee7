//! Units of systemd.

use crate::truth::{EXE, Options, exit_codes, seconds, stop_deadline};
use crate::{names, source};
use archon_skip::skipped;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use tempfile::TempDir;

/// Where a unit finds the program.
const PROGRAM: &str = "/usr/bin/archon";

/// A unit's settings: section, key, value.
struct Unit {
    name: String,
    settings: Vec<(String, String, String)>,
}

impl Unit {
    #[track_caller]
    fn read(name: &str) -> Self {
        let (mut section, mut settings) = (String::new(), Vec::new());
        for line in source(&format!("packaging/systemd/{name}")).lines() {
            match (line.strip_prefix('[').and_then(|line| line.strip_suffix(']')), line.split_once('=')) {
                _ if line.is_empty() || line.starts_with('#') => {}
                (Some(title), _) => title.clone_into(&mut section),
                (None, Some((key, value))) if !value.ends_with('\\') => {
                    settings.push((section.clone(), key.to_owned(), value.to_owned()));
                }
                (None, _) => panic!("{name}: {line:?}"),
            }
        }
        Self { name: name.to_owned(), settings }
    }

    fn all() -> Vec<Self> {
        let units: Vec<_> = names("packaging/systemd").into_iter().filter(|name| name.ends_with(".service")).collect();
        units.iter().map(|name| Self::read(name)).collect()
    }

    /// The one value of a key.
    #[track_caller]
    fn value(&self, section: &str, key: &str) -> &str {
        let mut values =
            self.settings.iter().filter(|(of, name, _)| of == section && name == key).map(|(.., value)| value);
        let value = values.next().unwrap_or_else(|| panic!("{}: [{section}] {key}= is missing", self.name));
        assert_eq!(values.next(), None, "{}: {key} stands there twice", self.name);
        value
    }

    fn codes(&self, key: &str) -> BTreeSet<u8> {
        self.value("Service", key).split_whitespace().map(|code| code.parse().expect("a code")).collect()
    }

    /// Verb and flags.
    fn command(&self) -> Vec<&str> {
        let command = self.value("Service", "ExecStart").strip_prefix(PROGRAM);
        command.unwrap_or_else(|| panic!("{}: another program", self.name)).split_whitespace().collect()
    }
}

#[test]
fn a_unit_started_the_program_with_flags_that_it_did_not_have() {
    for unit in Unit::all() {
        let command = unit.command();
        let options = Options::of(&command[..1]);
        for flag in command.iter().filter(|word| word.starts_with("--")) {
            options.check_flag(&unit.name, flag);
        }
        // Whoever looks for a variable that a comment names should find it.
        for word in source(&format!("packaging/systemd/{}", unit.name)).split([' ', ',', '\n', '`']) {
            options.check_variable(&unit.name, word);
        }
    }
}

#[test]
fn the_service_manager_killed_a_member_in_the_midst_of_its_drain() {
    for unit in Unit::all() {
        let (told, deadline) = (seconds(unit.value("Service", "TimeoutStopSec")), stop_deadline(unit.command()[0]));
        assert!(told > deadline, "{}: SIGKILL after {told:?}, and a stop may take {deadline:?}", unit.name);
        assert_eq!(unit.value("Service", "KillSignal"), "SIGTERM");
        let said = format!("{} s at most", deadline.as_secs_f64().ceil());
        assert!(source(&format!("packaging/systemd/{}", unit.name)).contains(&said), "{}: not {said:?}", unit.name);
    }
}

/// A restart is of no use after wrong usage and after a refusal; a failed disk may do better, and a kill says nothing.
#[test]
fn a_member_whose_disk_was_full_was_never_started_again() {
    let contract = exit_codes();
    for unit in Unit::all() {
        assert_eq!(unit.value("Service", "Restart"), "on-failure");
        let prevents = unit.codes("RestartPreventExitStatus");
        assert!(prevents.is_subset(&contract), "{}: {prevents:?} of {contract:?}", unit.name);
        assert_eq!(prevents, BTreeSet::from([2, 4]), "{}", unit.name);
        // Each is explained on a line of its own.
        let text = source(&format!("packaging/systemd/{}", unit.name));
        for code in &prevents {
            assert!(text.contains(&format!("\n#   {code}  ")), "{}: why not after {code}?", unit.name);
        }
        // 128 and the number of the signal that came twice.
        assert_eq!(unit.codes("SuccessExitStatus"), BTreeSet::from([130, 143]), "{}", unit.name);
    }
}

#[test]
fn wrong_usage_and_a_refused_directory_end_with_the_codes_that_units_name() {
    let directory = TempDir::new().expect("a directory");
    fs::write(directory.path().join("identity.json"), "{}").expect("a file");
    let data = directory.path().to_str().expect("a path");
    let run = |arguments: &[&str]| Command::new(EXE).args(arguments).output().expect("it starts").status.code();
    let coordinator = ["coordinator", "--id=1", "--listen=127.0.0.1:0", "--peers=1=127.0.0.1:7101", "--data-dir", data];
    let node = ["node", "--name=athens", "--listen=127.0.0.1:0", "--coordinators=127.0.0.1:1", "--data-dir", data];
    assert_eq!((run(&coordinator), run(&node)), (Some(4), Some(4)));
    assert_eq!((run(&coordinator[..2]), run(&node[..2])), (Some(2), Some(2)));
}

#[test]
fn a_unit_keeps_its_data_where_it_may_write() {
    for unit in Unit::all() {
        // A node that is broken into must not read the key of a coordinator, which is an administrator's.
        let (user, other) = match unit.command()[0] {
            "coordinator" => ("archon-coordinator", "/var/lib/archon"),
            _ => ("archon", "/var/lib/archon-coordinator"),
        };
        let hidden = unit.value("Service", "InaccessiblePaths");
        assert!(hidden.split_whitespace().any(|path| path == format!("-{other}")), "{}: {hidden}", unit.name);
        for (key, value) in
            [("StateDirectory", user), ("ProtectSystem", "strict"), ("UMask", "0077"), ("User", user), ("Group", user)]
        {
            assert_eq!(unit.value("Service", key), value, "{}", unit.name);
        }
        assert_eq!(unit.value("Service", "NoNewPrivileges"), "true");
        assert_eq!(unit.value("Service", "Type"), "notify");
        assert!(unit.value("Service", "LimitNOFILE").parse::<u64>().is_ok_and(|files| files > 65_536));
        let command = unit.command();
        let after = |flag: &str| command.iter().skip_while(|word| **word != flag).nth(1).copied();
        let file = after("--config").and_then(|path| path.strip_prefix("/etc/archon/")).expect("a file of settings");
        let example: toml::Table = source(&format!("docs/examples/{file}")).parse().expect("TOML");
        let data = after("--data-dir").or(example["data_dir"].as_str()).expect("a data directory");
        assert!(data.starts_with(&format!("/var/lib/{user}/")), "{}: {data}", unit.name);
    }
    let users = source("packaging/systemd/archon.sysusers");
    let lines: Vec<_> = users.lines().filter(|line| !line.starts_with('#')).collect();
    let made = |line: &str, user: &str| {
        line.starts_with(&format!("u {user} ")) && line.ends_with(&format!(" /var/lib/{user}"))
    };
    let [node, coordinator] = lines[..] else { panic!("{users}") };
    assert!(made(node, "archon") && made(coordinator, "archon-coordinator"), "{users}");
}

#[test]
fn systemd_finds_no_fault_with_the_units() {
    if !Command::new("systemd-analyze").arg("--version").output().is_ok_and(|ran| ran.status.success()) {
        return skipped("units are not verified by systemd-analyze, which is not installed (Debian's systemd has it)");
    }
    let directory = TempDir::new().expect("a directory");
    let verify = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text.replace(PROGRAM, EXE)).expect("a unit");
        let ran = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().expect("it starts");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        if ran.status.success() && said.is_empty() { Ok(()) } else { Err(said) }
    };
    for unit in Unit::all() {
        let text = source(&format!("packaging/systemd/{}", unit.name));
        verify(&unit.name, &text).unwrap_or_else(|said| panic!("{}: {said}", unit.name));
    }
    let wrong =
        source("packaging/systemd/archon-coordinator.service").replace("ProtectSystem=strict", "ProtectSystem=much");
    assert!(verify("wrong.service", &wrong).is_err_and(|said| said.contains("much")), "it finds faults");
}
