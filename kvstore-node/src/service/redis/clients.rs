//! `CLIENT` and its subcommands.

use super::refusal::{CommandResult, Refusal};
use super::session::{Session, WantedReplies};
use archon_resp::{Reply, SYNTAX, Version, unknown_subcommand, wrong_arity};
use bytes::Bytes;

/// Longest name of a connection or its library, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Returns the name of a connection, if it is valid.
pub(super) fn name_of(text: &[u8]) -> Result<String, Refusal> {
    let name = std::str::from_utf8(text).ok().filter(|name| name.bytes().all(|byte| byte.is_ascii_graphic()));
    match name {
        Some(name) if name.len() <= NAME_BYTES_MAX => Ok(name.to_owned()),
        Some(_) => Err(Refusal::new(format!("ERR Client names have at most {NAME_BYTES_MAX} bytes"))),
        None => Err(Refusal::new("ERR Client names cannot contain spaces, newlines or special characters.")),
    }
}

pub(super) fn client(session: &mut Session, request: &[Bytes]) -> CommandResult {
    let (subcommand, arguments) = (&request[1], &request[2..]);
    let name = subcommand.to_ascii_lowercase();
    match (&name[..], arguments) {
        (b"id", []) => Ok(Reply::Integer(i64::try_from(session.id).unwrap_or(i64::MAX))),
        (b"info", []) => Ok(Reply::Text(line(session))),
        // Other connections, with their addresses, are not for every client.
        (b"list", _) => Ok(Reply::Text(line(session))),
        (b"getname", []) if session.name.is_empty() => Ok(Reply::Null),
        (b"getname", []) => Ok(Reply::bulk(session.name.clone())),
        (b"setname", [text]) => {
            session.name = name_of(text)?;
            Ok(Reply::OK)
        }
        (b"setinfo", [option, text]) => {
            let text = name_of(text)?;
            match &option.to_ascii_lowercase()[..] {
                b"lib-name" => session.library = text,
                b"lib-ver" => session.library_version = text,
                _ => {
                    let option = String::from_utf8_lossy(&option[..option.len().min(64)]);
                    return Err(Refusal::new(format!("ERR Unrecognized option '{option}'")));
                }
            }
            Ok(Reply::OK)
        }
        (b"no-evict" | b"no-touch", [_]) => Ok(Reply::OK),
        (b"reply", [wanted]) => {
            session.wanted = match (&wanted.to_ascii_lowercase()[..], session.wanted) {
                (b"on", _) => WantedReplies::All,
                (b"off", _) | (b"skip", WantedReplies::None) => WantedReplies::None,
                // This one, and that of the next request.
                (b"skip", _) => WantedReplies::After(2),
                _ => return Err(Refusal::new(SYNTAX)),
            };
            Ok(Reply::OK)
        }
        (b"kill" | b"pause" | b"unpause" | b"unblock", _) => Err(Refusal::new(
            "ERR clients cannot end or pause others; revoke the rights of a certificate to refuse its holder",
        )),
        (b"reply", _) | (b"id" | b"info" | b"getname" | b"setname" | b"setinfo" | b"no-evict" | b"no-touch", _) => {
            let name = String::from_utf8_lossy(&name);
            Err(wrong_arity(&format!("client|{name}")).into())
        }
        _ => Err(unknown_subcommand("client", subcommand).into()),
    }
}

/// Returns the line of this connection.
fn line(session: &Session) -> String {
    let (from, to) = session.addresses.map_or_else(Default::default, |(from, to)| (from.to_string(), to.to_string()));
    let age = session.opened.elapsed().as_secs();
    let resp = if session.version == Version::Resp3 { 3 } else { 2 };
    let Session { id, name, library, library_version, .. } = session;
    format!(
        "id={id} addr={from} laddr={to} fd=0 name={name} age={age} idle=0 flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 watch=0 cmd=client \
         user=default redir=-1 resp={resp} lib-name={library} lib-ver={library_version}\n"
    )
}
