//! Readings of a member's transport.

use crate::metrics;
use archon_security::Transport;
use archon_types::Definition;
use std::time::SystemTime;

metrics! {
    /// A member's transport, and the expiry of its certificate; no certificate values without TLS.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct TransportReadings {
        insecure: bool = Definition::gauge(
            "archon_transport_insecure",
            "1 if plaintext may leave this machine (--insecure)"
        );
        certificate_expires: Option<u64> = Definition::gauge(
            "archon_certificate_expires_timestamp_seconds",
            "expiry of this member's certificate, in seconds since 1970"
        );
        authority_expires: Option<u64> = Definition::gauge(
            "archon_certificate_authority_expires_timestamp_seconds",
            "earliest expiry of the certificate authorities that this member trusts, in seconds since 1970"
        );
        not_taken: Option<bool> = Definition::gauge(
            "archon_certificate_not_taken",
            "1 while the files of --tls-dir cannot be used and earlier credentials stay in use; the log has the \
             reason"
        );
    }
}

impl TransportReadings {
    /// Reads a member with this transport. Checks its credential files first, if that is due.
    pub fn of(transport: &Transport) -> Self {
        let seconds = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let tls = transport.tls().inspect(|tls| tls.look());
        let credentials = tls.map(|tls| tls.credentials());
        Self {
            insecure: transport.is_insecure(),
            certificate_expires: credentials.as_ref().map(|shown| seconds(shown.certificate.not_after)),
            authority_expires: credentials.as_ref().map(|shown| seconds(shown.authorities_expire)),
            not_taken: tls.map(|tls| tls.not_taken().is_some()),
        }
    }
}
