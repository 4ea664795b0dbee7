//! Summaries of certificates, for people and programs.

use super::{hosts_text, path_text};
use crate::documents::CertificateSummary;
use crate::exit::Failure;
use archon_certificates::fingerprint;
use archon_security::{
    AUTHORITIES_FILE, Certificate, CertificateDer, CredentialsError, NotACertificate, authority_of, certificates, date,
};
use std::path::Path;
use std::time::{Duration, SystemTime};

const DAY_SECONDS: u64 = 24 * 60 * 60;

/// Returns the certificates in a file.
pub(super) fn all(file: &Path) -> Result<Vec<CertificateSummary>, Failure> {
    let content = |error: NotACertificate| CredentialsError::Content { file: file.to_owned(), why: error.to_string() };
    let read = |der| -> Result<CertificateSummary, Failure> { Ok(of(&path_text(file), der).map_err(content)?) };
    let beside = file.with_file_name(AUTHORITIES_FILE);
    let authorities = certificates(&beside).unwrap_or_default();
    certificates(file)?.iter().map(|der| Ok(signed_by(read(der)?, der, &authorities))).collect()
}

/// Summarizes the certificate found at `place`: in a file, or at a member.
pub(super) fn of(place: &str, der: &CertificateDer<'_>) -> Result<CertificateSummary, NotACertificate> {
    let said = Certificate::read(der)?;
    Ok(CertificateSummary {
        file: place.to_owned(),
        identity: said.identity.ok().filter(|_| !said.is_authority).map(|identity| identity.to_string()),
        is_authority: said.is_authority,
        holder: printable(&said.subject),
        issuer: printable(&said.issuer),
        authority_fingerprint: None,
        hosts: said.hosts.iter().map(|host| printable(host)).collect(),
        begins_at_ms: milliseconds(said.not_before),
        expires_at_ms: milliseconds(said.not_after),
        fingerprint: fingerprint(der),
    })
}

/// Adds the one of `authorities` that has signed the certificate.
pub(super) fn signed_by(
    mut of: CertificateSummary,
    der: &CertificateDer<'static>,
    authorities: &[CertificateDer<'static>],
) -> CertificateSummary {
    let found = authority_of(der, authorities).and_then(|place| authorities.get(place));
    of.authority_fingerprint = found.filter(|_| !of.is_authority).map(fingerprint);
    of
}

/// Formats the signing authority, if it is trusted, in short: `A1:B2:C3:D4… (1 of 2)`.
pub(super) fn authority_text(of: &CertificateSummary, authorities: &[CertificateDer<'static>]) -> String {
    const SHOWN: usize = "A1:B2:C3:D4".len();
    let Some(signed) = &of.authority_fingerprint else { return "-".to_owned() };
    let place = authorities.iter().position(|authority| fingerprint(authority) == *signed);
    let short = format!("{}…", signed.get(..SHOWN).unwrap_or(signed));
    match (place, authorities.len()) {
        (Some(place), count @ 2..) => format!("{short} ({} of {count})", place + 1),
        _ => short,
    }
}

/// Returns the first certificate in a file, which is its holder's.
pub(super) fn first(file: &Path) -> Result<CertificateSummary, Failure> {
    let found = all(file)?.into_iter().next();
    found.ok_or_else(|| Failure::failed(format!("{}: it holds no certificate", file.display())))
}

/// Removes control characters for terminals from untrusted text.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn time_of(at_ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms)
}

/// Formats the expiry: `until Mon, 22 Feb 2027 13:45:00 +0000 (in 83 days)`.
pub(super) fn until_text(certificate: &CertificateSummary, now: SystemTime) -> String {
    let end = time_of(certificate.expires_at_ms);
    format!("until {} ({})", date(end), distance_text(end, now))
}

/// Formats a distance: `in 83 days`, `2 days ago`.
fn distance_text(time: SystemTime, now: SystemTime) -> String {
    let length = |time: Duration| {
        let seconds = time.as_secs();
        let (length, unit) = match seconds {
            0..3_570 => (60, "minute"),
            3_570..171_000 => (3_600, "hour"),
            _ => (DAY_SECONDS, "day"),
        };
        // Rounded to the nearest: a certificate issued for 90 days a moment ago is valid for 90 days.
        let count = (seconds + length / 2) / length;
        format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
    };
    match time.duration_since(now) {
        Ok(left) => format!("in {}", length(left)),
        Err(past) => format!("{} ago", length(past.duration())),
    }
}

/// Reports that a certificate was issued into `place`.
pub(super) fn issued_text(made: &CertificateSummary, place: &str, now: SystemTime) -> String {
    format!("wrote {place}: {}{}, {}", whose(made), reached_text(made), until_text(made, now))
}

/// Formats the addresses of the holder; empty for one that does not serve.
pub(super) fn reached_text(certificate: &CertificateSummary) -> String {
    match certificate.hosts.is_empty() {
        true => String::new(),
        false => format!(", reached at {}", hosts_text(&certificate.hosts)),
    }
}

/// Names the holder of a certificate.
pub(super) fn whose(certificate: &CertificateSummary) -> String {
    match (&certificate.identity, certificate.is_authority) {
        (_, true) => format!("the authority {}", certificate.holder),
        (Some(identity), false) => identity.clone(),
        (None, false) => format!("{}, not an identity of Archon", certificate.holder),
    }
}

/// Formats the whole content of a certificate.
pub(super) fn text(certificate: &CertificateSummary, now: SystemTime) -> String {
    let mut lines = vec![format!("{}: {}", certificate.file, whose(certificate))];
    let mut say = |what: &str, text: &str| lines.push(format!("  {what:<12} {text}"));
    say("issuer", &certificate.issuer);
    if let Some(authority) = &certificate.authority_fingerprint {
        say("", &format!("SHA-256 {authority}"));
    }
    if !certificate.hosts.is_empty() {
        say("hosts", &hosts_text(&certificate.hosts));
    }
    let (begin, end) = (time_of(certificate.begins_at_ms), time_of(certificate.expires_at_ms));
    let begins = if begin > now { format!(" ({}: not yet)", distance_text(begin, now)) } else { String::new() };
    say("from", &format!("{}{begins}", date(begin)));
    let over = if end < now { ": expired" } else { "" };
    say("until", &format!("{} ({}{over})", date(end), distance_text(end, now)));
    say("fingerprint", &format!("SHA-256 {}", certificate.fingerprint));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_shown_in_one_unit() {
        let now = time_of(1_790_000_000_000);
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        for (time, said) in [
            (now + hours(83 * 24), "in 83 days"),
            (now + hours(49), "in 2 days"),
            (now + hours(47), "in 47 hours"),
            (now + hours(1), "in 1 hour"),
            (now + Duration::from_secs(120), "in 2 minutes"),
            (now, "in 0 minutes"),
            (now + hours(1) - Duration::from_secs(10), "in 1 hour"),
            (now + hours(48) - Duration::from_secs(10), "in 2 days"),
            (now - hours(72), "3 days ago"),
        ] {
            assert_eq!(distance_text(time, now), said);
        }
    }

    #[test]
    fn new_certificate_of_90_days_is_valid_for_90_days() {
        let now = time_of(1_790_000_000_400);
        let end = time_of(1_790_000_000_000) + Duration::from_secs(90 * DAY_SECONDS);
        assert_eq!(distance_text(end, now), "in 90 days");
    }

    #[test]
    fn authorities_of_one_name_are_shown_by_fingerprint() {
        use archon_certificates::{Authority, write_credentials};
        let now = SystemTime::now();
        let [old, new] = [(), ()].map(|()| Authority::create("shop", now).expect("an authority"));
        let directory = tempfile::tempdir().expect("a directory");
        let alice = "admin/alice".parse().expect("an identity");
        let mut issued = new.issue(&alice, &[], Duration::from_secs(DAY_SECONDS), now).expect("a certificate");
        issued.authorities_pem = [old.believed_pem(), new.believed_pem()].concat();
        write_credentials(directory.path(), &issued, false).expect("written");
        let shown = first(&directory.path().join("tls.crt")).expect("a certificate");
        let authorities = all(&directory.path().join("ca.crt")).expect("two");
        assert_eq!(authorities[0].holder, authorities[1].holder);
        assert_eq!(shown.authority_fingerprint.as_ref(), Some(&authorities[1].fingerprint));
        assert!(text(&shown, now).contains(&authorities[1].fingerprint), "{}", text(&shown, now));
        let believed = certificates(&directory.path().join("ca.crt")).expect("two");
        let said = authority_text(&shown, &believed);
        assert!(said.starts_with(&authorities[1].fingerprint[..11]) && said.ends_with("… (2 of 2)"), "{said}");
        assert!(authority_text(&shown, &believed[1..]).ends_with('…'), "of one there is nothing to tell");
    }

    #[test]
    fn certificate_cannot_control_the_terminal() {
        assert_eq!(printable("CN=a\u{1b}[2Jb\nc"), "CN=a\u{fffd}[2Jb\u{fffd}c");
    }
}
