//! A member that notifies a service manager, and a socket in the service manager's place.

use crate::process::ProcessExt;
use archon_local_cluster::Process;
use archon_testkit::{check, wait_for};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A running member and its notifications.
#[derive(Debug)]
pub struct NotifiedMember {
    process: Option<Process>,
    socket: UnixDatagram,
    heard: RefCell<Vec<String>>,
}

impl NotifiedMember {
    /// Starts `exe` with `arguments`, which contain everything but the data directory; that and the log are below
    /// `directory`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(exe: &str, name: &str, arguments: &[&str], directory: &Path) -> Self {
        let data = directory.join(name);
        let command = [&[exe], arguments, &["--data-dir", data.to_str().expect("a path")]].concat();
        Self::start_command(name, &command, &[], directory)
    }

    /// Starts a whole command, its program first, with these variables; its log is below `directory`.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start_command(
        name: &str,
        command: &[impl AsRef<OsStr>],
        environment: &[(&str, String)],
        directory: &Path,
    ) -> Self {
        let path = directory.join(format!("{name}.notify"));
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket that does not block");
        let notify = ("NOTIFY_SOCKET", path.to_str().expect("a path").to_owned());
        let environment = [environment, &[notify]].concat();
        let process = Process::start(name, command, &environment, directory).expect("it starts");
        Self { process: Some(process), socket, heard: RefCell::default() }
    }

    /// Returns all lines so far, in order.
    pub fn heard(&self) -> Vec<String> {
        let mut message = [0; 4_096];
        let mut heard = self.heard.borrow_mut();
        while let Ok(length) = self.socket.recv(&mut message) {
            heard.extend(String::from_utf8_lossy(&message[..length]).lines().map(ToOwned::to_owned));
        }
        heard.clone()
    }

    /// Returns true if a line with this prefix was received.
    pub fn has(&self, line: &str) -> bool {
        self.heard().iter().any(|heard| heard.starts_with(line))
    }

    /// Waits for such a line.
    ///
    /// # Panics
    /// If none arrives in time.
    #[track_caller]
    pub fn wait(&self, line: &str) {
        wait_for(line, TIMEOUT, || check(self.has(line), || format!("{:?}", self.heard())));
    }

    /// Sends SIGTERM; returns the stop time-out that the member announced.
    ///
    /// # Panics
    /// If it does not stop cleanly, or sends anything else at its end.
    #[track_caller]
    pub fn stop(mut self) -> Duration {
        let process = self.process.take().expect("it runs");
        assert!(process.terminate(TIMEOUT).success());
        let heard = self.heard();
        let at = heard.iter().position(|line| line == "STOPPING=1").unwrap_or_else(|| panic!("{heard:?}"));
        let [_, status, extend] = &heard[at..] else { panic!("{heard:?}") };
        assert!(status.starts_with("STATUS=handing over"), "{heard:?}");
        let micros = extend.strip_prefix("EXTEND_TIMEOUT_USEC=").and_then(|micros| micros.parse().ok());
        Duration::from_micros(micros.unwrap_or_else(|| panic!("{heard:?}")))
    }
}
