//! Credentials, checked as in `archon cert check`: dates, authorities, and permissions of the key.

use crate::cert::{CHANGE, RENEW, brief, look as look_at};
use crate::documents::{CertificateCheck, Finding, FindingCode};
use crate::exit::Failure;
use std::path::Path;
use std::time::SystemTime;

/// Checks a directory of credentials.
pub(super) fn look(directory: &Path, now: SystemTime) -> Finding {
    judge(&directory.display().to_string(), look_at(directory, now), now)
}

fn judge(about: &str, found: Result<CertificateCheck, Failure>, now: SystemTime) -> Finding {
    const CODE: FindingCode = FindingCode::Certificate;
    let check = match found {
        Ok(check) => check,
        Err(failure) => {
            let again = format!(
                "correct it and check again as the user of the process: `archon cert check {about}`; \
                 docs/operate/certificates.md, What goes wrong"
            );
            let remedy = failure.remedy.unwrap_or(again);
            return Finding::error(CODE, about, failure.message, remedy);
        }
    };
    let whose = brief(&check.certificate, now);
    match (check.certificate_ends_soon, check.authority_ends_soon) {
        (true, _) => Finding::warning(CODE, about, format!("{whose}: it expires soon"), RENEW),
        (false, true) => Finding::warning(CODE, about, format!("{whose}, of an authority that expires soon"), CHANGE),
        (false, false) => Finding::ok(CODE, about, whose),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::{CertificateSummary, Verdict};

    fn check(certificate_ends_soon: bool, authority_ends_soon: bool) -> CertificateCheck {
        let certificate = CertificateSummary {
            file: "tls.crt".to_owned(),
            identity: Some("node/athens".to_owned()),
            is_authority: false,
            holder: "CN=athens".to_owned(),
            issuer: "CN=shop".to_owned(),
            authority_fingerprint: None,
            hosts: Vec::new(),
            begins_at_ms: 0,
            expires_at_ms: 2_000_000_000_000,
            fingerprint: String::new(),
        };
        CertificateCheck { certificate, authorities: Vec::new(), certificate_ends_soon, authority_ends_soon }
    }

    #[test]
    fn expiring_is_a_warning_and_unusable_an_error() {
        let now = SystemTime::UNIX_EPOCH;
        let judged = |found| judge("/tls", found, now);
        assert_eq!(judged(Ok(check(false, false))).verdict, Verdict::Ok);
        assert!(judged(Ok(check(false, false))).message.starts_with("node/athens, until "));
        assert_eq!(judged(Ok(check(true, true))).remedy.as_deref(), Some(RENEW));
        assert_eq!(judged(Ok(check(false, true))).remedy.as_deref(), Some(CHANGE));
        let wrong = judged(Err(Failure::failed("tls.key: others may read this key")));
        assert_eq!((wrong.verdict, wrong.message.as_str()), (Verdict::Error, "tls.key: others may read this key"));
    }
}
