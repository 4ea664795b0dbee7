//! Administration of rights and certificates.

use crate::access_types::{AccessChanged, AccessSummary, CertificatesWithdrawn};
use crate::admin::{Admin, client, request_id};
use crate::admin_call::Effect;
use crate::error::Error;
use archon_proto::convert::access::{SetAccess, Withdraw, Withdrawal};
use archon_proto::v1;
use archon_types::access::check_identity;
use archon_types::limits::check_name;
use archon_types::{ErrorDetail, ErrorKind, Millis, Right};
use std::time::SystemTime;

impl Admin {
    /// Returns the rights of clients to rows of tables; with a name, only those of that client or for that table, by
    /// all grants. They apply only with TLS: without it clients are not authenticated.
    ///
    /// # Errors
    /// `NotFound` for an unknown table; otherwise see [`Error`].
    pub async fn access(&self, of_client: Option<&str>, table: Option<&str>) -> Result<AccessSummary, Error> {
        check(of_client, table)?;
        let request = v1::ListAccessRequest {
            cluster: None,
            client: of_client.map(str::to_owned),
            table: table.map(str::to_owned),
        };
        let call = |channel, request| async move { client(channel).list_access(request).await };
        let wire: v1::ListAccessResponse = self.coordinator_client().call(Effect::Reads, request, call).await?;
        Ok(wire.into())
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
        self.set_access(right, to_client, table, false).await
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
        self.set_access(right, of_client, table, true).await
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
        let change = begins_before_at_ms.map_or(Withdrawal::BeforeNow, |at| Withdrawal::Before(Millis::new(at)));
        if !force {
            self.check_not_own(identity, begins_before_at_ms)?;
        }
        self.change_certificates(identity, change, force).await
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
        self.change_certificates(identity, Withdrawal::Readmit, false).await
    }

    async fn change_certificates(
        &self,
        identity: &str,
        change: Withdrawal,
        force: bool,
    ) -> Result<CertificatesWithdrawn, Error> {
        check_identity(identity)?;
        let asked = Withdraw { request: request_id(), identity: identity.to_owned(), change, force };
        let call = |channel, request| async move { client(channel).withdraw(request).await };
        let request = v1::WithdrawRequest::from(asked);
        let wire: v1::WithdrawResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        Ok(CertificatesWithdrawn::new(identity.to_owned(), wire))
    }

    async fn set_access(
        &self,
        right: Right,
        of_client: Option<&str>,
        table: Option<&str>,
        revoke: bool,
    ) -> Result<AccessChanged, Error> {
        check(of_client, table)?;
        let (of, table) = (of_client.map(str::to_owned), table.map(str::to_owned));
        let asked = SetAccess { request: request_id(), client: of.clone(), table: table.clone(), right, revoke };
        let call = |channel, request| async move { client(channel).set_access(request).await };
        let request = v1::SetAccessRequest::from(asked);
        let wire: v1::SetAccessResponse = self.coordinator_client().call(Effect::Writes, request, call).await?;
        Ok(AccessChanged::new(of, table, wire))
    }
}

fn check(client: Option<&str>, table: Option<&str>) -> Result<(), ErrorDetail> {
    client.map_or(Ok(()), |name| check_name("client", name))?;
    table.map_or(Ok(()), |name| check_name("table", name))
}
