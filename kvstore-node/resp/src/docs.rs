//! `COMMAND DOCS`.

use crate::command::{Command, CommandKind, find_command};
use crate::reply::Reply;
use bytes::Bytes;

/// Returns the reply to `COMMAND DOCS` for these names; for all commands without one.
pub fn docs_reply(names: &[Bytes]) -> Reply {
    let of = |command: &Command| {
        let text = |key: &str, value: &str| (Reply::bulk(key), Reply::bulk(value));
        let facts = vec![
            text("summary", command.summary),
            text("since", command.since),
            text("group", command.group.as_str()),
            text("complexity", complexity(command.kind)),
        ];
        (Reply::bulk(command.name), Reply::Map(facts))
    };
    let commands: Vec<&Command> = match names {
        [] => crate::COMMANDS.iter().collect(),
        names => names.iter().filter_map(|name| find_command(name)).collect(),
    };
    Reply::Map(commands.into_iter().map(of).collect())
}

const fn complexity(command: CommandKind) -> &'static str {
    match command {
        CommandKind::Keys => "O(N) with N being the number of keys of the node",
        CommandKind::Scan => "O(N) with N being COUNT",
        CommandKind::DbSize => "O(N) with N being the number of partitions",
        _ => "O(1)",
    }
}
