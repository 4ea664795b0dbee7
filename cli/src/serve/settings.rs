//! What a serving process runs with, drawn together: default < file < environment < flag.

pub(crate) mod coordinator;
pub(crate) mod node;

pub(crate) use coordinator::CoordinatorSettings;
pub(crate) use node::node_config;

use crate::exit::Failure;
use archon_types::plaintext::check_plaintext;

/// Refuses plaintext beyond this machine unless the operator asked for it.
///
/// # Errors
/// The address, and what to say to allow it.
pub(crate) fn plaintext_allowed(address: &str, insecure: bool) -> Result<(), Failure> {
    check_plaintext(address, insecure).map_err(|refused| {
        Failure::usage(
            refused.message,
            "use a loopback address, or say --insecure (ARCHON_INSECURE=true) on a network that you trust",
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
