//! Options of `archon cert`.

use super::parse::name;
use archon_certificates::Host;
use archon_security::Identity;
use clap::Subcommand;
use std::path::PathBuf;

/// `archon cert …`
#[derive(Subcommand, Debug)]
pub(crate) enum CertVerb {
    /// Create the certificate authority of a cluster.
    ///
    /// Writes ca.crt, which every member and client needs, and ca.key, which no member needs. The holder of ca.key can
    /// issue an administrator's certificate: keep it away from the members, preferably offline. The authority is valid
    /// for ten years. An existing authority is never overwritten.
    ///
    /// During a change of authority, ca.crt may hold the certificates of both the old and the new one: credentials
    /// issued from then on trust both. The key determines which of them signs.
    #[command(after_help = "\
Examples:
  archon cert ca --cluster shop
  archon cert ca --cluster shop --out /media/stick/ca")]
    Ca(AuthorityArgs),
    /// Issue the certificate of a coordinator.
    ///
    /// It lists the hosts under which other members and clients reach the coordinator: those in their --peers and
    /// --coordinators, and in its --advertise. Connections to a host that is not listed fail.
    #[command(after_help = "\
Examples:
  archon cert coordinator 1 --host c1.example.org --host 10.0.0.1
  archon cert coordinator 1 --force    renew it, with the same hosts")]
    Coordinator(CoordinatorCertArgs),
    /// Issue the certificate of a node.
    ///
    /// It lists the hosts under which other nodes and clients reach the node: that of its --listen, or of its
    /// --advertise. Connections to a host that is not listed fail.
    #[command(after_help = "\
Examples:
  archon cert node athens --host athens.example.org --host 10.0.0.7
  archon cert node athens --out /etc/archon/tls-athens --force    renew it, with the same hosts")]
    Node(ServerArgs),
    /// Issue the certificate of a participant: a process of a service that owns partitions of lease tables.
    ///
    /// With --host it also serves an agent that listens beyond this machine (`archon participant --listen`): the service
    /// reaches the agent by one of these hosts, and has a certificate of the same participant.
    #[command(after_help = "\
Examples:
  archon cert participant billing-3 --out billing-3/tls
  archon cert participant billing-3 --host 10.0.0.7 --out billing-3/tls    for an agent with TLS")]
    Participant(ParticipantCertArgs),
    /// Issue the certificate of a client: a program that reads and writes keys.
    #[command(after_help = "\
Examples:
  archon cert client shop
  archon cert client shop --days 365")]
    Client(IssueNamedArgs),
    /// Issue the certificate of an operator: a person or program with read-only access to the whole cluster.
    #[command(after_help = "\
Examples:
  archon cert operator dashboard --days 365")]
    Operator(IssueNamedArgs),
    /// Issue the certificate of an administrator: a person who changes the cluster.
    #[command(after_help = "\
Examples:
  archon cert admin alice")]
    Admin(IssueNamedArgs),
    /// Create a key and a certificate request; the key never leaves this machine.
    ///
    /// Writes tls.key and request.csr. Send request.csr to the holder of the authority's key, who runs `archon cert
    /// sign` and returns a certificate. Store it beside the key as tls.crt, together with the authority's ca.crt. The
    /// same request may be signed again to renew the certificate.
    #[command(after_help = "\
Examples:
  archon cert request node/athens --host athens.example.org,10.0.0.7 --out /etc/archon/tls-athens
  archon cert request admin/alice --out alice")]
    Request(RequestArgs),
    /// Sign a certificate request.
    ///
    /// Values not given by --as and --host are taken from the request and need confirmation with --yes. Without it, the
    /// command prints the certificate to be signed and refuses (exit 4). All other contents of a request are ignored.
    #[command(after_help = "\
Examples:
  archon cert sign athens.csr            show the request
  archon cert sign athens.csr --yes      sign it as shown, into athens.crt
  archon cert sign athens.csr --as node/athens --host athens.example.org
  archon cert sign athens.csr --yes --force    renew it")]
    Sign(SignArgs),
    /// Show certificates: identity, issuer, hosts and validity.
    #[command(after_help = "\
Examples:
  archon cert show athens                 all certificates in a directory
  archon cert show /etc/archon/tls-athens/ca.crt
  archon cert show athens -o json | jq '.[].expires_at_ms'")]
    Show(ShowArgs),
    /// Check a directory of credentials as a member does when it starts.
    ///
    /// Exits with 1 if the credentials cannot be used. Exits with 4 if something should be renewed: the certificate, if
    /// less than a third of its validity and less than 30 days are left (one of 90 days after 60, one of 30 days after
    /// 20); or the authority, if it expires within 180 days and ca.crt holds no successor.
    #[command(after_help = "\
Examples:
  archon cert check /etc/archon/tls-athens
  archon cert check /etc/archon/tls-athens -o json | jq .certificate.expires_at_ms")]
    Check(CheckCertArgs),
    /// Show the certificate that each member of a running cluster presents, and its validity.
    ///
    /// Connects to every member of the cluster at its advertised address with your credentials (--tls-dir), and
    /// compares the certificate with the expected identity. Exits with 1 if a member is unreachable or presents another
    /// identity, and with 4 if a certificate should be renewed.
    #[command(after_help = "\
Examples:
  archon cert members --coordinators c1.example.org:7101 --tls-dir alice")]
    Members,
}

/// Options of `archon cert ca`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct AuthorityArgs {
    /// Output directory.
    #[arg(long, value_name = "DIR", default_value = "ca")]
    pub(crate) out: PathBuf,
    /// Name of the cluster, used in the authority's name.
    #[arg(long, value_name = "NAME", default_value = "archon", value_parser = name)]
    pub(crate) cluster: String,
}

/// Issuer, validity and output directory.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct IssueArgs {
    /// Directory of the authority, with ca.crt and ca.key.
    #[arg(long, value_name = "DIR", default_value = "ca")]
    pub(crate) ca: PathBuf,
    /// Output directory for ca.crt, tls.crt and tls.key; default: a directory named after the subject.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Validity and renewal.
    #[command(flatten)]
    pub(crate) term: TermArgs,
}

/// Validity and renewal of a certificate.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TermArgs {
    /// Validity in days, 1 to 3650, at most until the authority expires; default: 90, and 30 for operators and
    /// administrators.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    pub(crate) days: Option<u32>,
    /// Overwrite an existing certificate of the same identity, to renew it.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Hosts of a server.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct HostArgs {
    /// Host name or IP address of the server, without a port; repeat it, or separate values by commas. Default with
    /// --force: the hosts of the existing certificate.
    #[arg(long = "host", value_name = "H", value_delimiter = ',', required_unless_present = "force")]
    pub(crate) hosts: Vec<Host>,
}

/// Options of `archon cert coordinator`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CoordinatorCertArgs {
    /// Number of the coordinator, as in its --id.
    #[arg(value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) id: u64,
    /// Hosts of the server.
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
    /// Issuer.
    #[command(flatten)]
    pub(crate) issue: IssueArgs,
}

/// Options of `archon cert node`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// Name of the node, as in its --name.
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// Hosts of the server.
    #[command(flatten)]
    pub(crate) hosts: HostArgs,
    /// Issuer.
    #[command(flatten)]
    pub(crate) issue: IssueArgs,
}

/// Options of `archon cert participant`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ParticipantCertArgs {
    /// Name and issuer.
    #[command(flatten)]
    pub(crate) issue: IssueNamedArgs,
    /// Host name or IP address of the agent, without a port; repeat it, or separate values by commas. Default with
    /// --force: the hosts of the existing certificate.
    #[arg(long = "host", value_name = "H", value_delimiter = ',')]
    pub(crate) hosts: Vec<Host>,
}

/// Options of `archon cert client | operator | admin`, and of `participant`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct IssueNamedArgs {
    /// Name of the process or person in the cluster.
    #[arg(value_name = "NAME", value_parser = name)]
    pub(crate) name: String,
    /// Issuer.
    #[command(flatten)]
    pub(crate) issue: IssueArgs,
}

/// Options of `archon cert request`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct RequestArgs {
    /// Identity: coordinator/1, node/athens, participant/…, client/…, operator/… or admin/….
    #[arg(value_name = "ROLE/NAME")]
    pub(crate) identity: Identity,
    /// Host name or IP address of a coordinator, node or agent, without a port; repeat it, or separate values by commas.
    #[arg(long = "host", value_name = "H", value_delimiter = ',')]
    pub(crate) hosts: Vec<Host>,
    /// Output directory for tls.key and request.csr. An existing key is not overwritten.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// Options of `archon cert sign`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct SignArgs {
    /// Certificate request file.
    #[arg(value_name = "FILE.csr")]
    pub(crate) file: PathBuf,
    /// Directory of the authority, with ca.crt and ca.key.
    #[arg(long, value_name = "DIR", default_value = "ca")]
    pub(crate) ca: PathBuf,
    /// Identity of the certificate; overrides the request.
    #[arg(long = "as", value_name = "ROLE/NAME")]
    pub(crate) identity: Option<Identity>,
    /// Hosts of the certificate; overrides the request.
    #[arg(long = "host", value_name = "H", value_delimiter = ',')]
    pub(crate) hosts: Vec<Host>,
    /// Confirm the identity and hosts of the request.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Output file of the certificate; default: the name of the request with .crt for .csr.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Validity and renewal.
    #[command(flatten)]
    pub(crate) term: TermArgs,
}

/// Options of `archon cert show`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct ShowArgs {
    /// File of certificates, or directory of credentials or of an authority.
    #[arg(value_name = "FILE|DIR")]
    pub(crate) path: PathBuf,
}

/// Options of `archon cert check`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct CheckCertArgs {
    /// Directory with ca.crt, tls.crt and tls.key.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}
