//! Log lines: fields, to standard error, filtered by level or module.

use super::log_queue::LogQueue;
use crate::args::{LogArgs, LogFormat};
use crate::exit::Failure;
#[cfg(feature = "otlp")]
use crate::spans::Spans;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal;
use std::time::Duration;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// The Raft library logs every vote at `info` and every unreachable peer at `warn`, several times a second, and logs
/// the end of its tasks at an ordinary stop as an error. We log its important events ourselves, including the reason of
/// an unexpected end, so it logs only if the filter names it. The engine's library logs each table that it opens.
const TALKATIVE: &[(&str, &str)] = &[("openraft", "off"), ("lsm_tree", "error")];

fn with_quiet_libraries(filter: &str) -> String {
    let quiet = TALKATIVE.iter().filter(|(library, _)| !filter.contains(library));
    quiet.fold(filter.to_owned(), |filter, (library, level)| format!("{filter},{library}={level}"))
}

/// Parses a filter. A bare word that is no level would be taken for the name of a module, and would silence all others:
/// it is far more likely a mistyped level.
///
/// # Errors
/// The fault of the filter.
fn filter_of(text: &str) -> Result<EnvFilter, String> {
    let directives: Vec<&str> = text.split(',').map(str::trim).collect();
    for directive in &directives {
        if directive.is_empty() {
            return Err("it is empty, or a part of it is".to_owned());
        }
        if !directive.contains(['=', '[']) && directive.parse::<LevelFilter>().is_err() {
            return Err(format!("{directive:?} is not a level; for a module, add its level: {directive}=debug"));
        }
    }
    EnvFilter::builder().parse(with_quiet_libraries(&directives.join(","))).map_err(|error| error.to_string())
}

/// Time limit for writing the last lines at the end of the process.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Log of this process; its end waits, for a moment, until everything is written.
pub(super) struct Log {
    #[cfg(feature = "otlp")]
    spans: Option<Spans>,
    queue: LogQueue,
}

impl Log {
    /// Returns a function that writes the last lines before the process ends at once.
    pub(super) fn last_words(&self) -> impl Fn() + Send + use<> {
        let queue = self.queue.clone();
        move || queue.flush(END_TIMEOUT)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // First, because its end logs lines.
        #[cfg(feature = "otlp")]
        drop(self.spans.take());
        self.queue.flush(END_TIMEOUT);
    }
}

/// Logs panics through the queue: standard error may be a pipe without a reader, which would block the end of the
/// panicking thread. Panics are logged regardless of the filter, and without `tracing`, whose own thread-local state
/// may have panicked, or be gone at the end of a thread: a panic in here would end the process without a report of the
/// first one.
fn log_panics(queue: LogQueue, format: LogFormat) {
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        let name = thread.name().unwrap_or("without a name");
        queue.tell(&panic_line(format, name, &panic.to_string(), backtrace.as_deref()));
    }));
}

/// Formats a panic like the other lines of the log.
fn panic_line(format: LogFormat, thread: &str, panic: &str, backtrace: Option<&str>) -> String {
    let mut at = String::new();
    // An unreadable clock is no reason to drop the line.
    let _ = SystemTime.format_time(&mut Writer::new(&mut at));
    match format {
        LogFormat::Text => {
            let backtrace = backtrace.map_or_else(String::new, |backtrace| format!("\n{backtrace}"));
            format!("{at} ERROR {panic} thread={thread:?}{backtrace}\n")
        }
        LogFormat::Json => {
            let line = serde_json::json!({
                "timestamp": at, "level": "ERROR", "message": panic, "target": "panic", "thread": thread, "backtrace": backtrace,
            });
            format!("{line}\n")
        }
    }
}

/// Starts logging for this process.
///
/// # Errors
/// An invalid filter, with examples of valid ones.
pub(super) fn start(args: &LogArgs, service: &'static str) -> Result<Log, Failure> {
    let filter = filter_of(&args.filter).map_err(|error| {
        Failure::usage(
            format!("--log (or ARCHON_LOG) {:?}: {error}", args.filter),
            "name a level (error, warn, info, debug, trace) or modules, as in info,archon_coordinator=debug",
        )
    })?;
    let terminal = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let starting = |error: &dyn std::fmt::Display| Failure::failed(format!("starting the log: {error}"));
    let queue = LogQueue::start(std::io::stderr()).map_err(|error| starting(&error))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(queue.clone()).with_ansi(terminal);
    let lines = match args.format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(filter));
    #[cfg(feature = "otlp")]
    let (spans, subscriber) = {
        let spans = Spans::start(service)?;
        let layer = spans.as_ref().map(Spans::layer);
        (spans, subscriber.with(layer))
    };
    #[cfg(not(feature = "otlp"))]
    let _ = service;
    subscriber.try_init().map_err(|error| starting(&error))?;
    log_panics(queue.clone(), args.format);
    Ok(Log {
        #[cfg(feature = "otlp")]
        spans,
        queue,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_level_does_not_silence_everything() {
        for bad in ["bogus", "", " ", "inof", "info,", "info,bogus", "archon_coordinator", "archon_coordinator=inof"] {
            assert!(filter_of(bad).is_err(), "{bad:?}");
        }
        let good =
            ["info", "DEBUG", "off", "warn, archon_coordinator=debug", "archon_wal=trace", "info,[put{a=1}]=debug"];
        for good in good {
            filter_of(good).unwrap_or_else(|error| panic!("{good:?}: {error}"));
        }
    }

    #[test]
    fn panic_is_logged_in_the_format_of_the_log() {
        let text = panic_line(LogFormat::Text, "shard-0", "panicked at x.rs:1:1:\nbad", None);
        assert!(text.contains(" ERROR panicked at x.rs:1:1:\nbad thread=\"shard-0\"\n"), "{text}");
        let json = panic_line(LogFormat::Json, "shard-0", "panicked at x.rs:1:1:\nbad", Some("0: main"));
        assert_eq!(json.lines().count(), 1);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (&json["level"], &json["thread"], &json["backtrace"]),
            (&"ERROR".into(), &"shard-0".into(), &"0: main".into())
        );
        assert!(json["timestamp"].as_str().is_some_and(|at| at.ends_with('Z')), "{json}");
    }

    #[test]
    fn library_logs_only_if_the_filter_names_it() {
        assert_eq!(with_quiet_libraries("info"), "info,openraft=off,lsm_tree=error");
        assert_eq!(with_quiet_libraries("debug,openraft=debug"), "debug,openraft=debug,lsm_tree=error");
    }
}
