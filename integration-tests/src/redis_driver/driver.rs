//! A running script of a library: sends it requests of many tasks, and gives each its answer.

use super::library::Credentials;
use super::reply::Reply;
use archon_types::hex;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;

/// Longest time for an answer: libraries give up earlier.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A script with the client of a library. It is killed when this is dropped.
#[derive(Debug)]
pub struct Driver {
    process: Child,
    requests: Mutex<ChildStdin>,
    pending: Arc<Mutex<PendingRequests>>,
    next: AtomicU64,
}

/// Requests without an answer, at most one per task of the test.
#[derive(Debug, Default)]
struct PendingRequests {
    waiting: BTreeMap<u64, oneshot::Sender<Vec<Reply>>>,
    /// True once the script has ended.
    ended: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Driver {
    /// Starts the script of a library at these listeners. If it `repeats`, the library repeats requests as its users
    /// configure it; otherwise it sends each write once.
    ///
    /// # Panics
    /// If the script cannot be started.
    pub fn start(mut command: Command, listeners: &[&str], repeats: bool, credentials: Option<&Credentials>) -> Self {
        command.arg(listeners.join(",")).arg(if repeats { "repeats" } else { "once" });
        command.args(credentials.into_iter().flatten());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the script starts");
        let requests = Mutex::new(process.stdin.take().expect("its input"));
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let pending = Arc::new(Mutex::new(PendingRequests::default()));
        let shared = Arc::clone(&pending);
        // It ends with the script.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                match parse(&line) {
                    Some((number, replies)) => {
                        let waiting = locked(&shared).waiting.remove(&number);
                        // A task that has given up takes no answer.
                        waiting.and_then(|waiting| waiting.send(replies).ok());
                    }
                    None => println!("the script of a Redis client printed {line:?}"),
                }
            }
            let mut pending = locked(&shared);
            pending.ended = true;
            pending.waiting.clear();
        });
        Self { process, requests, pending, next: AtomicU64::new(0) }
    }

    /// Executes one command.
    pub async fn call(&self, command: &[&[u8]]) -> Reply {
        self.ask("call", &[command]).await.remove(0)
    }

    /// Executes one command that reads, at a replica.
    pub async fn call_replica(&self, command: &[&[u8]]) -> Reply {
        self.ask("replica", &[command]).await.remove(0)
    }

    /// Sets the values of keys of one slot by a transaction if all present ones are `old`; returns nil if they are not.
    pub async fn swap(&self, keys: &[&[u8]], old: &[u8], new: &[u8]) -> Reply {
        let words = [&[old, new][..], keys].concat();
        self.ask("swap", &[&words]).await.remove(0)
    }

    /// Executes commands of one slot by a transaction; returns a reply for each.
    pub async fn transaction(&self, commands: &[&[&[u8]]]) -> Vec<Reply> {
        self.ask("transaction", commands).await
    }

    /// Checks the interfaces that only this library has.
    pub async fn check_own(&self) -> Reply {
        self.ask("own", &[&[]]).await.remove(0)
    }

    /// Executes many commands at once; returns a reply for each.
    pub async fn pipeline(&self, commands: &[&[&[u8]]]) -> Vec<Reply> {
        self.ask("pipeline", commands).await
    }

    /// Returns as many replies as there are commands.
    async fn ask(&self, verb: &str, commands: &[&[&[u8]]]) -> Vec<Reply> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let lost = |what: String| vec![Reply::Lost(what); commands.len()];
        let (sender, answer) = oneshot::channel();
        {
            let mut pending = locked(&self.pending);
            if pending.ended {
                return lost("the script has ended".into());
            }
            pending.waiting.insert(number, sender);
        }
        let words = commands.iter().map(|command| {
            command.iter().map(|argument| format!("={}", hex::encode(argument))).collect::<Vec<_>>().join(" ")
        });
        let line = format!("{number} {verb} {}\n", words.collect::<Vec<_>>().join(" , "));
        let written = locked(&self.requests).write_all(line.as_bytes());
        if let Err(error) = written {
            locked(&self.pending).waiting.remove(&number);
            return lost(format!("the script takes no request: {error}"));
        }
        let replies = tokio::time::timeout(TIMEOUT, answer).await;
        locked(&self.pending).waiting.remove(&number);
        match replies {
            Ok(Ok(replies)) if replies.len() == commands.len() => replies,
            Ok(Ok(replies)) => lost(format!("{} replies to {} commands", replies.len(), commands.len())),
            Ok(Err(_)) => lost("the script has ended".into()),
            Err(_) => lost(format!("no answer within {TIMEOUT:?}")),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn parse(line: &str) -> Option<(u64, Vec<Reply>)> {
    let (number, replies) = line.split_once(' ')?;
    Some((number.parse().ok()?, replies.split(' ').map(Reply::parse).collect::<Option<_>>()?))
}
