//! Options of `archon access`.

use super::bounds::Bounded as _;
use super::parse::name;
use archon_client::Right;
use archon_security::Identity;
use archon_types::limits::WEIGHTS;
use clap::{ArgGroup, Subcommand};
use std::path::PathBuf;

/// `archon access …`
#[derive(Subcommand, Debug)]
pub(crate) enum AccessVerb {
    /// Grant clients the right to read a table, or to read and write it; or participants the right to own partitions of
    /// a lease table.
    ///
    /// A right takes effect at each node within a fraction of a second. The output names nodes that have not confirmed
    /// it within two seconds. Rights that already exceed the granted one stay as they are.
    #[command(after_help = "\
Examples:
  archon access grant write --client shop --table orders
  archon access grant read --client reports --all-tables     also tables created later
  archon access grant read --every-client --table prices
  archon access grant own --participant billing-3 --table payments    a lease table
  archon access grant own --every-participant --table payments --weight-max 100")]
    Grant(GrantArgs),
    /// Revoke a right.
    ///
    /// `revoke read` also revokes write; `revoke write` leaves read. A revocation applies to grants for exactly these
    /// clients and tables. Grants to every client or for every table stay: the output shows the rights that the client
    /// still has. A node that is cut off from the coordinators keeps applying the rights it knows. A participant that
    /// loses `own` hands its partitions of the table over to others that may own them.
    #[command(after_help = "\
Examples:
  archon access revoke read --client shop --table orders
  archon access revoke write --client shop --table orders    read remains")]
    Revoke(SetAccessArgs),
    /// Revoke the certificates of an identity, because a key was stolen or its holder left.
    ///
    /// Revokes all certificates of the identity that begin before now, or before the certificate in --keep. Members
    /// refuse a revoked certificate, and close open connections that use it on their next request.
    ///
    /// Certificates issued by `archon cert` begin five minutes before they are issued, so a new certificate is valid
    /// only if it is issued at least five minutes later. To replace one sooner, issue the new certificate first and
    /// name it with --keep; if the identity is already revoked, run `readmit` first. Programs that use Archon as
    /// clients are not notified: change the authority if a member's key was stolen (docs/operate/certificates.md).
    #[command(after_help = "\
Examples:
  archon access withdraw admin/alice
  archon cert admin alice --force && archon access withdraw admin/alice --keep alice
  archon access withdraw node/athens --force             also while the node is running")]
    Withdraw(WithdrawArgs),
    /// Accept all certificates of an identity again that the authority has signed.
    #[command(after_help = "\
Examples:
  archon access readmit client/shop")]
    Readmit {
        /// Identity to readmit: `client/shop`.
        #[arg(value_name = "ROLE/NAME")]
        identity: Identity,
    },
    /// List the rights of clients and participants, and revoked certificates.
    #[command(after_help = "\
Examples:
  archon access list
  archon access list --client shop                   its own rights and those of every client
  archon access list --client shop --table orders
  archon access list -o json | jq '.rights[] | select(.may == \"write\")'")]
    List(ListAccessArgs),
}

/// Options of `archon access grant`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct GrantArgs {
    #[command(flatten)]
    pub(crate) right: SetAccessArgs,
    /// Highest weight of the participant in the table, for `own`. The registration of a process with a higher weight is
    /// refused; a registered participant counts with the limit. Without this option the grant has no limit; an
    /// earlier limit is removed.
    #[arg(long, value_name = "N", within = WEIGHTS, conflicts_with_all = ["client", "every_client", "all_tables"])]
    pub(crate) weight_max: Option<u32>,
}

/// Options of `archon access revoke`, and of `grant`.
#[derive(clap::Args, Clone, Debug)]
#[command(group = ArgGroup::new("whose").required(true).args(["client", "every_client", "participant", "every_participant"]))]
#[command(group = ArgGroup::new("of_what").required(true).args(["table", "all_tables"]))]
pub(crate) struct SetAccessArgs {
    /// `read`, or `write` (which includes read), for clients; `own` for participants.
    #[arg(value_name = "RIGHT", value_parser = right)]
    pub(crate) right: Right,
    /// Client: the name in its certificate (`archon cert client NAME`).
    #[arg(long, value_name = "NAME", value_parser = client)]
    pub(crate) client: Option<String>,
    /// All clients with a certificate of this cluster.
    #[arg(long)]
    pub(crate) every_client: bool,
    /// Participant: the name in its certificate (`archon cert participant NAME`).
    #[arg(long, value_name = "NAME", value_parser = participant, conflicts_with = "all_tables")]
    pub(crate) participant: Option<String>,
    /// All participants with a certificate of this cluster.
    #[arg(long, conflicts_with = "all_tables")]
    pub(crate) every_participant: bool,
    /// Name of the table.
    #[arg(long, value_name = "TABLE", value_parser = name)]
    pub(crate) table: Option<String>,
    /// All tables, including tables created later.
    #[arg(long)]
    pub(crate) all_tables: bool,
}

impl SetAccessArgs {
    /// Returns the name of the client or participant; `None` stands for all of them.
    ///
    /// # Errors
    /// If the right is not one of clients, or of participants.
    pub(crate) fn grantee(&self) -> Result<Option<&str>, String> {
        let names_participants = self.participant.is_some() || self.every_participant;
        match (self.right == Right::Own, names_participants) {
            (true, true) => Ok(self.participant.as_deref()),
            (false, false) => Ok(self.client.as_deref()),
            (true, false) => {
                Err("own is a right of participants: name one by --participant, or all by --every-participant".into())
            }
            (false, true) => {
                let right = self.right.as_str();
                Err(format!("{right} is a right of clients: name one by --client, or all by --every-client"))
            }
        }
    }
}

/// Options of `archon access withdraw`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct WithdrawArgs {
    /// Identity to revoke: `admin/alice`.
    #[arg(value_name = "ROLE/NAME")]
    pub(crate) identity: Identity,
    /// Certificate that stays valid, or its directory: only certificates that begin before it are revoked.
    #[arg(long, value_name = "PATH")]
    pub(crate) keep: Option<PathBuf>,
    /// Revoke even certificates in use by a running coordinator or node, or by this command; their holders are locked
    /// out.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `archon access list`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ListAccessArgs {
    /// Show only the rights of this client, and those of every client.
    #[arg(long, value_name = "NAME", value_parser = client)]
    pub(crate) client: Option<String>,
    /// Show only the rights for this table.
    #[arg(long, value_name = "TABLE", value_parser = name)]
    pub(crate) table: Option<String>,
}

fn right(text: &str) -> Result<Right, String> {
    text.parse().map_err(|error: archon_client::UnknownWord| error.to_string())
}

/// Parses a participant's name, with or without its role: `participant/billing-3`.
fn participant(text: &str) -> Result<String, String> {
    name(text.strip_prefix("participant/").unwrap_or(text))
}

/// Parses a client's name, with or without its role: `client/shop`.
fn client(text: &str) -> Result<String, String> {
    name(text.strip_prefix("client/").unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_is_named_with_or_without_its_role() {
        assert_eq!((client("shop"), client("client/shop")), (Ok("shop".to_owned()), Ok("shop".to_owned())));
        for wrong in ["admin/alice", "*", ""] {
            assert!(client(wrong).is_err(), "{wrong}");
        }
        assert!(right("look").unwrap_err().contains("own, read, write"));
    }
}
