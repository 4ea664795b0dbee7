//! Skips tests that this machine does not allow, or fails them where [`NO_SKIP`] is set.
//!
//! Some tests need root, mounts, a tracer, network namespaces or a file system that takes direct writes. A developer's
//! machine need not allow these. The machine that judges changes must: otherwise tests would pass without having
//! checked anything.

use std::ffi::OsStr;
use std::fmt::Display;

/// Environment variable that turns a skipped test into a failed one, if set to anything but the empty string or `0`.
pub const NO_SKIP: &str = "ARCHON_NO_SKIP";

/// Prints to standard output why a test, or a part of it, is skipped. The caller returns, or leaves that part out.
///
/// # Panics
/// If [`NO_SKIP`] is set: then this machine must allow every test.
#[track_caller]
pub fn skipped(why: impl Display) {
    assert!(!is_forbidden(std::env::var_os(NO_SKIP).as_deref()), "not skipped, as {NO_SKIP} is set: {why}");
    println!("skipped: {why}");
}

/// Returns true if this value of [`NO_SKIP`] forbids skips.
fn is_forbidden(value: Option<&OsStr>) -> bool {
    value.is_some_and(|value| !value.is_empty() && value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    #[test]
    fn only_non_zero_value_forbids_skips() {
        let forbids = |value: &str| is_forbidden(Some(OsStr::new(value)));
        assert!(forbids("1") && forbids("yes"));
        assert!(!forbids("") && !forbids("0") && !is_forbidden(None));
    }

    /// Not a test of its own: the tests below run it with the variable and without.
    #[test]
    #[ignore = "started by skipped_test_fails_where_skips_are_forbidden"]
    fn always_skipped() {
        skipped("this machine has no moon");
    }

    fn run_skipped(value: &str) -> Output {
        Command::new(std::env::current_exe().expect("this test's program"))
            .args(["--exact", "skip::tests::always_skipped", "--ignored", "--nocapture"])
            .env(NO_SKIP, value)
            .output()
            .expect("it runs")
    }

    #[test]
    fn skipped_test_fails_where_skips_are_forbidden() {
        let allowed = run_skipped("");
        let said = String::from_utf8_lossy(&allowed.stdout);
        assert!(allowed.status.success() && said.contains("skipped: this machine has no moon"), "{allowed:?}");
        let forbidden = run_skipped("1");
        let said = String::from_utf8_lossy(&forbidden.stderr);
        assert!(!forbidden.status.success() && said.contains("this machine has no moon"), "{forbidden:?}");
    }
}
