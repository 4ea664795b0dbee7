//! `archon cert show | check`: content and validity of credentials.

use super::summary::{self, text, time_of, until_text, whose};
use crate::args::{CheckCertArgs, ShowArgs};
use crate::documents::{CertificateCheck, CertificateSummary};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_security::{AUTHORITIES_FILE, CERTIFICATE_FILE, Credentials};
use archon_types::Millis;
use std::path::Path;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A change of authorities takes as long as the longest certificate of the old one is valid: twice that time remains.
const CHANGE_BEFORE: Duration = DAY.saturating_mul(180);

/// Shows the certificates of a file or a directory.
pub(super) fn show(args: &ShowArgs, output: &Output) -> Result<Exit, Failure> {
    let files = match args.path.is_dir() {
        true => [CERTIFICATE_FILE, AUTHORITIES_FILE].map(|name| args.path.join(name)).to_vec(),
        false => vec![args.path.clone()],
    };
    let there: Vec<_> = files.iter().filter(|file| !args.path.is_dir() || file.exists()).collect();
    if there.is_empty() {
        let message = format!("{} holds neither {CERTIFICATE_FILE} nor {AUTHORITIES_FILE}", args.path.display());
        return Err(Failure::new(Exit::NotFound, message));
    }
    let mut found = Vec::new();
    for file in there {
        found.extend(summary::all(file)?);
    }
    if output.is_json() {
        output.json(&found)?;
        return Ok(Exit::Done);
    }
    let now = SystemTime::now();
    output.line(found.iter().map(|certificate| text(certificate, now)).collect::<Vec<_>>().join("\n"))?;
    Ok(Exit::Done)
}

/// Remedy for a certificate that expires soon.
pub(crate) const RENEW: &str = "renew the certificate: issue it again with --force, or have its request signed again";
/// Remedy for an authority that expires soon.
pub(crate) const CHANGE: &str = "the authority expires soon; to change it, see docs/operate/certificates.md";

/// Checks a directory like a process that is started with it.
///
/// # Errors
/// The reason why the directory cannot be used.
pub(crate) fn look(directory: &Path, now: SystemTime) -> Result<CertificateCheck, Failure> {
    // Any fault, including a missing file, makes the directory unusable.
    Credentials::load(directory, now).map_err(|error| Failure::failed(error.to_string()))?;
    let certificate = summary::first(&directory.join(CERTIFICATE_FILE))?;
    let authorities = summary::all(&directory.join(AUTHORITIES_FILE))?;
    Ok(CertificateCheck {
        certificate_ends_soon: ends_soon(&certificate, now),
        authority_ends_soon: authorities.iter().all(|authority| time_of(authority.expires_at_ms) < now + CHANGE_BEFORE),
        certificate,
        authorities,
    })
}

/// Formats the holder and the expiry of a certificate.
pub(crate) fn brief(certificate: &CertificateSummary, now: SystemTime) -> String {
    format!("{}, {}", whose(certificate), until_text(certificate, now))
}

/// Checks a directory like a process that is started with it.
pub(super) fn check(args: &CheckCertArgs, output: &Output) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    let check = look(&args.directory, now)?;
    if output.is_json() {
        output.json(&check)?;
    } else {
        let hosts = summary::reached_text(&check.certificate);
        output.line(format!("{}: {}{hosts}", args.directory.display(), brief(&check.certificate, now)))?;
    }
    if check.certificate_ends_soon {
        output.talk(RENEW);
    }
    if check.authority_ends_soon {
        output.talk(CHANGE);
    }
    Ok(if check.certificate_ends_soon || check.authority_ends_soon { Exit::Refused } else { Exit::Done })
}

/// Returns true if a certificate is due for renewal.
pub(super) fn ends_soon(certificate: &CertificateSummary, now: SystemTime) -> bool {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let [begin, end] = [certificate.begins_at_ms, certificate.expires_at_ms].map(Millis::new);
    archon_types::ends_soon(begin, end, Millis::new(u64::try_from(now).unwrap_or(u64::MAX)))
}
