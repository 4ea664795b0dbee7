//! Reading of a command line: syntax, and flags that would be ignored.

use super::hints;
use super::verb::Cli;
use crate::output::Format;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// Reads a command line, the program's name first.
///
/// # Errors
/// The fault of the command line; `--help` and `--version` also arrive here.
pub(crate) fn parse_line(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    let mut command = Cli::command();
    let matches = command.try_get_matches_from_mut(&args).map_err(|error| hints::added(error, &args, &command))?;
    refuse_idle_flags(&matches)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    if cli.connection.json {
        cli.connection.output = Format::Json;
    }
    Ok(cli)
}

/// Refuses run options together with a verb of `archon node`, which also runs a node: they would be ignored silently.
/// Variables are exempt: the environment is set once, for all calls.
fn refuse_idle_flags(matches: &ArgMatches) -> Result<(), clap::Error> {
    refuse_second_table(matches)?;
    let Some(("node", given)) = matches.subcommand() else { return Ok(()) };
    let Some((verb, _)) = given.subcommand() else { return Ok(()) };
    let mut command = Cli::command();
    let idle = command.find_subcommand("node").into_iter().flat_map(clap::Command::get_arguments).find_map(|flag| {
        let said = given.value_source(flag.get_id().as_str()) == Some(ValueSource::CommandLine);
        flag.get_long().filter(|_| said && !flag.is_global_set()).map(str::to_owned)
    });
    match idle {
        Some(flag) => {
            let message = format!("--{flag} configures a running node; `archon node {verb}` does not use it");
            Err(command.error(ErrorKind::ArgumentConflict, message))
        }
        None => Ok(()),
    }
}

/// Refuses `--table` beside the table argument of `archon kv export T` and `import T`: it would be ignored silently.
fn refuse_second_table(matches: &ArgMatches) -> Result<(), clap::Error> {
    let Some(("kv", given)) = matches.subcommand() else { return Ok(()) };
    match given.subcommand() {
        Some((verb @ ("export" | "import"), of)) if of.value_source("table") == Some(ValueSource::CommandLine) => {
            let message =
                format!("the table is given twice: as argument of `archon kv {verb}` and by --table; give it once");
            let mut command = Cli::command();
            command.build();
            let own = command.find_subcommand_mut("kv").and_then(|kv| kv.find_subcommand_mut(verb));
            Err(match own {
                Some(own) => own.error(ErrorKind::ArgumentConflict, message),
                None => clap::Error::raw(ErrorKind::ArgumentConflict, message),
            })
        }
        _ => Ok(()),
    }
}
