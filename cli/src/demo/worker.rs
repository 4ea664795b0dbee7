//! A process of the service in the story: it owns partitions and notes when, nothing else.

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

/// The table that the processes share.
pub(super) const JOBS: &str = "jobs";
/// How often a process asks what it owns.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// How long it may take to give everything up.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// What a process found that it owned at some moment between two readings of the machine's clock, which all processes share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub(super) before_ns: u64,
    pub(super) after_ns: u64,
    /// Partitions with their epochs.
    pub(super) owned: Vec<(u32, u64)>,
}

/// Takes part under this name until SIGTERM.
pub(super) fn run(name: &str, connection: &Connection) -> Result<Exit, Failure> {
    end_with_parent()?;
    crate::on_runtime(take_part(name, connection))
}

async fn take_part(name: &str, connection: &Connection) -> Result<Exit, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    // Nobody calls it: it is shown to whoever asks for the owner.
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
            // At once and as a whole: a process that is killed has noted all but the last few milliseconds.
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

    /// What a process has noted; other lines of its log are not notes.
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
    fn notes_are_read_as_they_were_written_and_a_line_without_end_is_left_out() {
        let note = Note { before_ns: 5, after_ns: 7, owned: vec![(0, 3), (11, 1)] };
        let log = format!("warning: something\n{}owned 8 9 0:3", note.line());
        assert_eq!(Note::read(&log), [note]);
    }
}
