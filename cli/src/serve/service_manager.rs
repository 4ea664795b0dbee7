//! Notifications to the service manager of a serving process, if requested: a systemd unit with `Type=notify` does so
//! by `NOTIFY_SOCKET`.

use parking_lot::Mutex;
use sd_notify::NotifyState;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval of checks that a member takes part in its cluster.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Moment at which a process counts as started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadyCondition {
    /// Once it can be reached.
    Serving,
    /// Once it takes part in its cluster.
    TakingPart,
}

/// State of the process as last notified.
#[derive(Clone, PartialEq, Eq, Debug)]
enum NotifiedState {
    Starting,
    /// Started.
    Ready,
    /// No notification follows.
    Stopping,
}

/// Sends messages; `Err` if they cannot be delivered.
type Messenger = Box<dyn Fn(&[NotifyState<'_>]) -> io::Result<()> + Send + Sync>;

/// Service manager that started this process.
pub(super) struct ServiceManager {
    /// `None` without a request for notifications.
    send: Option<Messenger>,
    /// Last state and status. Messages are sent under the lock, so that none overtakes another.
    told: Mutex<(NotifiedState, String)>,
}

impl ServiceManager {
    /// Returns the service manager of this process; without a request it sends nothing.
    pub(super) fn of_this_process() -> Arc<Self> {
        let asked = std::env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty());
        let send = asked.then(|| Box::new(|states: &[NotifyState<'_>]| sd_notify::notify(states)) as Messenger);
        Arc::new(Self { send, told: Mutex::new((NotifiedState::Starting, String::new())) })
    }

    /// Notifies that the start is in progress.
    pub(super) fn starting(&self) {
        self.status("opens its data directory and reads its log");
    }

    /// Notifies that the start waits for something.
    pub(super) fn waits(&self, why: &str) {
        self.status(&format!("waits: {why}"));
    }

    /// Checks the member until `stop`: notifies that the process is started once the member takes part in its cluster,
    /// and the reason for a wait whenever that changes.
    pub(super) fn follow(
        self: &Arc<Self>,
        ready: impl Fn() -> Result<(), String> + Send + Sync + 'static,
        when: ReadyCondition,
        stop: &CancellationToken,
    ) {
        if self.send.is_none() {
            return;
        }
        let (service_manager, stop) = (Arc::clone(self), stop.clone());
        tokio::spawn(async move {
            loop {
                let ready = ready();
                if stop.is_cancelled() {
                    return;
                }
                service_manager.look(&ready, when);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(LOOK_INTERVAL) => {}
                }
            }
        });
    }

    fn look(&self, ready: &Result<(), String>, when: ReadyCondition) {
        if ready.is_ok() || when == ReadyCondition::Serving {
            self.ready();
        }
        match ready {
            Ok(()) => self.status("takes part in its cluster"),
            Err(why) => self.waits(why),
        }
    }

    fn ready(&self) {
        let mut told = self.told.lock();
        if told.0 == NotifiedState::Starting {
            told.0 = NotifiedState::Ready;
            self.tell(&[NotifyState::Ready]);
        }
    }

    fn status(&self, status: &str) {
        let mut told = self.told.lock();
        // A line break ends a field of a message.
        let status = status.replace(['\n', '\r'], " ");
        if told.0 != NotifiedState::Stopping && told.1 != status {
            self.tell(&[NotifyState::Status(&status)]);
            told.1 = status;
        }
    }

    /// Notifies that the process stops gracefully, and requests the time for it.
    pub(super) fn stopping(&self, deadline: Duration) {
        let mut told = self.told.lock();
        if told.0 == NotifiedState::Stopping {
            return;
        }
        told.0 = NotifiedState::Stopping;
        let status = format!("handing over leaderships, stopping within {} s", deadline.as_secs());
        let micros = u32::try_from(deadline.as_micros()).unwrap_or(u32::MAX);
        self.tell(&[NotifyState::Stopping, NotifyState::Status(&status), NotifyState::ExtendTimeoutUsec(micros)]);
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if let Some(Err(error)) = self.send.as_ref().map(|send| send(states)) {
            tracing::warn!(%error, "cannot report the state of this process to the service manager (NOTIFY_SOCKET)");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a service manager, and its received messages.
    fn listening() -> (ServiceManager, Arc<Mutex<Vec<String>>>) {
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let send = {
            let heard = Arc::clone(&heard);
            move |states: &[NotifyState<'_>]| {
                heard.lock().extend(states.iter().map(ToString::to_string));
                Ok(())
            }
        };
        let told = Mutex::new((NotifiedState::Starting, String::new()));
        (ServiceManager { send: Some(Box::new(send)), told }, heard)
    }

    #[test]
    fn node_without_a_lease_is_not_reported_as_started() {
        let (service_manager, heard) = listening();
        let waits = Err("no lease\nyet".to_owned());
        for ready in [waits.clone(), waits.clone(), Ok(()), Ok(()), waits] {
            service_manager.look(&ready, ReadyCondition::TakingPart);
        }
        let wanted = ["STATUS=waits: no lease yet", "READY=1", "STATUS=takes part in its cluster"];
        assert_eq!(*heard.lock(), [&wanted[..], &wanted[..1]].concat(), "once each, and as things change");
    }

    #[test]
    fn coordinator_without_quorum_is_reported_as_started() {
        let (service_manager, heard) = listening();
        service_manager.look(&Err("no quorum".to_owned()), ReadyCondition::Serving);
        assert_eq!(*heard.lock(), ["READY=1", "STATUS=waits: no quorum"]);
    }

    #[test]
    fn stopping_process_is_not_reported_as_started() {
        let (service_manager, heard) = listening();
        service_manager.stopping(Duration::from_secs(40));
        service_manager.stopping(Duration::from_secs(40));
        service_manager.look(&Ok(()), ReadyCondition::Serving);
        let status = "STATUS=handing over leaderships, stopping within 40 s";
        assert_eq!(*heard.lock(), ["STOPPING=1", status, "EXTEND_TIMEOUT_USEC=40000000"]);
    }
}
