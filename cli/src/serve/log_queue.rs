//! Queue of log lines for standard error.
//!
//! Logging must not wait for the reader of the log: with a full pipe without a reader, a shard that logs a line would
//! stop together with all that it serves. So lines are queued and written by one thread, and lines beyond the limit of
//! the queue are dropped and counted. An error waits for a moment until it is written, because the process may be about
//! to end.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Most bytes of queued lines: some seconds of a busy service.
const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Time limit for writing an error.
const ERROR_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Accepted lines and written lines, so far.
    taken: u64,
    written: u64,
    /// Dropped lines since the last report.
    dropped: u64,
    /// A wait timed out, and nothing was written since: the log has no reader.
    stuck: bool,
}

struct SharedQueue {
    state: Mutex<State>,
    filled: Condvar,
    written: Condvar,
    bytes_max: usize,
}

/// The queue; cheap to clone.
#[derive(Clone)]
pub(super) struct LogQueue {
    shared: Arc<SharedQueue>,
}

impl LogQueue {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        Self::bounded(out, QUEUE_BYTES_MAX)
    }

    fn bounded(out: impl Write + Send + 'static, bytes_max: usize) -> io::Result<Self> {
        let (state, filled, written) = (Mutex::default(), Condvar::new(), Condvar::new());
        let queue = Self { shared: Arc::new(SharedQueue { state, filled, written, bytes_max }) };
        let writer = queue.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || writer.write(out))?;
        Ok(queue)
    }

    /// Waits until the lines queued before are written, at most for `timeout`.
    pub(super) fn flush(&self, timeout: Duration) {
        let mut state = self.shared.state.lock();
        let upto = state.taken;
        self.await_written(&mut state, upto, timeout);
    }

    /// Queues a text from outside `tracing`, and waits for a moment until it is written.
    pub(super) fn tell(&self, text: &str) {
        self.push(text.as_bytes(), Some(ERROR_TIMEOUT));
    }

    fn push(&self, line: &[u8], timeout: Option<Duration>) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        // A line longer than the queue is accepted if it is alone.
        if state.bytes > 0 && state.bytes + line.len() > shared.bytes_max {
            state.dropped += 1;
            return;
        }
        state.bytes += line.len();
        state.taken += 1;
        state.lines.push_back(line.to_owned());
        shared.filled.notify_one();
        if let Some(timeout) = timeout.filter(|_| !state.stuck) {
            let upto = state.taken;
            self.await_written(&mut state, upto, timeout);
        }
    }

    fn await_written(&self, state: &mut parking_lot::MutexGuard<'_, State>, upto: u64, timeout: Duration) {
        let until = Instant::now() + timeout;
        while state.written < upto {
            if self.shared.written.wait_until(state, until).timed_out() {
                state.stuck |= state.written < upto;
                return;
            }
        }
    }

    /// Body of the writer thread.
    fn write(&self, mut out: impl Write) {
        let shared = &self.shared;
        loop {
            let mut state = shared.state.lock();
            shared.filled.wait_while(&mut state, |state| state.lines.is_empty());
            let Some(line) = state.lines.pop_front() else { continue };
            drop(state);
            // Without a reader the line is lost, and the service continues.
            let _ = out.write_all(&line).and_then(|()| out.flush());
            let mut state = shared.state.lock();
            state.bytes -= line.len();
            state.written += 1;
            // Queued lines show that the reader is slow, so one more error would time out as well.
            if state.lines.is_empty() {
                state.stuck = false;
            }
            let dropped = if state.bytes <= shared.bytes_max / 2 { std::mem::take(&mut state.dropped) } else { 0 };
            drop(state);
            shared.written.notify_all();
            if dropped > 0 {
                tracing::warn!(lines = dropped, "log lines were dropped: the reader of the log was too slow");
            }
        }
    }
}

/// Collects one line.
pub(super) struct LogLine {
    queue: LogQueue,
    timeout: Option<Duration>,
}

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.push(line, self.timeout);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = LogLine;

    fn make_writer(&'a self) -> LogLine {
        LogLine { queue: self.clone(), timeout: None }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> LogLine {
        let timeout = (*meta.level() == Level::ERROR).then_some(ERROR_TIMEOUT);
        LogLine { queue: self.clone(), timeout }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// A pipe of `lines` lines.
    struct Pipe(SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.send(line.to_owned()).map_err(|_| io::ErrorKind::BrokenPipe)?;
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn queue(bytes_max: usize) -> (LogQueue, Receiver<Vec<u8>>) {
        let (pipe, read) = sync_channel(0);
        (LogQueue::bounded(Pipe(pipe), bytes_max).unwrap(), read)
    }

    #[test]
    fn log_without_reader_drops_and_counts_lines() {
        let (queue, read) = queue(10);
        // The queue has room for five lines of two bytes, including the one that is being written.
        (0..9).for_each(|number| queue.push(format!("{number}\n").as_bytes(), None));
        assert_eq!(queue.shared.state.lock().dropped, 4);
        let lines: Vec<_> = (0..5).map(|_| read.recv_timeout(TIMEOUT).unwrap()).collect();
        assert_eq!(lines.concat(), b"0\n1\n2\n3\n4\n");
        let told = |state: &mut State| state.dropped > 0;
        let mut state = queue.shared.state.lock();
        assert!(!queue.shared.written.wait_while_for(&mut state, told, TIMEOUT).timed_out(), "it is to be told");
    }

    #[test]
    fn error_waits_for_its_write_once_and_for_a_limited_time() {
        let (queue, read) = queue(100);
        let limit = Duration::from_millis(50);
        let began = Instant::now();
        queue.push(b"error\n", Some(limit));
        assert!(began.elapsed() >= limit, "{:?}", began.elapsed());
        // A second wait would last for an hour.
        queue.push(b"error\n", Some(Duration::from_secs(3_600)));
        assert_eq!(read.recv_timeout(TIMEOUT).unwrap(), b"error\n");
        assert_eq!(read.recv_timeout(TIMEOUT).unwrap(), b"error\n");
        queue.flush(TIMEOUT);
        assert!(!queue.shared.state.lock().stuck, "somebody reads again");
        let reader = std::thread::spawn(move || read.recv_timeout(TIMEOUT));
        queue.push(b"end\n", Some(TIMEOUT));
        assert_eq!(queue.shared.state.lock().written, 3, "it came back once it was written");
        assert_eq!(reader.join().unwrap().unwrap(), b"end\n");
    }

    #[test]
    fn closed_reader_does_not_stop_the_service() {
        let (queue, read) = queue(100);
        drop(read);
        (0..1_000).for_each(|_| queue.push(b"line\n", Some(TIMEOUT)));
        assert_eq!(queue.shared.state.lock().written, 1_000);
    }
}
