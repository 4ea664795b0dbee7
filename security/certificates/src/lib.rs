//! Issues the certificates of a cluster.
//!
//! * [`Authority`] is a certificate authority of the cluster's own: whoever it vouches for belongs to the cluster. Two files in a
//!   directory, of which the key is kept where no member runs.
//! * [`Issued`] is a certificate and its key, made in one place; [`write_credentials`] makes of it the directory that a process is
//!   given.
//! * [`Request`] asks for a certificate without its key, which then never leaves the machine where it was made.
//! * [`Host`] is where a server is reached, which its certificate must say.
//! * [`write_cluster`] does all of it for a whole cluster, for tests and for the demonstration.
//!
//! What a certificate says is decided here and nowhere else: one role and one name as a URI, hosts for servers only, and that a
//! certificate of anybody else can never serve. `archon-security` reads the same.

mod authority;
mod certify;
mod cluster;
mod error;
mod files;
mod fingerprint;
mod host;
mod request;

pub use authority::{AUTHORITY_KEY_FILE, Authority, Issued};
pub use certify::validity;
pub use cluster::{directory_name, write_cluster};
pub use error::CertificatesError;
pub use files::{REQUEST_FILE, write_certificate, write_credentials, write_request};
pub use fingerprint::fingerprint;
pub use host::{Host, HostError};
pub use request::{Request, Requested, request};
