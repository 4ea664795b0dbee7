//! systemd units.

use crate::truth::{EXE, Options, exit_codes, stop_deadline};
use archon_testkit::skipped;
use archon_tidy::packaging::seconds;
use archon_tidy::packaging::units::{PROGRAM, Unit};
use std::fs;
use std::process::Command;
use tempfile::TempDir;

#[test]
fn unit_uses_existing_flags() {
    for unit in Unit::all() {
        let command = unit.command();
        let options = Options::of(&command[..1]);
        for flag in command.iter().filter(|word| word.starts_with("--")) {
            options.check_flag(&unit.name, flag);
        }
        // The program must know every variable named in a comment.
        for word in unit.text.split([' ', ',', '\n', '`']) {
            options.check_variable(&unit.name, word);
        }
    }
}

#[test]
fn unit_kills_a_member_only_after_its_drain() {
    for unit in Unit::all() {
        let (limit, deadline) = (seconds(unit.value("Service", "TimeoutStopSec")), stop_deadline(unit.command()[0]));
        assert!(limit > deadline, "{}: SIGKILL after {limit:?}, and a stop may take {deadline:?}", unit.name);
        let named = format!("{} s at most", deadline.as_secs_f64().ceil());
        assert!(unit.text.contains(&named), "{}: not {named:?}", unit.name);
    }
}

#[test]
fn restart_preventing_exit_codes_are_in_the_contract() {
    let contract = exit_codes();
    for unit in Unit::all() {
        let prevents = unit.codes("RestartPreventExitStatus");
        assert!(prevents.is_subset(&contract), "{}: {prevents:?} of {contract:?}", unit.name);
    }
}

#[test]
fn usage_errors_end_with_the_exit_codes_of_units() {
    let directory = TempDir::new().expect("a directory");
    fs::write(directory.path().join("identity.json"), "{}").expect("a file");
    let data = directory.path().to_str().expect("a path");
    let run = |arguments: &[&str]| Command::new(EXE).args(arguments).output().expect("it starts").status.code();
    let coordinator = ["coordinator", "--id=1", "--listen=127.0.0.1:0", "--peers=1=127.0.0.1:7101", "--data-dir", data];
    let node = ["node", "--name=athens", "--listen=127.0.0.1:0", "--coordinators=127.0.0.1:1", "--data-dir", data];
    assert_eq!((run(&coordinator), run(&node)), (Some(4), Some(4)));
    assert_eq!((run(&coordinator[..2]), run(&node[..2])), (Some(2), Some(2)));
    assert_eq!(run(&["participant", "--name=w1"]), Some(2));
}

#[test]
fn systemd_accepts_the_units() {
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
        verify(&unit.name, &unit.text).unwrap_or_else(|said| panic!("{}: {said}", unit.name));
    }
    let wrong = Unit::read("archon-coordinator.service").text.replace("ProtectSystem=strict", "ProtectSystem=much");
    assert!(verify("wrong.service", &wrong).is_err_and(|said| said.contains("much")), "it finds faults");
}
