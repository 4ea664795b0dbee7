//! The program's own description of itself.

use archon_integration_tests::NotifiedMember;
use archon_integration_tests::ports::free_addresses;
use archon_tidy::packaging::Member;
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const EXE: &str = env!("CARGO_BIN_EXE_archon-under-test");

/// Returns the output of `archon VERB --help`.
#[track_caller]
fn help(verb: &[&str]) -> String {
    let ran = Command::new(EXE).args(verb).arg("--help").output().expect("the program starts");
    assert!(ran.status.success(), "{verb:?} is no verb: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

/// Flags and variables of a verb.
pub(crate) struct Options {
    flags: BTreeSet<String>,
    variables: BTreeSet<String>,
}

impl Options {
    pub(crate) fn of(verb: &[&str]) -> Self {
        let text = help(verb);
        let words = || text.split([' ', '\n', ',', '[', ']']).filter(|word| !word.is_empty());
        let flags: BTreeSet<_> = words().filter(|word| word.starts_with("--")).map(ToOwned::to_owned).collect();
        let variables =
            words().filter(|word| word.starts_with("ARCHON_") && word.is_ascii()).map(ToOwned::to_owned).collect();
        assert!(flags.contains("--timeout"), "{verb:?}: {flags:?}");
        Self { flags, variables }
    }

    #[track_caller]
    pub(crate) fn check_flag(&self, place: &str, flag: &str) {
        let flag = flag.split('=').next().unwrap_or_default();
        assert!(self.flags.contains(flag), "{place}: {flag} is no flag; there are {:?}", self.flags);
    }

    /// Variables without our prefix are unknown and not checked.
    #[track_caller]
    pub(crate) fn check_variable(&self, place: &str, variable: &str) {
        let known = !variable.starts_with("ARCHON_") || self.variables.contains(variable);
        assert!(known, "{place}: {variable} is no variable; there are {:?}", self.variables);
    }
}

/// Checks verb and flags of a command without the program.
#[track_caller]
pub(crate) fn check_command(place: &str, words: &[&str]) {
    let [first, rest @ ..] = words else { panic!("{place}: no verb") };
    let has_verbs = help(&[first]).contains("\nCommands:\n");
    // A word after a verb without subcommands, such as a key, is no verb.
    let second = rest.first().filter(|word| has_verbs && !word.starts_with('-'));
    let verb: Vec<&str> = [Some(first), second].into_iter().flatten().copied().collect();
    let options = Options::of(&verb);
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        options.check_flag(place, flag);
    }
}

/// Checks that the program knows all settings in a manifest of a member.
#[track_caller]
pub(crate) fn check_member(member: &Member) {
    member.check_settings();
    let options = Options::of(&[member.verb()]);
    for word in &member.words[1..] {
        options.check_flag(&member.place, word);
    }
    for (variable, _) in &member.variables {
        options.check_variable(&member.place, variable);
    }
}

/// Returns the exit codes of the contract.
pub(crate) fn exit_codes() -> BTreeSet<u8> {
    let text = help(&[]);
    let (_, codes) = text.split_once("Exit codes:").expect("the contract");
    let codes: BTreeSet<u8> = codes.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(codes.len() > 6, "{codes:?}");
    codes
}

/// Returns a member's stop deadline, as it announces it.
pub(crate) fn stop_deadline(verb: &str) -> Duration {
    let directory = TempDir::new().expect("a directory");
    let address = free_addresses(1).remove(0);
    let (id, peers) = ("1", format!("1={address}"));
    let in_directory = |arguments: &[&str]| NotifiedMember::start(EXE, verb, arguments, directory.path());
    let member = match verb {
        "participant" => {
            let agent = [EXE, "participant", "--listen", "127.0.0.1:0", "--name", "w1", "--table", "jobs", "--address"];
            let agent = [&agent[..], &["127.0.0.1:8080", "--coordinators", "127.0.0.1:1"]].concat();
            NotifiedMember::start_command(verb, &agent, &[], directory.path())
        }
        "coordinator" => in_directory(&["coordinator", "--listen", &address, "--id", id, "--peers", &peers]),
        _ => in_directory(&["node", "--listen", &address, "--name", "athens", "--coordinators", "127.0.0.1:1"]),
    };
    member.wait("STATUS=");
    let deadline = member.stop();
    assert!((10..60).contains(&deadline.as_secs()), "{verb}: {deadline:?}");
    deadline
}
