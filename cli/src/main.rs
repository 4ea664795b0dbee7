//! The `archon` command. Everything is in the library, so that tests can build a binary of their own from it.

use std::process::ExitCode;

fn main() -> ExitCode {
    archon_cli::main_with(std::env::args_os())
}
