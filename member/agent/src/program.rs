//! A service as a child process: JSON lines over its standard input and output.

use crate::agent::{SessionEnd, run_session};
use crate::config::{AgentConfig, AgentError};
use crate::live_session::{Command as Request, LiveSession};
use crate::protocol::{Answer, ErrorAnswer, ErrorBody, ErrorKind, Event, Hello, ProgramHeartbeat, ProgramPermission};
use crate::state::{AgentState, StartedSession};
use archon_client::Error;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Maximum bytes of a line from the program.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of replies that the program has not read; it is not read from meanwhile.
const REPLIES_MAX: usize = 64;
/// Maximum number of events written at once.
const EVENTS_AT_ONCE: usize = 256;
/// Time for a program to start: it is a participant from its first heartbeat on.
pub const START_LIMIT: Duration = Duration::from_secs(300);
/// Time for the program to exit once its session has ended.
const EXIT_WITHIN: Duration = Duration::from_secs(2);

/// Runs a program as the service, until it exits or `stop` is cancelled.
///
/// # Errors
/// The program does not start, or fails; the cluster has refused the participant permanently.
pub async fn run_program(config: AgentConfig, program: &[OsString], stop: CancellationToken) -> Result<(), AgentError> {
    let failed = |why: String| AgentError::Program { program: program.first().cloned().unwrap_or_default(), why };
    let [name, arguments @ ..] = program else { return Err(failed("no program is named".to_owned())) };
    let (sender, mut begun) = mpsc::channel(1);
    let shared = Arc::new(AgentState::new(config, sender));
    let _maps = shared.keep_maps();
    let mut command = Command::new(name);
    // In a process group of its own: Ctrl-C is for the agent, which lets the program release its partitions.
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
    let start_limit = shared.config.start_limit;
    let mut child = command.spawn().map_err(|error| failed(format!("it does not start: {error}")))?;
    let mut group = ProcessGroup::of(&child);
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(failed("it has no standard input and output".to_owned()));
    };
    let started = shared.begin(CancellationToken::new());
    let Some(StartedSession { live, commands }) = begun.recv().await.filter(|_| started.is_ok()) else {
        return Err(failed("its session has not begun".to_owned()));
    };
    live.allow_start(start_limit);
    let (replies, unread) = mpsc::channel(REPLIES_MAX);
    let mut reading = tokio::spawn(read(BufReader::new(output), Arc::clone(&live), replies));
    let writing = tokio::spawn(write(input, Arc::clone(&live), shared.hello(&live), unread));
    let mut session = pin!(session_of(&shared, &live, commands, &stop));
    let mut exited_first = false;
    let (outcome, status) = tokio::select! {
        outcome = &mut session => (outcome, None),
        status = child.wait() => {
            // The program may have been the parent of the process that acts. It has certainly ended once its group is
            // killed and its output is closed; a process that left the group and keeps the output may act until the
            // last permission has ended.
            group.kill();
            exited_first = live.retire("the program has ended");
            let outcome = tokio::select! {
                outcome = &mut session => outcome,
                ended = &mut reading => {
                    if matches!(ended, Ok(true)) {
                        live.gone("the program has ended");
                    }
                    session.await
                }
            };
            (outcome, Some(status))
        }
    };
    live.end(&outcome.as_ref().map_or_else(ToString::to_string, ToString::to_string));
    let status = match status {
        Some(status) => status.ok(),
        None => exit(&mut child, &mut group).await,
    };
    reading.abort();
    writing.abort();
    let is_gone = outcome? == SessionEnd::ServiceGone;
    let was_silent = is_gone && !exited_first;
    match status {
        _ if was_silent && !live.is_heard() => {
            Err(failed(format!("it sent no heartbeat within {start_limit:?} of its start")))
        }
        // Most often it is a program that does not know the agent.
        Some(status) if status.success() && is_gone && !live.is_heard() => {
            let why = "it ended without a heartbeat; it must exchange JSON lines with the agent over its standard input and \
                       output (docs/reference/agent.md)";
            Err(failed(why.to_owned()))
        }
        // A service manager starts it again.
        Some(status) if status.success() && was_silent => {
            Err(failed("its session has ended: it sent no heartbeats, or received no events".to_owned()))
        }
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(failed(format!("it ended with {status}"))),
        None => {
            Err(failed(format!("it was killed: its session had ended, and it did not exit within {EXIT_WITHIN:?}")))
        }
    }
}

/// Runs the session from the first heartbeat of the program on.
async fn session_of(
    shared: &AgentState,
    live: &Arc<LiveSession>,
    requests: mpsc::Receiver<Request>,
    stop: &CancellationToken,
) -> Result<SessionEnd, Error> {
    tokio::select! {
        () = live.first_heartbeat() => {}
        () = live.run_clock() => return Ok(SessionEnd::ServiceGone),
        () = stop.cancelled() => return Ok(SessionEnd::AgentStops),
        () = live.service_stops() => return Ok(SessionEnd::ServiceStops),
    }
    run_session(shared, live, requests, stop).await
}

/// Waits for the program to exit; kills it after a while, and the rest of its group in any case.
async fn exit(child: &mut Child, group: &mut ProcessGroup) -> Option<ExitStatus> {
    let exited = timeout(EXIT_WITHIN, child.wait()).await;
    group.kill();
    if let Ok(Ok(status)) = exited {
        return Some(status);
    }
    let _ = child.kill().await;
    None
}

/// The process group of a program; it is killed at the latest when this is dropped.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// Returns the group of a program that was started as its leader.
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }

    /// Kills the group once: after the exit of its leader, another group can get the number.
    fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // An error means that nothing of it is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes the events and replies.
async fn write(
    mut input: impl AsyncWrite + Unpin,
    live: Arc<LiveSession>,
    hello: Hello,
    mut replies: mpsc::Receiver<String>,
) {
    let mut position = 0;
    let mut text = line(&Event::Hello(hello));
    loop {
        if input.write_all(text.as_bytes()).await.is_err() || input.flush().await.is_err() {
            return;
        }
        // Replies last: a permission names the events before it.
        text = tokio::select! {
            biased;
            next = live.events_after(1, position, EVENTS_AT_ONCE) => {
                let Some((events, next)) = next else { return };
                position = next;
                events.iter().map(|event| line(&**event)).collect()
            }
            Some(reply) = replies.recv() => reply,
        };
    }
}

/// Reads the lines of the program, and replies to them. Returns whether the output has ended: every process that could
/// write to it has closed it.
async fn read(mut output: impl AsyncBufRead + Unpin, live: Arc<LiveSession>, replies: mpsc::Sender<String>) -> bool {
    let mut number = 0_u64;
    loop {
        number += 1;
        let mut text = Vec::new();
        let read = (&mut output).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut text).await;
        match read {
            Ok(0) => return true,
            // A program that reads no replies is not heard; its output is read for its end.
            Ok(_) if replies.is_closed() => continue,
            Ok(_) => {}
            Err(_) => return false,
        }
        let reply = if text.len() > LINE_BYTES_MAX {
            if text.last() != Some(&b'\n') {
                skip_line(&mut output).await;
            }
            let message = format!("line {number} has more than {LINE_BYTES_MAX} bytes, which is the limit");
            Some(line(&ErrorAnswer { error: ErrorBody::new(ErrorKind::TooLarge, message) }))
        } else {
            reply(&live, &text).unwrap_or_else(|mut error| {
                error.message = format!("line {number}: {}", error.message);
                Some(line(&ErrorAnswer { error }))
            })
        };
        if let Some(reply) = reply {
            let _ = replies.send(reply).await;
        }
    }
}

/// Skips the rest of a line, in pieces.
async fn skip_line(output: &mut (impl AsyncBufRead + Unpin)) {
    loop {
        let Ok(piece) = output.fill_buf().await else { return };
        let (length, ends) = match piece.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (piece.len(), false),
        };
        output.consume(length);
        if ends || length == 0 {
            return;
        }
    }
}

/// Takes a line of the program. Returns the reply, if it has one.
fn reply(live: &LiveSession, text: &[u8]) -> Result<Option<String>, ErrorBody> {
    let invalid =
        |error: serde_json::Error| ErrorBody::new(ErrorKind::Invalid, format!("this is no document: {error}"));
    let document: Value = serde_json::from_slice(text).map_err(invalid)?;
    if document.get("heartbeat").is_some() {
        let ProgramHeartbeat { heartbeat, number } = serde_json::from_value(document).map_err(invalid)?;
        let permission = live.heartbeat(heartbeat.seen)?;
        return Ok(Some(line(&ProgramPermission { permission, number })));
    }
    let answer: Answer = serde_json::from_value(document).map_err(invalid)?;
    live.answer(answer).map(|()| None)
}

fn line(document: &impl Serialize) -> String {
    // Documents hold text and numbers only, so they have a form in JSON, of one line.
    serde_json::to_string(document).unwrap_or_default() + "\n"
}
