//! `COMMAND DOCS`.

use crate::command::{Command, find_command};
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
            (Reply::bulk("complexity"), Reply::bulk("O(1)")),
        ];
        (Reply::bulk(command.name), Reply::Map(facts))
    };
    let commands: Vec<&Command> = match names {
        [] => crate::COMMANDS.iter().collect(),
        names => names.iter().filter_map(|name| find_command(name)).collect(),
    };
    Reply::Map(commands.into_iter().map(of).collect())
}
