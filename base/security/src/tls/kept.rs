//! Permission checks of credential files: a user who can write to `ca.crt`, or replace it, can admit any peer.

use crate::tls::credentials::CredentialsError;
use std::path::Path;

/// Rejects files that users other than root and this process's user can change; also checks their directory and the
/// targets of links.
///
/// # Errors
/// The file or directory, who can change it, and the remedy.
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

/// Does nothing: the platform has no such permissions.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn check_kept(_: &Path, _: &[&str]) -> Result<(), CredentialsError> {
    Ok(())
}

/// Checks one path. A missing file is reported by its reader. The sticky bit of a directory, as on secrets mounted
/// into containers, prevents others from replacing files.
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
