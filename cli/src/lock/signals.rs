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
        let forwarded = FORWARDED.into_iter().map(install).collect::<Result<_, _>>()?;
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
