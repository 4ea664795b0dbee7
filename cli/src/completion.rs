//! `archon completion SHELL`: the completion script, on standard output.

use crate::args::Cli;
use crate::exit::{Exit, Failure};
use clap::CommandFactory;
use clap_complete::Shell;
use std::io::Write;

/// Prints the script.
pub(crate) fn run(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "archon", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(Exit::Done)
}
