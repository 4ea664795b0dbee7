//! Members that must renew their certificates, or do not load new ones; and checks against revoking certificates in use
//! by mistake.

use crate::leader::load::Loads;
use crate::raft::VoterView;
use archon_coordinator_core::{ClusterState, majority};
use archon_security::{Identity, date};
use archon_types::subject::Subject;
use archon_types::{
    AuthorityPrint, AuthorityUse, ErrorDetail, ErrorKind, Facts, Finding, MemberCertificate, Millis, Renewal, WHENEVER,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

/// Maximum number of members named individually for the same reason.
const NAMED_MAX: usize = 5;
const MS_PER_HOUR: u64 = 60 * 60 * 1_000;

/// A member, and the certificate that it uses.
#[derive(Clone, Debug)]
pub(in crate::service) struct Holder {
    /// The identity in its certificate.
    identity: String,
    name: String,
    subject: Subject,
    certificate: MemberCertificate,
}

/// Returns the certificates in use by active members. `own`: that of this coordinator, which is voter `me`.
pub(in crate::service) fn shown(
    state: &ClusterState,
    loads: &Loads,
    (me, own): (u64, Option<MemberCertificate>),
    voters: &[VoterView],
) -> Vec<Holder> {
    let voters = voters.iter().filter_map(|voter| {
        let certificate = if voter.id == me { own } else { voter.certificate };
        certificate.map(|certificate| Holder {
            identity: format!("coordinator/{}", voter.id),
            name: format!("coordinator {}", voter.id),
            subject: Subject::Coordinator { coordinator_id: voter.id },
            certificate,
        })
    });
    let nodes = loads.certificates().filter(|(node, _)| state.is_alive(*node)).map(|(node, certificate)| {
        let name = state.node_name(node);
        Holder { identity: format!("node/{name}"), name, subject: state.node_subject(node), certificate }
    });
    voters.chain(nodes).collect()
}

/// Refuses to revoke a certificate that a member uses: it would be locked out.
///
/// # Errors
/// The member, and the action needed first.
pub(in crate::service) fn check_not_in_use(
    shown: &[Holder],
    identity: &Identity,
    begins_before: Millis,
) -> Result<(), ErrorDetail> {
    let identity = identity.to_string();
    let in_use = shown.iter().find(|one| one.identity == identity && one.certificate.begins_at < begins_before);
    in_use.map_or(Ok(()), |one| {
        let why = format!(
            "{} is running and uses such a certificate: issue a new one with --force, install it, and revoke earlier \
             ones (`--keep` with the new file); or lock that member out with --force",
            one.name
        );
        Err(ErrorDetail::new(ErrorKind::Refused, why))
    })
}

/// Maximum distance of the revocation moment after now: covers a new certificate issued by a clock that is ahead.
const AHEAD_MS_MAX: u64 = MS_PER_HOUR;

/// Refuses a moment further ahead than the possible difference of clocks: later certificates must count.
///
/// # Errors
/// `InvalidArgument`, with the limit.
pub(in crate::service) fn check_moment(begins_before: Millis, now: Millis) -> Result<(), ErrorDetail> {
    let limit = now.plus(AHEAD_MS_MAX);
    if begins_before <= limit {
        return Ok(());
    }
    let date =
        |moment: Millis| UNIX_EPOCH.checked_add(Duration::from_millis(moment.get())).map(date).unwrap_or_default();
    let why = format!(
        "WithdrawRequest.begins_before_ms: {} is more than an hour from now; the limit is {}, so that new certificates \
         are valid (a certificate that begins later was issued with a wrong clock)",
        date(begins_before),
        date(limit)
    );
    Err(ErrorDetail::new(ErrorKind::InvalidArgument, why))
}

/// Refuses to revoke a coordinator's certificates if too few voters for a majority could talk to each other afterwards:
/// nothing could be committed then, not even a readmission. `withdrawn` holds the present revocations by identity.
///
/// # Errors
/// `Refused`, with the numbers and the action needed first.
pub(in crate::service) fn check_majority_left(
    shown: &[Holder],
    voters: &BTreeSet<u64>,
    withdrawn: &BTreeMap<String, Millis>,
    (identity, begins_before): (&Identity, Millis),
) -> Result<(), ErrorDetail> {
    let Some(voter) = identity.coordinator().filter(|voter| voters.contains(voter)) else { return Ok(()) };
    let counts = |of: u64, begins_before: Option<Millis>| {
        let named = format!("coordinator/{of}");
        let one = shown.iter().find(|one| one.identity == named);
        let begins_before = begins_before.max(withdrawn.get(&named).copied());
        one.is_some_and(|one| begins_before.is_none_or(|moment| one.certificate.begins_at >= moment))
    };
    if !counts(voter, None) || counts(voter, Some(begins_before)) {
        return Ok(());
    }
    let left = voters.iter().filter(|of| **of != voter && counts(**of, None)).count();
    let needed = majority(voters.len());
    if left >= needed {
        return Ok(());
    }
    let why = format!(
        "without the certificate of {identity}, only {left} of {} voters have a valid certificate in use, and {needed} \
         are needed to commit any change, including its readmission: issue a new one with --force, install it, and \
         revoke earlier ones (`--keep` with the new file); or start the voters that do not answer",
        voters.len()
    );
    Err(ErrorDetail::new(ErrorKind::Refused, why).with_have_need(left as u64, needed as u64))
}

/// Refuses to keep a certificate of `identity` that begins at `begins` and is itself revoked: certificates that begin
/// before `withdrawn` were revoked, and stay so until all are readmitted.
///
/// # Errors
/// The certificate is revoked; names the way to readmit it.
pub(in crate::service) fn check_kept(
    identity: &Identity,
    begins: Millis,
    withdrawn: Option<Millis>,
) -> Result<(), ErrorDetail> {
    let Some(withdrawn) = withdrawn.filter(|withdrawn| begins < *withdrawn) else { return Ok(()) };
    let date = |moment: Millis| UNIX_EPOCH.checked_add(Duration::from_millis(moment.get())).map(date);
    let which = match date(withdrawn).filter(|_| withdrawn != WHENEVER) {
        Some(moment) => format!("as those of {identity} that begin before {moment}"),
        None => format!("as all of {identity} are"),
    };
    let why = format!(
        "the certificate to keep begins {} and is revoked itself, {which}: readmit all with `archon access readmit \
         {identity}`; then revoke the others with --keep",
        date(begins).unwrap_or_default()
    );
    Err(ErrorDetail::new(ErrorKind::Refused, why))
}

/// Returns findings about certificates. `own`: that of this coordinator, which is voter `me`; `loads` contains those
/// of nodes.
pub(in crate::service) fn findings(
    state: &ClusterState,
    loads: &Loads,
    (me, own): (u64, Option<MemberCertificate>),
    voters: &[VoterView],
    now: Millis,
) -> Vec<Finding> {
    let all = shown(state, loads, (me, own), voters);
    let renewals = |wanted| all.iter().filter(move |one| one.certificate.renewal(now) == Some(wanted));
    let ending = |Group { members, members_total, first }: Group<'_>| {
        let (end, now) = (first.certificate.expires_at.get(), now.get());
        let left_for_ms = i64::try_from(end.abs_diff(now)).unwrap_or(i64::MAX);
        let left_for_ms = if end > now { left_for_ms } else { -left_for_ms };
        (members, members_total, first.name.clone(), left_for_ms)
    };
    let expired = |group: Group<'_>| {
        let (members, members_total, first, left_for_ms) = ending(group);
        Facts::CertificateExpired { members, members_total, first, left_for_ms }
    };
    let expires = |group: Group<'_>| {
        let (members, members_total, first, left_for_ms) = ending(group);
        Facts::CertificateExpires { members, members_total, first, left_for_ms }
    };
    let not_taken = |Group { members, members_total, first }: Group<'_>| Facts::CertificateNotTaken {
        members,
        members_total,
        first: first.name.clone(),
    };
    [
        grouped(renewals(Renewal::Overdue), expired),
        grouped(renewals(Renewal::Due), expires),
        grouped(all.iter().filter(|one| one.certificate.not_taken), not_taken),
        differing(&all).into_iter().collect(),
    ]
    .concat()
}

/// Reports members with certificates of different authorities: a process that trusts only one of these does not trust
/// all members.
fn differing(all: &[Holder]) -> Option<Finding> {
    let mut signed = BTreeMap::<AuthorityPrint, Vec<&str>>::new();
    for one in all {
        if let Some(authority) = one.certificate.authority {
            signed.entry(authority).or_default().push(&one.name);
        }
    }
    if signed.len() < 2 {
        return None;
    }
    // The smallest groups come first.
    let mut signed: Vec<_> = signed.into_iter().collect();
    signed.sort_by_key(|(_, names)| names.len());
    let usage = |(authority, names): (AuthorityPrint, Vec<&str>)| AuthorityUse {
        authority: authority.to_string(),
        members: names.iter().take(NAMED_MAX).map(|name| (*name).to_owned()).collect(),
        members_more: names.len().saturating_sub(NAMED_MAX) as u64,
    };
    let authorities = signed.into_iter().map(usage).collect();
    Some(Finding::new(Subject::Cluster, Facts::AuthoritiesDiffer { authorities }))
}

/// Members with the same finding.
struct Group<'a> {
    /// Names of the first few.
    members: Vec<String>,
    /// Their number.
    members_total: u64,
    /// The first one to expire.
    first: &'a Holder,
}

/// Returns one finding for each member, or one for all if they are many.
fn grouped<'a>(holders: impl Iterator<Item = &'a Holder>, facts: impl Fn(Group<'a>) -> Facts) -> Vec<Finding> {
    let holders: Vec<&Holder> = holders.collect();
    let group = |holders: &[&'a Holder], first: &'a Holder| Group {
        members: holders.iter().take(NAMED_MAX).map(|one| one.name.clone()).collect(),
        members_total: holders.len() as u64,
        first,
    };
    match holders.iter().copied().min_by_key(|one| one.certificate.expires_at) {
        Some(first) if holders.len() > NAMED_MAX => {
            vec![Finding::new(Subject::Cluster, facts(group(&holders, first)))]
        }
        _ => {
            let single = |one: &&'a Holder| Finding::new(one.subject.clone(), facts(group(&[*one], one)));
            holders.iter().map(single).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_documents::Reason;
    use archon_types::CoordinatorRole;

    const DAY: u64 = 24 * MS_PER_HOUR;
    const NOW: Millis = Millis::new(1_000 * DAY);

    fn certificate(days_left: i64, not_taken: bool) -> MemberCertificate {
        let end = NOW.get().saturating_add_signed(days_left * i64::try_from(DAY).unwrap());
        let (begins_at, expires_at) = (Millis::new(end - 90 * DAY), Millis::new(end));
        MemberCertificate { begins_at, expires_at, not_taken, authority: None }
    }

    fn voter(id: u64, certificate: Option<MemberCertificate>) -> VoterView {
        let address = format!("c{id}:7101");
        VoterView { address, certificate, ..VoterView::of(id, CoordinatorRole::Follower) }
    }

    fn codes(own: Option<MemberCertificate>, voters: &[VoterView]) -> Vec<(String, String)> {
        let found = findings(&ClusterState::new(), &Loads::default(), (1, own), voters, NOW);
        let reasons = found.into_iter().map(Reason::from);
        reasons.map(|reason| (reason.code.as_str().to_owned(), reason.message)).collect()
    }

    #[test]
    fn ending_certificates_are_reported_worst_first() {
        assert_eq!(codes(None, &[voter(1, None), voter(2, None)]), [], "by plaintext there are none");
        assert_eq!(codes(Some(certificate(60, false)), &[voter(1, None), voter(2, Some(certificate(31, false)))]), []);
        let voters = [voter(1, None), voter(2, Some(certificate(20, false))), voter(3, Some(certificate(-3, true)))];
        let said = codes(Some(certificate(1, false)), &voters);
        let said: Vec<(&str, &str)> = said.iter().map(|(code, message)| (code.as_str(), message.as_str())).collect();
        assert_eq!(
            said,
            [
                ("certificate_expired", "the certificate of coordinator 1 expires in 24 hours"),
                ("certificate_expired", "the certificate of coordinator 3 expired 3 days ago"),
                ("certificate_expires", "the certificate of coordinator 2 expires in 20 days"),
                (
                    "certificate_not_taken",
                    "coordinator 3 cannot use the new certificate in its directory and keeps the old one"
                ),
            ]
        );
    }

    #[test]
    fn moment_is_bounded_by_an_hour_from_now() {
        assert_eq!(check_moment(NOW.plus(MS_PER_HOUR), NOW), Ok(()));
        let refused = check_moment(NOW.plus(MS_PER_HOUR + 1), NOW).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidArgument);
        assert!(check_moment(Millis::new(u64::MAX), NOW).is_err());
    }

    #[test]
    fn majority_of_voters_keeps_certificates_that_count() {
        let voters = [voter(1, None), voter(2, Some(certificate(60, false))), voter(3, Some(certificate(60, false)))];
        let begins = certificate(60, false).begins_at;
        let (new, old) = (begins, begins.plus(1));
        let judged = |answering: usize, withdrawn: &[u64], whose: &str, moment: Millis| {
            let own = (1, Some(certificate(60, false)));
            let shown = shown(&ClusterState::new(), &Loads::default(), own, &voters[..answering]);
            let withdrawn = withdrawn.iter().map(|id| (format!("coordinator/{id}"), old)).collect();
            let whose = whose.parse().unwrap();
            check_majority_left(&shown, &[1, 2, 3].into(), &withdrawn, (&whose, moment)).map_err(|error| error.kind)
        };
        assert_eq!(judged(3, &[], "coordinator/2", old), Ok(()), "two of three are left");
        assert_eq!(judged(3, &[3], "coordinator/2", old), Err(ErrorKind::Refused), "one was withdrawn before");
        assert_eq!(judged(2, &[], "coordinator/2", old), Err(ErrorKind::Refused), "one does not answer");
        assert_eq!(judged(2, &[], "coordinator/3", old), Ok(()), "it is not in use");
        assert_eq!(judged(3, &[3], "coordinator/2", new), Ok(()), "the one in use is kept");
        assert_eq!(judged(3, &[2, 3], "coordinator/2", old), Ok(()), "it was withdrawn before");
        for other in ["coordinator/7", "node/athens", "admin/alice"] {
            assert_eq!(judged(1, &[], other, old), Ok(()), "{other} is no voter");
        }
    }

    #[test]
    fn revoked_certificate_is_not_kept() {
        let alice: Identity = "admin/alice".parse().unwrap();
        let judged = |withdrawn: Option<Millis>| {
            check_kept(&alice, Millis::new(DAY), withdrawn).err().map(|error| (error.kind, error.message))
        };
        for before in [None, Some(Millis::new(DAY)), Some(Millis::new(1))] {
            assert_eq!(judged(before), None, "{before:?}");
        }
        for after in [Millis::new(DAY + 1), WHENEVER] {
            let (kind, said) = judged(Some(after)).unwrap();
            assert_eq!(kind, ErrorKind::Refused);
            assert!(said.contains("is revoked itself") && said.contains("archon access readmit admin/alice"), "{said}");
        }
    }

    #[test]
    fn members_of_two_authorities_are_reported() {
        let of = |authority: Option<u8>| {
            let authority = authority.map(|byte| AuthorityPrint([byte; 8]));
            Some(MemberCertificate { authority, ..certificate(60, false) })
        };
        let same = [voter(1, None), voter(2, of(Some(7))), voter(3, of(None)), voter(4, None)];
        assert_eq!(codes(of(Some(7)), &same), [], "who says nothing of it differs from nobody");
        let mut voters: Vec<VoterView> = (1..=8).map(|id| voter(id, of(Some(7)))).collect();
        voters[4].certificate = of(Some(0xA1));
        let said = codes(of(Some(7)), &voters);
        let text = "members use certificates of 2 authorities: A1:A1:A1:A1… that of coordinator 5; 07:07:07:07… \
                    that of coordinator 1, \
                    coordinator 2, coordinator 3, coordinator 4, coordinator 6 and 2 more";
        assert_eq!(said, [("authorities_differ".to_owned(), text.to_owned())]);
    }

    #[test]
    fn certificates_ending_together_are_one_reason() {
        let voters: Vec<VoterView> =
            (1..=9).map(|id| voter(id, Some(certificate(20 + id.cast_signed(), false)))).collect();
        let said = codes(Some(certificate(20, false)), &voters);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].1.starts_with("of 9 members (coordinator 1,") && said[0].1.ends_with("expires in 20 days"),
            "{said:?}"
        );
    }
}
