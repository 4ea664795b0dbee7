//! Dispatch of commands.

use super::refusal::{CommandResult, Refusal};
use super::session::Session;
use super::state::RedisService;
use super::{clients, cluster, info, keys, keyspace, scripts, transaction};
use archon_resp::{
    Command, CommandKind, Reply, ScanArguments, Version, command_reply, docs_reply, find_command, keys_of, lookup,
    parse_integer, unknown_subcommand, wrong_arity,
};
use bytes::Bytes;

/// Longest argument of `PING` and `ECHO`.
const ECHO_BYTES_MAX: usize = 4 * 1024;

/// Executes one request, of at least one argument.
pub(super) async fn execute(service: &RedisService, session: &mut Session, request: &[Bytes]) -> CommandResult {
    if [&b"post"[..], b"host:"].iter().any(|http| request[0].eq_ignore_ascii_case(http)) {
        // As Redis does: a browser that was led here must not have its body executed.
        session.closes = true;
        return Err(Refusal::new("ERR this is no HTTP server"));
    }
    let command = lookup(request).inspect_err(|_| session.transaction.refuse())?;
    match transaction::execute(service, session, command, request).await {
        Some(executed) => executed,
        None => dispatch(service, session, command, request).await,
    }
}

/// Executes one command that is not about transactions.
pub(super) async fn dispatch(
    service: &RedisService,
    session: &mut Session,
    command: &Command,
    request: &[Bytes],
) -> CommandResult {
    match command.kind {
        CommandKind::Ping => match request {
            [_] => Ok(Reply::Status("PONG")),
            [_, text] => echo(text),
            _ => Err(wrong_arity(command.name).into()),
        },
        CommandKind::Echo => echo(&request[1]),
        CommandKind::Quit => {
            session.closes = true;
            Ok(Reply::OK)
        }
        CommandKind::Reset => {
            session.reset();
            Ok(Reply::Status("RESET"))
        }
        CommandKind::Select => match parse_integer(&request[1]) {
            Some(0) => Ok(Reply::OK),
            Some(_) => Err(Refusal::new("ERR SELECT is not allowed in cluster mode")),
            None => Err(Refusal::new("ERR invalid DB index")),
        },
        CommandKind::Hello => hello(session, &request[1..]),
        CommandKind::Auth => Err(Refusal::new(NO_PASSWORDS)),
        CommandKind::Client => clients::client(session, request),
        CommandKind::Command => describe(request),
        CommandKind::Info => Ok(info::info(service, &request[1..])),
        CommandKind::Config => info::config(request),
        CommandKind::Time => Ok(info::time()),
        CommandKind::Eval | CommandKind::EvalSha => scripts::eval(service, session, command, request).await,
        CommandKind::Script => scripts::script(service, request),
        CommandKind::ReadOnly | CommandKind::ReadWrite => {
            session.reads_replica = command.kind == CommandKind::ReadOnly;
            Ok(Reply::OK)
        }
        CommandKind::Asking | CommandKind::Unwatch => Ok(Reply::OK),
        CommandKind::Cluster => cluster::cluster(service, session, request).await,
        CommandKind::Scan => {
            let arguments = ScanArguments::parse(&request[1..])?;
            keyspace::scan(&mut service.pages(session).await?, &service.cursors, arguments).await
        }
        CommandKind::Keys => keyspace::keys(&mut service.pages(session).await?, &request[1]).await,
        CommandKind::RandomKey => keyspace::random_key(&mut service.pages(session).await?).await,
        CommandKind::DbSize => Ok(service.pages(session).await?.size()),
        CommandKind::FlushAll | CommandKind::FlushDb => Err(Refusal::new(format!(
            "ERR '{}' is not supported, because nodes could not do it at once; drop the table and create it again",
            command.name
        ))),
        CommandKind::Wait => cluster::wait(service, session, request).await,
        CommandKind::WaitAof => cluster::wait_disks(service, session, request).await,
        _ => keys::execute(service, session, command, request).await,
    }
}

const NO_PASSWORDS: &str = "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
     configuration is correct? The client certificate gives identity and rights here";

/// Returns a text to its sender. Such replies need no admission, so they are short.
fn echo(text: &Bytes) -> CommandResult {
    if text.len() > ECHO_BYTES_MAX {
        return Err(Refusal::new(format!("ERR string exceeds maximum allowed size ({ECHO_BYTES_MAX} bytes)")));
    }
    Ok(Reply::Bulk(text.clone()))
}

fn hello(session: &mut Session, arguments: &[Bytes]) -> CommandResult {
    let mut version = session.version;
    let mut rest = arguments;
    if let [number, more @ ..] = arguments {
        version = match parse_integer(number) {
            Some(2) => Version::Resp2,
            Some(3) => Version::Resp3,
            Some(_) => return Err(Refusal::new("NOPROTO unsupported protocol version")),
            None => return Err(Refusal::new("ERR Protocol version is not an integer or out of range")),
        };
        rest = more;
    }
    let mut name = None;
    loop {
        rest = match rest {
            [] => break,
            [option, text, more @ ..] if option.eq_ignore_ascii_case(b"setname") => {
                name = Some(clients::name_of(text)?);
                more
            }
            [option, _, _, ..] if option.eq_ignore_ascii_case(b"auth") => return Err(Refusal::new(NO_PASSWORDS)),
            [option, ..] => {
                let option = String::from_utf8_lossy(&option[..option.len().min(64)]);
                return Err(Refusal::new(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        };
    }
    session.version = version;
    if let Some(name) = name {
        session.name = name;
    }
    Ok(info::hello(session))
}

/// Executes `COMMAND` and its subcommands.
fn describe(request: &[Bytes]) -> CommandResult {
    let Some((subcommand, arguments)) = request[1..].split_first() else { return Ok(command_reply(None)) };
    let exactly = |count: usize, name: &str| match arguments.len() == count {
        true => Ok(()),
        false => Err(Refusal::from(wrong_arity(name))),
    };
    match &subcommand.to_ascii_lowercase()[..] {
        b"count" => {
            exactly(0, "command|count")?;
            Ok(Reply::Integer(i64::try_from(archon_resp::COMMANDS.len()).unwrap_or(i64::MAX)))
        }
        b"list" => {
            exactly(0, "command|list")?;
            Ok(Reply::Array(archon_resp::COMMANDS.iter().map(|command| Reply::bulk(command.name)).collect()))
        }
        b"docs" => Ok(docs_reply(arguments)),
        b"info" => Ok(command_reply(Some(arguments).filter(|names| !names.is_empty()))),
        b"getkeys" => {
            let name = arguments.first().ok_or_else(|| wrong_arity("command|getkeys"))?;
            let command = find_command(name).ok_or("ERR Invalid command specified")?;
            if !command.takes(arguments.len()) {
                return Err(Refusal::new("ERR Invalid number of arguments specified for command"));
            }
            let positions = keys_of(command, arguments)?;
            if positions.is_empty() {
                return Err(Refusal::new("ERR The command has no key arguments"));
            }
            Ok(Reply::Array(positions.into_iter().map(|at| Reply::Bulk(arguments[at].clone())).collect()))
        }
        _ => Err(unknown_subcommand("command", subcommand).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_not_echoed() {
        let text = Bytes::from(vec![b'a'; ECHO_BYTES_MAX + 1]);
        assert_eq!(echo(&text.slice(1..)), Ok(Reply::Bulk(text.slice(1..))));
        assert!(matches!(echo(&text), Err(Refusal::Error(why)) if why.starts_with("ERR string exceeds")));
    }
}
