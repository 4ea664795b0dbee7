//! Signals that `archon lock` forwards to its command.

use crate::exit::Failure;
use rustix::process::Signal;
use std::future::poll_fn;
use std::task::Poll;
use tokio::signal::unix::{SignalKind, signal};

/// Forwarded signals; a process without a handler ends by each.
const FORWARDED: [(Signal, SignalKind); 6] = [
    (Signal::HUP, SignalKind::hangup()),
    (Signal::INT, SignalKind::interrupt()),
    (Signal::QUIT, SignalKind::quit()),
    (Signal::TERM, SignalKind::terminate()),
    (Signal::USR1, SignalKind::user_defined1()),
    (Signal::USR2, SignalKind::user_defined2()),
];

/// Received signals.
pub(super) struct Signals {
    forwarded: Vec<(Signal, tokio::signal::unix::Signal)>,
    /// Ctrl-Z would stop the renewal, and not the command: it has no effect.
    _ignored: tokio::signal::unix::Signal,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// The system refuses one.
    pub(super) fn install() -> Result<Self, Failure> {
        let install = |(sent, kind)| {
            let stream = signal(kind);
            stream.map(|stream| (sent, stream)).map_err(|error| Failure::failed(format!("handling signals: {error}")))
        };
        // What the caller ignores (`nohup`, jobs in the background of a script) stays ignored, also by the command.
        let ignored = ignored_signals(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let is_heard = |(sent, _): &(Signal, SignalKind)| ignored & (1 << (sent.as_raw() - 1)) == 0;
        let forwarded = FORWARDED.into_iter().filter(is_heard).map(install).collect::<Result<_, _>>()?;
        let (_, ignored) = install((Signal::TSTP, SignalKind::from_raw(Signal::TSTP.as_raw())))?;
        Ok(Self { forwarded, _ignored: ignored })
    }

    /// Returns the next signal.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (sent, stream) in &mut self.forwarded {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*sent);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the number of the next signal while there is no command.
    pub(super) async fn next_deadly(&mut self) -> u8 {
        let signal = self.next().await;
        u8::try_from(signal.as_raw()).unwrap_or_default()
    }
}

/// Returns the set of ignored signals in the status of a process, a bit for each number from 1.
fn ignored_signals(status: &str) -> u64 {
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let set = ignored_signals("Name:\tsh\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000000002\n");
        assert_eq!(set, 1 << (Signal::HUP.as_raw() - 1));
        assert_eq!(ignored_signals(""), 0);
    }
}
