//! Limit of open files for a process of this machine.

use crate::doctor::subjects::MACHINE;
use crate::documents::{Finding, FindingCode};
use rustix::process::{Resource, getrlimit};

/// A node accepts 4,096 connections by default, and uses at most half of its files for connections: with a lower limit
/// it accepts fewer.
const WANTED: u64 = 8_192;
/// A lower limit does not suffice for a log, an engine and a connection to each other member.
const NEEDED: u64 = 512;

/// Returns the highest limit that a process may set, which coordinators and nodes do by themselves; `None` if it is
/// unlimited.
pub(super) fn read() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Judges the limit.
pub(super) fn judge(most: Option<u64>) -> Finding {
    const CODE: FindingCode = FindingCode::OpenFiles;
    let Some(most) = most else {
        return Finding::ok(CODE, MACHINE, "processes started here have no limit of open files");
    };
    let message = format!("processes started here may have {most} files open");
    let remedy = "raise the limit: LimitNOFILE of a service (1048576 in packaging/systemd), nofile of a container, \
                  `ulimit -Hn` of a shell";
    match most {
        0..NEEDED => Finding::error(CODE, MACHINE, format!("{message}, and need at least {NEEDED}"), remedy),
        NEEDED..WANTED => {
            let message = format!("{message}: a node then accepts {} connections, and 4096 with {WANTED}", most / 2);
            Finding::warning(CODE, MACHINE, message, remedy)
        }
        _ => Finding::ok(CODE, MACHINE, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Verdict;

    #[test]
    fn low_file_limit_reduces_connections() {
        let judged = |most| judge(most).verdict;
        assert_eq!(
            (judged(None), judged(Some(1_048_576)), judged(Some(8_192))),
            (Verdict::Ok, Verdict::Ok, Verdict::Ok)
        );
        assert!(judge(Some(4_096)).message.contains("2048 connections"), "{}", judge(Some(4_096)).message);
        assert_eq!((judged(Some(1_024)), judged(Some(256))), (Verdict::Warning, Verdict::Error));
    }
}
