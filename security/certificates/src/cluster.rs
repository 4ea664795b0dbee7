//! All certificates of a cluster at once.

use crate::authority::Authority;
use crate::certify::validity;
use crate::error::CertificatesError;
use crate::files::write_credentials;
use crate::host::Host;
use archon_security::{Identity, Role};
use std::path::Path;
use std::time::SystemTime;

/// What the directory of somebody's credentials is called if nobody says otherwise: the name, and `coordinator-1` of those whose
/// name is a number.
pub fn directory_name(identity: &Identity) -> String {
    match identity.role() {
        Role::Coordinator => format!("{}-{}", identity.role(), identity.name()),
        _ => identity.name().to_owned(),
    }
}

/// Makes an authority, and below `directory` one of credentials for each of these, called as [`directory_name`] says. The
/// authority's key is written nowhere: it goes with what is returned.
///
/// # Errors
/// If one of them cannot be issued or written; names that differ only in their role would share a directory.
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
