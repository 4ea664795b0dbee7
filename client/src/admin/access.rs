//! Administration of rights and certificates.

use crate::admin::Admin;
use crate::error::Error;
use archon_documents::{
    AccessChanged, AccessSummary, CertificatesWithdrawn, ListAccess, RevokeCertificates, SetAccess,
};
use archon_types::{ErrorDetail, ErrorKind, Right};
use std::time::SystemTime;

impl Admin {
    /// Returns the rights of clients to rows of tables; with a name, only those of that client or for that table, by
    /// all grants. They apply only with TLS: without it clients are not authenticated.
    ///
    /// # Errors
    /// `NotFound` for an unknown table; otherwise see [`Error`].
    pub async fn access(&self, of_client: Option<&str>, table: Option<&str>) -> Result<AccessSummary, Error> {
        let request = ListAccess { client: of_client.map(str::to_owned), table: table.map(str::to_owned) };
        self.ask(&request).await
    }

    /// Grants a right to a client, or to every client, to the rows of a table, or of every table including future
    /// ones; or [`Right::Own`] to a participant, or to every participant, to the partitions of one lease table. Wider
    /// earlier grants remain. Waits for at most two seconds until all nodes apply the grant, and returns those that
    /// do not.
    ///
    /// # Errors
    /// `NotFound` for an unknown table, `Refused` if the right does not suit the kind of table; otherwise see
    /// [`Error`].
    pub async fn grant(
        &self,
        right: Right,
        to_client: Option<&str>,
        table: Option<&str>,
    ) -> Result<AccessChanged, Error> {
        self.ask(&SetAccess::new(right, to_client, table, false)).await
    }

    /// Grants [`Right::Own`] of one lease table to a participant, or to every participant, up to a weight of 1 to 10,000:
    /// the registration of a process with a higher weight is refused, and one that is registered counts with the limit.
    /// Replaces the limit of an earlier grant with exactly this scope; [`Admin::grant`] removes it. Waits like
    /// [`Admin::grant`].
    ///
    /// # Errors
    /// `NotFound` for an unknown table, `InvalidArgument` for a weight out of range, `Refused` for a table with rows;
    /// otherwise see [`Error`].
    pub async fn grant_own(
        &self,
        to_participant: Option<&str>,
        table: &str,
        weight_max: u32,
    ) -> Result<AccessChanged, Error> {
        self.ask(&SetAccess::own_up_to(weight_max, to_participant, table)).await
    }

    /// Revokes an earlier grant with exactly this scope: [`Right::Write`] leaves the right to read, [`Right::Read`]
    /// revokes both. Grants to every client or for every table remain. Waits like [`Admin::grant`].
    ///
    /// # Errors
    /// `NotFound` for an unknown table; otherwise see [`Error`].
    pub async fn revoke(
        &self,
        right: Right,
        of_client: Option<&str>,
        table: Option<&str>,
    ) -> Result<AccessChanged, Error> {
        self.ask(&SetAccess::new(right, of_client, table, true)).await
    }

    /// Revokes the certificates of `identity` (`admin/alice`) that begin before a moment (Unix time), or before now:
    /// members reject them, and close their connections on the next request. Earlier revocations remain. Without
    /// `force`, the certificate of a running member and that of the caller are not revoked. Waits like
    /// [`Admin::grant`].
    ///
    /// # Errors
    /// `InvalidArgument` for an invalid identity, `Refused` if such a member is running or the caller would be locked
    /// out; otherwise see [`Error`].
    pub async fn withdraw_certificates(
        &self,
        identity: &str,
        begins_before_at_ms: Option<u64>,
        force: bool,
    ) -> Result<CertificatesWithdrawn, Error> {
        if !force {
            self.check_not_own(identity, begins_before_at_ms)?;
        }
        let identity = identity.to_owned();
        self.ask(&RevokeCertificates { identity, begins_before_at_ms, readmit: false, force }).await
    }

    /// Rejects revoking the caller's own certificate: it may be the last one that could undo the revocation.
    fn check_not_own(&self, identity: &str, begins_before_at_ms: Option<u64>) -> Result<(), ErrorDetail> {
        let Some(tls) = self.coordinator_client().links().transport().tls() else { return Ok(()) };
        let own = tls.credentials();
        let begins = own.certificate.not_before.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        if own.identity.to_string() != identity || begins_before_at_ms.is_some_and(|moment| begins >= moment.into()) {
            return Ok(());
        }
        let why = format!(
            "{identity} is who asks, by such a certificate in {}: it would be shut out at once, and could not readmit itself. Ask by the \
             certificate of an admin of another name (`archon cert admin NAME`), or with the new one of {identity} that --keep names; \
             --force does it all the same",
            tls.directory().display()
        );
        Err(ErrorDetail::new(ErrorKind::Refused, why))
    }

    /// Accepts all certificates of `identity` again that a trusted authority has signed and that have not expired.
    /// Waits like [`Admin::grant`].
    ///
    /// # Errors
    /// `Refused` for a coordinator that was removed from the quorum; otherwise see [`Error`].
    pub async fn readmit_certificates(&self, identity: &str) -> Result<CertificatesWithdrawn, Error> {
        let identity = identity.to_owned();
        self.ask(&RevokeCertificates { identity, begins_before_at_ms: None, readmit: true, force: false }).await
    }
}
