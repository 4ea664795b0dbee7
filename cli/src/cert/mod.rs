//! `archon cert`: an authority for the cluster, and a certificate for each process and person. All verbs except one
//! only use files.

mod issue;
mod members;
mod request;
mod show;
mod summary;

pub(crate) use members::{found as members_found, shown_at};
pub(crate) use show::{CHANGE, RENEW, brief, look};

use crate::args::{CertVerb, Connection, ParticipantCertArgs};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_certificates::{CertificatesError, Host};
use archon_security::{CredentialsError, Identity, Role};
use std::io;
use std::path::Path;

/// Runs a verb.
pub(crate) fn run(verb: &CertVerb, connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    match verb {
        CertVerb::Ca(args) => issue::authority(args, output),
        CertVerb::Coordinator(args) => {
            issue::run(&identity(Role::Coordinator, &args.id.to_string())?, &args.hosts.hosts, &args.issue, output)
        }
        CertVerb::Node(args) => issue::run(&identity(Role::Node, &args.name)?, &args.hosts.hosts, &args.issue, output),
        CertVerb::Participant(ParticipantCertArgs { hosts, issue }) => {
            issue::run(&identity(Role::Participant, &issue.name)?, hosts, &issue.issue, output)
        }
        CertVerb::Client(args) => issue::run(&identity(Role::Client, &args.name)?, &[], &args.issue, output),
        CertVerb::Operator(args) => issue::run(&identity(Role::Operator, &args.name)?, &[], &args.issue, output),
        CertVerb::Admin(args) => issue::run(&identity(Role::Admin, &args.name)?, &[], &args.issue, output),
        CertVerb::Request(args) => request::ask(args, output),
        CertVerb::Sign(args) => request::sign(args, output),
        CertVerb::Show(args) => show::show(args, output),
        CertVerb::Check(args) => show::check(args, output),
        CertVerb::Members => members::run(connection, output),
    }
}

fn identity(role: Role, name: &str) -> Result<Identity, Failure> {
    Identity::new(role, name).map_err(|error| Failure::new(Exit::Usage, error.to_string()))
}

/// Formats the hosts on one line; empty without hosts.
fn hosts_text(hosts: &[impl ToString]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn hosts_of(hosts: &[Host]) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

impl From<CertificatesError> for Failure {
    fn from(error: CertificatesError) -> Self {
        let exit = match &error {
            CertificatesError::Cluster(_)
            | CertificatesError::NoHost(_)
            | CertificatesError::HostUnwanted(_)
            | CertificatesError::Period(_) => Exit::Usage,
            CertificatesError::NoAuthority { source, .. } => ending(source),
            CertificatesError::AuthorityDate { .. }
            | CertificatesError::Exists(_)
            | CertificatesError::AuthorityExists(_)
            | CertificatesError::KeyExists(_)
            | CertificatesError::OtherIdentity { .. }
            | CertificatesError::IsAuthority(_) => Exit::Refused,
            CertificatesError::Content(_)
            | CertificatesError::Clock(_)
            | CertificatesError::Request(_)
            | CertificatesError::Write { .. }
            | CertificatesError::Making(_) => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

impl From<CredentialsError> for Failure {
    fn from(error: CredentialsError) -> Self {
        let exit = match &error {
            CredentialsError::Unreadable { source, .. } => ending(source),
            _ => Exit::Failed,
        };
        Self::new(exit, error.to_string())
    }
}

/// Distinguishes a missing file from an invalid one.
fn ending(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::NotFound { Exit::NotFound } else { Exit::Failed }
}
