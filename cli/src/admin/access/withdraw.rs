//! `archon access withdraw | readmit`.

use super::behind_text;
use crate::args::WithdrawArgs;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use archon_client::{Admin, CertificatesWithdrawn, WithdrawnCertificates};
use archon_security::{CERTIFICATE_FILE, Certificate, Identity, Role, certificates, date};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Revokes certificates.
pub(in crate::admin) async fn withdraw(args: &WithdrawArgs, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let begins_before = args.keep.as_deref().map(|kept| begin_of(kept, &args.identity)).transpose()?;
    let changed = admin.withdraw_certificates(&args.identity.to_string(), begins_before, args.force).await?;
    let done = output.done(&changed, text(&changed))?;
    if args.identity.role() == Role::Admin && begins_before.is_none() {
        // Only an admin could readmit them; other admins are known only to the issuer of certificates.
        output.talk(
            "only an admin of another name can readmit them; if there is none, issue a certificate for one (`archon \
             cert admin NAME`)",
        );
    }
    Ok(done)
}

/// Readmits them.
pub(super) async fn readmit(identity: &Identity, admin: &Admin, output: &Output) -> Result<Exit, Failure> {
    let changed = admin.readmit_certificates(&identity.to_string()).await?;
    output.done(&changed, text(&changed))
}

/// Returns the begin of the certificate that is to stay valid.
fn begin_of(kept: &Path, identity: &Identity) -> Result<u64, Failure> {
    let file = if kept.is_dir() { kept.join(CERTIFICATE_FILE) } else { kept.to_owned() };
    let wrong = |why: String| Failure::usage(format!("--keep {}: {why}", file.display()), "name the new certificate");
    let found = certificates(&file).map_err(|error| wrong(error.to_string()))?;
    let first = found.first().ok_or_else(|| wrong("it holds no certificate".to_owned()))?;
    let certificate = Certificate::read(first).map_err(|error| wrong(error.to_string()))?;
    match certificate.identity {
        Ok(named) if named == *identity => {}
        Ok(other) => return Err(wrong(format!("it is of {other}, not of {identity}"))),
        Err(error) => return Err(wrong(error.to_string())),
    }
    let since = certificate.not_before.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).map_err(|error| wrong(error.to_string()))
}

fn text(changed: &CertificatesWithdrawn) -> String {
    let already = if changed.changed { "" } else { ", as before" };
    let said = match &changed.withdrawn_now {
        Some(withdrawn) => withdrawn_text(withdrawn),
        None => format!("all certificates of {} that the authority has signed are accepted", changed.identity),
    };
    format!("{said}{already}{}", behind_text(changed.nodes_behind_count, &changed.nodes_behind))
}

/// Describes the revoked certificates.
pub(super) fn withdrawn_text(of: &WithdrawnCertificates) -> String {
    let moment = |millis| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis));
    match (of.begins_before_at_ms.and_then(moment), of.removed) {
        (Some(moment), false) => {
            format!("certificates of {} that begin before {} are revoked", of.identity, date(moment))
        }
        (Some(moment), true) => format!(
            "all certificates of {} are refused: it was removed from the quorum; coordinators do not answer those that \
             begin before {}",
            of.identity,
            date(moment)
        ),
        (None, _) => format!("all certificates of {} are refused: it was removed from the quorum", of.identity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revocation_is_described_with_its_day() {
        let withdrawn = |at| WithdrawnCertificates {
            identity: "admin/alice".into(),
            begins_before_at_ms: at,
            removed: at.is_none(),
        };
        let changed = |withdrawn, changed| CertificatesWithdrawn {
            identity: "admin/alice".into(),
            changed,
            withdrawn_now: withdrawn,
            access_version: 7,
            nodes_behind: vec!["athens".into()],
            nodes_behind_count: 1,
        };
        assert_eq!(
            text(&changed(Some(withdrawn(Some(0))), true)),
            "certificates of admin/alice that begin before Thu, 01 Jan 1970 00:00:00 +0000 are revoked; 1 node does not \
             apply it yet: athens"
        );
        assert!(text(&changed(None, false)).starts_with("all certificates of admin/alice that the authority"));
        assert!(withdrawn_text(&withdrawn(None)).ends_with("removed from the quorum"));
        let both = WithdrawnCertificates { removed: true, ..withdrawn(Some(0)) };
        assert!(withdrawn_text(&both).contains("removed from the quorum; coordinators do not answer"));
    }

    #[test]
    fn kept_certificate_must_be_of_the_identity() {
        let directory = tempfile::tempdir().expect("a directory");
        let alice: Identity = "admin/alice".parse().expect("an identity");
        let authority = archon_certificates::Authority::create("shop", SystemTime::now()).expect("an authority");
        let bob = "admin/bob".parse().expect("an identity");
        let issued = authority.issue(&bob, &[], Duration::from_secs(86_400), SystemTime::now()).expect("a certificate");
        let file = directory.path().join("tls.crt");
        std::fs::write(&file, issued.certificate_pem).expect("written");
        for path in [directory.path(), &file] {
            let said = begin_of(path, &alice).expect_err("it is of another one").message;
            assert!(said.contains("it is of admin/bob, not of admin/alice"), "{said}");
            assert!(begin_of(path, &bob).is_ok_and(|begins| begins > 0));
        }
        assert!(begin_of(&directory.path().join("nothing"), &bob).is_err());
    }
}
