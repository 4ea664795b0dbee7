//! `archon cert members`: certificates that the members of a cluster present.

use super::show::ends_soon;
use super::summary::{self, authority_text, until_text, whose};
use crate::args::Connection;
use crate::connect;
use crate::documents::{CertificateSummary, MemberCertificates, ShownCertificate};
use crate::exit::{Exit, Failure};
use crate::output::{Column, Output};
use archon_client::{Admin, NodeStatus, Transport};
use archon_security::{AUTHORITIES_FILE, CertificateDer, ExpectedPeer, Identity, Protocol, Role, certificates};
use futures::{StreamExt as _, stream};
use std::time::{Duration, SystemTime};

/// Time limit for one member.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Most concurrent requests.
const ASKED_MAX: usize = 16;

/// Queries all members.
pub(super) fn run(connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    crate::on_runtime(look(connection, output))
}

async fn look(connection: &Connection, output: &Output) -> Result<Exit, Failure> {
    let transport = connect::transport(connection)?;
    if transport.tls().is_none() {
        return Err(Failure::usage("members show certificates by TLS alone", "give your credentials with --tls-dir"));
    }
    let admin = connect::admin(connection)?;
    let now = SystemTime::now();
    let found = MemberCertificates { members: found(&transport, &admin, now).await? };
    if output.is_json() {
        output.json(&found)?;
    } else {
        let believed = believed(&transport);
        output.rows(&columns(), found.members.iter().map(|one| row(one, now, &believed)).collect(), "")?;
    }
    let (wrong, soon) = (
        found.members.iter().filter(|one| one.problem.is_some()).count(),
        found.members.iter().filter(|one| one.ends_soon).count(),
    );
    if wrong > 0 {
        return Ok(Exit::Failed);
    }
    if soon > 0 {
        output.talk("renew those that expire soon, without a restart: see docs/operate/certificates.md");
        return Ok(Exit::Refused);
    }
    Ok(Exit::Done)
}

/// Returns the certificate that each member presents.
///
/// # Errors
/// If the list of members is unavailable.
pub(crate) async fn found(
    transport: &Transport,
    admin: &Admin,
    now: SystemTime,
) -> Result<Vec<ShownCertificate>, Failure> {
    let asked = members(admin).await?.into_iter().map(|(member, address)| shown(transport, member, address, now));
    Ok(stream::iter(asked).buffered(ASKED_MAX).collect().await)
}

/// Returns all serving members with their addresses.
async fn members(admin: &Admin) -> Result<Vec<(Identity, String)>, Failure> {
    let (status, nodes) = (admin.status().await?, admin.list_nodes().await?);
    let coordinators = status.coordinators.into_iter().map(|one| (Role::Coordinator, one.id.to_string(), one.address));
    let serves = |node: &archon_client::NodeSummary| !node.is_participant() && node.status != NodeStatus::Lost;
    let nodes = nodes.into_iter().filter(serves).map(|node| (Role::Node, node.name, node.address));
    let member = |(role, name, address): (Role, String, String)| {
        let identity = Identity::new(role, &name).map_err(|error| Failure::failed(error.to_string()))?;
        Ok((identity, address))
    };
    coordinators.chain(nodes).map(member).collect()
}

/// Returns the certificate presented at an address, which needs no right.
///
/// # Errors
/// The reason why the certificate could not be read.
pub(crate) async fn shown_at(transport: &Transport, address: &str) -> Result<CertificateSummary, String> {
    let connected = transport.connect(address, &ExpectedPeer::Servers, Protocol::Grpc, TIMEOUT).await;
    connected.map_err(|error| error.to_string()).and_then(|stream| {
        let der = stream.peer_certificate().ok_or_else(|| "it shows no certificate".to_owned())?;
        let shown = summary::of(address, der).map_err(|error| error.to_string())?;
        Ok(summary::signed_by(shown, der, &believed(transport)))
    })
}

/// Returns the trusted authorities of this process.
fn believed(transport: &Transport) -> Vec<CertificateDer<'static>> {
    let file = transport.tls().map(|tls| tls.directory().join(AUTHORITIES_FILE));
    file.and_then(|file| certificates(&file).ok()).unwrap_or_default()
}

/// Returns the certificate that a member presents.
async fn shown(transport: &Transport, member: Identity, address: String, now: SystemTime) -> ShownCertificate {
    let (certificate, problem) = match shown_at(transport, &address).await {
        Ok(certificate) if certificate.identity.as_deref() == Some(&member.to_string()) => (Some(certificate), None),
        Ok(certificate) => {
            let problem = format!("{} is there, where {member} is expected", whose(&certificate));
            (Some(certificate), Some(problem))
        }
        Err(why) => (None, Some(why)),
    };
    let ends_soon = certificate.as_ref().is_some_and(|certificate| ends_soon(certificate, now));
    ShownCertificate { member: member.to_string(), address, certificate, ends_soon, problem }
}

fn columns() -> [Column; 5] {
    ["MEMBER", "ADDRESS", "CERTIFICATE", "AUTHORITY", "LOOK"].map(Column::text)
}

fn row(one: &ShownCertificate, now: SystemTime, believed: &[CertificateDer<'static>]) -> Vec<String> {
    let authority = one.certificate.as_ref().map_or_else(|| "-".to_owned(), |shown| authority_text(shown, believed));
    let holds = |certificate: &CertificateSummary| until_text(certificate, now);
    let certificate = one.certificate.as_ref().map_or_else(|| "-".to_owned(), holds);
    let look = match (&one.problem, one.ends_soon) {
        (Some(problem), _) => problem.clone(),
        (None, true) => "renew it".to_owned(),
        (None, false) => String::new(),
    };
    vec![one.member.clone(), one.address.clone(), certificate, authority, look]
}
