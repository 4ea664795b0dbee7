//! Options of `archon cert`.

use super::parse::name;
use archon_certificates::Host;
use archon_security::Identity;
use clap::Subcommand;
use std::path::PathBuf;

/// `archon cert …`
#[derive(Subcommand, Debug)]
pub(crate) enum CertVerb {
    /// Make the cluster's certificate authority: whoever it vouches for belongs to the cluster.
    ///
    /// Writes ca.crt, which everybody is given, and ca.key, which nobody is: who has that key can make himself an
    /// administrator. Keep it where no member runs, best on a disk that is not attached. It holds for ten years. One that
    /// is there is never overwritten.
    ///
    /// While one authority takes over from another, ca.crt may hold the certificates of both: whoever is given credentials
    /// from then on believes both. The key says which of them signs.
    #[command(after_help = "\
Examples:
  archon cert ca --cluster shop
  archon cert ca --cluster shop --out /media/stick/ca")]
    Ca(AuthorityArgs),
    /// Issue the certificate of a coordinator.
    ///
    /// It names the hosts under which other members and clients reach the coordinator: those in their --peers and
    /// --coordinators, and in its --advertise. A host that is not in it cannot be dialled.
    #[command(after_help = "\
Examples:
  archon cert coordinator 1 --host c1.example.org --host 10.0.0.1
  archon cert coordinator 1 --force    renew it, for the same hosts")]
    Coordinator(CoordinatorCertArgs),
    /// Issue the certificate of a node.
    ///
    /// It names the hosts under which other nodes and clients reach the node: that of its --listen, or of its --advertise.
    /// A host that is not in it cannot be dialled.
    #[command(after_help = "\
Examples:
  archon cert node athens --host athens.example.org --host 10.0.0.7
  archon cert node athens --out /etc/archon/tls-athens --force    renew it, for the same hosts")]
    Node(ServerArgs),
    /// Issue the certificate of a participant: a process of a service that owns partitions of lease tables.
    #[command(after_help = "\
Examples:
  archon cert participant billing-3 --out billing-3/tls")]
    Participant(IssueNamedArgs),
    /// Issue the certificate of a client: it reads and writes keys.
    #[command(after_help = "\
Examples:
  archon cert client shop
  archon cert client shop --days 365")]
    Client(IssueNamedArgs),
    /// Issue the certificate of an operator: a person or program that looks at everything and changes nothing.
    #[command(after_help = "\
Examples:
  archon cert operator dashboard --days 365")]
    Operator(IssueNamedArgs),
    /// Issue the certificate of an administrator: a person who changes the cluster.
    #[command(after_help = "\
Examples:
  archon cert admin alice")]
    Admin(IssueNamedArgs),
    /// Ask for a certificate: the key is made here and stays here.
    ///
    /// Writes tls.key and request.csr. Send request.csr to whoever has the authority's key, who answers `archon cert sign`
    /// with a certificate; put that beside the key as tls.crt, and the authority's ca.crt as well. The request may be
    /// signed again to renew the certificate.
    #[command(after_help = "\
Examples:
  archon cert request node/athens --host athens.example.org,10.0.0.7 --out /etc/archon/tls-athens
  archon cert request admin/alice --out alice")]
    Request(RequestArgs),
    /// Sign a request, so that its key becomes somebody's in the cluster.
    ///
    /// What is not said by --as and --host is taken from the request, and must be confirmed by --yes: without it, it is
    /// printed what would be signed, and refused (exit 4). Nothing else that a request may ask for is granted.
    #[command(after_help = "\
Examples:
  archon cert sign athens.csr            what it asks for
  archon cert sign athens.csr --yes      signs that, into athens.crt
  archon cert sign athens.csr --as node/athens --host athens.example.org
  archon cert sign athens.csr --yes --force    renew it")]
    Sign(SignArgs),
    /// Show certificates: whose they are, who issued them, for which hosts and how long.
    #[command(after_help = "\
Examples:
  archon cert show athens                 all in a directory
  archon cert show /etc/archon/tls-athens/ca.crt
  archon cert show athens -o json | jq '.[].expires_at_ms'")]
    Show(ShowArgs),
    /// Check whether a directory of credentials fits together and holds, as a member does that is started with it.
    ///
    /// Ends with 1 if it could not be used, and with 4 if somebody should renew something: the certificate, if less than a
    /// third of its time is left and less than 30 days (so one of 90 days is renewed after 60, and one of 30 after 20); or
    /// the authority, if it ends within 180 days and no other one is there to take over.
    #[command(after_help = "\
Examples:
  archon cert check /etc/archon/tls-athens
  archon cert check /etc/archon/tls-athens -o json | jq .certificate.expires_at_ms")]
    Check(CheckCertArgs),
    /// See what each member of a running cluster shows: whose certificate, and how long it holds.
    ///
    /// Members are those that the cluster knows. Each is connected to by the address that others are told, with your own credentials
    /// (--tls-dir), and must show the certificate of who is expected there. Ends with 1 if one cannot be reached or is somebody
    /// else, and with 4 if the certificate of one should be renewed.
    #[command(after_help = "\
Examples:
  archon cert members --coordinators c1.example.org:7101 --tls-dir alice")]
    Members,
}

/// Options of `archon cert ca`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AuthorityArgs {
    /// Where to write it.
    #[arg(long, value_name = "DIR", default_value = "ca")]
    pub(crate) out: PathBuf,
    /// What people call the cluster; it stands in the authority's name.
    #[arg(long, value_name = "NAME", default_value = "archon", value_parser = name)]
    pub(crate) cluster: String,
}

/// Who issues, for how long, and where to.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct IssueArgs {
    /// The authority's directory, with ca.crt and ca.key.
    #[arg(long, value_name = "DIR", default_value = "ca")]
    pub(crate) ca: PathBuf,
    /// Where to write ca.crt, tls.crt and tls.key; otherwise a directory called like who it is for.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// How and how long it is issued.
    #[command(flatten)]
    pub(crate) term: TermArgs,
}

/// How long a certificate holds.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TermArgs {
    /// How many days it holds, 1 to 3650, but not beyond the authority's end; otherwise 90, and 30 for operators and administrators.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) days: Option<u32>,
    /// Write over the certificate that is there, if it is of the same one: to renew it.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Where a server is reached.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct HostArgs {
    /// A name or an IP address under which others reach it, without a port; repeat it for each. With --force the hosts of the
    /// certificate that is there are the default.
    #[arg(long = "host", value_name = "H", value_delimiter = ',', required_unless_present = "force")]
    pub(crate) hosts: Vec<Host>,
}

/// Options of `archon cert coordinator`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CoordinatorCertArgs {
    /// The coordinator's number, as in its --id.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) id: u64,
    /// Where it is reached.
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
    /// Who issues.
    #[command(flatten)]
    pub(crate) issue: IssueArgs,
}

/// Options of `archon cert node`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// The node's name, as in its --name.
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// Where it is reached.
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
    /// Who issues.
    #[command(flatten)]
    pub(crate) issue: IssueArgs,
}

/// Options of `archon cert participant | client | operator | admin`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct IssueNamedArgs {
    /// The name by which the cluster knows it, or the person.
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// Who issues.
    #[command(flatten)]
    pub(crate) issue: IssueArgs,
}

/// Options of `archon cert request`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RequestArgs {
    /// Who it is for: coordinator/1, node/athens, participant/…, client/…, operator/… or admin/….
    #[arg(value_name = "ROLE/NAME")]
    pub(crate) identity: Identity,
    /// A name or an IP address under which others reach it, without a port; for coordinators and nodes.
    #[arg(long = "host", value_name = "H", value_delimiter = ',')]
    pub(crate) hosts: Vec<Host>,
    /// Where to write tls.key and request.csr. A key that is there is not overwritten.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// Options of `archon cert sign`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SignArgs {
    /// The request.
    #[arg(value_name = "FILE.csr")]
    pub(crate) file: PathBuf,
    /// The authority's directory, with ca.crt and ca.key.
    #[arg(long, value_name = "DIR", default_value = "ca")]
    pub(crate) ca: PathBuf,
    /// Who it is for, whatever the request says.
    #[arg(long = "as", value_name = "ROLE/NAME")]
    pub(crate) identity: Option<Identity>,
    /// Where it is reached, whatever the request says.
    #[arg(long = "host", value_name = "H", value_delimiter = ',')]
    pub(crate) hosts: Vec<Host>,
    /// What the request says is right.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Where to write the certificate; otherwise beside the request, with .crt for .csr.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// How it is issued.
    #[command(flatten)]
    pub(crate) term: TermArgs,
}

/// Options of `archon cert show`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ShowArgs {
    /// A file of certificates, or a directory of credentials or of an authority.
    #[arg(value_name = "FILE|DIR")]
    pub(crate) path: PathBuf,
}

/// Options of `archon cert check`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CheckCertArgs {
    /// The directory, with ca.crt, tls.crt and tls.key.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
