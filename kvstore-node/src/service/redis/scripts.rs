//! `EVAL`, `EVALSHA` and `SCRIPT`: the scripts of locks, carried out as conditional writes. There is no interpreter.

use super::conversions::{integer, unix_ms};
use super::keys::Operations;
use super::refusal::{CommandResult, Refusal};
use super::session::Session;
use super::several;
use super::state::RedisService;
use archon_resp::{
    Command, CommandKind, NewExpiry, Reply, Script, parse_digest, script_keys, unknown_subcommand, wrong_arity,
};
use archon_types::{StoredValue, hex};
use bytes::Bytes;

/// Executes `EVAL` and `EVALSHA`.
pub(super) async fn eval(
    service: &RedisService,
    session: &mut Session,
    command: &Command,
    request: &[Bytes],
) -> CommandResult {
    let keys = script_keys(request)?;
    let script = match command.kind {
        CommandKind::EvalSha => parse_digest(&request[1])
            .and_then(|digest| service.scripts.find(&digest))
            .ok_or("NOSCRIPT No matching script. Please use EVAL.")?,
        _ => service.scripts.load(&request[1])?.1,
    };
    let (1, [token, arguments @ ..]) = (keys, &request[3 + keys..]) else {
        return Err(Refusal::new("ERR this script takes one key, and the token of a lock as its first argument"));
    };
    let key = several::keys_of(command, request)?.swap_remove(0);
    let mut operations = Operations::at_leader(service, session, key);
    let changed =
        operations.rewrite(|found| change(script, found, token, arguments, unix_ms(service.kv.shared.wall.now())));
    Ok(Reply::Integer(changed.await?.1.into()))
}

/// Returns the expiry that a script gives to a value; `None` if it leaves it as it is.
fn change(
    script: Script,
    found: &StoredValue,
    token: &Bytes,
    arguments: &[Bytes],
    now_ms: i64,
) -> Result<Option<NewExpiry>, Refusal> {
    if found.value != *token {
        return Ok(None);
    }
    if script == Script::Release {
        return Ok(Some(NewExpiry::LONG_AGO));
    }
    let Some(time) = arguments.first() else {
        return Err(Refusal::new("ERR this script takes a time in milliseconds as its second argument"));
    };
    let time = integer(time)?;
    let left = found.expires.map(|at| unix_ms(at).saturating_sub(now_ms));
    let time = match (script, left) {
        (Script::Extend, None) => return Ok(None),
        // As the leader has it, the value is there: its clock may be behind the one here.
        (Script::Extend, Some(left)) if arguments.get(1).is_some_and(|replaces| &replaces[..] == b"0") => {
            time.saturating_add(left.max(0))
        }
        _ => time,
    };
    Ok(Some(match u64::try_from(time) {
        Ok(millis @ 1..) => NewExpiry::After(millis),
        _ => NewExpiry::LONG_AGO,
    }))
}

/// Executes `SCRIPT` and its subcommands.
pub(super) fn script(service: &RedisService, request: &[Bytes]) -> CommandResult {
    let arguments = &request[2..];
    match (&request[1].to_ascii_lowercase()[..], arguments) {
        (b"load", [text]) => {
            let (digest, _) = service.scripts.load(text)?;
            Ok(Reply::bulk(hex::encode(&digest)))
        }
        (b"exists", [_, ..]) => {
            let exists =
                |text: &Bytes| parse_digest(text).is_some_and(|digest| service.scripts.find(&digest).is_some());
            Ok(Reply::Array(arguments.iter().map(|text| Reply::Integer(exists(text).into())).collect()))
        }
        (b"flush", []) => {
            service.scripts.flush();
            Ok(Reply::OK)
        }
        (b"flush", [mode]) if [&b"async"[..], b"sync"].iter().any(|known| mode.eq_ignore_ascii_case(known)) => {
            service.scripts.flush();
            Ok(Reply::OK)
        }
        (b"flush", [_]) => Err(Refusal::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
        (name @ (b"load" | b"exists" | b"flush"), _) => {
            Err(wrong_arity(&format!("script|{}", String::from_utf8_lossy(name))).into())
        }
        _ => Err(unknown_subcommand("script", &request[1]).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use archon_types::{Millis, Revision};

    const TOKEN: Bytes = Bytes::from_static(b"token");

    fn changed(script: Script, expires: Option<u64>, arguments: &[&'static str]) -> Option<NewExpiry> {
        let stored = StoredValue { expires: expires.map(Millis::new), ..StoredValue::new(TOKEN, Revision::new(1)) };
        let arguments: Vec<Bytes> = arguments.iter().map(|text| Bytes::from_static(text.as_bytes())).collect();
        assert_eq!(change(script, &stored, &Bytes::from_static(b"other"), &arguments, 1_000), Ok(None));
        change(script, &stored, &TOKEN, &arguments, 1_000).unwrap()
    }

    #[test]
    fn scripts_of_locks_change_what_the_token_owns() {
        assert_eq!(changed(Script::Release, None, &[]), Some(NewExpiry::LONG_AGO));
        assert_eq!(changed(Script::Expire, None, &["500"]), Some(NewExpiry::After(500)));
        assert_eq!(changed(Script::Expire, Some(1_500), &["0"]), Some(NewExpiry::LONG_AGO));
        assert_eq!(changed(Script::Extend, None, &["500", "0"]), None);
        assert_eq!(changed(Script::Extend, Some(1_300), &["500", "0"]), Some(NewExpiry::After(800)));
        assert_eq!(changed(Script::Extend, Some(1_300), &["500", "1"]), Some(NewExpiry::After(500)));
        assert_eq!(changed(Script::Extend, Some(900), &["500", "0"]), Some(NewExpiry::After(500)));
    }
}
