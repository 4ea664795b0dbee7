//! `archon cert request | sign`: issues a certificate for a key that stays in its place.

use super::issue::{earlier_hosts, report_dropped_hosts, say_if_cut_short, valid_for};
use super::summary;
use super::{ending, hosts_of, hosts_text, path_text};
use crate::args::{RequestArgs, SignArgs};
use crate::documents::CertificateRequest;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_certificates::{
    Authority, CertificatesError, REQUEST_FILE, Request, request, write_certificate, write_request,
};
use archon_security::{AUTHORITIES_FILE, CERTIFICATE_FILE, Identity};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::SystemTime;

/// Largest accepted request, in bytes.
const READ_BYTES_MAX: u64 = 1024 * 1024;

/// Creates a key and a request for its certificate.
pub(super) fn ask(args: &RequestArgs, output: &Output) -> Result<Exit, Failure> {
    write_request(&args.out, &request(&args.identity, &args.hosts)?)?;
    let file = args.out.join(REQUEST_FILE);
    if output.is_json() {
        output.json(&CertificateRequest {
            file: path_text(&file),
            identity: args.identity.to_string(),
            hosts: hosts_of(&args.hosts),
        })?;
    } else {
        output.line(format!("wrote {}, which asks for the certificate of {}", path_text(&file), args.identity))?;
    }
    output.talk(format!(
        "have it signed (`archon cert sign`), then put the certificate beside its key as {CERTIFICATE_FILE}, and the \
         authority's {AUTHORITIES_FILE} as well"
    ));
    Ok(Exit::Done)
}

/// Signs a request.
pub(super) fn sign(args: &SignArgs, output: &Output) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    let found = read(&args.file)?;
    let identity = args.identity.as_ref().unwrap_or(found.identity());
    let has_hosts = identity.role().may_have_hosts();
    let hosts = match (args.hosts.is_empty(), has_hosts) {
        (false, _) => &args.hosts[..],
        (true, true) => found.hosts(),
        (true, false) => &[],
    };
    let said = args.identity.is_some() && (hosts.is_empty() || !args.hosts.is_empty());
    if !said && !args.yes {
        return Err(unconfirmed(&args.file, identity, &hosts_text(hosts)));
    }
    let authority = Authority::load(&args.ca)?;
    let certificate_pem = authority.sign(&found, identity, hosts, valid_for(identity, &args.term), now)?;
    let out = args.out.clone().unwrap_or_else(|| args.file.with_extension("crt"));
    let earlier = earlier_hosts(&out, identity, &args.term);
    write_certificate(&out, &certificate_pem, args.term.force)?;
    let made = summary::first(&out)?;
    if output.is_json() {
        output.json(&made)?;
    } else {
        output.line(summary::issued_text(&made, &path_text(&out), now))?;
    }
    report_dropped_hosts(identity, &earlier, &made.hosts, output);
    say_if_cut_short(identity, &args.term, &authority, now, output);
    output.talk(format!(
        "put it beside its key as {CERTIFICATE_FILE}, and {} as {AUTHORITIES_FILE}",
        args.ca.join(AUTHORITIES_FILE).display()
    ));
    Ok(Exit::Done)
}

/// Reads the request in a file.
fn read(file: &Path) -> Result<Request, Failure> {
    let failed = |error: std::io::Error| Failure::new(ending(&error), format!("{}: {error}", file.display()));
    let mut bytes = Vec::new();
    File::open(file).map_err(failed)?.take(READ_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    Request::read(&bytes).map_err(|error: CertificatesError| {
        Failure::from(error).with_remedy(format!("check the contents of {}", path_text(file)))
    })
}

/// Describes the certificate to be signed, and how to confirm it.
fn unconfirmed(file: &Path, identity: &Identity, hosts: &str) -> Failure {
    let at = if hosts.is_empty() { String::new() } else { format!(", reached at {hosts}") };
    let file = path_text(file);
    Failure::new(Exit::Refused, format!("nothing was signed: {file} asks for the certificate of {identity}{at}"))
        .with_remedy(format!("if that is right: `archon cert sign {file} --yes`"))
}
