//! Redis serialization protocol: parser of requests, encoder of replies, table of commands. It has no I/O and no clock.
//!
//! Error texts are those of Redis 7, because clients match them.

mod command;
mod comparison;
mod decimal;
mod docs;
mod expiry;
mod glob;
mod integer;
mod parser;
mod reply;
mod scan;
mod script;
mod set;

pub use command::{
    COMMANDS, Command, CommandKind, Group, command_reply, find_command, key_positions, keys_of, lookup, script_keys,
    unknown_subcommand, wrong_arity,
};
pub use comparison::Comparison;
pub use decimal::Decimal;
pub use docs::docs_reply;
pub use expiry::{ExpireConditions, ExpiryUnit, GetExOptions, NewExpiry};
pub use glob::KeyPattern;
pub use integer::parse_integer;
pub use parser::{Limits, Parser, ProtocolError};
pub use reply::{Reply, Version};
pub use scan::ScanArguments;
pub use script::{DIGEST_BYTES, Script, known_digests, parse_digest, script_digest};
pub use set::{Condition, SetOptions};

/// Error of an argument that is no integer.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// Error of options that are unknown or contradict each other.
pub const SYNTAX: &str = "ERR syntax error";
