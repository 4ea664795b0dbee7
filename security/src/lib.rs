//! Who a process is and whom it talks to.
//!
//! * [`Identity`] is a role and a name. Certificates name one by a URI.
//! * [`Credentials`] are what a process shows and whom it believes: three files in a directory, checked before they are used.
//! * [`Tls`] shakes hands by them, and takes new files while it runs.
//! * [`Transport`] is how a process reaches others and is reached, by TLS or in plaintext; [`Stream`] is a connection, either way.
//! * [`rights`] says which roles may call what; [`Caller`] is who does; [`Refusals`] are told to the log,
//!   and to a [`RefusalRecorder`] who keeps them.
//! * [`build_runtime`] makes runtimes that continue blocking work at the limit of threads.
//! * [`Expected`] is whom somebody means to reach: the other side's role is checked, not only who has signed for it.
//!
//! Without TLS plaintext stays on this machine unless the operator says otherwise.

mod beat_key;
mod behalf;
mod blocking;
mod call_quota;
mod caller;
mod certificate;
mod complaints;
pub mod connection_limit;
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
/// A certificate as its bytes.
pub use rustls::pki_types::CertificateDer;

pub use certificate::{Certificate, NoIdentity, NotACertificate, date};
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
