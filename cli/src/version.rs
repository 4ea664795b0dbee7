//! `archon version`.

use crate::documents::Version;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Prints the version, without any request.
pub(crate) fn run(output: &Output) -> Result<Exit, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    if output.is_json() {
        output.json(&Version { archon_version: version.to_owned() })?;
    } else {
        output.line(format!("archon {version}"))?;
    }
    Ok(Exit::Done)
}
