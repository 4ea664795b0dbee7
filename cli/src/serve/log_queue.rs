//! Log lines on their way to standard error.
//!
//! Nobody may wait for whoever reads a log: behind a pipe that is full and not read, a shard that logs a line would stand
//! still with everything it serves. So lines are queued, one thread writes them, and what finds the queue full is dropped and
//! counted. An error waits for a moment until it is written, as the process may be about to end.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Bytes of lines that may wait to be written: some seconds of a talkative service.
const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long whoever tells of an error waits until it is written.
const ERROR_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines taken in, and lines written, so far.
    taken: u64,
    written: u64,
    /// Lines that found no room since that was told last.
    dropped: u64,
    /// Somebody waited in vain, and nothing was written since: nobody reads.
    stuck: bool,
}

struct Shared {
    state: Mutex<State>,
    filled: Condvar,
    written: Condvar,
    bytes_max: usize,
}

/// The queue; cheap to clone.
#[derive(Clone)]
pub(super) struct LogQueue {
    shared: Arc<Shared>,
}

impl LogQueue {
    /// Starts the thread that writes to `out`.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        Self::bounded(out, QUEUE_BYTES_MAX)
    }

    fn bounded(out: impl Write + Send + 'static, bytes_max: usize) -> io::Result<Self> {
        let (state, filled, written) = (Mutex::default(), Condvar::new(), Condvar::new());
        let queue = Self { shared: Arc::new(Shared { state, filled, written, bytes_max }) };
        let writer = queue.clone();
        std::thread::Builder::new().name("log".into()).spawn(move || writer.write(out))?;
        Ok(queue)
    }

    /// Waits until what was queued before is written, at most for `timeout`.
    pub(super) fn flush(&self, timeout: Duration) {
        let mut state = self.shared.state.lock();
        let upto = state.taken;
        self.await_written(&mut state, upto, timeout);
    }

    /// Queues a text that did not come by way of `tracing`, and waits for a moment until it is written.
    pub(super) fn tell(&self, text: &str) {
        self.push(text.as_bytes(), Some(ERROR_TIMEOUT));
    }

    fn push(&self, line: &[u8], timeout: Option<Duration>) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        // A line longer than the queue is taken alone.
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

    /// The thread's life.
    fn write(&self, mut out: impl Write) {
        let shared = &self.shared;
        loop {
            let mut state = shared.state.lock();
            shared.filled.wait_while(&mut state, |state| state.lines.is_empty());
            let Some(line) = state.lines.pop_front() else { continue };
            drop(state);
            // Where nobody can read any more the line is lost, and the service goes on.
            let _ = out.write_all(&line).and_then(|()| out.flush());
            let mut state = shared.state.lock();
            state.bytes -= line.len();
            state.written += 1;
            // As long as lines wait, whoever reads is slow, and one more error would wait as well.
            if state.lines.is_empty() {
                state.stuck = false;
            }
            let dropped = if state.bytes <= shared.bytes_max / 2 { std::mem::take(&mut state.dropped) } else { 0 };
            drop(state);
            shared.written.notify_all();
            if dropped > 0 {
                tracing::warn!(lines = dropped, "log lines were dropped: nobody read the log for too long");
            }
        }
    }
}

/// Takes one line.
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
    fn a_log_that_nobody_reads_drops_lines_and_tells_how_many() {
        let (queue, read) = queue(10);
        // Five lines of two bytes have room, the one that the thread is at included.
        (0..9).for_each(|number| queue.push(format!("{number}\n").as_bytes(), None));
        assert_eq!(queue.shared.state.lock().dropped, 4);
        let lines: Vec<_> = (0..5).map(|_| read.recv_timeout(TIMEOUT).unwrap()).collect();
        assert_eq!(lines.concat(), b"0\n1\n2\n3\n4\n");
        let told = |state: &mut State| state.dropped > 0;
        let mut state = queue.shared.state.lock();
        assert!(!queue.shared.written.wait_while_for(&mut state, told, TIMEOUT).timed_out(), "it is to be told");
    }

    #[test]
    fn an_error_waits_until_it_is_written_but_not_for_ever_nor_twice() {
        let (queue, read) = queue(100);
        let waits_ms = |expected: bool| {
            let began = Instant::now();
            queue.push(b"error\n", Some(Duration::from_millis(50)));
            assert_eq!(began.elapsed() >= Duration::from_millis(50), expected, "{:?}", began.elapsed());
        };
        waits_ms(true);
        waits_ms(false);
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
    fn a_reader_that_has_gone_stops_nobody() {
        let (queue, read) = queue(100);
        drop(read);
        (0..1_000).for_each(|_| queue.push(b"line\n", Some(TIMEOUT)));
        assert_eq!(queue.shared.state.lock().written, 1_000);
    }
}
