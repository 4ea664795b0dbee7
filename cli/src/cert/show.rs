//! `archon cert show | check`: what is there, and whether it can be used.

use super::summary::{self, text, time_of, until_text, whose};
use crate::args::{CheckCertArgs, ShowArgs};
use crate::documents::{CertificateCheck, CertificateSummary};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_security::{AUTHORITIES_FILE, CERTIFICATE_FILE, Credentials};
use archon_types::Millis;
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// A change of authorities takes as long as the longest certificate holds that the old one has issued: twice that is left.
const CHANGE_BEFORE: Duration = DAY.saturating_mul(180);

/// Shows what is in a file, or in a directory.
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

/// Checks a directory as whoever is started with it does.
pub(super) fn check(args: &CheckCertArgs, output: &Output) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    // Whatever is wrong, a file that is missing too: it cannot be used.
    Credentials::load(&args.directory, now).map_err(|error| Failure::failed(error.to_string()))?;
    let certificate = summary::first(&args.directory.join(CERTIFICATE_FILE))?;
    let authorities = summary::all(&args.directory.join(AUTHORITIES_FILE))?;
    let check = CertificateCheck {
        certificate_ends_soon: ends_soon(&certificate, now),
        authority_ends_soon: authorities.iter().all(|authority| time_of(authority.expires_at_ms) < now + CHANGE_BEFORE),
        certificate,
        authorities,
    };
    if output.is_json() {
        output.json(&check)?;
    } else {
        let (who, until) = (whose(&check.certificate), until_text(&check.certificate, now));
        output.line(format!("{}: {who}, {until}", args.directory.display()))?;
    }
    if check.certificate_ends_soon {
        output.talk("renew the certificate: issue it again with --force, or have its request signed again");
    }
    if check.authority_ends_soon {
        output.talk("the authority ends soon: docs/CERTIFICATES.md says how another one takes over");
    }
    Ok(if check.certificate_ends_soon || check.authority_ends_soon { Exit::Refused } else { Exit::Done })
}

/// Whether a certificate is to be renewed.
pub(super) fn ends_soon(certificate: &CertificateSummary, now: SystemTime) -> bool {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let [begin, end] = [certificate.begins_at_ms, certificate.expires_at_ms].map(Millis::new);
    archon_types::ends_soon(begin, end, Millis::new(u64::try_from(now).unwrap_or(u64::MAX)))
}
