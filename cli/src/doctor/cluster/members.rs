//! Statistics of each member: version, clock, files, and sync time of its disk.

use crate::doctor::machine::time_text;
use crate::doctor::subjects::CLUSTER;
use crate::documents::{Finding, FindingCode};
use archon_client::{Admin, Error, NodeStats, NodeStatus, NodeSummary};
use futures::{StreamExt as _, stream};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time limit for one member.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Most concurrent requests.
const ASKED_MAX: usize = 16;

/// Larger clock deviations make the dates of certificates, events and logs misleading; leases do not depend on it.
const SKEW_MAX: Duration = Duration::from_secs(1);
/// With a larger deviation, a newly issued certificate is not valid yet.
const SKEW_TOO_MUCH: Duration = Duration::from_secs(300);
/// Same threshold as the alert `ArchonFewDescriptors`, in percent.
const FILES_PERCENT: u64 = 80;
/// Twice the acceptable median of the small writes measured on this machine, because the log also has large writes.
const SYNC_SLOW: Duration = Duration::from_millis(20);

/// Answer of a member.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Member {
    /// Identity, as `node/athens`.
    name: String,
    said: Result<MemberReport, String>,
}

#[derive(Clone, PartialEq, Debug, Default)]
struct MemberReport {
    version: Option<String>,
    /// Minimum deviation of its clock from this machine's; `None` if it does not report its clock.
    skew: Option<Skew>,
    files: u64,
    files_max: Option<u64>,
    /// Average duration of a durable log write since its start.
    sync: Option<Duration>,
}

/// Deviation of another clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Skew {
    by: Duration,
    ahead: bool,
}

/// Converts a member name of [`NodeStats`] to the identity in its certificate.
pub(in crate::doctor) fn member_of(name: &str) -> String {
    name.strip_prefix("coordinator ").map_or_else(|| format!("node/{name}"), |id| format!("coordinator/{id}"))
}

/// Queries every member that should answer.
pub(super) async fn ask(admin: &Admin) -> Result<Vec<Member>, Error> {
    let (status, nodes) = tokio::try_join!(admin.status(), admin.list_nodes())?;
    let coordinators = status.coordinators.into_iter().map(|one| (format!("coordinator/{}", one.id), one.address));
    let serves = |node: &NodeSummary| !node.is_participant() && node.status == NodeStatus::Alive;
    let nodes = nodes.into_iter().filter(serves).map(|node| (format!("node/{}", node.name), node.address));
    let all: Vec<(String, String)> = coordinators.chain(nodes).collect();
    let asked = all.into_iter().map(|(name, address)| one(admin, name, address));
    Ok(stream::iter(asked).buffered(ASKED_MAX).collect().await)
}

async fn one(admin: &Admin, name: String, address: String) -> Member {
    let (before, answer) = (SystemTime::now(), stats(admin, &address).await);
    let after = SystemTime::now();
    let said = answer.map(|stats| said(&stats, before, after)).map_err(|error| error.to_string());
    Member { name, said }
}

async fn stats(admin: &Admin, address: &str) -> Result<NodeStats, Error> {
    admin.at_endpoint(address.to_owned(), TIMEOUT)?.node_stats(address).await
}

fn said(stats: &NodeStats, before: SystemTime, after: SystemTime) -> MemberReport {
    let told = |name: &str| stats.values.get(name).copied();
    let version = stats.values.keys().find_map(|name| {
        let rest = name.strip_prefix("archon_build_info{version=\"")?;
        Some(rest.strip_suffix("\"}")?.to_owned())
    });
    let writes = told("archon_wal_sync_seconds_count").filter(|count| *count > 0.0);
    let seconds = |value: f64| Duration::try_from_secs_f64(value).ok();
    MemberReport {
        version,
        skew: told("archon_process_clock_seconds").and_then(seconds).map(|clock| skew(clock, before, after)),
        files: stats.get("archon_process_open_files"),
        files_max: told("archon_process_open_files_max").map(|most| most as u64),
        sync: writes.and_then(|count| seconds(told("archon_wal_sync_seconds_sum")? / count)),
    }
}

/// Returns the minimum deviation of a clock that was read between two moments.
fn skew(clock: Duration, before: SystemTime, after: SystemTime) -> Skew {
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (before, after) = (since(before), since(after));
    if clock > after {
        return Skew { by: clock.saturating_sub(after), ahead: true };
    }
    Skew { by: before.saturating_sub(clock), ahead: false }
}

/// Judges the answers. `own` is this program's version.
pub(super) fn judge(members: &[Member], own: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        if let Err(why) = &member.said {
            let remedy = "check that it is running and that this machine reaches it; `archon status` shows how the others see \
                 it";
            let message = format!("it does not answer this machine: {why}");
            findings.push(Finding::warning(FindingCode::Member, &member.name, message, remedy));
        }
    }
    let said: Vec<(&str, &MemberReport)> =
        members.iter().filter_map(|member| Some((member.name.as_str(), member.said.as_ref().ok()?))).collect();
    if said.is_empty() {
        findings.push(Finding::not_checked(FindingCode::Member, CLUSTER, "no member reports about itself"));
        return findings;
    }
    findings.push(versions(&said, own));
    findings.extend(clocks(&said));
    findings.extend(files(&said));
    findings.extend(syncs(&said));
    findings
}

fn versions(said: &[(&str, &MemberReport)], own: &str) -> Finding {
    const CODE: FindingCode = FindingCode::Version;
    let mut by_version: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, said) in said {
        by_version.entry(said.version.as_deref().unwrap_or("unknown")).or_default().push(name);
    }
    if by_version.keys().eq([&own]) {
        return Finding::ok(
            CODE,
            CLUSTER,
            format!("each of {} members runs archon {own}, as this machine does", said.len()),
        );
    }
    let each = by_version.iter().map(|(version, names)| format!("{version}: {}", names.join(", ")));
    let message = format!(
        "versions of members differ, among each other or from this machine ({own}): {}",
        each.collect::<Vec<_>>().join("; ")
    );
    let remedy = "upgrade all members to one version, one after the other; CHANGELOG.md lists compatible versions";
    Finding::warning(CODE, CLUSTER, message, remedy)
}

fn clocks(said: &[(&str, &MemberReport)]) -> Vec<Finding> {
    const CODE: FindingCode = FindingCode::ClockSet;
    let told: Vec<(&str, Skew)> = said.iter().filter_map(|(name, said)| Some((*name, said.skew?))).collect();
    let off = |(name, skew): &(&str, Skew)| {
        let way = if skew.ahead { "ahead of" } else { "behind" };
        let message = format!("its clock is {} {way} this machine's, at least", long_text(skew.by));
        let remedy = "synchronize the clocks of both machines with NTP; leases do not depend on them, certificates, \
                      events and logs do";
        match skew.by {
            by if by >= SKEW_TOO_MUCH => Some(Finding::error(CODE, name, message, remedy)),
            by if by >= SKEW_MAX => Some(Finding::warning(CODE, name, message, remedy)),
            _ => None,
        }
    };
    let findings: Vec<Finding> = told.iter().filter_map(off).collect();
    match (findings.is_empty(), told.is_empty()) {
        (_, true) => vec![Finding::not_checked(CODE, CLUSTER, "the clocks of members: none reports its own")],
        (true, false) => {
            let message = format!("the clocks of {} members agree with this machine's within a second", told.len());
            vec![Finding::ok(CODE, CLUSTER, message)]
        }
        (false, false) => findings,
    }
}

fn files(said: &[(&str, &MemberReport)]) -> Vec<Finding> {
    const CODE: FindingCode = FindingCode::OpenFiles;
    let few = |(name, said): &(&str, &MemberReport)| {
        let most = said.files_max?;
        let remedy = "raise its limit of open files (LimitNOFILE of its service) and restart it; at the limit it \
                      refuses connections";
        let full = said.files.saturating_mul(100) >= most.saturating_mul(FILES_PERCENT);
        full.then(|| Finding::warning(CODE, name, format!("it has {} of {most} files open", said.files), remedy))
    };
    let findings: Vec<Finding> = said.iter().filter_map(few).collect();
    if findings.is_empty() {
        return vec![Finding::ok(
            CODE,
            CLUSTER,
            format!("all members use less than {FILES_PERCENT} % of their limit of open files"),
        )];
    }
    findings
}

fn syncs(said: &[(&str, &MemberReport)]) -> Vec<Finding> {
    const CODE: FindingCode = FindingCode::DiskSync;
    let told: Vec<(&str, Duration)> = said.iter().filter_map(|(name, said)| Some((*name, said.sync?))).collect();
    let slow = |(name, sync): &(&str, Duration)| {
        let message = format!("durable writes of its log take {} on average", time_text(*sync));
        let remedy = "check its disk with `archon doctor --data-dir DIR` there; use a faster disk, without other load";
        (*sync >= SYNC_SLOW).then(|| Finding::warning(CODE, name, message, remedy))
    };
    let findings: Vec<Finding> = told.iter().filter_map(slow).collect();
    match told.iter().max_by_key(|(_, sync)| *sync) {
        None => vec![Finding::not_checked(CODE, CLUSTER, "the disks of members: no writes yet")],
        Some((name, sync)) if findings.is_empty() => {
            let message = format!("durable writes of logs take at most {} on average, on {name}", time_text(*sync));
            vec![Finding::ok(CODE, CLUSTER, message)]
        }
        Some(_) => findings,
    }
}

/// Formats a duration: `1.5 s`, `12 min`.
fn long_text(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 120.. => format!("{} min", seconds / 60),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Verdict;

    fn well() -> MemberReport {
        MemberReport {
            version: Some("1.0.0".to_owned()),
            skew: Some(Skew { by: Duration::ZERO, ahead: false }),
            files: 80,
            files_max: Some(1_024),
            sync: Some(Duration::from_millis(1)),
        }
    }

    fn judged(said: Vec<Result<MemberReport, String>>) -> Vec<Finding> {
        let member = |(place, said)| Member { name: format!("node/n{place}"), said };
        judge(&said.into_iter().enumerate().map(member).collect::<Vec<_>>(), "1.0.0")
    }

    fn only(said: MemberReport, code: FindingCode) -> Finding {
        let found = judged(vec![Ok(well()), Ok(said)]);
        let worst = found.into_iter().filter(|finding| finding.code == code).max_by_key(|finding| finding.verdict);
        worst.expect("a finding of this kind")
    }

    #[test]
    fn equal_members_are_summarized_in_one_line_each() {
        let found = judged(vec![Ok(well()), Ok(well())]);
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|finding| finding.verdict == Verdict::Ok), "{found:#?}");
    }

    #[test]
    fn deviating_member_is_named() {
        let mixed = only(MemberReport { version: Some("0.9.0".to_owned()), ..well() }, FindingCode::Version);
        assert_eq!(mixed.verdict, Verdict::Warning);
        assert!(mixed.message.contains("0.9.0: node/n1; 1.0.0: node/n0"), "{}", mixed.message);
        for (seconds, verdict) in [(0.9, Verdict::Ok), (1.5, Verdict::Warning), (600.0, Verdict::Error)] {
            let skew = Some(Skew { by: Duration::from_secs_f64(seconds), ahead: true });
            assert_eq!(only(MemberReport { skew, ..well() }, FindingCode::ClockSet).verdict, verdict, "{seconds}");
        }
        let files = only(MemberReport { files: 900, ..well() }, FindingCode::OpenFiles);
        assert_eq!((files.verdict, files.about.as_str()), (Verdict::Warning, "node/n1"));
        let slow = only(MemberReport { sync: Some(Duration::from_millis(25)), ..well() }, FindingCode::DiskSync);
        assert!(slow.verdict == Verdict::Warning && slow.message.contains("25.0 ms"), "{}", slow.message);
        let silent = judged(vec![Ok(well()), Err("no".to_owned())]);
        assert_eq!((silent[0].code, silent[0].verdict), (FindingCode::Member, Verdict::Warning));
        assert_eq!(judged(vec![Err("no".to_owned())]).last().map(|last| last.verdict), Some(Verdict::NotChecked));
    }

    #[test]
    fn slow_answer_proves_no_skew() {
        let at = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        let by = |clock, before, after| skew(Duration::from_millis(clock), at(before), at(after));
        assert_eq!(by(1_500, 1_000, 2_000).by, Duration::ZERO);
        assert_eq!(by(2_500, 1_000, 2_000), Skew { by: Duration::from_millis(500), ahead: true });
        assert_eq!(by(400, 1_000, 2_000), Skew { by: Duration::from_millis(600), ahead: false });
    }

    #[test]
    fn counters_of_a_member_are_found_by_name() {
        let values = [
            ("archon_build_info{version=\"0.3.1\"}", 1.0),
            ("archon_process_clock_seconds", 1_800_000_000.5),
            ("archon_process_open_files", 12.0),
            ("archon_wal_sync_seconds_sum", 3.0),
            ("archon_wal_sync_seconds_count", 1_000.0),
        ];
        let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let at = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let found = said(&NodeStats { node: "athens".to_owned(), values }, at, at);
        assert_eq!(found.version.as_deref(), Some("0.3.1"));
        assert_eq!(found.skew, Some(Skew { by: Duration::from_millis(500), ahead: true }));
        assert_eq!((found.files, found.files_max, found.sync), (12, None, Some(Duration::from_millis(3))));
        assert_eq!((member_of("coordinator 2"), member_of("athens")), ("coordinator/2".into(), "node/athens".into()));
    }
}
