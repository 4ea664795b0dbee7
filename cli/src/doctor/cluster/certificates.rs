//! Certificates that the members present, as in `archon cert members`.

use crate::doctor::subjects::CLUSTER;
use crate::documents::{Finding, FindingCode, ShownCertificate};
use crate::exit::Failure;

/// Judges the certificates.
pub(super) fn judge(found: Result<Vec<ShownCertificate>, Failure>) -> Vec<Finding> {
    const CODE: FindingCode = FindingCode::Certificate;
    let shown = match found {
        Ok(shown) => shown,
        Err(failure) => {
            return vec![Finding::not_checked(CODE, CLUSTER, format!("certificates of members: {}", failure.message))];
        }
    };
    let wrong = |one: &ShownCertificate| match &one.problem {
        // It may be down, or present an untrusted certificate; alerts distinguish these cases.
        Some(problem) if one.certificate.is_none() => {
            let remedy = format!("check that it is running, and the log of the process at {}", one.address);
            Some(Finding::warning(CODE, &one.member, format!("its certificate is unavailable: {problem}"), remedy))
        }
        Some(problem) => {
            let remedy = format!("check which process listens at {}, and its --tls-dir", one.address);
            Some(Finding::error(CODE, &one.member, problem, remedy))
        }
        None if one.ends_soon => {
            let remedy = "renew it without a restart: see docs/operate/certificates.md";
            Some(Finding::warning(CODE, &one.member, "its certificate expires soon", remedy))
        }
        None => None,
    };
    let findings: Vec<Finding> = shown.iter().filter_map(wrong).collect();
    if findings.is_empty() && !shown.is_empty() {
        let message = format!("each of {} members presents its own valid certificate", shown.len());
        return vec![Finding::ok(CODE, CLUSTER, message)];
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::{CertificateSummary, Verdict};

    #[test]
    fn member_with_wrong_certificate_is_named() {
        let shown = |member: &str, ends_soon: bool, problem: Option<&str>| ShownCertificate {
            member: member.to_owned(),
            address: "127.0.0.1:1".to_owned(),
            certificate: Some(certificate()),
            ends_soon,
            problem: problem.map(str::to_owned),
        };
        let well = shown("node/athens", false, None);
        assert_eq!(judge(Ok(vec![well.clone()]))[0].verdict, Verdict::Ok);
        let down = ShownCertificate { certificate: None, ..shown("node/a", false, Some("refused")) };
        let found =
            judge(Ok(vec![well, down, shown("node/b", true, None), shown("node/c", true, Some("node/d is there"))]));
        let told: Vec<_> = found.iter().map(|finding| (finding.about.as_str(), finding.verdict)).collect();
        assert_eq!(told, [("node/a", Verdict::Warning), ("node/b", Verdict::Warning), ("node/c", Verdict::Error)]);
        assert_eq!(judge(Err(Failure::failed("x")))[0].verdict, Verdict::NotChecked);
    }

    fn certificate() -> CertificateSummary {
        CertificateSummary {
            file: "127.0.0.1:1".to_owned(),
            identity: None,
            is_authority: false,
            holder: String::new(),
            issuer: String::new(),
            authority_fingerprint: None,
            hosts: Vec::new(),
            begins_at_ms: 0,
            expires_at_ms: 0,
            fingerprint: String::new(),
        }
    }
}
