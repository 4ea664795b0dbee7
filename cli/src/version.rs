//! `archon version`.

use crate::documents::Version;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_types::ProtocolRange;

/// Prints version, commit and protocols, without any request.
pub(crate) fn run(output: &Output) -> Result<Exit, Failure> {
    let ProtocolRange { oldest, newest } = ProtocolRange::SPOKEN;
    let version = Version {
        archon_version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: option_env!("ARCHON_BUILT_COMMIT").map(str::to_owned),
        protocol_min: oldest,
        protocol_max: newest,
    };
    if output.is_json() {
        output.json(&version)?;
    } else {
        let commit = version.commit.as_deref().unwrap_or("unknown");
        output.line(format!("archon {}, commit {commit}, protocols {oldest} to {newest}", version.archon_version))?;
    }
    Ok(Exit::Done)
}
