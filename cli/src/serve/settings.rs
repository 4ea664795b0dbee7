//! Settings of a serving process, combined: default < file < environment < flag.

pub(crate) mod coordinator;
pub(crate) mod node;

pub(crate) use coordinator::CoordinatorSettings;
pub(crate) use node::node_config;

use super::file::{ConfigFile, FileError};
use crate::exit::Failure;
use archon_client::{Tls, Transport};
use coordinator::FromCoordinatorFile;
use node::FromNodeFile;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Place of a coordinator or node on the machine and in the network, from its file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FilePlace {
    /// Identity, as `node/athens`, if the file has it.
    pub(crate) member: Option<String>,
    /// Listen addresses, with their flags.
    pub(crate) listen: Vec<(&'static str, SocketAddr)>,
    /// Data directory.
    pub(crate) data_dir: Option<PathBuf>,
    /// Addresses of some coordinators.
    pub(crate) coordinators: Vec<String>,
    /// Allows plaintext beyond the machine.
    pub(crate) insecure: bool,
    /// Directory of its credentials.
    pub(crate) tls_dir: Option<PathBuf>,
}

impl FilePlace {
    /// Reads a file with the same checks as the member that is started with it.
    ///
    /// # Errors
    /// The fault of the file and its position.
    pub(crate) fn read(file: &ConfigFile) -> Result<Self, FileError> {
        let (of_coordinators, of_nodes) = (FromCoordinatorFile::keys(), FromNodeFile::KEYS);
        if file.has_key(|key| of_coordinators.contains(&key) && !of_nodes.contains(&key)) {
            Ok(FromCoordinatorFile::read(file)?.place())
        } else {
            Ok(FromNodeFile::read(file)?.place())
        }
    }
}

/// Returns the given addresses, each with its flag.
fn listening<const N: usize>(said: [(&'static str, Option<SocketAddr>); N]) -> Vec<(&'static str, SocketAddr)> {
    said.into_iter().filter_map(|(flag, address)| Some((flag, address?))).collect()
}

/// Returns the transport of this process, from its options.
///
/// # Errors
/// Both options were given; unusable credentials, with the file.
pub(crate) fn transport(insecure: bool, tls_dir: Option<&Path>) -> Result<Transport, Failure> {
    match tls_dir {
        None => Ok(Transport::plaintext(insecure)),
        Some(_) if insecure => Err(Failure::usage(
            "--insecure allows plaintext, and --tls-dir allows nothing but TLS",
            "use only one of them; unset ARCHON_INSECURE or ARCHON_TLS_DIR if it comes from the environment",
        )),
        Some(directory) => Tls::open(directory).map(Transport::Tls).map_err(|error| {
            Failure::usage(
                error.to_string(),
                "correct --tls-dir (ARCHON_TLS_DIR); `archon cert` makes and shows credentials",
            )
            // These may pass: the clock is set, a mount appears, the other half of a renewed pair is written.
            .that_may_pass()
        }),
    }
}

/// Refuses an address, of this flag, that plaintext must not reach.
///
/// # Errors
/// The flag, the address, and the option that allows it.
pub(crate) fn allowed(flag: &str, address: &str, transport: &Transport) -> Result<(), Failure> {
    transport.check(address).map_err(|_| {
        Failure::usage(
            format!(
                "--{flag} {address} is not a loopback address, and plaintext traffic can be read and changed on the \
                 network"
            ),
            "give credentials with --tls-dir (create them with `archon cert`), use --insecure (ARCHON_INSECURE=true) \
             on a trusted network, or use a loopback address, such as 127.0.0.1",
        )
    })
}

fn required<T>(value: Option<T>, key: &str, example: &str) -> Result<T, Failure> {
    value.ok_or_else(|| {
        let flag = key.replace('_', "-");
        let variable = key.to_uppercase();
        Failure::usage(
            format!("--{flag} is missing"),
            format!("give {example}, set ARCHON_{variable}, or put `{key}` into the file of --config"),
        )
    })
}
