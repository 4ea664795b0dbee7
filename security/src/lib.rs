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
//! * [`Expected`] is the identity that a dialled server must have: its role is checked, not only the signature of its
//!   certificate.
//!
//! Plaintext connections are limited to this machine unless the operator allows more.

mod beat_key;
mod behalf;
mod blocking;
mod call_quota;
mod caller;
mod certificate;
mod complaints;
pub mod connection_limit;
mod counted_body;
mod credentials;
mod dial;
mod error;
mod expected;
mod identity;
mod kept;
mod names;
mod reached;
mod refusal_limit;
mod refusals;
pub mod rights;
mod shut_out;
mod stream;
mod tls;
mod transport;
mod unread;
mod verified_peer;
mod withdrawn;

pub use beat_key::BeatKey;
pub use behalf::{BehalfError, ON_BEHALF_OF};
pub use blocking::build_runtime;
pub use call_quota::{CallPermit, CallQuota};
pub use caller::{Caller, counted_address};
/// A DER-encoded certificate.
pub use rustls::pki_types::CertificateDer;

pub use certificate::{Certificate, NoIdentity, NotACertificate, date};
pub use counted_body::{CountedBody, UnreadAccount};
pub use credentials::{
    AUTHORITIES_FILE, CERTIFICATE_FILE, Credentials, CredentialsError, KEY_FILE, authority_of, certificates, secret,
};
pub use error::{COMPARE, TlsError, in_words, is_of_certificates, is_refused_for_good, refused_in_words};
pub use expected::Expected;
pub use identity::{Identity, IdentityError, Role};
pub use kept::check_kept;
pub use refusals::{Refusal, RefusalRecorder, Refusals};
pub use rights::{REMOVED_COORDINATOR_CALL, callers, known_calls, known_commands};
pub use stream::{Protocol, ReadHalf, Stream, WriteHalf};
pub use tls::Tls;
pub use transport::{CONNECT_TIMEOUT, Connector, LOOKUP_TIMEOUT, Transport};
pub use unread::{ResponseSlices, UNREAD_BYTES_MAX, UnreadBudget, UnreadResponses, UnreadWatch};
pub use withdrawn::{Revoked, WithdrawnCertificates, withdrawn_certificates};
