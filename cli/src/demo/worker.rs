//! Process of the service in the story: only owns partitions and records when.

use crate::args::Connection;
use crate::connect::transport;
use crate::exit::{Exit, Failure};
use archon_client::Participant;
use archon_local_cluster::{IdleService, end_with_parent};
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::interval;

/// Table that the processes share.
pub(super) const JOBS: &str = "jobs";
/// Interval at which a process reads its partitions.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// Time limit for releasing all partitions.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Partitions owned at some moment between two readings of the machine's clock, which all processes share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub(super) before_ns: u64,
    pub(super) after_ns: u64,
    /// Partitions with their epochs.
    pub(super) owned: Vec<(u32, u64)>,
}

/// Participates under this name until SIGTERM.
pub(super) fn run(name: &str, connection: &Connection) -> Result<Exit, Failure> {
    end_with_parent()?;
    crate::on_runtime(take_part(name, connection))
}

async fn take_part(name: &str, connection: &Connection) -> Result<Exit, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    // The address is not called: clients that ask for the owner see it.
    let participant = Participant::builder(connection.coordinators.clone()).table(JOBS).name(name);
    let participant = participant.transport(transport(connection)?);
    let participant = participant.address(format!("{name}.example:80")).start(IdleService).await?;
    let mut ask = interval(ASK_EVERY);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = ask.tick() => {}
        }
        let note = note(&participant);
        if !note.owned.is_empty() {
            // In one write without delay: a killed process has recorded all but the last few milliseconds.
            std::io::stdout().write_all(note.line().as_bytes())?;
        }
    }
    participant.stop(STOP_WITHIN).await;
    Ok(Exit::Done)
}

fn note(participant: &Participant) -> Note {
    let before_ns = boot_clock_ns();
    let owned = participant.owned().into_iter();
    let owned = owned.map(|grant| (grant.partition().index, grant.epoch().get())).collect();
    Note { before_ns, after_ns: boot_clock_ns(), owned }
}

fn boot_clock_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

impl Note {
    fn line(&self) -> String {
        let owned: Vec<String> = self.owned.iter().map(|(partition, epoch)| format!(" {partition}:{epoch}")).collect();
        format!("owned {} {}{}\n", self.before_ns, self.after_ns, owned.concat())
    }

    /// Parses the notes of a process; other lines of its log are ignored.
    pub(super) fn read(log: &str) -> Vec<Self> {
        let read = |line: &str| {
            let mut words = line.strip_suffix('\n')?.strip_prefix("owned ")?.split(' ');
            let mut number = || words.next()?.parse().ok();
            let (before_ns, after_ns) = (number()?, number()?);
            let pair = |word: &str| {
                let (partition, epoch) = word.split_once(':')?;
                Some((partition.parse().ok()?, epoch.parse().ok()?))
            };
            Some(Self { before_ns, after_ns, owned: words.map(pair).collect::<Option<_>>()? })
        };
        log.split_inclusive('\n').filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_round_trip_and_incomplete_lines_are_ignored() {
        let note = Note { before_ns: 5, after_ns: 7, owned: vec![(0, 3), (11, 1)] };
        let log = format!("warning: something\n{}owned 8 9 0:3", note.line());
        assert_eq!(Note::read(&log), [note]);
    }
}
