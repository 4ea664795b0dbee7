//! Certificates of a cluster: authorities, requests and issued credentials.
//!
//! * [`Authority`] is the cluster's certificate authority: it defines who belongs to the cluster. It consists of two
//!   files in a directory; the key is kept on a machine that runs no member.
//! * [`IssuedCredentials`] is a certificate with its key; [`write_credentials`] writes it as the directory of
//!   credentials of a process.
//! * [`Request`] asks for a certificate without its key, which never leaves the machine where it was made.
//! * [`Host`] is an address of a server or an agent, which its certificate must name.
//! * [`write_cluster`] issues all certificates of a cluster, for tests and the demonstration.
//!
//! This crate alone decides the content of certificates: one role and one name as a URI, hosts for servers and agents
//! only, and usages with which only certificates with hosts can serve. `archon-security` reads the same content.

mod authority;
mod certify;
mod cluster;
mod error;
mod files;
mod fingerprint;
mod host;
mod request;

pub use authority::{AUTHORITY_KEY_FILE, Authority, IssuedCredentials};
pub use certify::validity;
pub use cluster::{directory_name, write_cluster};
pub use error::CertificatesError;
pub use files::{REQUEST_FILE, write_certificate, write_credentials, write_request};
pub use fingerprint::fingerprint;
pub use host::{Host, HostError};
pub use request::{Request, SigningRequest, request};
