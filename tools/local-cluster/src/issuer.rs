//! Certificates of a cluster on this machine.

use crate::error::Error;
use crate::member::Place;
use archon_certificates::{Authority, Host, validity, write_credentials};
use archon_client::{Identity, Role, Tls, Transport};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Certificate authority of a cluster, for its processes and its operators. Its key is kept in memory only.
#[derive(Debug)]
pub struct Issuer {
    authority: Authority,
    directory: PathBuf,
}

impl Issuer {
    /// Creates an authority that stores its certificates below `directory`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(directory: &Path) -> Result<Self, Error> {
        // Old enough for certificates that have nearly expired.
        let authority = Authority::create("this-machine", SystemTime::now() - validity(Role::Node) - DAY)?;
        Ok(Self { authority, directory: directory.to_owned() })
    }

    /// Returns the directory of an identity's credentials, which are issued if missing. A server is reached at
    /// `addresses`.
    ///
    /// # Errors
    /// If they cannot be issued or written.
    pub fn credentials<'a>(
        &self,
        role: Role,
        name: &str,
        addresses: impl IntoIterator<Item = &'a str>,
    ) -> Result<PathBuf, Error> {
        let identity = identity(role, name)?;
        let directory = self.place_of(role, name);
        if !directory.exists() {
            self.issue(&identity, addresses, &directory, SystemTime::now(), false)?;
        }
        Ok(directory)
    }

    /// Replaces an identity's credentials.
    ///
    /// # Errors
    /// As [`Issuer::credentials`].
    pub fn renew<'a>(&self, role: Role, name: &str, addresses: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        self.renew_with_left(role, name, addresses, validity(role))
    }

    /// As [`Issuer::renew`], backdated so that only `left` of the validity remains.
    ///
    /// # Errors
    /// As [`Issuer::credentials`].
    pub fn renew_with_left<'a>(
        &self,
        role: Role,
        name: &str,
        addresses: impl IntoIterator<Item = &'a str>,
        left: Duration,
    ) -> Result<(), Error> {
        let issued_at = SystemTime::now() - validity(role).saturating_sub(left);
        self.issue(&identity(role, name)?, addresses, &self.place_of(role, name), issued_at, true)
    }

    fn place_of(&self, role: Role, name: &str) -> PathBuf {
        self.directory.join(format!("{role}-{name}"))
    }

    fn issue<'a>(
        &self,
        identity: &Identity,
        addresses: impl IntoIterator<Item = &'a str>,
        directory: &Path,
        now: SystemTime,
        replace: bool,
    ) -> Result<(), Error> {
        let hosts: BTreeSet<Host> = addresses.into_iter().filter_map(host_of).collect();
        let hosts: Vec<Host> = hosts.into_iter().collect();
        let issued = self.authority.issue(identity, &hosts, validity(identity.role()), now)?;
        Ok(write_credentials(directory, &issued, replace)?)
    }

    /// Returns the credential arguments of a member with this role and name.
    ///
    /// # Errors
    /// As [`Issuer::credentials`].
    pub fn member_arguments(&self, role: Role, name: &str, place: &Place) -> Result<[OsString; 2], Error> {
        let directory = self.credentials(role, name, [place.listen.as_str(), place.reached_at.as_str()])?;
        Ok(["--tls-dir".into(), directory.into()])
    }

    /// Returns the transport of a client with this role.
    ///
    /// # Errors
    /// As [`Issuer::credentials`].
    pub fn transport(&self, role: Role, name: &str) -> Result<Transport, Error> {
        let directory = self.credentials(role, name, [])?;
        let tls = Tls::open(&directory).map_err(|error| Error::Certificates(error.to_string()))?;
        Ok(Transport::Tls(tls))
    }
}

fn identity(role: Role, name: &str) -> Result<Identity, Error> {
    Identity::new(role, name).map_err(|error| Error::Certificates(error.to_string()))
}

fn host_of(address: &str) -> Option<Host> {
    address.rsplit_once(':').and_then(|(host, _)| host.parse().ok())
}
