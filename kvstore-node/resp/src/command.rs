//! Table of commands: arity, flags and keys. `COMMAND` and the errors of wrong requests are derived from it.

use crate::reply::Reply;
use crate::{NOT_AN_INTEGER, parse_integer};
use bytes::Bytes;
use std::fmt::Write as _;

/// Most bytes of arguments in the error of an unknown command.
const SHOWN_BYTES_MAX: usize = 128;

/// Group of a command in its documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// Connections.
    Connection,
    /// The server.
    Server,
    /// The cluster.
    Cluster,
    /// Keys of every type.
    Generic,
    /// Strings.
    String,
    /// Transactions.
    Transactions,
    /// Scripts.
    Scripting,
}

impl Group {
    /// Returns its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Server => "server",
            Self::Cluster => "cluster",
            Self::Generic => "generic",
            Self::String => "string",
            Self::Transactions => "transactions",
            Self::Scripting => "scripting",
        }
    }
}

/// Description of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// Name, in small letters.
    pub name: &'static str,
    /// The command itself.
    pub kind: CommandKind,
    /// Number of arguments with the name; negative: at least so many.
    pub arity: i8,
    /// Flags, as Redis has them.
    pub flags: &'static [&'static str],
    /// Position of the first key, 0 without keys; of the last one, negative from the end; and their distance.
    pub keys: (i8, i8, i8),
    /// Version of Redis that introduced it.
    pub since: &'static str,
    /// Its group.
    pub group: Group,
    /// Its purpose, in a sentence.
    pub summary: &'static str,
}

macro_rules! commands {
    ($($name:literal $kind:ident $arity:literal $flags:tt $keys:tt $since:literal $group:ident $summary:literal)*) => {
        /// A command of the table.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum CommandKind { $(#[doc = $summary] $kind,)* }

        /// All commands, in order of their names.
        pub const COMMANDS: &[Command] = &[$(Command {
            name: $name,
            kind: CommandKind::$kind,
            arity: $arity,
            flags: &$flags,
            keys: $keys,
            since: $since,
            group: Group::$group,
            summary: $summary,
        },)*];
    };
}

commands! {
    "append" Append 3 ["write", "denyoom", "fast"] (1, 1, 1) "2.0.0" String "Appends a string to the value of a key."
    "asking" Asking 1 ["fast"] (0, 0, 0) "3.0.0" Cluster "Accepted without effect: no slot is ever half moved."
    "auth" Auth -2 ["noscript", "loading", "stale", "fast", "no_auth"] (0, 0, 0) "1.0.0" Connection "Refused: the certificate identifies the client."
    "client" Client -2 [] (0, 0, 0) "2.4.0" Connection "Commands about the connection."
    "cluster" Cluster -2 [] (0, 0, 0) "3.0.0" Cluster "Commands about the cluster."
    "command" Command -1 ["loading", "stale"] (0, 0, 0) "2.8.13" Server "Returns information about commands."
    "config" Config -2 ["admin", "noscript", "loading", "stale"] (0, 0, 0) "2.0.0" Server "Returns settings."
    "copy" Copy -3 ["write", "denyoom"] (1, 2, 1) "6.2.0" Generic "Copies the value of a key to another key."
    "dbsize" DbSize 1 ["readonly", "fast"] (0, 0, 0) "1.0.0" Server "Returns the number of keys of the partitions that the node leads."
    "decr" Decr 2 ["write", "denyoom", "fast"] (1, 1, 1) "1.0.0" String "Subtracts one from the integer value of a key."
    "decrby" DecrBy 3 ["write", "denyoom", "fast"] (1, 1, 1) "1.0.0" String "Subtracts a number from the integer value of a key."
    "del" Del -2 ["write"] (1, -1, 1) "1.0.0" Generic "Deletes keys."
    "delex" DelEx -2 ["write", "fast"] (1, 1, 1) "8.4.0" String "Deletes a key if its value fits."
    "digest" Digest 2 ["readonly", "fast"] (1, 1, 1) "8.4.0" String "Returns the XXH3 digest of the value of a key."
    "discard" Discard 1 ["noscript", "loading", "stale", "fast", "allow_busy"] (0, 0, 0) "2.0.0" Transactions "Discards a transaction."
    "echo" Echo 2 ["fast"] (0, 0, 0) "1.0.0" Connection "Returns the given string."
    "eval" Eval -3 ["noscript", "stale", "movablekeys"] (0, 0, 0) "2.6.0" Scripting "Executes one of the scripts that are known here."
    "evalsha" EvalSha -3 ["noscript", "stale", "movablekeys"] (0, 0, 0) "2.6.0" Scripting "Executes a script by its SHA-1 digest."
    "exec" Exec 1 ["noscript", "loading", "stale"] (0, 0, 0) "1.2.0" Transactions "Executes all commands of a transaction."
    "exists" Exists -2 ["readonly", "fast"] (1, -1, 1) "1.0.0" Generic "Returns the number of given keys that exist."
    "expire" Expire -3 ["write", "fast"] (1, 1, 1) "1.0.0" Generic "Sets the time to live of a key in seconds."
    "expireat" ExpireAt -3 ["write", "fast"] (1, 1, 1) "1.2.0" Generic "Sets the expiry of a key to a Unix time."
    "expiretime" ExpireTime 2 ["readonly", "fast"] (1, 1, 1) "7.0.0" Generic "Returns the expiry of a key as a Unix time."
    "flushall" FlushAll -1 ["write"] (0, 0, 0) "1.0.0" Server "Refused: drop the table instead."
    "flushdb" FlushDb -1 ["write"] (0, 0, 0) "1.0.0" Server "Refused: drop the table instead."
    "get" Get 2 ["readonly", "fast"] (1, 1, 1) "1.0.0" String "Returns the value of a key."
    "getdel" GetDel 2 ["write", "fast"] (1, 1, 1) "6.2.0" String "Returns the value of a key and deletes the key."
    "getex" GetEx -2 ["write", "fast"] (1, 1, 1) "6.2.0" String "Returns the value of a key and sets its expiry."
    "getrange" GetRange 4 ["readonly"] (1, 1, 1) "2.4.0" String "Returns a part of the value of a key."
    "getset" GetSet 3 ["write", "denyoom", "fast"] (1, 1, 1) "1.0.0" String "Sets the value of a key and returns the value before."
    "hello" Hello -1 ["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"] (0, 0, 0) "6.0.0" Connection "Chooses the version of the protocol."
    "incr" Incr 2 ["write", "denyoom", "fast"] (1, 1, 1) "1.0.0" String "Adds one to the integer value of a key."
    "incrby" IncrBy 3 ["write", "denyoom", "fast"] (1, 1, 1) "1.0.0" String "Adds a number to the integer value of a key."
    "incrbyfloat" IncrByFloat 3 ["write", "denyoom", "fast"] (1, 1, 1) "2.6.0" String "Adds a decimal fraction to the value of a key."
    "info" Info -1 ["loading", "stale"] (0, 0, 0) "1.0.0" Server "Returns information about the node."
    "keys" Keys 2 ["readonly"] (0, 0, 0) "1.0.0" Generic "Returns the keys of this node that match a pattern, if there are few."
    "mget" MGet -2 ["readonly", "fast"] (1, -1, 1) "1.0.0" String "Returns the values of keys."
    "mset" MSet -3 ["write", "denyoom"] (1, -1, 2) "1.0.1" String "Sets the values of keys, all together."
    "msetnx" MSetNx -3 ["write", "denyoom"] (1, -1, 2) "1.0.1" String "Sets the values of keys if all of them are absent."
    "multi" Multi 1 ["noscript", "loading", "stale", "fast", "allow_busy"] (0, 0, 0) "1.2.0" Transactions "Begins a transaction."
    "object" Object -2 ["readonly"] (2, 2, 1) "2.2.3" Generic "Returns facts about a value."
    "persist" Persist 2 ["write", "fast"] (1, 1, 1) "2.2.0" Generic "Removes the expiry of a key."
    "pexpire" PExpire -3 ["write", "fast"] (1, 1, 1) "2.6.0" Generic "Sets the time to live of a key in milliseconds."
    "pexpireat" PExpireAt -3 ["write", "fast"] (1, 1, 1) "2.6.0" Generic "Sets the expiry of a key to a Unix time in milliseconds."
    "pexpiretime" PExpireTime 2 ["readonly", "fast"] (1, 1, 1) "7.0.0" Generic "Returns the expiry of a key as a Unix time in milliseconds."
    "ping" Ping -1 ["fast"] (0, 0, 0) "1.0.0" Connection "Returns PONG, or the given string."
    "psetex" PSetEx 4 ["write", "denyoom"] (1, 1, 1) "2.6.0" String "Sets the value of a key and its time to live in milliseconds."
    "pttl" PTtl 2 ["readonly", "fast"] (1, 1, 1) "2.6.0" Generic "Returns the time to live of a key in milliseconds."
    "quit" Quit -1 ["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"] (0, 0, 0) "1.0.0" Connection "Closes the connection."
    "randomkey" RandomKey 1 ["readonly"] (0, 0, 0) "1.0.0" Generic "Returns a key of this node."
    "readonly" ReadOnly 1 ["loading", "stale", "fast"] (0, 0, 0) "3.0.0" Cluster "Lets the replica of the node answer reads."
    "readwrite" ReadWrite 1 ["loading", "stale", "fast"] (0, 0, 0) "3.0.0" Cluster "Ends READONLY."
    "rename" Rename 3 ["write"] (1, 2, 1) "1.0.0" Generic "Renames a key, and overwrites the destination."
    "renamenx" RenameNx 3 ["write", "fast"] (1, 2, 1) "1.0.0" Generic "Renames a key if the destination is absent."
    "reset" Reset 1 ["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"] (0, 0, 0) "6.2.0" Connection "Resets the connection."
    "scan" Scan -2 ["readonly"] (0, 0, 0) "2.8.0" Generic "Returns some keys of this node, and where to go on."
    "script" Script -2 ["noscript"] (0, 0, 0) "2.6.0" Scripting "Commands about scripts."
    "select" Select 2 ["loading", "stale", "fast"] (0, 0, 0) "1.0.0" Connection "Accepts database 0, the only one."
    "set" Set -3 ["write", "denyoom"] (1, 1, 1) "1.0.0" String "Sets the value of a key."
    "setex" SetEx 4 ["write", "denyoom"] (1, 1, 1) "2.0.0" String "Sets the value of a key and its time to live in seconds."
    "setnx" SetNx 3 ["write", "denyoom", "fast"] (1, 1, 1) "1.0.0" String "Sets the value of a key that is absent."
    "setrange" SetRange 4 ["write", "denyoom"] (1, 1, 1) "2.2.0" String "Overwrites a part of the value of a key."
    "strlen" StrLen 2 ["readonly", "fast"] (1, 1, 1) "2.2.0" String "Returns the length of the value of a key."
    "substr" Substr 4 ["readonly"] (1, 1, 1) "1.0.0" String "Returns a part of the value of a key."
    "time" Time 1 ["loading", "stale", "fast"] (0, 0, 0) "2.6.0" Server "Returns the time of the node."
    "touch" Touch -2 ["readonly", "fast"] (1, -1, 1) "3.2.1" Generic "Returns the number of given keys that exist."
    "ttl" Ttl 2 ["readonly", "fast"] (1, 1, 1) "1.0.0" Generic "Returns the time to live of a key in seconds."
    "type" Type 2 ["readonly", "fast"] (1, 1, 1) "1.0.0" Generic "Returns the type of a key."
    "unlink" Unlink -2 ["write", "fast"] (1, -1, 1) "4.0.0" Generic "Deletes keys."
    "unwatch" Unwatch 1 ["noscript", "loading", "stale", "fast", "allow_busy"] (0, 0, 0) "2.2.0" Transactions "Forgets the watched keys."
    "wait" Wait 3 ["blocking"] (0, 0, 0) "3.0.0" Generic "Returns the number of other replicas that have the writes of this connection."
    "waitaof" WaitAof 4 ["blocking"] (0, 0, 0) "7.2.0" Generic "Returns the numbers of disks that have the writes of this connection."
    "watch" Watch -2 ["noscript", "loading", "stale", "fast", "allow_busy"] (1, -1, 1) "2.2.0" Transactions "Makes the next transaction depend on keys that stay as they are."
}

impl Command {
    /// Returns true if it changes keys.
    pub fn is_write(&self) -> bool {
        self.flags.contains(&"write")
    }

    /// Returns true if so many arguments, with the name, are valid.
    pub fn takes(&self, count: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { count >= arity } else { count == arity }
    }
}

/// Returns the command with this name, in any case.
pub fn find_command(name: &[u8]) -> Option<&'static Command> {
    let order = |command: &Command| command.name.bytes().cmp(name.iter().map(u8::to_ascii_lowercase));
    // They are sorted by name.
    COMMANDS.get(COMMANDS.binary_search_by(order).ok()?)
}

/// Returns the command of a request with a valid number of arguments.
///
/// # Errors
/// The error for the client.
pub fn lookup(request: &[Bytes]) -> Result<&'static Command, String> {
    let name = request.first().map_or(&b""[..], |name| name);
    let Some(command) = find_command(name) else { return Err(unknown_command(name, &request[1.min(request.len())..])) };
    if command.takes(request.len()) { Ok(command) } else { Err(wrong_arity(command.name)) }
}

/// Returns the error of a wrong number of arguments. A subcommand is named as in `client|setname`.
pub fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// Returns the error of a subcommand that does not exist, or that has a wrong number of arguments.
pub fn unknown_subcommand(command: &str, subcommand: &[u8]) -> String {
    format!("ERR unknown subcommand '{}'. Try {} HELP.", shown(subcommand), command.to_ascii_uppercase())
}

fn unknown_command(name: &[u8], arguments: &[Bytes]) -> String {
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", shown(name));
    let begin = text.len();
    for argument in arguments {
        if text.len() - begin >= SHOWN_BYTES_MAX {
            break;
        }
        let _ = write!(text, "'{}' ", shown(argument));
    }
    text
}

/// Returns the beginning of an argument as text.
fn shown(argument: &[u8]) -> String {
    String::from_utf8_lossy(&argument[..argument.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

/// Returns the positions of the keys in a request.
pub fn key_positions(command: &Command, count: usize) -> impl Iterator<Item = usize> + use<> {
    let (first, last, step) = command.keys;
    let last = match usize::try_from(last) {
        Ok(last) => last,
        Err(_) => count.saturating_sub(usize::from(last.unsigned_abs())),
    };
    let last = last.min(count.saturating_sub(1));
    // Commands without keys have no first one.
    let first = usize::try_from(first).ok().filter(|first| *first > 0);
    let positions = first.map(|first| (first..=last).step_by(usize::from(step.unsigned_abs()).max(1)));
    positions.into_iter().flatten()
}

/// Returns the positions of the keys in a request. The arguments of a script count its keys.
///
/// # Errors
/// The error for the client.
pub fn keys_of(command: &Command, request: &[Bytes]) -> Result<Vec<usize>, String> {
    match command.kind {
        CommandKind::Eval | CommandKind::EvalSha => {
            let count = script_keys(request)?;
            Ok((3..3 + count).collect())
        }
        _ => Ok(key_positions(command, request.len()).collect()),
    }
}

/// Returns the number of keys in a request that executes a script.
///
/// # Errors
/// The error for the client.
pub fn script_keys(request: &[Bytes]) -> Result<usize, String> {
    let given = request.len().saturating_sub(3);
    let count = request.get(2).and_then(|text| parse_integer(text)).ok_or(NOT_AN_INTEGER)?;
    match usize::try_from(count) {
        Err(_) => Err("ERR Number of keys can't be negative".to_owned()),
        Ok(count) if count > given => Err("ERR Number of keys can't be greater than number of args".to_owned()),
        Ok(count) => Ok(count),
    }
}

/// Returns the entry of a command in the reply to `COMMAND`.
fn entry(command: &Command) -> Reply {
    let (first, last, step) = command.keys;
    let flags = command.flags.iter().map(|flag| Reply::Status(flag)).collect();
    let mut entry = vec![Reply::bulk(command.name), Reply::Integer(command.arity.into()), Reply::Set(flags)];
    entry.extend([first, last, step].map(|number| Reply::Integer(number.into())));
    // Categories of access lists, hints, key specifications and subcommands.
    entry.extend([Reply::Set(vec![]), Reply::Array(vec![]), Reply::Array(vec![]), Reply::Array(vec![])]);
    Reply::Array(entry)
}

/// Returns the reply to `COMMAND`, and to `COMMAND INFO` for these names.
pub fn command_reply(names: Option<&[Bytes]>) -> Reply {
    Reply::Array(match names {
        None => COMMANDS.iter().map(entry).collect(),
        Some(names) => names.iter().map(|name| find_command(name).map_or(Reply::Null, entry)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &'static str) -> Vec<Bytes> {
        text.split_whitespace().map(|part| Bytes::from_static(part.as_bytes())).collect()
    }

    #[test]
    fn table_is_sorted_and_consistent() {
        assert!(COMMANDS.is_sorted_by(|one, next| one.name < next.name));
        for command in COMMANDS {
            let has_keys = command.keys.0 > 0;
            let uses_keys = command.is_write() || command.flags.contains(&"readonly") || command.name == "watch";
            assert!(!has_keys || uses_keys, "{}", command.name);
            assert!(!command.summary.is_empty() && command.summary.ends_with('.'), "{}", command.name);
        }
    }

    #[test]
    fn wrong_requests_get_the_texts_of_redis() {
        let error = |text| lookup(&request(text)).unwrap_err();
        assert_eq!(error("GET"), "ERR wrong number of arguments for 'get' command");
        assert_eq!(error("set k"), "ERR wrong number of arguments for 'set' command");
        assert_eq!(error("Get a b"), "ERR wrong number of arguments for 'get' command");
        assert_eq!(error("LPUSH a b"), "ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' ");
        assert_eq!(error("FOO"), "ERR unknown command 'FOO', with args beginning with: ");
        assert_eq!(error("TTL"), "ERR wrong number of arguments for 'ttl' command");
        assert_eq!(unknown_subcommand("client", b"kill"), "ERR unknown subcommand 'kill'. Try CLIENT HELP.");
    }

    #[test]
    fn error_of_unknown_command_is_bounded() {
        let long = Bytes::from(vec![b'a'; 100_000]);
        let error = lookup(&vec![long; 1_000]).unwrap_err();
        assert!(error.len() < 1_000, "{}", error.len());
    }

    #[test]
    fn keys_are_found_by_position() {
        let positions = |text| {
            let request = request(text);
            key_positions(lookup(&request).unwrap(), request.len()).collect::<Vec<_>>()
        };
        assert_eq!(positions("GET k"), [1]);
        assert_eq!(positions("SET k v NX"), [1]);
        assert_eq!(positions("DEL a b c"), [1, 2, 3]);
        assert_eq!(positions("MSET a 1 b 2"), [1, 3]);
        assert_eq!(positions("PING a"), [] as [usize; 0]);
        assert_eq!(positions("RENAME a b"), [1, 2]);
        assert_eq!(positions("COPY a b REPLACE"), [1, 2]);
    }

    #[test]
    fn keys_of_scripts_are_counted_by_their_argument() {
        let keys = |text| {
            let request = request(text);
            keys_of(lookup(&request).unwrap(), &request)
        };
        assert_eq!(keys("EVAL s 1 k a"), Ok(vec![3]));
        assert_eq!(keys("EVALSHA s 0 a"), Ok(vec![]));
        assert_eq!(keys("MSET a 1 b 2"), Ok(vec![1, 3]));
        assert_eq!(keys("EVAL s -1"), Err("ERR Number of keys can't be negative".to_owned()));
        assert_eq!(keys("EVAL s 2 k"), Err("ERR Number of keys can't be greater than number of args".to_owned()));
        assert_eq!(keys("EVAL s x k"), Err(NOT_AN_INTEGER.to_owned()));
    }
}
