//! The program `archon`, run to its end.

use assert_cmd::Command;
use std::process::Output;
use std::time::Duration;

/// Far above any expected duration: only a hang reaches it.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// Returns the program without the variables of this environment that it reads.
pub(crate) fn command() -> Command {
    let mut command = Command::cargo_bin("archon").expect("the binary is built");
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("ARCHON_") {
            command.env_remove(variable);
        }
    }
    command.timeout(HANG);
    command
}

/// Runs a command line.
pub(crate) fn archon(line: &[&str]) -> Output {
    command().args(line).output().expect("the binary runs")
}

pub(crate) fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {output:?}"))
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
