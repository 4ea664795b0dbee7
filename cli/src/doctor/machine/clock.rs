//! Clocks. Leases depend on one that runs from the start of the machine and never jumps; certificates, events and logs
//! are dated by the wall clock.

use crate::doctor::subjects::MACHINE;
use crate::documents::{Finding, FindingCode};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::process::Command;
use tokio::time::timeout;

/// Time limit for the answer of the time service.
const ASKED: Duration = Duration::from_secs(2);
/// Earliest plausible time, in seconds of Unix time: the program did not exist before (2026).
const EARLIEST: u64 = 1_767_225_600;
/// Tolerated difference of the two clocks in addition to the slewing of the wall clock: a step of NTP is at least 128
/// ms.
const STEP_MIN: Duration = Duration::from_millis(20);

/// State of the clock's synchronisation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ClockSync {
    Yes,
    No,
    /// Unknown, with the reason.
    Unknown(String),
}

/// Asks the time service of the service manager, which asks the kernel. The kernel's own call needs code without
/// checked memory safety.
pub(super) async fn synchronised() -> ClockSync {
    if !cfg!(target_os = "linux") {
        return ClockSync::Unknown("checked on Linux only".to_owned());
    }
    let mut command = Command::new("timedatectl");
    command.args(["show", "--property=NTPSynchronized", "--value"]).stdin(Stdio::null()).kill_on_drop(true);
    match timeout(ASKED, command.output()).await {
        Ok(Ok(output)) => answer(output.status.success(), &String::from_utf8_lossy(&output.stdout)),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            ClockSync::Unknown("timedatectl is not installed".to_owned())
        }
        Ok(Err(error)) => ClockSync::Unknown(format!("calling timedatectl: {error}")),
        Err(_) => ClockSync::Unknown(format!("timedatectl did not answer within {} s", ASKED.as_secs())),
    }
}

fn answer(success: bool, text: &str) -> ClockSync {
    match text.trim() {
        "yes" if success => ClockSync::Yes,
        "no" if success => ClockSync::No,
        _ => ClockSync::Unknown("timedatectl does not work here".to_owned()),
    }
}

/// Judges the time that the clock shows, and its synchronisation.
pub(super) fn set(synchronised: ClockSync, now: SystemTime) -> Finding {
    const CODE: FindingCode = FindingCode::ClockSet;
    let keep = "run a time service, such as chrony or systemd-timesyncd";
    if now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() < EARLIEST {
        let message = "the clock shows a time before this program was built: certificates are not valid yet";
        return Finding::error(CODE, MACHINE, message, format!("set the clock; {keep}"));
    }
    match synchronised {
        ClockSync::Yes => Finding::ok(CODE, MACHINE, "the clock is synchronized by NTP"),
        ClockSync::No => {
            let message = "the clock is not synchronized. Leases do not depend on it; certificates, events and logs do";
            Finding::warning(CODE, MACHINE, message, keep)
        }
        ClockSync::Unknown(why) => Finding::not_checked(CODE, MACHINE, format!("synchronization of the clock: {why}")),
    }
}

/// Both clocks at about the same moment.
#[derive(Clone, Copy, Debug)]
struct ClockPair {
    /// Since the start of the machine.
    boot: Duration,
    /// Unix time.
    wall: Duration,
    /// Greatest distance of the two moments.
    apart: Duration,
}

/// Observation of both clocks from a moment on.
pub(super) struct Watch(ClockPair);

/// Elapsed time between two readings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ElapsedTime {
    pub(super) boot: Duration,
    /// Elapsed time of the wall clock; `None` if it went back.
    pub(super) wall: Option<Duration>,
    /// Uncertainty of the values.
    pub(super) apart: Duration,
}

impl Watch {
    pub(super) fn begin() -> Self {
        Self(both())
    }

    pub(super) fn end(self) -> ElapsedTime {
        let (before, after) = (self.0, both());
        let boot = after.boot.saturating_sub(before.boot);
        ElapsedTime { boot, wall: after.wall.checked_sub(before.wall), apart: before.apart + after.apart }
    }
}

/// Returns the closest of a few readings, because this thread may be preempted between the two clocks.
fn both() -> ClockPair {
    let look = || {
        let before = time_of(ClockId::Boottime);
        let wall = time_of(ClockId::Realtime);
        let boot = time_of(ClockId::Boottime);
        ClockPair { boot, wall, apart: boot.saturating_sub(before) }
    };
    let tries: [ClockPair; 5] = std::array::from_fn(|_| look());
    tries.into_iter().fold(tries[0], |best, one| if one.apart < best.apart { one } else { best })
}

fn time_of(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Judges whether the wall clock advanced like the other one. Slewing changes its rate by a tenth at most.
pub(super) fn steady(elapsed: ElapsedTime) -> Finding {
    const CODE: FindingCode = FindingCode::ClockSteady;
    let watched = format!("within {} ms", elapsed.boot.as_millis());
    let (difference, way) = match elapsed.wall {
        None => return leapt(&format!("the clock went back {watched}")),
        Some(wall) if wall >= elapsed.boot => (wall.saturating_sub(elapsed.boot), "forward"),
        Some(wall) => (elapsed.boot.saturating_sub(wall), "back"),
    };
    if difference > STEP_MIN + elapsed.boot / 10 + elapsed.apart {
        return leapt(&format!("the clock jumped {way} by {} ms {watched}", difference.as_millis()));
    }
    Finding::ok(CODE, MACHINE, format!("the clock ran steadily {watched}"))
}

fn leapt(message: &str) -> Finding {
    let remedy = "let only one program adjust the clock, and let it slew the clock instead of stepping it; leases do not depend \
         on it";
    Finding::warning(FindingCode::ClockSteady, MACHINE, message, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::Verdict;

    fn elapsed(boot_ms: u64, wall_ms: Option<u64>) -> ElapsedTime {
        ElapsedTime {
            boot: Duration::from_millis(boot_ms),
            wall: wall_ms.map(Duration::from_millis),
            apart: Duration::ZERO,
        }
    }

    #[test]
    fn clock_step_is_distinguished_from_slewing() {
        let judged = |boot, wall| steady(elapsed(boot, wall)).verdict;
        assert_eq!((judged(1_000, Some(1_000)), judged(1_000, Some(1_083))), (Verdict::Ok, Verdict::Ok));
        assert_eq!((judged(1_000, Some(1_128)), judged(1_000, Some(872))), (Verdict::Warning, Verdict::Warning));
        assert_eq!(judged(1_000, None), Verdict::Warning);
        assert!(steady(elapsed(1_000, Some(3_600_000))).message.contains("jumped forward by 3599000 ms"));
        assert_eq!(steady(Watch::begin().end()).verdict, Verdict::Ok);
    }

    #[test]
    fn clock_reset_to_1970_is_an_error() {
        let now = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(set(ClockSync::Yes, now(60)).verdict, Verdict::Error);
        assert_eq!(set(ClockSync::Yes, now(EARLIEST)).verdict, Verdict::Ok);
        assert_eq!(set(answer(true, "no\n"), now(EARLIEST)).verdict, Verdict::Warning);
        let unknown = set(answer(false, "yes\n"), now(EARLIEST));
        assert_eq!((unknown.verdict, unknown.remedy), (Verdict::NotChecked, None));
    }
}
