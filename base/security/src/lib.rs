//! Identities, credentials and TLS connections.
//!
//! * [`Identity`] is a role and a name, which a certificate holds as a URI.
//! * [`Credentials`] are the certificate, key and trusted authorities of a process: three files of a directory,
//!   checked on load.
//! * [`Tls`] does handshakes with these credentials, and reloads changed files at run time.
//! * [`Transport`] connects to other processes and accepts connections, with TLS or in plaintext; [`Stream`] is a
//!   connection.
//! * [`rights`] lists which roles can make which calls; [`Caller`] is the caller. [`Refusals`] go to the log and to a
//!   [`RefusalRecorder`].
//! * [`build_runtime`] makes runtimes that continue blocking work at the limit of threads.
//! * [`HttpServer`] accepts HTTP connections with TLS.
//! * [`ExpectedPeer`] is the identity that a dialled server must have: its role is checked, not only the signature of
//!   its certificate.
//!
//! Plaintext connections are limited to this machine unless the operator allows more.

mod callers;
mod counted_body;
mod limits;
mod net;
mod tls;

pub use callers::beat_key::BeatKey;
pub use callers::behalf::{BehalfError, ON_BEHALF_OF};
pub use callers::caller::{Caller, counted_address};
pub use callers::rights;
pub use limits::call_quota::{CallPermit, CallQuota};
pub use limits::connection_limit;
pub use net::blocking::build_runtime;
/// A DER-encoded certificate.
pub use rustls::pki_types::CertificateDer;

pub use callers::identity::{Identity, IdentityError, Role};
pub use callers::rights::{REMOVED_COORDINATOR_CALL, callers, known_calls, known_commands};
pub use counted_body::{CountedBody, UnreadAccount};
pub use limits::refusals::{Refusal, RefusalRecorder, Refusals};
pub use limits::unread::{ResponseSlices, UNREAD_BYTES_MAX, UnreadBudget, UnreadResponses, UnreadShare, UnreadWatch};
pub use net::http::HttpServer;
pub use net::local_name::is_local_name;
pub use net::stream::{Protocol, ReadHalf, Stream, WriteHalf};
pub use net::transport::{CONNECT_TIMEOUT, Connector, LOOKUP_TIMEOUT, Transport};
pub use tls::Tls;
pub use tls::certificate::{Certificate, NoIdentity, NotACertificate, date};
pub use tls::credentials::{
    AUTHORITIES_FILE, CERTIFICATE_FILE, Credentials, CredentialsError, KEY_FILE, authority_of, certificates, secret,
};
pub use tls::error::{COMPARE, TlsError, in_words, is_of_certificates, is_refused_for_good, refused_in_words};
pub use tls::expected_peer::ExpectedPeer;
pub use tls::kept::check_kept;
pub use tls::revocation_list::{RevokedCertificate, WithdrawnCertificates, withdrawn_certificates};
