//! Listen addresses: free, or in use by a known or unknown process.

use super::super::cluster::member_of;
use super::super::target::Target;
use crate::cert::shown_at;
use crate::connect;
use crate::documents::{Finding, FindingCode};
use archon_client::Admin;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::time::Duration;

/// Time limit for the identification of the listening process.
const ASKED: Duration = Duration::from_secs(2);

/// Observation at an address.
#[derive(Debug)]
enum PortState {
    /// No listener.
    Free,
    /// A member, as `node/athens`.
    Member(String),
    /// A member that uses another data directory, because this one is unused.
    OfAnotherDirectory(String, String),
    /// Not a member, with the reason.
    Stranger(String),
    /// A listener that cannot be identified.
    Unasked(String),
    /// A part of the member that listens at the first address.
    Beside(String),
    /// The address cannot be listened on.
    Refused(io::Error),
}

/// Checks each address. `unused` is the checked data directory if no process uses it: a listener is then not its
/// member.
pub(super) async fn look(target: &Target, unused: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Metrics and the console are HTTP: they belong to the member that listens beside them.
    let (mut beside, mut unasked): (Option<String>, Option<String>) = (None, None);
    for (flag, address) in &target.listen {
        let reading = match (TcpListener::bind(address), *flag, &beside) {
            (Ok(_), ..) => PortState::Free,
            (Err(error), ..) if error.kind() != io::ErrorKind::AddrInUse => PortState::Refused(error),
            (Err(_), "listen", _) => match (ask(target, *address).await, unused) {
                (PortState::Member(member), Some(unused)) => PortState::OfAnotherDirectory(member, unused.to_owned()),
                (reading, _) => reading,
            },
            (Err(_), _, Some(member)) => PortState::Beside(member.clone()),
            (Err(_), _, None) if unasked.is_some() => PortState::Unasked(unasked.clone().unwrap_or_default()),
            (Err(_), _, None) => PortState::Stranger("the expected member is not running".to_owned()),
        };
        if let PortState::Member(member) = &reading
            && target.member.as_ref().is_none_or(|expected| expected == member)
        {
            beside = Some(member.clone());
        }
        if let PortState::Unasked(why) = &reading {
            unasked = Some(why.clone());
        }
        findings.push(judge(flag, *address, &reading, target.member.as_deref()));
    }
    findings
}

/// Identifies the listening process.
async fn ask(target: &Target, address: SocketAddr) -> PortState {
    let host = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let address = SocketAddr::new(host, address.port()).to_string();
    let transport = match connect::transport(&target.connection) {
        Ok(transport) => transport,
        // Faulty credentials are a separate finding, and do not identify the listener.
        Err(_) => return PortState::Unasked("these credentials cannot be used".to_owned()),
    };
    // The credentials of a node have no right to its counters, but suffice to see the presented certificate.
    if transport.tls().is_some() {
        return match shown_at(&transport, &address).await {
            Ok(certificate) => certificate.identity.map_or_else(
                || PortState::Stranger(format!("its certificate is of {}", certificate.holder)),
                PortState::Member,
            ),
            Err(why) => PortState::Stranger(why),
        };
    }
    let stats = match Admin::with_transport(vec![address.clone()], ASKED, transport) {
        Ok(admin) => admin.node_stats(&address).await,
        Err(error) => Err(error),
    };
    match stats {
        Ok(stats) => PortState::Member(member_of(&stats.node)),
        Err(error) => PortState::Stranger(error.to_string()),
    }
}

/// Judges the listener at an address. `expected` is the member of this machine, present or future.
fn judge(flag: &str, address: SocketAddr, reading: &PortState, expected: Option<&str>) -> Finding {
    const CODE: FindingCode = FindingCode::Port;
    let about = address.to_string();
    let other = crate::serve::other_address(&format!("--{flag}"));
    match reading {
        PortState::Free if address.port() == 0 => Finding::ok(CODE, &about, "the system chooses a free port"),
        PortState::Free => Finding::ok(CODE, &about, "the port is free"),
        PortState::Member(member) if expected.is_none_or(|expected| expected == member) => {
            Finding::ok(CODE, &about, format!("{member} of archon listens there"))
        }
        PortState::Member(member) => {
            let expected = expected.unwrap_or("the member");
            Finding::error(CODE, &about, format!("{member} listens there instead of {expected}"), other)
        }
        PortState::OfAnotherDirectory(member, unused) => {
            let message = format!(
                "{member} listens there, and no process uses {unused}: a member started with that directory could not \
                 listen there"
            );
            Finding::error(CODE, &about, message, format!("{other}; or give the directory of {member} with --data-dir"))
        }
        PortState::Beside(member) => {
            Finding::ok(CODE, &about, format!("a process listens there, probably {member} (--{flag})"))
        }
        PortState::Unasked(why) => Finding::not_checked(CODE, &about, format!("process that listens there: {why}")),
        PortState::Stranger(why) => {
            let message = format!("a process listens there that is not a member of a cluster: {why}");
            Finding::error(CODE, &about, message, other)
        }
        PortState::Refused(error) => {
            let remedy = match error.kind() {
                io::ErrorKind::AddrNotAvailable => {
                    "listen on an address of this machine (`ip address`); give the address for other members with \
                     --advertise"
                        .to_owned()
                }
                io::ErrorKind::PermissionDenied => "choose a port of 1024 or above, which needs no \
                                                    privilege"
                    .to_owned(),
                _ => other,
            };
            Finding::error(CODE, &about, format!("cannot listen on it: {error}"), remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Verdict;

    fn judged(reading: &PortState, expected: Option<&str>) -> Finding {
        judge("listen", "127.0.0.1:7201".parse().unwrap(), reading, expected)
    }

    #[test]
    fn port_is_free_or_used_by_the_member_or_by_another_process() {
        let member = || PortState::Member("node/athens".to_owned());
        assert_eq!(judged(&PortState::Free, None).verdict, Verdict::Ok);
        assert_eq!(judged(&member(), None).verdict, Verdict::Ok);
        assert_eq!(judged(&member(), Some("node/athens")).verdict, Verdict::Ok);
        assert_eq!(judged(&member(), Some("node/delos")).verdict, Verdict::Error);
        let of_another = PortState::OfAnotherDirectory("node/athens".to_owned(), "/data/new".to_owned());
        let of_another = judged(&of_another, Some("node/athens"));
        assert!(
            of_another.verdict == Verdict::Error && of_another.message.contains("/data/new"),
            "{}",
            of_another.message
        );
        let stranger = judged(&PortState::Stranger("no".to_owned()), None);
        assert_eq!(stranger.verdict, Verdict::Error);
        assert!(stranger.remedy.unwrap().contains("another --listen address"));
        let unasked = judged(&PortState::Unasked("these credentials cannot be used".to_owned()), Some("node/athens"));
        assert!(
            unasked.verdict == Verdict::NotChecked && unasked.remedy.is_none(),
            "a healthy member was to be stopped"
        );
        let elsewhere = judged(&PortState::Refused(io::ErrorKind::AddrNotAvailable.into()), None);
        assert!(elsewhere.verdict == Verdict::Error && elsewhere.remedy.unwrap().contains("--advertise"));
    }
}
