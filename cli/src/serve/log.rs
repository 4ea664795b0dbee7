//! Log lines: fields, to standard error, filtered by level or module.

use crate::args::{LogArgs, LogFormat};
use crate::exit::Failure;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// The Raft library narrates every vote at `info` and every unreachable peer at `warn`, several times a second, and at an
/// ordinary end calls it an error that its tasks end. We log what matters of it ourselves, why it ended by itself
/// included, so it speaks only when asked by name.
const TALKATIVE: &str = "openraft";

fn with_quiet_libraries(filter: &str) -> String {
    if filter.contains(TALKATIVE) { filter.to_owned() } else { format!("{filter},{TALKATIVE}=off") }
}

/// Starts logging for this process.
///
/// # Errors
/// A filter that cannot be read, with examples of ones that can.
pub(crate) fn start(args: &LogArgs) -> Result<(), Failure> {
    let filter = EnvFilter::builder().parse(with_quiet_libraries(&args.filter)).map_err(|error| {
        Failure::usage(
            format!("--log {:?}: {error}", args.filter),
            "name a level (error, warn, info, debug, trace) or modules, as in info,archon_coordinator=debug",
        )
    })?;
    let terminal = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    let started = match args.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Failure::failed(format!("starting the log: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_speaks_when_asked_by_name() {
        assert_eq!(with_quiet_libraries("info"), "info,openraft=off");
        assert_eq!(with_quiet_libraries("debug,openraft=debug"), "debug,openraft=debug");
    }
}
