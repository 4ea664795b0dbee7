//! What a serving process runs with, drawn together: default < file < environment < flag.

pub(crate) mod coordinator;
pub(crate) mod node;

pub(crate) use coordinator::CoordinatorSettings;
pub(crate) use node::node_config;

use super::file::{ConfigFile, FileError};
use crate::exit::Failure;
use archon_client::{Tls, Transport};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What the file of a coordinator or node says of its place on the machine and in the network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FilePlace {
    /// Whose it is, as `node/athens`, if the file says so.
    pub(crate) member: Option<String>,
    /// Where it listens, with the flag that says so.
    pub(crate) listen: Vec<(&'static str, SocketAddr)>,
    /// Where it keeps its data.
    pub(crate) data_dir: Option<PathBuf>,
    /// Some coordinators.
    pub(crate) coordinators: Vec<String>,
    /// Whether it allows plaintext beyond the machine.
    pub(crate) insecure: bool,
    /// Its credentials.
    pub(crate) tls_dir: Option<PathBuf>,
}

impl FilePlace {
    /// What a file says, checked as the member that is started with it does.
    ///
    /// # Errors
    /// What is wrong in the file, and where.
    pub(crate) fn read(file: &ConfigFile) -> Result<Self, FileError> {
        if file.is_of_coordinator() {
            Ok(coordinator::FromCoordinatorFile::read(file)?.place())
        } else {
            Ok(node::FromNodeFile::read(file)?.place())
        }
    }
}

/// The addresses that are said, each with its flag.
fn listening<const N: usize>(said: [(&'static str, Option<SocketAddr>); N]) -> Vec<(&'static str, SocketAddr)> {
    said.into_iter().filter_map(|(flag, address)| Some((flag, address?))).collect()
}

/// How this process talks to others, as its options say.
///
/// # Errors
/// Both were said; credentials that cannot be used, with the file.
pub(crate) fn transport(insecure: bool, tls_dir: Option<&Path>) -> Result<Transport, Failure> {
    match tls_dir {
        None => Ok(Transport::plaintext(insecure)),
        Some(_) if insecure => Err(Failure::usage(
            "--insecure allows plaintext, and --tls-dir allows nothing but TLS",
            "say one of them; unset ARCHON_INSECURE or ARCHON_TLS_DIR if it comes from there",
        )),
        Some(directory) => Tls::open(directory).map(Transport::Tls).map_err(|error| {
            Failure::usage(
                error.to_string(),
                "correct --tls-dir (ARCHON_TLS_DIR); `archon cert` makes and shows credentials",
            )
            // The clock is set, a mount appears, the other half of a renewed pair is written.
            .that_may_pass()
        }),
    }
}

/// Refuses an address, of this flag, that plaintext must not reach.
///
/// # Errors
/// The flag and the address, and what to say to allow it.
pub(crate) fn allowed(flag: &str, address: &str, transport: &Transport) -> Result<(), Failure> {
    transport.check(address).map_err(|_| {
        Failure::usage(
            format!(
                "--{flag} {address} is no loopback address, and traffic is plaintext: anybody on the way could read and change it"
            ),
            "name credentials by --tls-dir (`archon cert` makes them), say --insecure (ARCHON_INSECURE=true) on a network that you \
             trust, or use a loopback address, such as 127.0.0.1",
        )
    })
}

fn required<T>(value: Option<T>, key: &str, example: &str) -> Result<T, Failure> {
    value.ok_or_else(|| {
        let flag = key.replace('_', "-");
        let variable = key.to_uppercase();
        Failure::usage(
            format!("--{flag} is missing"),
            format!("say {example}, set ARCHON_{variable}, or put `{key}` into the file of --config"),
        )
    })
}
