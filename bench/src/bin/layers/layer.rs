//! To which layer a stack belongs.

use std::fmt;

/// A part of the way of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Layer {
    Client,
    Sockets,
    Wakeups,
    Decode,
    Evaluate,
    Memtable,
    Replicate,
    Log,
    Engine,
    Encode,
    Other,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client: library and load loop, its sockets included",
            Self::Sockets => "sockets: the kernel's TCP, and what calls it",
            Self::Wakeups => "wake-ups: runtime, epoll, futex, scheduler",
            Self::Decode => "decode: frames and operations",
            Self::Evaluate => "look up or evaluate, exactly-once included",
            Self::Memtable => "memtable: commit",
            Self::Replicate => "replicate: steps of replicas, turns of the shard",
            Self::Log => "log: threads that write, system calls included",
            Self::Engine => "engine, its flusher included",
            Self::Encode => "encode: entries, messages, answers",
            Self::Other => "admission, inboxes, allocation, everything else",
        })
    }
}

/// Names of threads whose whole time belongs to one layer; a prefix of them.
const THREADS: &[(&str, Layer)] = &[
    ("load-", Layer::Client),
    ("wal-", Layer::Log),
    ("flusher", Layer::Engine),
    ("sled-io", Layer::Engine),
    ("fjall", Layer::Engine),
];

/// Threads of the servers, beside those: a prefix. Others are not counted.
const SERVERS: &[&str] = &["shard-", "session", "node", "redis-server", "io_thd", "bio_"];

/// What occurs in a function's name, in the order in which it is looked for in each. The innermost function that is here decides, since
/// what it calls works for it.
const FUNCTIONS: &[(&str, Layer)] = &[
    ("archon_wal::", Layer::Log),
    ("fdatasync", Layer::Log),
    ("fsync", Layer::Log),
    ("pwrite", Layer::Log),
    ("ext4_", Layer::Log),
    ("blk_", Layer::Log),
    ("sled", Layer::Engine),
    ("kvstore_node::engine", Layer::Engine),
    ("tcp_", Layer::Sockets),
    ("sock_", Layer::Sockets),
    ("net_rx_action", Layer::Sockets),
    ("recvfrom", Layer::Sockets),
    ("writev", Layer::Sockets),
    ("TcpStream", Layer::Sockets),
    ("epoll", Layer::Wakeups),
    ("futex", Layer::Wakeups),
    ("schedule", Layer::Wakeups),
    ("archon_frames::reader", Layer::Decode),
    ("archon_frames::frame", Layer::Decode),
    ("unpack_ops", Layer::Decode),
    ("FieldReader", Layer::Decode),
    ("wire::read_message", Layer::Decode),
    ("Effect::decode", Layer::Decode),
    ("archon_frames::writer", Layer::Encode),
    ("ReplyPacker", Layer::Encode),
    ("PartPacker", Layer::Encode),
    ("fields::put", Layer::Encode),
    ("effect::put_pair", Layer::Encode),
    ("Effect::encode", Layer::Encode),
    ("Effect::into_entry", Layer::Encode),
    ("Outcome::encode", Layer::Encode),
    ("archon_kv::memtable::Memtable::commit", Layer::Memtable),
    ("archon_kv::memtable::Memtable::settle", Layer::Memtable),
    ("archon_kv::memtable::Memtable::push", Layer::Memtable),
    ("archon_kv::", Layer::Evaluate),
    ("shard::cache", Layer::Evaluate),
    ("Shell>::row", Layer::Evaluate),
    ("archon_replica::", Layer::Replicate),
    ("archon_host::", Layer::Replicate),
    ("shard::journal", Layer::Replicate),
    ("tokio::runtime", Layer::Wakeups),
    ("mio::", Layer::Wakeups),
];

/// A stack, and how long it was seen.
#[derive(Debug)]
pub(crate) struct Sample<'a> {
    thread: &'a str,
    functions: Vec<&'a str>,
    pub(crate) nanoseconds: u64,
}

impl<'a> Sample<'a> {
    /// A line of folded stacks; `None` if it is none.
    pub(crate) fn parse(line: &'a str) -> Option<Self> {
        let (stack, nanoseconds) = line.rsplit_once(' ')?;
        let mut functions = stack.split(';');
        let thread = functions.next()?;
        Some(Self { thread, functions: functions.collect(), nanoseconds: nanoseconds.parse().ok()? })
    }

    /// The layer that the time belongs to; `None` of a thread that serves no operation.
    pub(crate) fn layer(&self) -> Option<Layer> {
        if let Some((_, layer)) = THREADS.iter().find(|(name, _)| self.thread.starts_with(name)) {
            return Some(*layer);
        }
        if !SERVERS.iter().any(|name| self.thread.starts_with(name)) {
            return None;
        }
        let of = |function: &&str| FUNCTIONS.iter().find(|(part, _)| function.contains(part)).map(|(_, layer)| *layer);
        Some(self.innermost(of).unwrap_or(Layer::Other))
    }

    /// What is found for the innermost function for which anything is found. Rows of the memtable are moved by its commit alone, and looked
    /// up by everybody: there the callers decide.
    fn innermost(&self, of: impl Fn(&&str) -> Option<Layer>) -> Option<Layer> {
        let commits = |function: &&str| matches!(of(function), Some(Layer::Memtable));
        match self.functions.iter().rev().find_map(&of) {
            Some(Layer::Evaluate) if self.functions.iter().any(commits) => Some(Layer::Memtable),
            found => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(line: &str) -> Option<Layer> {
        Sample::parse(line).expect("a folded stack").layer()
    }

    #[test]
    fn the_innermost_function_that_is_known_decides() {
        assert_eq!(layer("shard-0;archon_host::turn::step;archon_kv::evaluate;memcmp 7"), Some(Layer::Evaluate));
        assert_eq!(layer("shard-0;archon_host::turn::step;writev;tcp_sendmsg 7"), Some(Layer::Sockets));
        assert_eq!(layer("shard-0;archon_host::turn::step;malloc 7"), Some(Layer::Replicate));
        assert_eq!(layer("shard-0;malloc 7"), Some(Layer::Other));
    }

    #[test]
    fn rows_that_a_commit_moves_are_its_work() {
        let stack = "shard-0;archon_kv::memtable::Memtable::commit;archon_kv::row_map::RowMap<V>::update;memcmp 7";
        assert_eq!(layer(stack), Some(Layer::Memtable));
        assert_eq!(layer("shard-0;archon_kv::row_map::RowMap<V>::get 7"), Some(Layer::Evaluate));
    }

    #[test]
    fn some_threads_do_one_thing_and_others_serve_nobody() {
        assert_eq!(layer("wal-writer;archon_kv::anything 7"), Some(Layer::Log));
        assert_eq!(layer("load-1;tcp_sendmsg 7"), Some(Layer::Client));
        assert_eq!(layer("swapper;schedule 7"), None);
        assert!(Sample::parse("no number").is_none() && Sample::parse("").is_none());
    }
}
