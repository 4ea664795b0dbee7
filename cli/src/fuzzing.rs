//! Entry points for the fuzzer: files that an operator hands over.

use crate::admin::plan_file::PlanFile;
use crate::serve::file::ConfigFile;
use crate::serve::settings::coordinator::FromCoordinatorFile;
use crate::serve::settings::node::FromNodeFile;
use std::path::Path;

/// A plan.
///
/// # Errors
/// What is wrong with it.
pub fn plan(path: &Path) -> Result<(), String> {
    PlanFile::read(path).map(|_| ()).map_err(|failure| failure.message)
}

/// A node's settings.
///
/// # Errors
/// What is wrong with them.
pub fn node_file(path: &Path) -> Result<(), String> {
    let file = ConfigFile::read(path).map_err(|error| error.to_string())?;
    FromNodeFile::read(&file).map(|_| ()).map_err(|error| error.to_string())
}

/// A coordinator's settings.
///
/// # Errors
/// What is wrong with them.
pub fn coordinator_file(path: &Path) -> Result<(), String> {
    let file = ConfigFile::read(path).map_err(|error| error.to_string())?;
    FromCoordinatorFile::read(&file).map(|_| ()).map_err(|error| error.to_string())
}
