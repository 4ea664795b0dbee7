//! All certificates of a cluster, issued together.

use crate::authority::Authority;
use crate::certify::validity;
use crate::error::CertificatesError;
use crate::files::write_credentials;
use crate::host::Host;
use archon_security::{Identity, Role};
use std::path::Path;
use std::time::SystemTime;

/// Returns the default directory name for credentials: the name of the identity, or `coordinator-1` for coordinators,
/// whose names are numbers.
pub fn directory_name(identity: &Identity) -> String {
    match identity.role() {
        Role::Coordinator => format!("{}-{}", identity.role(), identity.name()),
        _ => identity.name().to_owned(),
    }
}

/// Creates an authority and, below `directory`, one directory of credentials per member, named by [`directory_name`].
/// The key of the authority is not written; it exists only in the returned value.
///
/// # Errors
/// A certificate cannot be issued or written, or two names differ only in their role and would share a directory.
pub fn write_cluster(
    directory: &Path,
    cluster: &str,
    members: &[(Identity, Vec<Host>)],
    now: SystemTime,
) -> Result<Authority, CertificatesError> {
    let authority = Authority::create(cluster, now)?;
    for (identity, hosts) in members {
        let issued = authority.issue(identity, hosts, validity(identity.role()), now)?;
        write_credentials(&directory.join(directory_name(identity)), &issued, false)?;
    }
    Ok(authority)
}
