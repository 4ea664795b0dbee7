//! `archon completion SHELL`: the completion script, on standard output. `archon manual DIRECTORY`: the manual pages.

use crate::args::Cli;
use crate::exit::{Exit, Failure};
use clap::CommandFactory;
use clap_complete::Shell;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Prints the completion script.
pub(crate) fn complete(shell: Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "archon", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(Exit::Done)
}

/// Writes a page for each command: `archon.1`, `archon-kv-put.1`.
pub(crate) fn write_manual(directory: &Path) -> Result<Exit, Failure> {
    let written = fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.map_err(|error| Failure::failed(format!("writing manual pages to {}: {error}", directory.display())))?;
    Ok(Exit::Done)
}
