//! Notes in an engine's directory on which the next start acts: damage, and panics of the engine's library.

use archon_kv::engine::EngineError;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Contains the damage that ended the engine's last use. The next start sets the engine aside.
const DAMAGE_FILE: &str = "archon-damage";
/// Contains the operation in which the library panicked. The next start checks the engine's files.
const PANIC_FILE: &str = "archon-panic";

/// Notes damage that ends the use of its engine; other errors are not noted. Opening the engine may not find the damage, and
/// the node would end again after each start.
pub(crate) fn note_damage(error: &EngineError) {
    let EngineError::Damaged { directory, what } = error else { return };
    note(directory, DAMAGE_FILE, what);
    let remedy =
        "the next start sets it aside as a directory `….quarantined-N` and reloads its replicas; check the disk";
    tracing::error!(directory = %directory.display(), %what, "the engine is damaged; {remedy}");
}

/// Returns noted damage as an error.
///
/// # Errors
/// [`EngineError::Damaged`] if damage is noted, [`EngineError::Io`] if the note cannot be read.
pub(super) fn check_damage(directory: &Path) -> Result<(), EngineError> {
    match read(directory, DAMAGE_FILE)? {
        Some(what) => Err(EngineError::Damaged { directory: directory.to_owned(), what }),
        None => Ok(()),
    }
}

/// Returns the operation in which the library panicked during the last use, if it did.
///
/// # Errors
/// [`EngineError::Io`] if the note cannot be read.
pub(super) fn read_panic(directory: &Path) -> Result<Option<String>, EngineError> {
    read(directory, PANIC_FILE)
}

/// Removes the note of a panic, once the engine's files are checked.
pub(super) fn remove_panic(directory: &Path) -> io::Result<()> {
    fs::remove_file(directory.join(PANIC_FILE))
}

/// Notes a panic of its thread, which ends the node or a task of it.
pub(super) struct PanicNote<'a> {
    directory: &'a Path,
    what: &'static str,
}

impl<'a> PanicNote<'a> {
    /// Watches over one operation of the library.
    pub(super) const fn new(directory: &'a Path, what: &'static str) -> Self {
        Self { directory, what }
    }
}

impl Drop for PanicNote<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            note(self.directory, PANIC_FILE, self.what);
        }
    }
}

fn note(directory: &Path, file: &str, text: &str) {
    if let Err(error) = archon_durable::replace(&directory.join(file), text.as_bytes()) {
        tracing::error!(%error, file, directory = %directory.display(), "a failure of the engine is not noted: {text}");
    }
}

fn read(directory: &Path, file: &str) -> Result<Option<String>, EngineError> {
    match fs::read(directory.join(file)) {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => {
            Err(EngineError::Io { directory: directory.to_owned(), what: "read a note of its last use", source })
        }
    }
}
