//! Whether nobody else may change what a process believes and shows: whoever can write to `ca.crt`, or put another file in its place, lets
//! in whom he likes.

use crate::credentials::CredentialsError;
use std::path::Path;

/// Refuses files, and the directory in which they are and in which their links lead, that others may change: anybody but root and the user
/// of this process.
///
/// # Errors
/// Which file or directory it is, who may change it, and what to do.
#[cfg(unix)]
pub fn check_kept(directory: &Path, files: &[&str]) -> Result<(), CredentialsError> {
    let me = rustix::process::geteuid().as_raw();
    check(directory, me)?;
    for file in files.iter().map(|name| directory.join(name)) {
        check(&file, me)?;
        let led_to = std::fs::canonicalize(&file).ok();
        if let Some(elsewhere) = led_to.as_deref().and_then(Path::parent) {
            check(elsewhere, me)?;
        }
    }
    Ok(())
}

/// Elsewhere there are no such permissions.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn check_kept(_: &Path, _: &[&str]) -> Result<(), CredentialsError> {
    Ok(())
}

/// One of them; what is not there is missed by whoever reads it. In a directory with the sticky bit, as secrets are mounted into containers,
/// nobody replaces the files of others.
#[cfg(unix)]
fn check(path: &Path, me: u32) -> Result<(), CredentialsError> {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if owner != 0 && owner != me {
        return Err(CredentialsError::OthersOwn { path: path.to_owned(), owner, me });
    }
    match mode & OTHERS_WRITE != 0 && !(found.is_dir() && mode & STICKY != 0) {
        true => Err(CredentialsError::OthersWrite { path: path.to_owned(), mode }),
        false => Ok(()),
    }
}
