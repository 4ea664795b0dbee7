//! Options of `archon access`.

use super::name;
use archon_client::Right;
use archon_security::Identity;
use clap::{ArgGroup, Subcommand};
use std::path::PathBuf;

/// `archon access …`
#[derive(Subcommand, Debug)]
pub(crate) enum AccessVerb {
    /// Grant clients the right to read a table's rows, or to read and write them; or participants the right to own its leases.
    ///
    /// It counts from the moment that a node hears of it, which takes a fraction of a second; the answer names the nodes that have
    /// not within two seconds. Who may do more already goes on to.
    #[command(after_help = "\
Examples:
  archon access grant write --client shop --table orders
  archon access grant read --client reports --all-tables     those that are made later included
  archon access grant read --every-client --table prices
  archon access grant own --participant billing-3 --table payments    a lease table")]
    Grant(SetAccessArgs),
    /// Take a right back.
    ///
    /// Without reading there is no writing: `revoke read` takes back all that was granted for exactly these clients and tables,
    /// `revoke write` leaves them to read. What was granted to every client, or for every table, stays: the answer says what the
    /// client still may. A node that cannot hear of it goes by what it heard last. A participant from which `own` is taken hands its
    /// partitions of the table over to others that may own them.
    #[command(after_help = "\
Examples:
  archon access revoke read --client shop --table orders
  archon access revoke write --client shop --table orders    it goes on reading")]
    Revoke(SetAccessArgs),
    /// Have certificates count no more: a key was stolen, or whoever had it is gone.
    ///
    /// It is about all certificates of an identity that begin before now, or before the one that `--keep` names. No member lets in who
    /// shows one, and whoever is connected by one is turned away at its next word. One that is issued five minutes later
    /// counts, since `archon cert` has them begin five minutes before they are issued: one that is to count sooner is issued first and named
    /// by `--keep`, and of one that was withdrawn already `readmit` comes first. Other clients are not told: change the authority if a
    /// member's key was stolen (docs/operate/certificates.md).
    #[command(after_help = "\
Examples:
  archon access withdraw admin/alice
  archon cert admin alice --force && archon access withdraw admin/alice --keep alice
  archon access withdraw node/athens --force             it is shut out though it is at work")]
    Withdraw(WithdrawArgs),
    /// Have all certificates of an identity count again that the authority has signed.
    #[command(after_help = "\
Examples:
  archon access readmit client/shop")]
    Readmit {
        /// Whose certificates: `client/shop`.
        #[arg(value_name = "ROLE/NAME")]
        identity: Identity,
    },
    /// List what clients may do, and which certificates count no more.
    #[command(after_help = "\
Examples:
  archon access list
  archon access list --client shop                   what it may, by what was granted to it and to every client
  archon access list --client shop --table orders
  archon access list -o json | jq '.rights[] | select(.may == \"write\")'")]
    List(ListAccessArgs),
}

/// Options of `archon access grant` and `revoke`.
#[derive(clap::Args, Clone, Debug)]
#[command(group = ArgGroup::new("whose").required(true).args(["client", "every_client", "participant", "every_participant"]))]
#[command(group = ArgGroup::new("of_what").required(true).args(["table", "all_tables"]))]
pub(crate) struct SetAccessArgs {
    /// `read`, or `write`, which is both; of participants `own`.
    #[arg(value_name = "RIGHT", value_parser = right)]
    pub(crate) right: Right,
    /// The client: the name in its certificate (`archon cert client NAME`).
    #[arg(long, value_name = "NAME", value_parser = client)]
    pub(crate) client: Option<String>,
    /// Every client that has a certificate of this cluster.
    #[arg(long)]
    pub(crate) every_client: bool,
    /// The participant that may own partitions of the lease table: the name in its certificate (`archon cert participant NAME`).
    #[arg(long, value_name = "NAME", value_parser = participant, conflicts_with = "all_tables")]
    pub(crate) participant: Option<String>,
    /// Every participant that has a certificate of this cluster.
    #[arg(long, conflicts_with = "all_tables")]
    pub(crate) every_participant: bool,
    /// The table.
    #[arg(long, value_name = "TABLE", value_parser = name)]
    pub(crate) table: Option<String>,
    /// Every table, those that are made later included.
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
    /// Whose certificates: `admin/alice`.
    #[arg(value_name = "ROLE/NAME")]
    pub(crate) identity: Identity,
    /// The certificate that goes on counting, or its directory: only those that begin before it are withdrawn.
    #[arg(long, value_name = "PATH")]
    pub(crate) keep: Option<PathBuf>,
    /// Also one by which a coordinator or a node talks that is at work, or by which this is asked: who has it is shut out by that.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `archon access list`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ListAccessArgs {
    /// Only what this client may.
    #[arg(long, value_name = "NAME", value_parser = client)]
    pub(crate) client: Option<String>,
    /// Only what is about this table.
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
