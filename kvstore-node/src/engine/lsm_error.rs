//! Errors of the engine on an LSM tree.

use archon_kv::engine::EngineError;
use std::path::Path;

/// Converts an error of the operating system in the operation `what`.
pub(super) fn io(directory: &Path, what: &'static str) -> impl Fn(std::io::Error) -> EngineError {
    let directory = directory.to_owned();
    move |source| EngineError::Io { directory: directory.clone(), what, source }
}

/// Converts an error of the library: as damage, unless the operating system refused.
pub(super) fn convert(directory: &Path, what: &'static str, error: lsm_tree::Error) -> EngineError {
    use std::io::ErrorKind::{InvalidData, InvalidInput, NotFound, UnexpectedEof};
    let refused =
        |source: &std::io::Error| !matches!(source.kind(), InvalidData | InvalidInput | NotFound | UnexpectedEof);
    match error {
        lsm_tree::Error::Io(source) if refused(&source) => io(directory, what)(source),
        other => EngineError::Damaged { directory: directory.to_owned(), what: format!("could not {what}: {other}") },
    }
}
