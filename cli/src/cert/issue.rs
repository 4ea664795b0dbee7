//! `archon cert ca`, and the verbs that issue a certificate with its key.

use super::path_text;
use super::summary::{self, until_text};
use crate::args::{AuthorityArgs, IssueArgs, TermArgs};
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_certificates::{AUTHORITY_KEY_FILE, Authority, Host, directory_name, validity, write_credentials};
use archon_security::{AUTHORITIES_FILE, CERTIFICATE_FILE, Identity};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Makes an authority.
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
        "keep {} where no member runs, best on a disk that is not attached, and keep a copy: who has it can make \
         himself an administrator, and without it nothing can be renewed",
        args.out.join(AUTHORITY_KEY_FILE).display()
    ));
    Ok(Exit::Done)
}

/// Issues a certificate.
pub(super) fn run(identity: &Identity, hosts: &[Host], args: &IssueArgs, output: &Output) -> Result<Exit, Failure> {
    let now = SystemTime::now();
    let authority = Authority::load(&args.ca)?;
    let issued = authority.issue(identity, hosts, valid_for(identity, &args.term), now)?;
    let directory = args.out.clone().unwrap_or_else(|| PathBuf::from(directory_name(identity)));
    write_credentials(&directory, &issued, args.term.force)?;
    let made = summary::first(&directory.join(CERTIFICATE_FILE))?;
    if output.is_json() {
        output.json(&made)?;
    } else {
        output.line(summary::issued_text(&made, &path_text(&directory), now))?;
    }
    say_if_cut_short(identity, &args.term, &authority, now, output);
    Ok(Exit::Done)
}

pub(super) fn valid_for(identity: &Identity, term: &TermArgs) -> Duration {
    let days = |days: u32| Duration::from_secs(u64::from(days) * 24 * 60 * 60);
    term.days.map_or_else(|| validity(identity.role()), days)
}

/// A certificate that ends before it was asked to is a surprise if nobody says so.
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
            "it ends with its authority, sooner than asked for: docs/CERTIFICATES.md says how another authority takes over",
        );
    }
}
