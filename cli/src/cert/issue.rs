//! `archon cert ca`, and the verbs that issue a certificate with its key.

use super::summary::{self, until_text};
use super::{hosts_text, path_text};
use crate::args::{AuthorityArgs, IssueArgs, TermArgs};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_certificates::{AUTHORITY_KEY_FILE, Authority, Host, directory_name, validity, write_credentials};
use archon_security::{AUTHORITIES_FILE, CERTIFICATE_FILE, Identity};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Creates an authority.
pub(super) fn authority(args: &AuthorityArgs, output: &Output) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    Authority::create(&args.cluster, now)?.write(&args.out)?;
    let made = summary::first(&args.out.join(AUTHORITIES_FILE))?;
    if output.is_json() {
        output.json(&made)?;
    } else {
        output.line(format!("made {}, {}", made.holder.trim_start_matches("CN="), until_text(&made, now)))?;
        output.line(format!("  in {}, fingerprint {}", path_text(&args.out), made.fingerprint))?;
    }
    output.talk(format!(
        "keep {} away from the members, preferably offline, and keep a copy: its holder can issue an administrator's \
         certificate, and no certificate can be renewed without it",
        args.out.join(AUTHORITY_KEY_FILE).display()
    ));
    Ok(Exit::Done)
}

/// Issues a certificate.
pub(super) fn run(identity: &Identity, hosts: &[Host], args: &IssueArgs, output: &Output) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    let authority = Authority::load(&args.ca)?;
    let directory = args.out.clone().unwrap_or_else(|| PathBuf::from(directory_name(identity)));
    let earlier = earlier_hosts(&directory.join(CERTIFICATE_FILE), identity, &args.term);
    let hosts = if hosts.is_empty() { parsed(&earlier)? } else { hosts.to_vec() };
    let issued = authority.issue(identity, &hosts, valid_for(identity, &args.term), now)?;
    write_credentials(&directory, &issued, args.term.force)?;
    let made = summary::first(&directory.join(CERTIFICATE_FILE))?;
    if output.is_json() {
        output.json(&made)?;
    } else {
        output.line(summary::issued_text(&made, &path_text(&directory), now))?;
    }
    report_dropped_hosts(identity, &earlier, &made.hosts, output);
    say_if_cut_short(identity, &args.term, &authority, now, output);
    Ok(Exit::Done)
}

/// Returns the hosts of the certificate of `identity` that `--force` overwrites, if there is one.
pub(super) fn earlier_hosts(file: &Path, identity: &Identity, term: &TermArgs) -> Vec<String> {
    let earlier = term.force.then(|| summary::first(file).ok()).flatten();
    let own = earlier.filter(|one| one.identity.as_deref() == Some(&*identity.to_string()));
    own.map(|one| one.hosts).unwrap_or_default()
}

fn parsed(hosts: &[String]) -> Result<Vec<Host>, Failure> {
    let parsed = hosts.iter().map(|host| host.parse()).collect::<Result<Vec<Host>, _>>();
    parsed.map_err(|error| Failure::usage(error.to_string(), "name the hosts with --host"))
}

/// Reports the hosts that the overwritten certificate names and the new one does not.
pub(super) fn report_dropped_hosts(identity: &Identity, earlier: &[String], new: &[String], output: &Output) {
    let dropped: Vec<&String> = earlier.iter().filter(|host| !new.contains(host)).collect();
    if !dropped.is_empty() {
        output.talk(format!(
            "{identity} was reached at {}, and is reached at {}: connections to {} will be refused with this \
             certificate",
            hosts_text(earlier),
            hosts_text(new),
            hosts_text(&dropped)
        ));
    }
}

pub(super) fn valid_for(identity: &Identity, term: &TermArgs) -> Duration {
    let days = |days: u32| Duration::from_secs(u64::from(days) * 24 * 60 * 60);
    term.days.map_or_else(|| validity(identity.role()), days)
}

/// Reports a certificate that expires before the requested time.
pub(super) fn say_if_cut_short(
    identity: &Identity,
    term: &TermArgs,
    authority: &Authority,
    now: SystemTime,
    output: &Output,
) {
    let end = authority.certificate().not_after;
    if now + valid_for(identity, term) > end {
        output.talk(
            "it expires with its authority, earlier than requested; to change the authority, see \
             docs/operate/certificates.md",
        );
    }
}
