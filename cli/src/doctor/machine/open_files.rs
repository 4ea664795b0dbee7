//! How many files a process of this machine may have open.

use super::MACHINE;
use crate::documents::{Finding, FindingCode};
use rustix::process::{Resource, getrlimit};

/// A node takes 4,096 connections unless told otherwise, and half of its files at most are connections: with less than this it takes
/// fewer.
const WANTED: u64 = 8_192;
/// With less than this, a log, an engine and a connection to each other member do not go together.
const NEEDED: u64 = 512;

/// The most that a process may raise its limit to, which coordinators and nodes do by themselves; `None` if it is unlimited.
pub(super) fn read() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Judges it.
pub(super) fn judge(most: Option<u64>) -> Finding {
    const CODE: FindingCode = FindingCode::OpenFiles;
    let Some(most) = most else {
        return Finding::ok(CODE, MACHINE, "processes that are started here may have any number of files open");
    };
    let message = format!("processes that are started here may have {most} files open");
    let remedy = "raise the limit for whoever starts them: LimitNOFILE of a service (1048576 in packaging/systemd), nofile of a container, \
                  `ulimit -Hn` of a shell";
    match most {
        0..NEEDED => Finding::error(CODE, MACHINE, format!("{message}, and need {NEEDED} at least"), remedy),
        NEEDED..WANTED => {
            let message = format!("{message}: a node takes {} connections then, and 4096 with {WANTED}", most / 2);
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
    fn few_files_are_few_connections() {
        let judged = |most| judge(most).verdict;
        assert_eq!(
            (judged(None), judged(Some(1_048_576)), judged(Some(8_192))),
            (Verdict::Ok, Verdict::Ok, Verdict::Ok)
        );
        assert!(judge(Some(4_096)).message.contains("2048 connections"), "{}", judge(Some(4_096)).message);
        assert_eq!((judged(Some(1_024)), judged(Some(256))), (Verdict::Warning, Verdict::Error));
    }
}
